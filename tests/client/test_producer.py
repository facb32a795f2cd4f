"""A producer: which broker gets a message, what is tried again, and what its caller learns. HA-C-4 to HA-C-9, HA-C-15."""

import zlib

import pytest

from kit.scripted_client import Asked, ScriptedClient, route_body
from rocketmq_ha.impl.client.producer import MAX_IN_FLIGHT_SIZE, Producer, SendResult
from rocketmq_ha.impl.client.routes import Routes
from rocketmq_ha.impl.client.unique_id import MessageClientIDSetter
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.spec.constants import MAX_MESSAGE_SIZE

GROUPS = ("a", 2, {0: "a:1", 1: "a:2"}), ("b", 1, {0: "b:1"})


class Stand:
    """A producer of a topic T, whose route it has. results: in the order in which they were told."""

    def __init__(self, *groups: tuple[str, int, dict[int, str]], order: str | None = None) -> None:
        self.client = ScriptedClient()
        routes = Routes(self.client, ["ns:1"])
        ids = MessageClientIDSetter(bytes(4), 1, 2, lambda _: (0, 1 << 62))
        self.producer = Producer(self.client, routes, "g", ids, max_in_flight=3)
        self.results: list[SendResult] = []
        routes.find("T", lambda _: None, 0)
        self.client.next(105).answer(body=route_body(*(groups or GROUPS), order=order))

    def send(self, body: bytes = b"x", properties: str = "", queue_id: int | None = None, now_ms: int = 0) -> None:
        self.producer.send(Message("T", body, properties_string=properties), self.results.append, now_ms, queue_id)

    def asked(self) -> Asked:
        return self.client.next(310)

    def place(self) -> tuple[str, str]:
        """The address and queue of the next send, which succeeds."""
        asked = self.asked()
        queue_id = asked.command.ext_fields["e"]
        asked.answer(queueId=queue_id, queueOffset=7, msgId="AB")
        return asked.address, queue_id

    def place_of(self, way: str, queue_id: int | None = None) -> tuple[str, str]:
        """The address and queue of a message that is sent in this way: one, batch or oneway."""
        message = Message("T", b"x")
        if way == "oneway":
            self.producer.send_oneway(message, self.results.append, 0, queue_id)
            address, command = self.client.sent.pop()
            return address, command.ext_fields["e"]
        if way == "one":
            self.producer.send(message, self.results.append, 0, queue_id)
            return self.place()
        self.producer.send_batch([message, message], self.results.append, 0, queue_id)
        asked = self.client.next(320)
        asked.answer(queueId=asked.command.ext_fields["e"], queueOffset=7, msgId="A,B")
        return asked.address, asked.command.ext_fields["e"]


def test_queues_take_turns() -> None:
    """HA-C-5 "MUST take the queues in turn"."""
    stand = Stand()
    places = []
    for _ in range(4):
        stand.send()
        places.append(stand.place())
    assert places == [("a:1", "0"), ("a:1", "1"), ("b:1", "0"), ("a:1", "0")]
    assert [result.status for result in stand.results] == ["SEND_OK"] * 4
    assert stand.results[1].queue == ("T", "a", 1)
    assert (stand.results[1].queue_offset, stand.results[1].msg_id) == (7, "AB")


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500, None])
def test_a_send_that_fails_goes_to_another_group_twice_at_most(code: int | None) -> None:
    """HA-C-6 "MUST be tried again, at most twice"; HA-C-5 "the next one of another group if there is one"."""
    stand = Stand()
    stand.send()
    addresses, keys = [], set()
    for _ in range(3):
        asked = stand.asked()
        addresses.append(asked.address)
        keys.add(parse_properties(asked.command.ext_fields["i"])["UNIQ_KEY"])
        if code is None:
            asked.fail()
        else:
            asked.answer(code, remark="no")
    assert addresses == ["a:1", "b:1", "a:1"]
    assert len(keys) == 1  # HA-C-7 "and keep it in further attempts"
    assert not [asked for asked in stand.client.asked if asked.command.code == 310]
    assert [(result.attempts, result.is_stored) for result in stand.results] == [(3, False)]
    assert stand.producer.in_flight == stand.producer.in_flight_size == 0


def test_all_attempts_share_one_timeout() -> None:
    """HA-C-6 "all its attempts together MUST NOT last longer than one timeout, 3 s"."""
    stand = Stand()
    stand.send(now_ms=100)
    first = stand.asked()
    stand.producer.turn(2_000)
    first.fail()
    second = stand.asked()
    assert first.deadline_ms == second.deadline_ms == 3_100
    stand.producer.turn(3_100)
    second.fail()
    assert stand.results[0].status == "NO_ANSWER"
    assert stand.results[0].attempts == 2


