"""A pull consumer: where it begins, whom it asks, where it goes on, what it hands over and commits.

HA-C-10 to HA-C-15, HA-C-17, HA-C-18, HA-C-19, HA-R-23, HA-R-25.
"""

import zlib
from collections.abc import Collection

import pytest

from kit.scripted_client import Asked, ScriptedClient, route_body
from rocketmq_ha.impl.client import pull_consumer
from rocketmq_ha.impl.client.decisions import ConsumeFromWhere
from rocketmq_ha.impl.client.pull_consumer import MAX_WAITING, ConsumerSettings, PullConsumer, Received
from rocketmq_ha.impl.client.route_data import MessageQueue
from rocketmq_ha.impl.client.routes import Routes
from rocketmq_ha.impl.errors import ConfigInvalid, MessageMalformed
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.wire.message import Message, decompress_body, encode

BOTH = {0: "b:1", 1: "b:2"}
MQ = MessageQueue("T", "b", 0)


class Stand:
    """A consumer of a topic T with one queue, of a group that has come to offset 5. received: what it has handed over."""

    def __init__(
        self,
        addrs: dict[int, str] | None = None,
        *,
        expression: str = "*",
        start: ConsumeFromWhere = ConsumeFromWhere.LAST,
        queues: Collection[int] | None = None,
        nums: int = 1,
        begins: bool = True,
        commits: bool = True,
    ) -> None:
        self.client = ScriptedClient()
        routes = Routes(self.client, ["ns:1"])
        self.received: list[Received] = []
        settings = ConsumerSettings("g", "T", expression, start, 99, queues, commits)
        self.consumer = PullConsumer(self.client, routes, settings, self.received.extend)
        self.consumer.start(0)
        self.route(addrs or BOTH, nums)
        self.turn(1)
        if begins:
            self.client.next(14).answer(offset=5)
            self.turn(2)

    def route(self, addrs: dict[int, str], nums: int = 1) -> None:
        self.client.next(105).answer(body=route_body(("b", nums, addrs)))

    def turn(self, now_ms: int) -> None:
        self.consumer.turn(now_ms)

    def pull(self) -> Asked:
        return self.client.next(11)

    def pull_of(self, queue_id: int) -> Asked:
        """Take the pull of a queue."""
        pulls = [asked for asked in self.client.asked if asked.command.code == 11]
        found = next(asked for asked in pulls if asked.command.ext_fields["queueId"] == str(queue_id))
        self.client.asked.remove(found)
        return found

    @property
    def pulls(self) -> list[str]:
        return [asked.command.ext_fields["queueOffset"] for asked in self.client.asked if asked.command.code == 11]

    def committed(self) -> list[tuple[str, str]]:
        """What is sent at a commit: the address, and the offset."""
        self.client.sent.clear()
        self.consumer.commit()
        return [(address, command.ext_fields["commitOffset"]) for address, command in self.client.sent]


def found(asked: Asked, *messages: Message, code: int = 0, suggest: int = 0, behind: int | None = None) -> None:
    """Answer a pull with messages, or with another code."""
    first = int(asked.command.ext_fields["queueOffset"])
    body = b"".join(encode(message, first + at, 0) for at, message in enumerate(messages))
    behind = first + len(messages) if behind is None else behind
    asked.answer(code, body, nextBeginOffset=behind, minOffset=0, maxOffset=50, suggestWhichBrokerId=suggest)


def test_the_request() -> None:
    """HA-P-1: the fields; bits 2 and 4 of sysFlag, and never the bit that commits."""
    asked = Stand(expression="a||b").pull()
    assert asked.address == "b:1"
    assert asked.command.ext_fields == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "5",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "a||b",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    assert asked.deadline_ms == 2 + 30_000


