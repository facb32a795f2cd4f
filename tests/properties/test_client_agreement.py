"""Chapter 15: model and implementation of a client decide alike. HA-C-3 to HA-C-14, HA-R-23, HA-R-25."""

from itertools import groupby

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.scripted_client import ScriptedClient, route_body
from rocketmq_ha.impl.client import decisions
from rocketmq_ha.impl.client.pull_consumer import ConsumerSettings, PullConsumer
from rocketmq_ha.impl.client.route_data import (
    BrokerData,
    MessageQueue,
    QueueData,
    TopicRoute,
    default_route,
    publish_queues,
    subscribe_queues,
)
from rocketmq_ha.impl.client.routes import Routes
from rocketmq_ha.impl.client.send_command import prepare, prepare_batch
from rocketmq_ha.impl.client.unique_id import MessageClientIDSetter
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.reference import client as model

pytestmark = pytest.mark.timeout(120)
NAMES = ("b", "a", "c")
ADDRS = st.dictionaries(st.integers(0, 4), st.sampled_from("xyz"), max_size=3)
OFFSETS = st.integers(0, 5)

groups = st.builds(
    model.Group,
    st.sampled_from(NAMES),
    st.integers(0, 9),
    st.integers(0, 6),
    st.integers(0, 7),
    st.none() | ADDRS.map(lambda addrs: tuple(addrs.items())),
)
model_routes = st.builds(
    model.Route,
    st.lists(groups, max_size=3, unique_by=lambda group: group.name).map(tuple),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=2).map(tuple),
)


def of_model(route: model.Route) -> TopicRoute:
    queues = [QueueData(each.name, each.read_queue_nums, each.write_queue_nums, each.perm) for each in route.groups]
    brokers = [BrokerData(each.name, dict(each.brokers)) for each in route.groups if each.brokers is not None]
    order = ";".join(f"{name}:{count}" for name, count in route.order)
    return TopicRoute(queues, brokers, order or None)


def queue_of(queue: model.Queue) -> MessageQueue:
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id)


@given(model_routes)
def test_the_queues_of_a_route(route: model.Route) -> None:
    """HA-C-4 "MUST send only to the write queues of groups that may be written"; HA-C-5 "sorted by the name of their group"."""
    ours = of_model(route)
    assert publish_queues("T", ours) == list(map(queue_of, model.publish_queues("T", route)))
    assert subscribe_queues("T", ours) == sorted(map(queue_of, model.subscribe_queues("T", route)))
    made = model.default_route(route)  # HA-C-3 "with no more than 4 queues of each broker"
    assert publish_queues("T", default_route(ours)) == list(map(queue_of, model.publish_queues("T", made)))


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), min_size=1, max_size=8, unique=True),
    st.integers(-1, 20),
    st.lists(st.none() | st.sampled_from((*NAMES, "other")), min_size=1, max_size=6),
)
def test_the_queue_of_each_attempt(pairs: list[tuple[str, int]], index: int, lasts: list[str | None]) -> None:
    """HA-C-5 "MUST take the queues in turn"."""
    theirs = tuple(model.Queue("T", name, number) for name, number in pairs)
    ours = list(map(queue_of, theirs))
    their_index = index
    for last in lasts:
        queue, their_index = model.select_one_message_queue(theirs, their_index, last)
        assert decisions.select_one_message_queue(ours, index, last) == (queue_of(queue), their_index)
        index = their_index


@given(st.none() | st.sampled_from([*map(int, ResponseCode), 1500, 77]), st.integers(1, 5), st.integers(-1, 2), st.booleans())
def test_whether_a_send_is_tried_again(code: int | None, attempts: int, left_ms: int, is_unsent: bool) -> None:
    """HA-C-6 "MUST be tried again, at most twice, and all its attempts together MUST NOT last longer than one timeout".
    HA-C-16 "MUST be tried again every second until its timeout has passed".
    """
    is_unsent &= code is None  # who answers has got it
    found = model.on_send_answer(code, attempts, left_ms, is_unsent=is_unsent)
    status = None if code is None else decisions.STORED.get(code)
    assert (status is not None) == (found == "stored")
    if status is not None:
        assert code is not None
        assert status.value == model.STATUSES[code]
    else:
        assert decisions.is_tried_again(code, attempts, left_ms) == (found == "again")
        if found != "again":
            assert decisions.is_waited_for(left_ms, is_unsent=is_unsent) == (found == "later")


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 1 << 22),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.lists(st.integers(-1_000_001, 31 * 86_400_000 - 1), min_size=1, max_size=4),
)
def test_ids(ip: bytes, pid: int, number: int, times: list[int]) -> None:
    """HA-C-7 "MUST get one before its first attempt, of the parts of the table in hexadecimal digits"."""
    start = 1_700_000_000_000
    ids = MessageClientIDSetter(ip, pid, number, lambda _: (start, start + 31 * 86_400_000))
    ids.create_uniq_id(start)
    for counter, since in enumerate(times, 1):
        assert ids.create_uniq_id(start + since) == model.unique_id(ip, pid, number, since, counter)


