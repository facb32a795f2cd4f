"""The sends of producers at the borders of chapter 13, and against the sends that RocketMQ's own brokers took."""

import base64
import errno
import json
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.channels import Channel
from kit.sends import MIB, SendStand, fields_of, host_bytes, item, topic
from rocketmq_ha.impl.broker.send import Refusal, SendMessageProcessor, SendSettings
from rocketmq_ha.impl.broker.send_batch import read_items
from rocketmq_ha.impl.broker.topic_config import TopicConfig
from rocketmq_ha.impl.errors import RequestInvalid, StoreClosed, StoreFull
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, SerializeType, decode
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message_id import message_id
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.reference import message as reference_message
from rocketmq_ha.reference import sending

TOPICS = (topic("orders", 4, 4), topic("wider", 8, 2))
FIRST, SECOND = item(b"whole"), item(b"body", b"k\x01v")


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[SendStand]:
    made = SendStand(tmp_path, TOPICS)
    yield made
    made.store.close()


def stand_with(directory: Path, settings: SendSettings) -> SendStand:
    return SendStand(directory, TOPICS, settings)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"topic": ""}, 1),
        ({"topic": " \t"}, 1),
        ({"topic": "a.b"}, 1),
        ({"topic": "größe"}, 1),
        ({"topic": "t" * 127}, 0),
        ({"topic": "t" * 128}, 1),
        ({"topic": "SELF_TEST_TOPIC"}, 16),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16),
        ({"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC"}, 16),
        ({"topic": "TRANS_CHECK_MAX_TIME_TOPIC"}, 16),
        ({"topic": "OFFSET_MOVED_EVENT"}, 16),
        ({"topic": "unknown", "defaultTopic": "other"}, 17),
        ({"topic": "%RETRY%group", "defaultTopic": "other", "queueId": "0"}, 0),
        ({"queueId": "3"}, 0),
        ({"queueId": "4"}, 1),
        ({"topic": "wider", "queueId": "7"}, 0),
        ({"topic": "wider", "queueId": "8"}, 1),
        ({"properties": "TRAN_MSG\x01true"}, 16),
        ({"properties": "TRAN_MSG\x01false"}, 0),
    ],
)
def test_a_send_is_answered_with_the_code_of_its_first_failed_check(
    stand: SendStand, changed: dict[str, str], code: int
) -> None:
    """HA-SE-4 "answer with the code of the first that fails", HA-SE-5 "No client MUST be able to send", HA-SE-14 "MUST answer a
    message whose property TRAN_MSG is true with 16"."""
    before = stand.store.max_offset
    answer = stand.send(**changed)
    assert (answer.code, stand.store.max_offset > before) == (code, code == 0)
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion" and answer.ext_fields["TRACE_ON"] == "true"
    assert (answer.remark is None) == (code == 0)


def test_a_master_without_the_permission_to_write_refuses_topics_in_order(tmp_path: Path) -> None:
    """HA-SE-4, check 1: the others are taken, since their producers do not come."""
    stand = stand_with(tmp_path, SendSettings("C", ("10.9.8.7", 10911), broker_permission=4))
    stand.table.update_topic_config(topic("ordered", 4, 4, order=True))
    assert stand.send(topic="ordered").code == 16
    assert stand.send(topic="orders").code == 0
    stand.store.close()


@pytest.mark.parametrize(("properties", "code"), [("", 13), ("TRAN_MSG\x01true", 16)])
def test_what_a_message_is_counts_before_its_size(tmp_path: Path, properties: str, code: int) -> None:
    """HA-SE-14 "with 16 (NO_PERMISSION)", HA-SE-13: the store looks at the size, when all else is checked."""
    stand = stand_with(tmp_path, SendSettings("C", ("10.9.8.7", 10911), max_message_size=3))
    assert stand.send(body=b"four", properties=properties).code == code
    stand.store.close()


def test_a_slave_takes_no_message_and_creates_no_topic(tmp_path: Path) -> None:
    """HA-R-5 "A slave MUST refuse puts, with SERVICE_NOT_AVAILABLE"."""
    stand = stand_with(tmp_path, SendSettings("C", ("10.9.8.7", 10911), is_slave=True))
    assert stand.send(topic="new").code == 14
    assert stand.table.select_topic_config("new") is None and stand.store.max_offset == 0
    stand.store.close()