@pytest.mark.parametrize(
    ("start", "code", "fields"),
    [
        (ConsumeFromWhere.LAST, 30, {"topic": "T", "queueId": "0"}),
        (ConsumeFromWhere.TIMESTAMP, 29, {"topic": "T", "queueId": "0", "timestamp": "99"}),
        (ConsumeFromWhere.FIRST, None, {}),
    ],
)
def test_where_a_new_group_begins(start: ConsumeFromWhere, code: int | None, fields: dict[str, str]) -> None:
    """HA-C-10 "Where that is answered 22, it begins as the table says"."""
    stand = Stand(start=start, begins=False)
    stand.client.next(14).answer(22)
    if code is not None:
        asked = stand.client.next(code)
        assert asked.command.ext_fields == fields
        asked.answer(offset=40)
    stand.turn(2)
    assert stand.pulls == ["0" if code is None else "40"]


def test_without_commits_the_group_is_not_asked() -> None:
    stand = Stand(begins=False, commits=False)
    stand.client.next(30).answer(offset=40)
    stand.turn(2)
    found(stand.pull(), Message("T", b"x"))
    assert stand.committed() == []


@pytest.mark.parametrize("code", [1, 2])
def test_an_offset_that_is_not_told_is_asked_for_again(code: int) -> None:
    stand = Stand(begins=False)
    stand.client.next(14).answer(code)
    stand.turn(999)
    assert not [asked for asked in stand.client.asked if asked.command.code == 14]
    stand.turn(1_001)
    stand.client.next(14).answer(offset=8)
    stand.turn(1_002)
    assert stand.pulls == ["8"]


def test_messages_are_handed_over_and_the_queue_goes_on_at_once() -> None:
    """HA-C-11 "MUST go on at `nextBeginOffset` of an answer 0"."""
    stand = Stand()
    found(stand.pull(), Message("T", b"one"), Message("T", b"two"), behind=9)
    assert [(each.message.body, each.message.queue_offset) for each in stand.received] == [(b"one", 5), (b"two", 6)]
    stand.turn(3)
    assert stand.pulls == ["9"]


@pytest.mark.parametrize("code", [19, 20, 21])
def test_an_answer_that_moves_the_offset_is_followed_at_once(code: int) -> None:
    """HA-C-11 "MUST go on at `nextBeginOffset` of an answer 0, 19, 20 or 21"."""
    stand = Stand()
    found(stand.pull(), code=code, behind=17)
    stand.turn(3)
    assert stand.pulls == ["17"]


@pytest.mark.parametrize("code", [0, 19, 20, 21])
def test_a_broker_that_holds_no_pull_is_asked_once_a_second(code: int) -> None:
    """HA-C-12 "MUST NOT pull that queue again within 1 s of its question"."""
    stand = Stand()
    found(stand.pull(), code=code)
    stand.turn(1_001)
    assert stand.pulls == []
    stand.turn(1_002)
    assert stand.pulls == ["5"]


def test_other_answers_and_none_are_followed_by_a_pause() -> None:
    """HA-C-11 "at the same offset 1 s after any other answer, or none"."""
    stand = Stand({0: "b:1"})
    stand.pull().answer(2)
    stand.turn(1_001)
    assert stand.pulls == []
    stand.turn(1_002)
    stand.pull().fail()
    stand.turn(2_001)
    assert stand.pulls == []
    stand.turn(2_002)
    assert stand.pulls == ["5"]


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"nextBeginOffset": "x"}, b""),
        ({"nextBeginOffset": "-1"}, b""),
        ({"suggestWhichBrokerId": ""}, b""),
        ({"maxOffset": str(1 << 63)}, b""),
        ({}, b"torn"),
        ({}, encode(Message("T", b"x"), 6, 0) + encode(Message("T", b"x"), 6, 0)),
        ({}, encode(Message("T", b"body"), 5, 0).replace(b"body", b"bodx")),
    ],
)
def test_an_answer_that_cannot_be_read_gives_no_message(fields: dict[str, str], body: bytes) -> None:
    """A broker at fault ends nothing; the queue stays where it is."""
    stand = Stand()
    good = {"nextBeginOffset": "6", "minOffset": "0", "maxOffset": "50", "suggestWhichBrokerId": "0"}
    stand.pull().answer(0, body, **good | fields)
    assert stand.received == []
    stand.turn(3_002)
    assert stand.pulls == ["5"]