messages = st.builds(
    model.Sent, st.sampled_from(["T", "T", "T", "U", "%RETRY%g"]), st.sampled_from([0, 10, 4095, 4096]),
    st.sampled_from([0, 0, 0, 3]), st.sampled_from([True, True, True, False]),
)  # fmt: skip


def message_of(sent: model.Sent) -> Message:
    properties = [f"DELAY\x01{sent.delay_level}"] if sent.delay_level else []
    properties += [] if sent.waits else ["WAIT\x01false"]
    return Message(sent.topic, bytes(sent.body_size), properties_string="\x02".join(properties))


@given(st.lists(messages, min_size=1, max_size=4))
def test_what_is_compressed_and_what_is_a_batch(sent: list[model.Sent]) -> None:
    """HA-C-8 "SHOULD be compressed with zlib"; HA-C-9 "MUST have messages of one topic alone"."""
    ours = list(map(message_of, sent))
    for each, message in zip(sent, ours, strict=True):
        prepared = prepare(message, "g", "ID")
        assert int(prepared.ext_fields["f"]) == model.compression_flag(each)
        assert (prepared.body == message.body) == (model.compression_flag(each) == 0)
    try:
        batch = prepare_batch(ours, "g", ["ID"] * len(ours))
    except MessageIllegal:
        assert not model.is_batch(tuple(sent))
    else:
        assert model.is_batch(tuple(sent))
        assert batch.ext_fields["f"] == "0"


@given(ADDRS, st.integers(0, 4), st.data())
def test_the_broker_of_a_pull_and_of_a_commit(addrs: dict[int, str], suggested: int, data: st.DataObject) -> None:
    """HA-R-25 "MUST pull from another broker of the same `brokerName`"; HA-C-14 "to the broker of id 0"; HA-C-18 "MUST NOT take
    a broker that has not answered within the last 3 s while it has another".
    """
    failed = data.draw(st.frozensets(st.sampled_from(["x:9", *addrs.values()])))
    found = model.pull_broker(addrs, suggested, failed)
    ours = decisions.find_broker_address_in_subscribe(addrs, suggested, failed)
    if set(addrs.values()) - failed:
        assert ours is not None and ours.address not in failed
    assert ours == (None if found is None else decisions.Broker(found[1], found[0] != 0))
    assert decisions.commit_broker(addrs) == model.commit_broker(addrs)


@given(st.sampled_from(["T", "%RETRY%g"]), st.none() | OFFSETS, st.sampled_from(list(decisions.ConsumeFromWhere)))
def test_where_a_queue_begins(topic: str, committed: int | None, start: decisions.ConsumeFromWhere) -> None:
    """HA-C-10 "MUST begin a queue at the offset that the broker has of its group"."""
    found = model.begin(topic, committed, start.value)
    codes = {"max": RequestCode.GET_MAX_OFFSET, "time": RequestCode.SEARCH_OFFSET_BY_TIMESTAMP}
    ours = decisions.pull_from_where(topic, committed, start)
    assert (ours, isinstance(ours, RequestCode)) == ((codes[found], True) if isinstance(found, str) else (found, False))


@given(
    OFFSETS,
    st.integers(0, 2),
    st.none() | st.builds(model.Pulled, OFFSETS, st.integers(0, 2), st.booleans()),
    st.integers(0, 2_000),
    st.booleans(),
    st.booleans(),
)
def test_how_a_queue_goes_on(
    offset: int, node: int, answer: model.Pulled | None, elapsed_ms: int, is_instead: bool, has_other: bool
) -> None:
    """HA-C-11 "MUST go on at `nextBeginOffset`"; HA-C-12 "MUST NOT pull that queue again within 1 s of its question"; HA-C-18
    "An answer of that other broker that leads to a lesser offset MUST count as none"; HA-R-23 "MUST keep the suggested id".
    """
    asked_ms = 50
    now_ms = asked_ms + elapsed_ms
    pull = model.Pull(offset, node, asked_ms)
    theirs = model.on_pull_answer(pull, asked_ms, answer, now_ms, is_instead=is_instead, has_other=has_other)
    looked = None
    if answer is not None:
        looked = decisions.PullAnswer(0, answer.next_begin_offset, answer.suggested, answer.has_messages)
        if decisions.leads_back(offset, looked, is_instead=is_instead):
            looked, has_other = None, False
    ours = decisions.next_pull(offset, node, looked, elapsed_ms, has_other=has_other)
    assert (ours.offset, ours.broker_id, now_ms + ours.delay_ms) == (theirs.offset, theirs.node, theirs.at)