def test_an_attempt_whose_time_is_over_is_the_last() -> None:
    """The client gives it up before the producer's next turn, and another attempt would come behind the timeout."""
    stand = Stand()
    stand.send(now_ms=100)
    stand.producer.turn(3_095)
    stand.asked().fail(is_late=True)
    assert [(result.status, result.attempts) for result in stand.results] == [("NO_ANSWER", 1)]
    assert not [asked for asked in stand.client.asked if asked.command.code == 310]
    stand.send(now_ms=3_100)
    stand.asked().answer(queueId=0, queueOffset=7, msgId="AB")
    assert stand.results[1].status == "SEND_OK"


@pytest.mark.parametrize(
    ("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")]
)
def test_a_message_that_is_stored_is_not_sent_again(code: int, status: str) -> None:
    """HA-C-6, the first row of its table."""
    stand = Stand()
    stand.send()
    stand.asked().answer(code, queueId=0, queueOffset=3, msgId="AB")
    assert [(result.status, result.is_stored, result.attempts) for result in stand.results] == [(status, True, 1)]


@pytest.mark.parametrize(("code", "status"), [(13, "MESSAGE_ILLEGAL"), (3, "REQUEST_CODE_NOT_SUPPORTED"), (999, "CODE_999")])
def test_other_answers_end_a_send(code: int, status: str) -> None:
    stand = Stand()
    stand.send()
    stand.asked().answer(code, remark="why not")
    assert [(result.status, result.error, result.attempts) for result in stand.results] == [(status, "why not", 1)]


def test_a_success_that_cannot_be_read_is_not_sent_again() -> None:
    """The message may be stored."""
    stand = Stand()
    stand.send()
    stand.asked().answer(0, queueId="x", queueOffset=3, msgId="AB")
    assert stand.results[0].status == "NO_ANSWER"
    assert "queueId" in (stand.results[0].error or "")


def test_groups_without_a_master_or_a_right_to_write_get_nothing() -> None:
    """HA-C-4 "whose broker of id 0 is in the route"."""
    stand = Stand(("a", 2, {1: "a:2"}))
    stand.send()
    stand.producer.turn(999)
    assert stand.client.asked == []
    assert stand.results == []
    stand.producer.turn(1_000)  # HA-C-1 "a producer also where it finds no queue to send to"
    stand.client.next(105).answer(body=route_body(("a", 2, {1: "a:2"})))
    stand.producer.turn(2_000)
    stand.client.next(105).answer(body=route_body(("a", 2, {0: "a:1"})))
    assert stand.place() == ("a:1", "0")  # HA-C-16 "MUST be tried again every second"
    assert [(result.status, result.attempts) for result in stand.results] == [("SEND_OK", 1)]
    assert not stand.client.asked


def test_a_send_waits_for_a_master_no_longer_than_its_timeout() -> None:
    """HA-C-16 "until its timeout has passed"."""
    stand = Stand(("a", 2, {1: "a:2"}))
    stand.send()
    for now_ms in (1_000, 2_000):
        stand.producer.turn(now_ms)
        stand.client.next(105).answer(body=route_body(("a", 2, {1: "a:2"})))
        assert stand.results == []
    stand.producer.turn(3_000)
    (result,) = stand.results
    assert (result.status, result.error) == ("NO_ROUTE", "topic T: found no master of a in the route, expected one")
    assert stand.producer.in_flight == 0


def test_a_broker_that_takes_no_connection_is_waited_for() -> None:
    """HA-C-16 "or whose request was written to no connection", "such a try is none of the three"."""
    stand = Stand(("a", 1, {0: "a:1"}))
    stand.send()
    stand.asked().fail()  # this one may have been stored
    for now_ms in (1_000, 2_000):
        for _ in range(2):
            stand.asked().fail(is_unsent=True)
        assert not [asked for asked in stand.client.asked if asked.command.code == 310]
        stand.producer.turn(now_ms)
        stand.client.next(105).answer(17)  # HA-C-2: the route stays in use
    stand.asked().fail()
    stand.asked().fail()  # the third that may have been stored
    assert [(result.status, result.attempts) for result in stand.results] == [("NO_ANSWER", 7)]


def test_the_end_of_a_producer_waits_for_no_broker() -> None:
    stand = Stand(("a", 2, {1: "a:2"}))
    stand.send()
    stand.producer.end()
    stand.producer.turn(1)
    stand.send(now_ms=1)
    assert [result.status for result in stand.results] == ["NO_ROUTE", "NO_ROUTE"]


def test_an_ordered_topic_has_the_queues_that_its_configuration_names() -> None:
    """HA-C-4 "where the route has an `orderTopicConf`, to the queues that it names"."""
    stand = Stand(order="b:2")
    stand.send()
    stand.send()
    assert [stand.place(), stand.place()] == [("b:1", "0"), ("b:1", "1")]