def test_a_suggested_slave_is_pulled_from_and_a_lost_one_is_not() -> None:
    """HA-R-23 "MUST keep the suggested id for each queue"; HA-R-25 "MUST pull from another broker of the same `brokerName`"."""
    stand = Stand()
    found(stand.pull(), Message("T", b"x"), suggest=1)
    stand.turn(3)
    asked = stand.pull()
    assert asked.address == "b:2"
    asked.fail()
    stand.turn(1_003)
    stand.route({0: "b:1"})
    stand.turn(3_003)
    assert stand.pull().address == "b:1"


def test_a_slave_serves_while_the_master_is_gone() -> None:
    """HA-R-25; HA-C-14 "or, where there is none, to another of the group"."""
    stand = Stand({1: "b:2"})
    asked = stand.pull()
    assert asked.address == "b:2"
    found(asked, Message("T", b"x"))
    stand.consumer.consumed(MQ, 5)
    assert stand.committed() == [("b:2", "6")]


def test_tags_are_compared_themselves() -> None:
    """HA-C-13 "MUST drop the messages whose TAGS is none of them": BB has the hash of Aa."""
    stand = Stand(expression="Aa")
    tags = [Message("T", tag.encode(), properties_string=f"TAGS\x01{tag}") for tag in ("Aa", "BB")]
    found(stand.pull(), *tags, Message("T", b"none"))
    assert [each.message.body for each in stand.received] == [b"Aa"]


def test_what_is_not_consumed_is_not_committed() -> None:
    """HA-C-14 "MUST NOT commit an offset in front of which a message is still to be consumed"."""
    stand = Stand()
    found(stand.pull(), Message("T", b"x"), Message("T", b"y"))
    assert stand.committed() == []  # 5 is what the broker has told
    stand.consumer.consumed(MQ, 5)
    assert stand.committed() == [("b:1", "6")]
    stand.consumer.consumed(MQ, 6)
    assert stand.committed() == [("b:1", "7")]


def test_an_offset_is_sent_twice() -> None:
    """HA-C-19 "MUST send it a second time 5 s later, if it has not changed since"."""
    stand = Stand()
    found(stand.pull(), Message("T", b"x"))
    stand.turn(3)
    stand.consumer.consumed(MQ, 5)
    sent = []
    for now_ms in range(5_001, 20_002, 5_000):
        stand.client.sent.clear()
        stand.turn(now_ms)
        sent.append([command.ext_fields["commitOffset"] for _, command in stand.client.sent])
    assert sent == [["6"], ["6"], [], []]


def test_after_21_what_was_pulled_before_is_still_to_be_consumed() -> None:
    """HA-C-11 "MUST go on at `nextBeginOffset`"; HA-C-14: no offset of before or of since is committed too early."""
    stand = Stand()
    found(stand.pull(), Message("T", b"5"), Message("T", b"6"), Message("T", b"7"))
    stand.turn(3)
    found(stand.pull(), code=21, behind=6)  # the master has lost 6 and 7
    stand.turn(4)
    found(stand.pull(), Message("T", b"new 6"))
    assert [each.message.queue_offset for each in stand.received] == [5, 6, 7, 6]
    told = []
    for each in stand.received:
        stand.consumer.consumed(MQ, each.message.queue_offset)
        told.append([offset for _, offset in stand.committed()])
    assert told == [["6"], ["6"], [], ["7"]]  # 6 while the new 6 is to be consumed