@pytest.mark.parametrize(
    ("name", "unit_mode", "flag"),
    [("new", "false", 0), ("new", "true", 1), ("%RETRY%g", "false", 0), ("%RETRY%g", "true", 2)],
)
def test_a_created_topic_says_whether_a_unit_created_it(stand: SendStand, name: str, unit_mode: str, flag: int) -> None:
    """HA-SE-7 "and 1 (a unit) if not"."""
    assert stand.send(topic=name, unitMode=unit_mode, queueId="0").code == 0
    found = stand.table.select_topic_config(name)
    assert found is not None and found.topic_sys_flag == flag == sending.topic_sys_flag(name, unit_mode == "true")


def test_a_retry_topic_that_its_default_topic_does_not_give_has_one_queue(stand: SendStand) -> None:
    """HA-SE-6 "with 1 queue and the permission to read and write"."""
    assert stand.send(topic="%RETRY%g", defaultTopic="other", queueId="0").code == 0
    assert stand.table.select_topic_config("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, perm=6)
    assert sending.is_created_for_retries("%RETRY%g") and not sending.is_created_for_retries("new")


@pytest.mark.parametrize(
    "name", ["topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag"]
)
@pytest.mark.parametrize("code", [10, 310, 320])
def test_a_field_that_is_missing_is_named(stand: SendStand, code: int, name: str) -> None:
    """HA-SE-2 "without a field that the table calls refused"."""
    short = {long: short for long, short, _ in sending.FIELDS}[name]
    with pytest.raises(RequestInvalid, match=f"field {name if code == 10 else short}: found nothing"):
        stand.send(code, **{name: None})
    assert stand.store.max_offset == 0


def test_the_store_refuses_a_body_or_properties_that_are_too_long(stand: SendStand) -> None:
    """HA-SE-13 "if its body has more than `maxMessageSize` bytes": 4 MiB; 32,767 bytes with CLUSTER."""
    assert stand.send(body=bytes(4 * MIB)).code == 0
    answer = stand.send(body=bytes(4 * MIB + 1))
    assert (answer.code, answer.remark) == (13, "message body: found 4194305 bytes, expected at most 4194304 bytes")
    fits = 32767 - len("a\x01\x02CLUSTER\x01DefaultCluster")
    assert stand.send(properties=f"a\x01{'x' * fits}").code == 0
    assert stand.send(properties=f"a\x01{'x' * (fits + 1)}").code == 13
    assert stand.send(properties=f"a\x01{'é' * (fits // 2 + 1)}").code == 13


def test_wait_is_not_stored_and_decides_what_the_put_waits_for(stand: SendStand) -> None:
    """HA-SE-11 "without WAIT, and with CLUSTER"; a client cannot name another cluster."""
    stand.send(properties="WAIT\x01false\x02TAGS\x01a\x02CLUSTER\x01mine\x02KEYS\x01k\x02")
    [put] = stand.puts.made
    assert not put.waits
    assert stand.record_at(0).properties == b"TAGS\x01a\x02KEYS\x01k\x02CLUSTER\x01DefaultCluster"


def test_the_queue_id_of_the_answer_is_the_one_that_was_chosen(stand: SendStand) -> None:
    """HA-SE-8 "MUST go to a queue below `writeQueueNums` of the topic"."""
    stand.draw = 5
    answer = stand.send(topic="wider", queueId="-1")
    assert answer.ext_fields["queueId"] == "1" and stand.record_at(0).queue_id == 1


def test_the_bits_of_the_hosts_are_the_hosts(stand: SendStand) -> None:
    """HA-SE-10 "say whether the two hosts are IPv6, whatever the send says of them"."""
    stand.send(sysFlag="48")
    assert stand.record_at(0).sys_flag == 0
    offset = stand.store.max_offset
    stand.send(sysFlag="0", channel=Channel("[2001:db8::7]:41001"))
    record = stand.record_at(offset)
    assert (record.sys_flag, record.born_host) == (16, host_bytes(("2001:db8::7", 41001)))


# --- Batches ---------------------------------------------------------------------------------------------------------


def test_each_message_of_a_batch_is_a_record_and_its_id_is_in_the_answer(stand: SendStand) -> None:
    """HA-SE-21 "MUST become a record of its own", HA-SE-22 "neither empty nor end in one", HA-SE-32 "joined by commas":
    flags that differ, properties that end in a separator, that do not, and none."""
    body = item(b"one", b"a\x011\x02", 1) + item(b"", b"a\x01", 2) + item(b"three", b"", -3)
    answer = stand.send(320, body, batch="true", properties="WAIT\x01true", queueId="2")
    shared = b"WAIT\x01true\x02CLUSTER\x01DefaultCluster"
    offset, found = 0, []
    for identity in answer.ext_fields["msgId"].split(","):
        assert identity == message_id(("10.9.8.7", 10911), offset)
        record = stand.record_at(offset)
        found.append((record.flag, record.body, record.properties, record.queue_id))
        offset += len(reference_message.encode(record))
    assert offset == stand.store.max_offset
    assert found == [
        (1, b"one", b"a\x011\x02" + shared, 2),
        (2, b"", b"a\x01\x02" + shared, 2),
        (-3, b"three", shared, 2),
    ]


@pytest.mark.parametrize("size", range(1, len(SECOND)))
def test_a_batch_whose_last_message_is_cut_stores_nothing(stand: SendStand, size: int) -> None:
    """HA-SE-20 "whose last item is not whole"."""
    with pytest.raises(RequestInvalid, match=f"message 1, from byte {len(FIRST)} on, that is not whole"):
        stand.send(320, FIRST + SECOND[:size], batch="true")
    assert stand.store.max_offset == 0


def test_lengths_below_zero_are_refused(stand: SendStand) -> None:
    for bad in (b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"):
        with pytest.raises(RequestInvalid, match="not whole"):
            stand.send(320, bytes(16) + bad + bytes(40), batch="true")
    with pytest.raises(RequestInvalid, match="not whole"):
        stand.send(320, FIRST[:-2] + b"\xff\xff" + bytes(40), batch="true")
    with pytest.raises(RequestInvalid, match="message 0, from byte 0 on"):  # one byte back, where another item could begin
        stand.send(320, bytes(20) + b"\xff\xff" + bytes(21), batch="true")
    with pytest.raises(RequestInvalid, match="at least one"):
        stand.send(320, b"", batch="true")
    assert stand.store.max_offset == 0


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"sysFlag": "4"}, 13),
        ({"sysFlag": "8"}, 13),
        ({"sysFlag": "2"}, 0),
        ({"properties": "DELAY\x011"}, 13),
        ({"properties": "DELAY\x010"}, 0),
        ({"properties": "DELAY\x01-1"}, 0),
    ],
)
def test_a_batch_is_neither_delayed_nor_part_of_a_transaction(stand: SendStand, changed: dict[str, str], code: int) -> None:
    """HA-SE-23 "a part of a transaction"."""
    assert stand.send(320, item(b"body"), batch="true", **changed).code == code