def test_a_chosen_queue_stays_the_same_in_another_group() -> None:
    stand = Stand(("a", 4, {0: "a:1"}), ("b", 4, {0: "b:1"}))
    stand.send(queue_id=2)
    for address in ("a:1", "b:1", "a:1"):
        asked = stand.asked()
        assert (asked.address, asked.command.ext_fields["e"]) == (address, "2")
        asked.fail()
    stand.results.clear()
    stand.send(queue_id=5)
    stand.producer.end()
    stand.producer.turn(0)
    assert "of number 5" in (stand.results[0].error or "")


def test_a_topic_without_a_route() -> None:
    """HA-C-3: neither the topic nor TBW102 has one."""
    stand = Stand()
    stand.producer.send(Message("U", b""), stand.results.append, 0)
    for now_ms in (1_000, 2_000, 3_000):
        stand.client.next(105).answer(17)
        stand.client.next(105).answer(17)
        assert not stand.results
        stand.producer.turn(now_ms)
    assert stand.results[0].status == "NO_ROUTE"
    assert stand.producer.in_flight == 0


def test_the_header_of_a_send() -> None:
    """HA-SE-1, with the names of 310; HA-C-7."""
    stand = Stand()
    message = Message("T", b"x", flag=5, born_timestamp=1234, reconsume_times=2, properties_string="TAGS\x01a")
    stand.producer.send(message, stand.results.append, 0)
    fields = stand.asked().command.ext_fields
    properties = parse_properties(fields.pop("i"))
    assert fields == {
        "a": "g",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1234",
        "h": "5",
        "j": "2",
        "k": "false",
        "m": "false",
    }
    assert properties == {"TAGS": "a", "UNIQ_KEY": "00000000000100000002000004D20000"}


def test_a_message_keeps_its_own_id() -> None:
    """HA-C-7 "A message without the property UNIQ_KEY MUST get one"."""
    stand = Stand()
    stand.send(properties="UNIQ_KEY\x01mine")
    assert parse_properties(stand.asked().command.ext_fields["i"]) == {"UNIQ_KEY": "mine"}


def test_a_large_body_is_compressed() -> None:
    """HA-C-8 "A body of 4,096 bytes or more SHOULD be compressed with zlib"."""
    stand = Stand()
    stand.send(b"y" * 4096)
    command = stand.asked().command
    assert command.ext_fields["f"] == str(0x301)
    assert zlib.decompress(command.body) == b"y" * 4096


def test_a_body_that_is_compressed_already_stays_as_it_is() -> None:
    stand = Stand()
    stand.producer.send(Message("T", b"z" * 5000, sys_flag=0x101 | 0x10), stand.results.append, 0)
    command = stand.asked().command
    assert (command.ext_fields["f"], command.body) == (str(0x101), b"z" * 5000)


@pytest.mark.parametrize(
    "message",
    [
        Message("T", bytes(MAX_MESSAGE_SIZE + 1)),
        Message("T", b"", sys_flag=4),
        Message("T", b"", properties_string="A\x01" + "b" * 40_000),
    ],
)
def test_a_message_that_no_broker_takes_is_not_sent(message: Message) -> None:
    stand = Stand()
    with pytest.raises(MessageIllegal):
        stand.producer.send(message, stand.results.append, 0)
    assert not stand.client.asked
    assert stand.producer.in_flight == 0


def test_a_batch_goes_in_one_request() -> None:
    """HA-C-9; HA-SE-20: i32 size, 0, 0, flag, body size, the body, and i16 and the properties."""
    stand = Stand()
    batch = [Message("T", b"one", flag=1), Message("T", b"", properties_string="UNIQ_KEY\x01k")]
    stand.producer.send_batch(batch, stand.results.append, 0)
    asked = stand.client.next(320)
    first = int.from_bytes(asked.command.body[:4], "big")
    assert asked.command.body[4:23] == bytes(8) + b"\0\0\0\1" + b"\0\0\0\3" + b"one"
    assert asked.command.body[first:] == b"\0\0\0\x20" + bytes(8) + bytes(4) + bytes(4) + b"\0\x0aUNIQ_KEY\x01k"
    assert asked.command.ext_fields["m"] == "true"
    asked.answer(queueId=1, queueOffset=4, msgId="A,B")
    assert stand.results[0].uniq_keys[1] == "k"
    assert stand.results[0].msg_id == "A,B"


def test_a_producer_is_full_by_messages_and_by_bytes() -> None:
    """HA-C-15: what waits for an answer is bounded."""
    stand = Stand()
    for _ in range(3):
        assert not stand.producer.is_full
        stand.send()
    assert stand.producer.is_full
    stand.place()
    assert not stand.producer.is_full
    stand = Stand()
    stand.producer.send(Message("T", bytes(MAX_IN_FLIGHT_SIZE), sys_flag=1), stand.results.append, 0)
    assert stand.producer.is_full