def test_an_offset_goes_to_each_broker_whose_turn_it_is() -> None:
    """HA-C-14 "to the broker of id 0 or, where there is none, to another of the group": to the master again when it is back."""
    stand = Stand()
    found(stand.pull(), Message("T", b"x"))
    stand.consumer.consumed(MQ, 5)
    assert stand.committed() == [("b:1", "6")]
    for now_ms, addrs in ((30_000, {1: "b:2"}), (60_001, BOTH)):
        stand.turn(now_ms)
        stand.route(addrs)
        stand.turn(now_ms + 1)
        for _ in range(2):
            assert stand.committed() == [(min(addrs.items())[1], "6")]
        assert stand.committed() == []


def test_offsets_are_committed_every_5_s() -> None:
    """HA-C-14 "SHOULD send what it has consumed (15) every 5 s"."""
    stand = Stand()
    found(stand.pull(), Message("T", b"x"))
    stand.consumer.consumed(MQ, 5)
    stand.turn(5_000)
    assert stand.client.sent == []
    stand.turn(5_001)
    assert [command.code for _, command in stand.client.sent] == [15]


def test_the_last_commits_go_one_after_the_other_to_each_broker() -> None:
    """HA-C-17 "MUST send all that it has committed, ask for answers, and wait for each before it sends the next offset"."""
    stand = Stand(nums=3, begins=False)
    for _ in range(3):
        stand.client.next(14).answer(offset=5)
    stand.turn(2)
    for queue_id in (0, 1):
        found(stand.pull_of(queue_id), Message("T", b"x"))
        stand.consumer.consumed(MessageQueue("T", "b", queue_id), 5)
    assert stand.committed() == [("b:1", "6"), ("b:1", "6")]
    stand.consumer.commit_last()
    for queue_id in ("0", "1"):  # the third one has the offset that the broker has told
        (asked,) = [each for each in stand.client.asked if each.command.code == 15]
        assert (asked.command.ext_fields["queueId"], asked.command.ext_fields["commitOffset"]) == (queue_id, "6")
        assert stand.consumer.commits_in_flight == 2 - int(queue_id)
        stand.client.next(15).answer()
    assert stand.consumer.commits_in_flight == 0
    assert [each for each in stand.client.asked if each.command.code == 15] == []


def test_the_last_commits_to_a_broker_end_with_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand(nums=3, begins=False)
    for queue_id in range(3):
        stand.client.next(14).answer(offset=5)
        stand.turn(2)
        found(stand.pull_of(queue_id), Message("T", b"x"))
        stand.consumer.consumed(MessageQueue("T", "b", queue_id), 5)
    stand.consumer.commit_last()
    stand.client.next(15).fail()
    assert stand.consumer.commits_in_flight == 0
    assert [f"b T queue {number}: offset 6 not committed" in caplog.text for number in range(3)] == 3 * [True]


def test_only_the_queues_that_are_wanted() -> None:
    stand = Stand(queues=[1], nums=3, begins=False)
    assert [asked.command.ext_fields["queueId"] for asked in stand.client.asked] == ["1"]


def test_a_full_consumer_pulls_no_more() -> None:
    """HA-C-15 "and the messages that are received and not consumed"."""
    stand = Stand()
    found(stand.pull(), *[Message("T", b"")] * MAX_WAITING)
    stand.turn(3)
    assert stand.pulls == []
    stand.consumer.consumed(MQ, 5)
    stand.turn(4)
    assert len(stand.pulls) == 1


def test_a_queue_that_the_route_loses_is_pulled_no_more() -> None:
    stand = Stand(nums=2, begins=False)
    for _ in range(2):
        stand.client.next(14).answer(offset=5)
    stand.turn(2)
    lost = next(asked for asked in stand.client.asked if asked.command.ext_fields["queueId"] == "1")
    stand.turn(30_000)
    stand.route(BOTH, 1)
    stand.turn(30_001)
    found(lost, Message("T", b"x"))
    assert stand.received == []
    assert list(stand.consumer.offsets) == [MQ]


def test_the_end_of_a_topic() -> None:
    stand = Stand()
    assert not stand.consumer.is_at_end
    found(stand.pull(), Message("T", b"x"), behind=50)
    assert not stand.consumer.is_at_end  # the message is not consumed
    stand.consumer.consumed(MQ, 50)
    assert stand.consumer.is_at_end