@given(
    st.lists(st.sampled_from(["a", "b", " a ", "", "c d"]), min_size=1, max_size=3).map("||".join) | st.just("*"),
    st.none() | st.sampled_from(["a", "b", "c d", "c", "Aa", "BB"]),
)
def test_which_messages_are_wanted(expression: str, tags: str | None) -> None:
    """HA-C-13 "MUST drop the messages whose TAGS is none of them"."""
    assert decisions.is_wanted(decisions.tags_of(expression), tags) == model.is_wanted(expression, tags)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2), st.integers(0, 8)), max_size=6))
@example([(3, 0, 0), (-2, 0, 0), (1, 0, 1), (0, 0, 2)])
def test_what_is_committed(steps: list[tuple[int, int, int]]) -> None:
    """HA-C-14 "MUST NOT commit an offset in front of which a message is still to be consumed"; HA-C-19 "MUST send it
    a second time 5 s later".

    Args:  steps: an answer with so many messages, behind them so many that are not wanted, or one that sends the consumer
           back by so many; consumed up to which of them.
    """
    client = ScriptedClient()
    routes = Routes(client, ["ns:1"])
    consumer = PullConsumer(client, routes, ConsumerSettings("g", "T", "a"), lambda _: None)
    consumer.start(0)
    client.next(105).answer(body=route_body(("b", 1, {0: "b:1"})))
    consumer.turn(1)
    client.next(14).answer(offset=0)
    mq = MessageQueue("T", "b", 0)
    progress = model.Progress()
    expected = [0]  # what the broker has told
    for now_ms, (wanted, unwanted, upto) in enumerate(steps, 2):
        consumer.turn(now_ms * 3_000)
        ask = client.next(11)
        first = progress.next_offset
        assert ask.command.ext_fields["queueOffset"] == str(first)
        tags = ["a"] * wanted + ["z"] * unwanted if wanted >= 0 else []
        body = b"".join(
            encode(Message("T", b"x", queue_offset=first + at, properties_string=f"TAGS\x01{tag}"))
            for at, tag in enumerate(tags)
        )
        behind = first + len(tags) if wanted >= 0 else max(0, first + wanted)
        code = 0 if body else 20 if wanted >= 0 else 21
        ask.answer(code, body, nextBeginOffset=behind, minOffset=0, maxOffset=99, suggestWhichBrokerId=0)
        progress = model.on_received(progress, tuple(range(first, first + wanted)), behind)
        consumer.consumed(mq, upto)
        progress = model.on_consumed(progress, upto)
        consumer.commit()
        expected.append(model.commit_offset(progress))
        told = [int(command.ext_fields["commitOffset"]) for _, command in client.sent]
        changes = [offset for offset, _ in groupby(expected)]
        assert [offset for offset, _ in groupby(told)] == changes[1:]
        assert all(len(list(times)) <= 2 for _, times in groupby(told))


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["route", "other", "none", "17"]), st.sampled_from([0, 1, 29_999, 30_000])), max_size=8),
)
def test_the_route_that_is_known(name_servers: int, steps: list[tuple[str, int]]) -> None:
    """HA-C-1 "MUST be followed by the next one", "every 30 s from then on"; HA-C-2 "MUST stay in use while no name server
    answers, and where the answer is TOPIC_NOT_EXIST".
    """
    client = ScriptedClient()
    routes = Routes(client, [f"ns:{at}" for at in range(name_servers)])
    bodies = {"route": route_body(("a", 1, {0: "a:1"})), "other": route_body(("b", 2, {0: "b:1"}))}
    theirs = {
        "route": model.Route((model.Group("a", 1, 1, 6, ((0, "a:1"),)),)),
        "other": model.Route((model.Group("b", 2, 2, 6, ((0, "b:1"),)),)),
    }
    routes.find("T", lambda _: None, 0)
    client.next(105).answer(body=bodies["route"])
    known = model.on_route(model.Known(), theirs["route"], 0, name_servers)
    now_ms = 0
    for answer, passed_ms in steps:
        now_ms += passed_ms
        routes.turn(now_ms)
        assert bool(client.asked) == (now_ms >= known.ask_at)
        while client.asked:
            asked = client.next(105)
            assert asked.address == f"ns:{known.name_server}"
            match answer:
                case "route" | "other":
                    asked.answer(body=bodies[answer])
                    known = model.on_route(known, theirs[answer], now_ms, name_servers)
                case "17":
                    asked.answer(17)
                    known = model.on_route(known, 17, now_ms, name_servers)
                case _:
                    asked.fail()
                    known = model.on_route(known, None, now_ms, name_servers)
                    if not client.asked:  # all of them have failed: the next round is 30 s later
                        known = model.on_route(known, 17, now_ms, name_servers)
        route = routes.get("T")
        assert route is not None
        assert known.route is not None
        assert publish_queues("T", route) == list(map(queue_of, model.publish_queues("T", known.route)))