@pytest.mark.parametrize("way", ["one", "batch", "oneway"])
def test_the_queues_are_those_of_the_route_that_is_known_now(way: str) -> None:
    """HA-C-4 "MUST send only to the write queues": a route that has changed has others, and other addresses."""
    stand = Stand(("a", 2, {0: "a:1"}))
    places = []
    for now_ms, route in (
        (0, None),
        (30_000, route_body(("a", 4, {0: "a:1"}))),
        (60_000, route_body(("a", 4, {0: "a:9"}))),
        (90_000, route_body(("b", 1, {0: "b:1"}))),
    ):
        if route is not None:
            stand.producer.turn(now_ms)
            stand.client.next(105).answer(body=route)
        places.append({stand.place_of(way) for _ in range(8)})
    assert places == [
        {("a:1", "0"), ("a:1", "1")},
        {("a:1", str(number)) for number in range(4)},
        {("a:9", str(number)) for number in range(4)},
        {("b:1", "0")},
    ]


def test_the_queues_of_one_topic_are_not_those_of_another() -> None:
    stand = Stand(("a", 1, {0: "a:1"}))
    stand.place_of("one")
    stand.producer.send(Message("U", b""), stand.results.append, 0)
    stand.client.next(105).answer(body=route_body(("b", 1, {0: "b:1"})))
    assert stand.place() == ("b:1", "0")
    assert stand.place_of("one") == ("a:1", "0")


@pytest.mark.parametrize("way", ["one", "batch", "oneway"])
def test_a_chosen_queue_is_the_only_one_whichever_way_it_is_sent_to(way: str) -> None:
    stand = Stand(("a", 4, {0: "a:1"}), ("b", 4, {0: "b:1"}))
    places = [stand.place_of(way, queue_id=2) for _ in range(4)]
    assert places == [("a:1", "2"), ("b:1", "2")] * 2


@pytest.mark.parametrize("fails", ["no answer", "no queue"])
def test_a_failed_send_makes_the_route_be_asked_for_again(fails: str) -> None:
    """HA-C-1 "and where a broker of the route does not answer"; a broker that answers is not asked about."""
    stand = Stand()
    stand.send(queue_id=9 if fails == "no queue" else None, now_ms=5_000)
    if fails == "no answer":
        stand.asked().answer(16)
        stand.producer.turn(7_000)
        assert [asked.command.code for asked in stand.client.asked] == [310]
        stand.asked().fail()
    asked_ms = 6_000 if fails == "no queue" else 8_000
    stand.producer.turn(asked_ms - 1)
    assert 105 not in [asked.command.code for asked in stand.client.asked]
    stand.producer.turn(asked_ms)
    assert 105 in [asked.command.code for asked in stand.client.asked]


def test_a_oneway_send_waits_for_its_route() -> None:
    """HA-C-15: until its route is known it counts as under way, so that its owner does not end before it is sent."""
    stand = Stand()
    stand.producer.send_oneway(Message("U", b"x"), stand.results.append, 0)
    assert (stand.producer.in_flight, stand.client.sent, stand.results) == (1, [], [])
    stand.client.next(105).answer(body=route_body(("b", 1, {0: "b:1"})))
    assert (stand.producer.in_flight, len(stand.client.sent)) == (0, 1)
    stand.producer.send_oneway(Message("V", b"x"), stand.results.append, 0)
    stand.client.next(105).answer(17)
    stand.client.next(105).answer(17)
    assert (stand.producer.in_flight, len(stand.client.sent)) == (1, 1)
    stand.producer.end()
    stand.producer.turn(1)
    assert (stand.producer.in_flight, len(stand.client.sent)) == (0, 1)
    assert [result.status for result in stand.results] == ["SENT", "NO_ROUTE"]


def test_oneway() -> None:
    stand = Stand()
    stand.producer.send_oneway(Message("T", b"x"), stand.results.append, 0)
    ((address, command),) = stand.client.sent
    assert (address, command.code, command.ext_fields["e"]) == ("a:1", 310, "0")
    assert [result.status for result in stand.results] == ["SENT"]


def test_oneway_without_a_master() -> None:
    """HA-C-16: nobody learns whether the message is stored, but that there was nobody to send it to."""
    stand = Stand(("a", 2, {1: "a:2"}))
    stand.producer.send_oneway(Message("T", b"x"), stand.results.append, 0)
    assert stand.results == []
    stand.producer.turn(1_000)
    stand.client.next(105).answer(17)
    stand.producer.turn(2_000)
    stand.client.next(105).answer(17)
    stand.producer.turn(3_000)
    assert [result.status for result in stand.results] == ["NO_ROUTE"]
    assert stand.client.sent == []