BAD = encode(Message("T", b"body"), 5, 0).replace(b"body", b"bodx")


@pytest.mark.parametrize(
    ("then", "is_at_end"),
    [
        pytest.param({"maxOffset": 5}, True, id="still at the end"),
        pytest.param({"code": 19, "maxOffset": 5}, True, id="nothing found"),
        pytest.param({"maxOffset": 6}, False, id="one came behind it"),
        pytest.param({"code": 19, "maxOffset": 6}, False, id="one came, and none was found"),
        pytest.param({"code": 21, "nextBeginOffset": 0, "maxOffset": 5}, False, id="sent back to the start"),
        pytest.param({"code": 20, "nextBeginOffset": 7, "maxOffset": 7}, True, id="sent to another end"),
        pytest.param({"code": 1}, False, id="an error"),
        pytest.param({"code": 2}, False, id="busy"),
        pytest.param({"code": 25}, False, id="an answer of another kind"),
        pytest.param(None, False, id="no answer"),
        pytest.param({"nextBeginOffset": "x"}, False, id="a field that is none"),
        pytest.param({"maxOffset": ""}, False, id="no end"),
        pytest.param({"body": b"torn", "maxOffset": 5}, False, id="a torn body"),
        pytest.param({"body": BAD, "nextBeginOffset": 6, "maxOffset": 6}, False, id="a damaged message"),
    ],
)
def test_a_queue_is_at_its_end_if_its_last_answer_says_so(
    then: dict[str, int | str | bytes] | None, *, is_at_end: bool
) -> None:
    """`consume --stop-at-end` ends by this: after a failure it has not seen what came meanwhile. HA-C-11."""
    stand = Stand()
    empty = {"nextBeginOffset": 5, "minOffset": 0, "maxOffset": 5, "suggestWhichBrokerId": 0}
    stand.pull().answer(0, **empty)
    assert stand.consumer.is_at_end
    stand.turn(1_002)
    asked = stand.pull()
    if then is None:
        asked.fail()
    else:
        fields = {**empty, **then}
        asked.answer(int(fields.pop("code", 0)), fields.pop("body", b""), **fields)  # type: ignore[arg-type]
    assert stand.consumer.is_at_end is is_at_end
    stand.turn(4_002)
    stand.pull().answer(0, **{**empty, "nextBeginOffset": 9, "maxOffset": 9})
    assert stand.consumer.is_at_end


def test_a_topic_is_at_its_end_when_all_its_queues_are() -> None:
    """Without a queue it is not; a queue that is new is not; one that is gone counts no more."""
    stand = Stand(nums=2, begins=False)
    assert not stand.consumer.is_at_end
    for number in range(2):
        stand.client.next(14).answer(offset=5)
        stand.turn(2)
        stand.pull().answer(0, nextBeginOffset=5, minOffset=0, maxOffset=5, suggestWhichBrokerId=0)
        assert stand.consumer.is_at_end is (number == 1)
    stand.turn(30_000)
    stand.route(BOTH, 3)
    stand.turn(30_001)
    assert not stand.consumer.is_at_end
    stand.turn(60_000)
    stand.route(BOTH, 2)
    stand.turn(60_001)
    assert stand.consumer.is_at_end


def test_a_consumer_without_queues_is_not_at_the_end() -> None:
    stand = Stand(queues=[7], begins=False)
    assert not stand.consumer.is_at_end


@pytest.mark.parametrize("way", ["offset", "pull"])
@pytest.mark.parametrize("code", [None, 1])
def test_a_failure_makes_the_route_be_asked_for_again(way: str, code: int | None) -> None:
    """HA-C-1 "and where a broker of the route does not answer", or answers with an error: its master may be another one."""
    stand = Stand(begins=way == "pull")
    asked = stand.pull() if way == "pull" else stand.client.next(14)
    if code is None:
        asked.fail()
    else:
        asked.answer(code)
    stand.turn(900)
    assert 105 not in [each.command.code for each in stand.client.asked]
    stand.turn(1_002)
    assert 105 in [each.command.code for each in stand.client.asked]


