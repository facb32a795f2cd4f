"""Real consumers of every kind at our broker, with our name server: each message comes as its producer described it.

HA-SE-50, HA-SE-54, HA-SE-67 to HA-SE-69, HA-SE-78, HA-SE-82, HA-SE-87, HA-BT-50, HA-BT-63, HA-BT-82, HA-P-30.
"""

import json
import re
import signal
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from golden_cluster import COMMON_CONF
from our_broker import OurBroker
from releases import RELEASES
from results import Results
from rocketmq import Rocketmq, wait

from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.impl.store.log.reader import LogReader

CLUSTER = COMMON_CONF["brokerClusterName"]
TOPIC, QUEUES = "ConsumerInterop", 4
WAYS, OF_EACH_WAY = 5, 40  # sync, async, oneway, to a queue, batch
RETRIES_OF_A_GROUP = 16  # as RocketMQ has it


@dataclass(frozen=True, slots=True)
class Consumed:
    """A message as a live consumer saw it; `place` counts the messages of all consumers of the test."""

    place: int
    reconsume_times: int
    queue_id: int
    queue_offset: int
    age_ms: int
    line: str

    @property
    def number(self) -> int:
        """The number that its producer gave to it."""
        return int(self.line.split("\t")[2])


class Clients:
    """The live clients of one test, at our name server."""

    def __init__(self, rocketmq: Rocketmq, ours: OurBroker) -> None:
        self.run_client, self.ours = rocketmq.servers.run, ours

    def run(self, command: str, *words: str) -> list[str]:
        return self.run_client(command, *words, namesrv=self.ours.namesrv)

    def admin(self, *words: str) -> str:
        return "\n".join(self.run("admin", *words))

    def make_topic(self, topic: str = TOPIC) -> None:
        made = self.admin("updateTopic", "-b", self.ours.address, "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))
        assert "success" in made, made
        wait("its route", lambda: topic in self.admin("topicList").split())

    def send(self, topic: str = TOPIC) -> list[str]:
        """Send in every way. Returns: the messages as lines, sorted."""
        sent = described(self.run("ways", topic, str(OF_EACH_WAY)))
        assert len(sent) == WAYS * OF_EACH_WAY, len(sent)
        return sent

    def consume(self, name: str, kind: str, group: str, expression: str = "*", retries: int = -1) -> None:
        self.run("consume", name, kind, group, TOPIC, expression, str(retries))

    def consumed(self, *names: str) -> list[Consumed]:
        rows = [row.split("\t", 5) for name in names for row in self.run("consumed", name)]
        return [Consumed(*map(int, row[:5]), row[5]) for row in rows]

    def lines(self, *names: str) -> list[str]:
        return sorted(each.line for each in self.consumed(*names))

    def await_consumed(self, count: int, *names: str) -> list[str]:
        """Wait until these consumers have so many messages together. Returns: their lines, sorted."""
        wait(f"{count} messages at {names}", lambda: len(self.consumed(*names)) >= count)
        return self.lines(*names)

    def await_committed(self, group: str) -> None:
        """Wait until the broker knows of all messages that the group has consumed them."""
        wait("its offsets are committed", lambda: "Diff Total: 0" in self.admin("consumerProgress", "-g", group))

    def queues(self, name: str) -> set[int]:
        return {int(number) for number in self.run("queues", name)}

    def share(self, *names: str) -> bool:
        """Whether these consumers have all queues, each queue at one of them, and none of them has nothing."""
        found = [self.queues(name) for name in names]
        return all(found) and sorted(number for each in found for number in each) == list(range(QUEUES))


def described(sent: list[str]) -> list[str]:
    """The lines of what a producer has sent. Raises: AssertionError if a send has failed."""
    assert {line.split("\t", 1)[0] for line in sent} <= {"SEND_OK", "SENT"}, sent
    return sorted(line.split("\t", 1)[1] for line in sent)


@pytest.fixture
def clients(rocketmq: Rocketmq, ours: OurBroker) -> Iterator[Clients]:
    ours.run()
    started = Clients(rocketmq, ours)
    try:
        started.make_topic()
        yield started
    finally:
        started.run("leave")


def test_consumers_of_a_group_share_the_queues(clients: Clients, results: Results) -> None:
    """Two have every message once; when one leaves, the other takes its queues and goes on where it was."""
    for name in ("one", "two"):
        clients.consume(name, "push", "InteropCluster")
    wait("they share the queues", lambda: clients.share("one", "two"))
    sent = clients.send()
    found = clients.await_consumed(len(sent), "one", "two")
    results.check("each message once", True, found == sent)
    results.check("both had some", (True, True), (bool(clients.lines("one")), bool(clients.lines("two"))))
    before = clients.lines("two")
    clients.await_committed("InteropCluster")
    clients.run("leave", "one")
    wait("the other takes the queues", lambda: clients.share("two"))
    more = clients.send()
    found = clients.await_consumed(len(before) + len(more), "two")
    results.check("what was sent afterwards", True, found == sorted(before + more))


def test_every_consumer_of_a_broadcast_has_every_message(clients: Clients, results: Results) -> None:
    for name in ("one", "two"):
        clients.consume(name, "broadcast", "InteropBroadcast")
    wait("each has all queues", lambda: clients.share("one") and clients.share("two"))
    sent = clients.send()
    for name in ("one", "two"):
        results.check(f"at {name}", True, clients.await_consumed(len(sent), name) == sent)


def test_ordered_consumers_have_each_queue_in_its_order(clients: Clients, results: Results) -> None:
    """Each holds the locks of its queues; one that leaves gives them up, and the other goes on in order."""
    for name in ("one", "two"):
        clients.consume(name, "ordered", "InteropOrdered")
    wait("they share the queues", lambda: clients.share("one", "two"))
    sent = clients.send()
    clients.await_consumed(len(sent), "one", "two")
    first = clients.consumed("one", "two")
    clients.await_committed("InteropOrdered")
    clients.run("leave", "one")
    wait("the other takes the queues", lambda: clients.share("two"))
    more = clients.send()
    at_two = [each for each in first if each.place not in {found.place for found in clients.consumed("two")}]
    clients.await_consumed(len(sent) + len(more) - len(at_two), "two")
    everything = sorted(at_two + clients.consumed("two"), key=lambda each: each.place)
    results.check("each message once", True, sorted(each.line for each in everything) == sorted(sent + more))
    for queue_id in range(QUEUES):
        offsets = [each.queue_offset for each in everything if each.queue_id == queue_id]
        results.check(f"the order of queue {queue_id}", True, offsets == list(range(len(offsets))) != [])


def test_a_message_that_fails_comes_again_then_is_dead(clients: Clients, results: Results) -> None:
    """In the group's %DLQ% after 16 tries by default, after maxReconsumeTimes where the consumer sets it."""
    sent = clients.run("delayed", TOPIC, "20", "0")
    dead = {9, 19}
    for group, tries in (("InteropSixteen", -1), ("InteropThree", 3)):
        clients.consume(group, "failing", group, retries=tries)
    for group, tries in (("InteropSixteen", RETRIES_OF_A_GROUP), ("InteropThree", 3)):
        dead_letters = f"%DLQ%{group}"
        wait(
            f"the dead letters of {group}",
            lambda topic=dead_letters: topic in clients.admin("topicList").split(),  # type: ignore[misc]
        )
        clients.admin("updateTopicPerm", "-b", clients.ours.address, "-t", dead_letters, "-p", "6")
        wait(
            "all dead letters",
            lambda topic=dead_letters: len(clients.run("described", topic)) >= len(dead),  # type: ignore[misc]
        )
        found = clients.consumed(group)
        expected = {number: 1 + (tries if number in dead else 2 if number % 10 == 4 else 0) for number in range(20)}
        results.check(f"{group}: how often each came", expected, dict(Counter(each.number for each in found)))
        results.check(f"{group}: as sent", True, {each.line for each in found} == set(described(sent)))
        times = sorted(each.reconsume_times for each in found if each.number == 9)
        results.check(f"{group}: reconsumeTimes", list(range(1 + tries)), times)
        letters = [line for line in described(sent) if int(line.split("\t")[2]) in dead]
        results.check(f"{group}: dead letters", True, sorted(clients.run("described", dead_letters)) == letters)


def test_a_delayed_message_comes_not_before_its_time(clients: Clients, results: Results) -> None:
    clients.consume("one", "push", "InteropDelayed")
    wait("it has the queues", lambda: clients.share("one"))
    sent = [line for level in ("1", "2") for line in clients.run("delayed", TOPIC, "10", level)]
    found = clients.await_consumed(len(sent), "one")
    results.check("as sent", True, found == described(sent))
    ages = sorted(each.age_ms for each in clients.consumed("one"))
    results.check("level 1 after a second", True, ages[0] >= 1000)
    results.check("level 2 after five", True, ages[10] >= 5000)


def test_a_transaction_is_seen_once_it_is_committed(clients: Clients, results: Results) -> None:
    """At once, or when the broker has asked; what is rolled back is never seen."""
    clients.consume("one", "push", "InteropOfTransactions")
    wait("it has the queues", lambda: clients.share("one"))
    sent = described(clients.run("transactions", "producer", TOPIC, "20"))
    by_left = [sorted(line for line in sent if int(line.split("\t")[2]) % 4 == left) for left in range(4)]
    results.check("committed at once", True, clients.await_consumed(5, "one") == by_left[0])
    expected = sorted(by_left[0] + by_left[2])
    results.check("committed when asked", True, clients.await_consumed(len(expected), "one") == expected)
    more = clients.send()
    expected = sorted(expected + more)
    results.check("none that was rolled back", True, clients.await_consumed(len(expected), "one") == expected)


def test_tags_choose_what_is_pulled(clients: Clients, results: Results) -> None:
    """By a pull consumer, a lite pull consumer and a push consumer; a message has its tags as its second field."""
    clients.consume("lite", "lite", "InteropLite", "Tag0 || Tag2")
    clients.consume("push", "push", "InteropTags", "Tag1")
    sent = clients.send()
    chosen = [line for line in sent if line.split("\t")[1] in ("Tag0", "Tag2")]
    others = [line for line in sent if line not in chosen]
    results.check("lite pull", True, clients.await_consumed(len(chosen), "lite") == chosen)
    results.check("push", True, clients.await_consumed(len(others), "push") == others)
    for expression, expected in (("Tag0 || Tag2", chosen), ("Tag1", others), ("None", []), ("*", sent)):
        results.check(f"pull {expression}", True, sorted(clients.run("described", TOPIC, expression)) == expected)


def test_offsets_are_kept_by_a_restart(clients: Clients, results: Results) -> None:
    """A group goes on where it was, after an end of our broker and after a kill; a live consumer goes on by itself."""
    groups = {"InteropPush": "push", "InteropLitePull": "lite"}
    sent = clients.send()
    for group, kind in groups.items():
        clients.consume(group, kind, group)
        clients.await_consumed(len(sent), group)
    for group in groups:
        clients.await_committed(group)
        clients.run("leave", group)
        progress = clients.admin("consumerProgress", "-g", group)
        results.check(f"consumerProgress of {group}", True, "Diff Total: 0" in progress)
    results.check("it ends well", 0, clients.ours.stop())
    clients.ours.run()
    later = clients.send()
    for group, kind in groups.items():
        clients.consume(group, kind, group)
        results.check(f"{group}: only what is new", True, clients.await_consumed(len(later), group) == later)

    def written() -> bool:
        offsets = json.loads((clients.ours.store / "config/consumerOffset.json").read_text())["offsetTable"]
        return all(sum(offsets.get(f"{TOPIC}@{group}", {}).values()) == len(sent) + len(later) for group in groups)

    wait("the offsets are written", written)
    clients.ours.stop(signal.SIGKILL)
    clients.ours.run()
    last = clients.send()
    for group in groups:
        found = clients.await_consumed(len(later) + len(last), group)
        results.check(f"{group}: the live consumer after a kill", True, found == sorted(later + last))


def test_mqadmin_resets_the_offsets_of_a_live_consumer(clients: Clients, results: Results) -> None:
    """It consumes everything once more, and mqadmin says that nothing is left."""
    sent = clients.send()
    clients.consume("one", "push", "InteropReset")
    clients.await_consumed(len(sent), "one")

    def done() -> bool:
        return "Diff Total: 0" in clients.admin("consumerProgress", "-g", "InteropReset")

    wait("its offsets are committed", done)
    reset = clients.admin("resetOffsetByTime", "-g", "InteropReset", "-t", TOPIC, "-s", "0")
    assert TOPIC in reset, reset
    results.check("all of it twice", True, clients.await_consumed(2 * len(sent), "one") == sorted(2 * sent))
    wait("nothing is left", done)


def test_a_deleted_topic_is_gone_for_consumers(clients: Clients, results: Results) -> None:
    """HA-BT-80: also after a restart; of a topic of that name, a group that is new and one that was there get what is new."""
    sent = clients.send()
    clients.consume("old", "push", "InteropKept")
    clients.await_consumed(len(sent), "old")
    clients.await_committed("InteropKept")
    clients.run("leave", "old")
    deleted = clients.admin("deleteTopic", "-c", CLUSTER, "-t", TOPIC)
    assert "success" in deleted, deleted
    assert clients.ours.stop() == 0
    clients.ours.run()
    results.check("gone after a restart", False, TOPIC in clients.admin("topicList").split())
    clients.make_topic()
    later = clients.send()
    for name, group in (("again", "InteropKept"), ("new", "InteropNew")):
        clients.consume(name, "push", group)
        results.check(f"{group}: what is new", True, clients.await_consumed(len(later), name) == later)
    results.check("a pull from the begin", True, sorted(clients.run("described", TOPIC, "*")) == later)


# mqadmin of 4.x has no reset of one queue.
@pytest.mark.parametrize("release", [each for each in RELEASES if each.startswith("5.")], indirect=True)
def test_mqadmin_of_5_resets_one_queue_and_deletes_a_group(clients: Clients, results: Results) -> None:
    """HA-BT-79 "MUST move this queue alone"; HA-BT-24: its offsets go with it if they are asked to."""
    sent = clients.send()
    clients.consume("one", "push", "InteropReset")
    clients.await_consumed(len(sent), "one")

    def offsets() -> dict[str, int]:
        with closing(RemotingClient()) as client:
            body = client.ask(clients.ours.address, request(RequestCode.GET_ALL_CONSUMER_OFFSET), 10_000).body
        found: dict[str, dict[str, int]] = json.loads(body)["offsetTable"]
        return found.get(f"{TOPIC}@InteropReset", {})

    wait("its offsets are committed", lambda: sum(offsets().values()) == len(sent))
    ends = offsets()
    words = "-g", "InteropReset", "-t", TOPIC, "-b", clients.ours.address, "-q", "1", "-s", "0", "-o", "3"
    again = sorted(each.line for each in clients.consumed("one") if each.queue_id == 1 and each.queue_offset >= 3)
    clients.admin("resetOffsetByTime", *words)
    found = clients.await_consumed(len(sent) + len(again), "one")
    results.check("queue 1 from offset 3 once more", True, found == sorted(sent + again))
    wait("nothing is left", lambda: offsets() == ends)
    progress = clients.admin("consumerProgress", "-g", "InteropReset")
    results.check("nothing in flight", ["0"], re.findall(r"Inflight Total: (\S+)", progress))
    clients.run("leave", "one")
    clients.admin("deleteSubGroup", "-b", clients.ours.address, "-g", "InteropReset", "-r", "true")
    results.check("the offsets are gone", {}, offsets())


# The clients of these write fields that those before them do not have.
@pytest.mark.parametrize("release", [each for each in RELEASES if each in ("5.3.3", "5.4.0")], indirect=True)
def test_fields_of_newer_clients_are_read(clients: Clients, results: Results) -> None:
    """HA-P-30: `boundaryType`; HA-BT-63: `topicList`; HA-BT-82: `attributes`."""
    sent = clients.send()
    wait("all are dispatched", lambda: len(clients.run("described", TOPIC, "*")) == len(sent))
    with LogReader(clients.ours.store) as reader:
        messages = [message for _, _, message in reader.records() if (message.topic, message.queue_id) == (TOPIC, 1)]
    stored = [message.store_timestamp for message in messages]
    times = sorted({time + more for time in (stored[0], stored[len(stored) // 2], stored[-1]) for more in (-1, 0, 1)})
    bounds = [(bisect_left(stored, time), max(0, bisect_right(stored, time) - 1)) for time in times]
    found = clients.run("newer", "bounds", TOPIC, COMMON_CONF["brokerName"], "1", *map(str, times))
    results.check("the bounds of times", [f"{lower}\t{upper}" for lower, upper in bounds], found)

    clients.make_topic("Other")
    clients.consume("one", "push", "InteropList")
    clients.await_consumed(len(sent), "one")
    clients.await_committed("InteropList")
    retry = "%RETRY%InteropList"
    found = clients.run("newer", "progress", clients.ours.address, "InteropList", "Other", TOPIC, "None")
    results.check("how far it is in two topics", ["ConsumerInterop\t200", "Other\t0"], found)
    found = clients.run("newer", "progress", clients.ours.address, "InteropList", retry)
    results.check("and in its retry topic", [f"{retry}\t0"], found)

    def update(topic: str, attributes: str) -> str:
        return clients.admin("updateTopic", "-b", clients.ours.address, "-t", topic, "-a", attributes)

    results.check("a type of messages", True, "success" in update("Typed", "+message.type=FIFO,+queue.type=SimpleCQ"))
    results.check("another type", True, "success" in update("Typed", "+message.type=DELAY"))
    table = json.loads((clients.ours.store / "config/topics.json").read_text())["topicConfigTable"]
    results.check("as kept", {"message.type": "DELAY", "queue.type": "SimpleCQ"}, table["Typed"]["attributes"])
    for topic, attributes, remark in (
        ("Batches", "+queue.type=BatchCQ", "attribute queue.type: found 'BatchCQ', expected SimpleCQ"),
        ("Compacted", "+cleanup.policy=COMPACTION", "attribute cleanup.policy: found 'COMPACTION', expected DELETE"),
        ("Typed", "-queue.type", "attribute queue.type: found '-queue.type', expected no change after the topic was created"),
    ):
        said = update(topic, attributes)
        results.check(f"{attributes} is refused", True, remark in said and "success" not in said)
    topics = clients.admin("topicList").split()
    results.check("topics that were refused", [], [topic for topic in ("Batches", "Compacted") if topic in topics])