def test_a_batch_is_stored_in_a_retry_topic_as_in_any_other(stand: SendStand) -> None:
    """HA-SE-71 "A single message that is sent": nobody looks at the group or at the `reconsumeTimes` of a batch."""
    refusal = Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no group")
    processor = SendMessageProcessor(stand.settings, stand.store, stand.puts, stand.table, lambda *_: refusal)
    codes = []
    for batch in ("false", "true"):
        fields = fields_of(320, topic="%RETRY%group", defaultTopic="other", queueId="0", reconsumeTimes="99", batch=batch)
        answer = processor.send_message(stand.channel, RemotingCommand(320, ext_fields=fields, body=item(b"one")), 0)
        assert answer is not None
        codes.append(answer.code)
    assert codes == [26, 0]
    assert stand.record_at(0).topic == b"%RETRY%group"


def test_a_batch_with_a_delay_that_is_no_number_is_refused(stand: SendStand) -> None:
    with pytest.raises(RequestInvalid, match="property DELAY: found 'soon', expected an i32"):
        stand.send(320, item(b"body"), batch="true", properties="DELAY\x01soon")


def test_the_records_of_a_batch_may_be_longer_than_its_body_but_have_a_bound(stand: SendStand) -> None:
    """HA-SE-23 "or if its records have more than 16 MiB in all"."""
    small, shared = item(b""), "k\x01" + "v" * 1000
    assert stand.send(320, small * 10_000, batch="true", properties=shared).code == 0
    assert stand.store.max_offset > 8 * MIB
    assert stand.send(320, small * 20_000, batch="true", properties=shared).code == 13
    fits = 32767 - len("CLUSTER\x01DefaultCluster") - 1
    assert stand.send(320, item(b"", b"x" * fits), batch="true", properties=None).code == 0
    assert stand.send(320, item(b"", b"x" * (fits + 1)), batch="true", properties=None).code == 13
    assert stand.send(320, bytes(4 * MIB + 1), batch="true").code == 13