def test_another_broker_of_the_group_is_asked_at_once() -> None:
    """HA-C-18 "MUST at once pull that queue from another broker", "MUST NOT take a broker that has not answered"."""
    stand = Stand()
    stand.turn(100)
    stand.pull().fail()
    stand.turn(101)
    asked = stand.pull()
    assert (asked.address, asked.command.ext_fields["queueOffset"]) == ("b:2", "5")
    found(asked, Message("T", b"x"))  # it suggests the master
    assert [each.message.body for each in stand.received] == [b"x"]
    stand.turn(3_099)
    asked = stand.pull()
    assert (asked.address, asked.command.ext_fields["queueOffset"]) == ("b:2", "6")
    found(asked, Message("T", b"y"))
    stand.turn(3_100)
    assert stand.pull().address == "b:1"


def test_a_broker_that_has_answered_with_an_error_is_asked_again_itself() -> None:
    """HA-C-11 "1 s after any other answer": it is there."""
    stand = Stand()
    stand.turn(100)
    stand.pull().answer(1)
    stand.turn(1_099)
    assert stand.pulls == []
    stand.turn(1_100)
    assert stand.pull().address == "b:1"


def test_where_no_broker_of_the_group_answers_the_first_is_asked_again_after_1_s() -> None:
    """HA-C-18 "while it has another"."""
    stand = Stand()
    stand.pull().fail()
    stand.turn(500)
    stand.pull().fail()
    stand.turn(1_499)
    assert stand.pulls == []
    stand.turn(1_500)
    asked = stand.pull()
    assert asked.address == "b:1"
    asked.fail()
    stand.turn(3_501)
    assert stand.pull().address == "b:2"


def test_a_slave_that_lacks_the_end_does_not_lead_back_while_the_route_has_the_master() -> None:
    """HA-C-18 "An answer of that other broker that leads to a lesser offset MUST count as none"."""
    stand = Stand()
    stand.pull().fail()
    stand.turn(3)
    found(stand.pull(), code=21, behind=3)
    assert stand.consumer.offsets == {MQ: 5}
    stand.turn(1_002)
    assert stand.pulls == []
    stand.turn(3_003)
    asked = stand.pull()
    assert (asked.address, asked.command.ext_fields["queueOffset"]) == ("b:1", "5")
    asked.fail()
    stand.client.next(105).answer(body=route_body(("b", 1, {1: "b:2"})))
    stand.turn(3_004)
    found(stand.pull(), code=21, behind=3)
    assert stand.consumer.offsets == {MQ: 3}  # HA-C-11: there is no master any more


def test_a_group_without_a_broker_makes_the_route_be_asked_for_again() -> None:
    """HA-C-1; its queues are asked for 1 s later."""
    stand = Stand({0: "b:1"})
    found(stand.pull(), Message("T", b"x"))
    stand.turn(30_000)
    stand.client.next(11).fail()
    stand.client.next(105).answer(body=route_body(("b", 1, {})))
    stand.turn(31_000)
    assert stand.pulls == []
    while 105 in [each.command.code for each in stand.client.asked]:  # what the failed pull itself has asked
        stand.client.next(105).answer(body=route_body(("b", 1, {})))
    stand.turn(32_000)
    stand.route(BOTH)
    stand.turn(32_999)
    assert stand.pulls == []
    stand.turn(33_000)
    assert stand.pulls == ["6"]


