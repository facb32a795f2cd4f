"""Chapter 13: a send is refused, or stored and answered, in the same way by the model and by the implementation."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kit.channels import Channel
from kit.sends import LONG_NAMES, SendStand, fields_of, host_bytes, item, model_topic, topic
from rocketmq_ha.impl.broker.send import SendSettings
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.reference import sending

TOPICS = (
    topic("orders", 4, 4),
    topic("wider", 8, 2),
    topic("readable", 2, 0),
    topic("ordered", 4, 4, order=True),
    topic("tagged", 1, 1, multi_tag=True),
    topic("bad name", 1, 1),
)
NAMES = [*(each.topic_name for each in TOPICS), "SELF_TEST_TOPIC", "created"]
names = st.sampled_from(
    [*NAMES, "%RETRY%group", "t" * 127, "t" * 128, "", "  ", "tab\t", "größe", "a|b-c_d%", "SCHEDULE_TOPIC_XXXX"]
)
numbers = st.one_of(
    st.integers(-2, 10).map(str), st.sampled_from(["+3", "-1", "2147483647", "2147483648", "-2147483649", "", "x", "1_0", " 1"])
)
longs = st.sampled_from(["0", "1700000000000", "-1", "9223372036854775807", "9223372036854775808", "1.5"])
truths = st.sampled_from(["true", "TRUE", "false", "yes", ""])
sys_flags = st.one_of(numbers, st.integers(0, 63).map(str))
words = st.text(st.sampled_from("ab\x00\x01\x02é€"), max_size=5)
pairs = st.one_of(
    st.tuples(
        st.sampled_from(["WAIT", "CLUSTER", "TRAN_MSG", "DELAY", "KEYS", "TAGS", "wait"]),
        st.sampled_from(["true", "false", "0", "3", "-1", "k"]),
    ),
    st.tuples(words, words),
).map("\x01".join)
properties = st.lists(pairs, max_size=6).map("\x02".join)
items = st.builds(item, st.binary(max_size=20), properties.map(str.encode), st.integers(-2, 3))
batches = st.one_of(
    st.lists(items, max_size=4).map(b"".join),
    st.lists(items, min_size=1, max_size=4).map(b"".join),
    st.tuples(st.lists(items, min_size=1, max_size=3).map(b"".join), st.integers(1, 30)).map(lambda both: both[0][: -both[1]]),
)
bodies = st.one_of(st.binary(max_size=50), batches)
statuses = st.sampled_from([status for status in PutMessageStatus if status.is_stored])


@st.composite
def sends(draw: st.DrawFn) -> RemotingCommand:
    """Mostly such as are stored; up to two fields are drawn from all that a peer may write."""
    code, is_batch = draw(st.sampled_from([10, 310, 320])), draw(st.booleans())
    changed: dict[str, str | None] = {
        "topic": draw(st.sampled_from(NAMES)),
        "queueId": draw(st.sampled_from(["0", "0", "1", "-1"])),
        "properties": draw(st.none() | properties),
        "batch": "true" if is_batch else "false",
    }
    odd = {
        "topic": names,
        "defaultTopic": st.sampled_from(["TBW102", "other"]),
        "defaultTopicQueueNums": numbers,
        "queueId": numbers,
        "sysFlag": sys_flags,
        "bornTimestamp": longs,
        "flag": numbers,
        "unitMode": truths,
        "reconsumeTimes": numbers,
        "maxReconsumeTimes": numbers,
        "batch": truths,
    }
    for name in draw(st.sets(st.sampled_from(sorted(odd)), max_size=2)):
        changed[name] = draw(odd[name])
    if draw(st.integers(0, 9)) == 0:
        changed[draw(st.sampled_from(LONG_NAMES))] = None
    fields = fields_of(code, **changed)
    return RemotingCommand(code, opaque=draw(st.integers(0, 99)), ext_fields=fields, body=draw(batches if is_batch else bodies))


@pytest.fixture(scope="module")
def stands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SendStand]]:
    usual = SendSettings("DefaultCluster", ("10.9.8.7", 10911))
    settings = [
        usual,
        replace(usual, broker_permission=4, region_id="r", trace_on=False, max_message_size=40),
        replace(usual, store_host=("2001:db8::9", 10911), broker_cluster_name="größe"),
    ]
    made = [SendStand(tmp_path_factory.mktemp("store"), TOPICS, each) for each in settings]
    yield made
    for stand in made:
        stand.store.close()


@given(
    request=sends(),
    number=st.integers(0, 2),
    peer=st.sampled_from([("10.1.2.3", 41000), ("2001:db8::7", 41001)]),
    draw=st.integers(0, 20),
    status=statuses,
    is_late=st.booleans(),
)
@hypothesis_settings(max_examples=200)
def test_a_send_is_stored_and_answered_as_in_the_model(
    stands: list[SendStand],
    request: RemotingCommand,
    number: int,
    peer: tuple[str, int],
    draw: int,
    status: PutMessageStatus,
    is_late: bool,
) -> None:
    """HA-SE-1 "with the header fields of the table", HA-SE-3 "whatever its code is", HA-SE-33 "the broker's `regionId`"."""
    compare(stands[number], request, peer, draw, status, is_late)


BATCH = {"batch": "true"}
LONG = b"k\x01" + b"v" * 32_760
REFUSED: dict[str, tuple[int, dict[str, str | None], bytes, int]] = {  # which stand, what is changed, the body, the code
    "a topic that is not there": (0, {"topic": "nowhere", "defaultTopic": "other"}, b"b", 17),
    "a topic that closes its broker": (1, {"topic": "ordered"}, b"b", 16),
    "a queue that is not there": (0, {"queueId": "8"}, b"b", 1),
    "a random queue of none": (0, {"topic": "readable", "queueId": "-1"}, b"b", 1),
    "a body that is too large": (1, {}, bytes(41), 13),
    "properties that are too long": (0, {"properties": "k\x01" + "v" * 32_768}, b"b", 13),
    "properties with a hole": (0, {"properties": "k\x01" + "\0" * 512 + "v"}, b"b", 13),
    "a half message": (0, {"properties": "TRAN_MSG\x01True"}, b"b", 16),
    "a batch that is too large": (1, BATCH, item(bytes(41)), 13),
    "a batch of half messages": (0, {**BATCH, "sysFlag": "4"}, item(b"b"), 13),
    "a batch whose level is none": (0, {**BATCH, "properties": "DELAY\x01x"}, item(b"b"), 1),
    "a batch that is delayed": (0, {**BATCH, "properties": "DELAY\x011"}, item(b"b"), 13),
    "a batch that is cut": (0, BATCH, item(b"b") + item(b"b")[:-1], 1),
    "a batch of nothing": (0, BATCH, b"", 1),
    "properties of an item that are too long": (0, BATCH, item(b"b", LONG), 13),
    "a batch that would be 16 MiB of records": (0, {**BATCH, "topic": "t" * 127}, 72_000 * item(b"b"), 13),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_model_refuses_the_broker_refuses(stands: list[SendStand], what: str) -> None:
    """HA-SE-4, HA-SE-13, HA-SE-14, HA-SE-20, HA-SE-23, HA-ST-89: each refusal once, since draws do not reach all."""
    number, changed, body, code = REFUSED[what]
    request = RemotingCommand(310, ext_fields=fields_of(310, **changed), body=body)
    put = compare(stands[number], request, ("10.1.2.3", 41000), 0, PutMessageStatus.PUT_OK, is_late=False)
    assert put == sending.Refusal(code)


def compare(
    stand: SendStand, request: RemotingCommand, peer: tuple[str, int], draw: int, status: PutMessageStatus, is_late: bool
) -> sending.Put | sending.Refusal:
    """Send to both, and hold the answers and the records against each other. Returns: the model's put."""
    stand.begin_anew(TOPICS)
    stand.draw, stand.puts.status = draw, None if is_late else status
    stand.puts.made.clear()
    host = f"[{peer[0]}]" if ":" in peer[0] else peer[0]
    channel = Channel(f"{host}:{peer[1]}")
    end = stand.store.max_offset

    send = sending.parse(request.code, request.ext_fields, request.body)
    try:
        answer = stand.processor.send_message(channel, request, 0)
    except RequestInvalid:
        assert stand.store.max_offset == end
        put: sending.Put | sending.Refusal = (
            send
            if isinstance(send, sending.Refusal)
            else sending.on_send(
                stand.broker, model_topic(stand.table.select_topic_config(send.topic)), False, send, host_bytes(peer), draw
            )
        )
        assert put == sending.Refusal(1)
        return put
    assert isinstance(send, sending.Send)
    found = stand.table.select_topic_config(send.topic)  # as it is after a creation
    is_order_topic = any(each.topic_name == send.topic and each.order for each in TOPICS)
    put = sending.on_send(stand.broker, model_topic(found), is_order_topic, send, host_bytes(peer), draw)
    if isinstance(put, sending.Refusal):
        assert answer is not None and stand.store.max_offset == end
        assert sending.Answer(answer.code, tuple(sorted(answer.ext_fields.items()))) == sending.answer(
            stand.broker, put, "", (), 0
        )
        return put
    if is_late:  # HA-SE-34 "MUST be answered when its put has ended, and not before"
        assert answer is None
        stand.processor.on_turn()
        assert channel.answers == []
        stand.puts.made[0].status = status
        stand.processor.on_turn()
        [answer] = channel.answers
    assert answer is not None and answer.opaque == request.opaque and answer.is_response
    [made] = stand.puts.made
    assert made.waits == put.waits
    offsets, offset = [], made.append.offset
    for record in put.records:
        offsets.append(offset)
        stored = stand.record_at(offset)
        placed = replace(stored, queue_offset=0, physical_offset=0, store_timestamp=0)
        assert placed == record
        assert stored.physical_offset == offset and stored.queue_offset - made.append.queue_offset == (len(offsets) - 1)
        offset += 91 + len(record.topic) + len(record.body) + len(record.properties)
        offset += len(record.born_host) + len(record.store_host) - 16
    assert offset == stand.store.max_offset
    expected = sending.answer(stand.broker, put, status.value, tuple(offsets), made.append.queue_offset)
    assert sending.Answer(answer.code, tuple(sorted(answer.ext_fields.items()))) == expected
    return put