# --- Answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"),
    [("PUT_OK", 0), ("FLUSH_DISK_TIMEOUT", 10), ("SLAVE_NOT_AVAILABLE", 11), ("FLUSH_SLAVE_TIMEOUT", 12)],
)
def test_a_message_that_is_stored_is_answered_with_the_status_of_its_put(stand: SendStand, status: str, code: int) -> None:
    """HA-SE-30 "with the code of its put's status", HA-SE-31 "MUST have the fields `msgId`"."""
    stand.puts.status = PutMessageStatus[status]
    answer = stand.send()
    fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "queueId": "1", "queueOffset": "0"}
    assert (answer.code, answer.ext_fields) == (code, {**fields, "msgId": "0A09080700002A9F0000000000000000"})
    assert stand.processor.statuses == {PutMessageStatus[status]: 1}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreClosed("closed"), 14),
        (StoreFull("file", 1, 2), 14),
        (OSError(errno.EROFS, "read-only"), 14),
        (OSError(errno.EIO, "broken"), 1),
    ],
)
def test_a_message_that_the_store_does_not_take_is_answered_with_the_word_for_the_error(
    stand: SendStand, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    """HA-SE-30, the last two lines of its table."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(stand.store, "append", fail)
    answer = stand.send()
    assert (answer.code, answer.remark) == (code, str(error))
    assert "msgId" not in answer.ext_fields


def test_a_put_that_waits_is_answered_when_it_has_ended_and_the_next_ones_before_it(stand: SendStand) -> None:
    """HA-SE-34 "other requests of the connection MAY be answered before it"."""
    stand.puts.status = None
    waiting = [RemotingCommand(310, opaque=opaque, ext_fields=fields_of(310), body=b"x") for opaque in (1, 2)]
    assert [stand.processor.send_message(stand.channel, each, 0) for each in waiting] == [None, None]
    stand.puts.status = PutMessageStatus.PUT_OK
    assert stand.send().opaque == 77
    stand.processor.on_turn()
    assert stand.channel.answers == [] and stand.processor.waiting == 2
    stand.puts.made[0].status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    stand.processor.on_turn()
    assert [(each.opaque, each.code) for each in stand.channel.answers] == [(1, 12)]
    stand.processor.finish()
    assert [(each.opaque, each.code) for each in stand.channel.answers] == [(1, 12), (2, 12)]
    assert stand.processor.waiting == 0


def test_all_puts_that_have_ended_are_answered_in_one_turn(stand: SendStand) -> None:
    """One acknowledgement of a slave may end very many puts."""
    stand.puts.status = None
    for opaque in range(100):
        stand.processor.send_message(stand.channel, RemotingCommand(310, opaque=opaque, ext_fields=fields_of(310)), 0)
    for put in stand.puts.made:
        put.status = PutMessageStatus.PUT_OK
    stand.processor.on_turn()
    assert [each.opaque for each in stand.channel.answers] == [*range(100)]


def test_an_answer_has_the_serialization_of_its_request(stand: SendStand) -> None:
    request = RemotingCommand(310, opaque=5, ext_fields=fields_of(310), body=b"x", serialize_type=SerializeType.ROCKETMQ)
    answer = stand.processor.send_message(stand.channel, request, 0)
    assert answer is not None and answer.serialize_type is SerializeType.ROCKETMQ


# --- RocketMQ's own --------------------------------------------------------------------------------------------------


def test_the_recorded_sends_give_the_recorded_records_and_answers(
    release: str, vectors: Path, golden: Path, tmp_path: Path
) -> None:
    """HA-SE-9 "as its born host", HA-SE-11, HA-SE-22, HA-SE-31: each send that was recorded, but for half messages.

    Spec: HA-SE-12 "5.3.3 stores WAIT".
    """
    taken = []
    with CommitLog.open(copy_of(golden, tmp_path / "copy")) as log:
        for number, row in enumerate(json.loads((vectors / "transcripts.json").read_text())):
            if row["code"] in (10, 310, 320) and row["response"]:
                request = decode(base64.b64decode(row["request"])[4:])
                if "TRAN_MSG" not in request.ext_fields["i"]:
                    answer = decode(base64.b64decode(row["response"])[4:])
                    taken.append(request.code)
                    compare_with_recorded(log, request, answer, release, tmp_path / str(number))
    assert sorted(taken) == [310, 320, 320]


def compare_with_recorded(
    log: CommitLog, request: RemotingCommand, recorded: RemotingCommand, release: str, directory: Path
) -> None:
    """Take the send in a store of our own, and compare its records and its answer."""
    ids = recorded.ext_fields.pop("msgId").split(",")
    theirs = [recorded_at(log, int(each[16:], 16)) for each in ids]
    host, port = socket.inet_ntoa(theirs[0].born_host[:4]), int.from_bytes(theirs[0].born_host[4:])
    cluster = parse_properties(theirs[0].properties.decode()).get("CLUSTER", "")
    store_host = (socket.inet_ntoa(bytes.fromhex(ids[0][:8])), int(ids[0][8:16], 16))
    stand = SendStand(directory, (), SendSettings(cluster, store_host))
    answer = stand.processor.send_message(Channel(f"{host}:{port}"), request, 0)
    assert answer is not None
    ours = [stand.record_at(int(each[16:], 16)) for each in answer.ext_fields.pop("msgId").split(",")]
    for our, their in zip(ours, theirs, strict=True):
        assert unplaced(our) == unplaced(their)
        left = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"} if release != "4.9.8" else {}
        if release != "4.9.8" and request.code == 310:
            left["WAIT"] = "false"
        our_pairs, their_pairs = (parse_properties(each.properties.decode()) for each in (our, their))
        if request.code == 320 and release == "5.4.0":
            assert "CLUSTER" not in their_pairs
        else:
            assert {**our_pairs, **left} == their_pairs
    if request.code == 320:
        for our, their, each in zip(ours, theirs, read_items(request.body), strict=True):
            assert our.properties.startswith(each.properties) and their.properties.startswith(each.properties)
    assert (answer.opaque, answer.code, answer.flag) == (recorded.opaque, recorded.code, recorded.flag)
    # Ours is the first of its queue.
    assert answer.ext_fields.pop("queueOffset") == "0" and recorded.ext_fields.pop("queueOffset")
    assert recorded.ext_fields.pop("transactionId", "") == ("" if release == "4.9.8" else theirs_unique(request))
    assert answer.ext_fields == recorded.ext_fields
    stand.store.close()


def theirs_unique(request: RemotingCommand) -> str:
    return parse_properties(request.ext_fields["i"])["UNIQ_KEY"]


def recorded_at(log: CommitLog, offset: int) -> reference_message.Record:
    data = log.data_at(offset, log.file_size)
    assert data is not None
    read = reference_message.decode(bytes(data))
    assert read is not None
    return read[0]


def unplaced(record: reference_message.Record) -> reference_message.Record:
    """A record without what depends on its place and time; properties are compared as pairs."""
    return replace(record, queue_offset=0, physical_offset=0, store_timestamp=0, properties=b"")


def copy_of(store: Path, copy: Path) -> Path:
    """A store that a test may open."""
    shutil.copytree(store / "commitlog", copy / "commitlog")
    return copy