def test_an_answer_for_a_queue_that_was_lost_and_came_back_is_left_out() -> None:
    """The queue has begun anew: the messages would be handed over twice."""
    stand = Stand(nums=2, begins=False)
    for _ in range(2):
        stand.client.next(14).answer(offset=5)
    stand.turn(2)
    late = stand.pull_of(1)
    for now_ms, nums in ((30_000, 1), (60_000, 2)):
        stand.turn(now_ms)
        stand.route(BOTH, nums)
        stand.turn(now_ms + 1)
    found(late, Message("T", b"x"))
    assert stand.received == []
    stand.client.next(14).answer(offset=5)
    stand.turn(60_002)
    found(stand.pull_of(1), Message("T", b"x"))
    assert [each.message.body for each in stand.received] == [b"x"]


def test_the_messages_of_a_queue_that_is_lost_fill_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-C-15 "and the messages that are received and not consumed": here 8,000 bytes of them."""
    monkeypatch.setattr(pull_consumer, "MAX_WAITING_SIZE", 8_000)
    stand = Stand(nums=2, begins=False)
    for _ in range(2):
        stand.client.next(14).answer(offset=5)
    stand.turn(2)
    lost = stand.pull_of(1)
    found(lost, *[Message("T", bytes(1_000))] * 8)
    stand.pull_of(0).answer(19, nextBeginOffset=6, minOffset=0, maxOffset=9, suggestWhichBrokerId=0)
    stand.turn(3)
    assert stand.pulls == []
    stand.turn(30_000)
    stand.route(BOTH, 1)
    stand.turn(30_001)
    assert stand.pulls == ["6"]


@pytest.mark.parametrize(("told", "begins"), [(-1, "0"), (-(1 << 63), "0"), (0, "0"), (7, "7")])
def test_a_queue_never_begins_before_its_first_message(told: int, begins: str) -> None:
    """A broker answers -1 for a time before any message."""
    stand = Stand(start=ConsumeFromWhere.TIMESTAMP, begins=False)
    stand.client.next(14).answer(22)
    stand.client.next(29).answer(offset=told)
    stand.turn(2)
    assert stand.pulls == [begins]


def test_a_topic_without_a_route() -> None:
    client = ScriptedClient()
    consumer = PullConsumer(client, Routes(client, ["ns:1"]), ConsumerSettings("g", "T"), lambda _: None)
    consumer.start(0)
    client.next(105).answer(17)
    assert "topic T" in str(consumer.error)


def test_a_body_that_grows_beyond_its_bound() -> None:
    """HA-C-15 "the bytes of a body that is decompressed"."""
    message = Message("T", zlib.compress(bytes(2000)), sys_flag=1)
    assert len(decompress_body(message, 2001)) == 2000
    with pytest.raises(MessageMalformed):
        decompress_body(message, 1999)


@pytest.mark.parametrize(("queues", "missing"), [({0, 1}, None), ({1, 3, 2}, "2, 3"), (None, None)])
def test_a_queue_that_the_topic_does_not_have_is_named(queues: set[int] | None, missing: str | None) -> None:
    error = Stand(nums=2, queues=queues, begins=False).consumer.error
    assert str(error) == f"topic T: found no queue {missing}, expected a queue that may be read" if missing else error is None


def test_a_failure_counts_though_its_queue_is_lost() -> None:
    """HA-C-18 "MUST NOT take a broker that has not answered within the last 3 s": for the other queues, too."""
    stand = Stand(nums=2, begins=False)
    for _ in range(2):
        stand.client.next(14).answer(offset=5)
    stand.turn(2)
    lost = stand.pull_of(1)
    stand.turn(30_000)
    stand.route(BOTH, 1)
    stand.turn(30_001)
    lost.fail()
    found(stand.pull_of(0), Message("T", b"x"))
    stand.turn(30_002)
    assert stand.pull().address == "b:2"


def test_a_broker_that_failed_more_than_3_s_ago_is_another() -> None:
    """HA-C-18 "within the last 3 s": the stand-in held its pull for longer."""
    stand = Stand()
    stand.turn(100)
    stand.pull().fail()
    stand.turn(101)
    held = stand.pull()
    assert held.address == "b:2"
    stand.turn(15_000)
    held.fail()
    stand.turn(15_001)
    assert stand.pull().address == "b:1"


def two_groups(client: ScriptedClient) -> PullConsumer:
    """A consumer that has consumed a message of each of two groups, a with two queues and b with one, and has not committed."""
    consumer = PullConsumer(client, Routes(client, ["ns:1"]), ConsumerSettings("g", "T"), lambda _: None)
    consumer.start(0)
    client.next(105).answer(body=route_body(("a", 2, {0: "a:1"}), ("b", 1, {0: "b:1"})))
    consumer.turn(1)
    for _ in range(3):
        client.next(14).answer(offset=5)
    consumer.turn(2)
    for _ in range(3):
        found(client.next(11), Message("T", b"x"))
    for mq in consumer.offsets:
        consumer.consumed(mq, 5)
    return consumer


def test_the_last_commits_to_two_brokers_go_side_by_side() -> None:
    """HA-C-17 "wait for each before it sends the next offset to the same broker"."""
    client = ScriptedClient()
    consumer = two_groups(client)
    consumer.commit_last()
    assert consumer.commits_in_flight == 3
    assert sorted(asked.address for asked in client.asked if asked.command.code == 15) == ["a:1", "b:1"]
    client.next(15).fail()  # a's: those to b go on
    assert consumer.commits_in_flight == 1
    client.next(15).answer()
    assert consumer.commits_in_flight == 0


class _NoAddress(ScriptedClient):
    """One address of the route is none."""

    def send(self, address: str, command: RemotingCommand) -> None:
        if address == "a:1":
            raise ConfigInvalid("a:1: expected HOST:PORT")
        super().send(address, command)


def test_an_address_that_is_none_holds_up_no_other_commit(caplog: pytest.LogCaptureFixture) -> None:
    client = _NoAddress()
    consumer = two_groups(client)
    consumer.commit()
    assert [(address, command.ext_fields["commitOffset"]) for address, command in client.sent] == [("b:1", "6")]
    assert caplog.text.count("a: a:1: expected HOST:PORT") == 2


def test_each_offset_is_sent_twice() -> None:
    """HA-C-19, for an offset that comes before the last one was sent again."""
    stand = Stand()
    found(stand.pull(), Message("T", b"x"), Message("T", b"y"))
    stand.consumer.consumed(MQ, 5)
    assert stand.committed() == [("b:1", "6")]
    stand.consumer.consumed(MQ, 6)
    assert [stand.committed() for _ in range(3)] == [[("b:1", "7")], [("b:1", "7")], []]


def test_the_last_commits_go_on_after_an_answer_that_refuses_one(caplog: pytest.LogCaptureFixture) -> None:
    """HA-C-17 "MUST send all that it has committed": a broker that answers takes no longer for the others."""
    stand = Stand(nums=2, begins=False)
    for queue_id in range(2):
        stand.client.next(14).answer(offset=5)
        stand.turn(2)
        found(stand.pull_of(queue_id), Message("T", b"x"))
        stand.consumer.consumed(MessageQueue("T", "b", queue_id), 5)
    stand.consumer.commit_last()
    stand.client.next(15).answer(1)
    assert stand.consumer.commits_in_flight == 1
    stand.client.next(15).answer()
    assert stand.consumer.commits_in_flight == 0
    assert "b T queue 0: offset 6 not committed: answer 1 (SYSTEM_ERROR)" in caplog.text
    assert "queue 1: offset 6 not committed" not in caplog.text


def test_what_a_broker_suggests_that_was_asked_in_place_of_another_is_kept() -> None:
    """HA-R-23 "MUST keep the suggested id for each queue"."""
    stand = Stand()
    stand.turn(100)
    stand.pull().fail()
    stand.turn(101)
    found(stand.pull(), Message("T", b"x"), suggest=1)
    stand.turn(4_000)  # the master counts as failed no more
    found_at = [asked.address for asked in stand.client.asked if asked.command.code == 11]
    assert found_at == ["b:2"]
