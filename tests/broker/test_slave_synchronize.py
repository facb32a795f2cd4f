"""Chapter 6: when a slave asks its master for the four tables, and what it makes of the answers. A slave that serves."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.brokers import FILE_SIZE, LiveBroker
from kit.metadata import MASTER, OWN, PLAIN, VIP, SlaveStand
from kit.sends import topic
from rocketmq_ha.impl.app.following import Following
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.wire.message import decode
from rocketmq_ha.reference import metadata_changes
from rocketmq_ha.reference import slave_synchronize as reference
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

ADDRESSES = {None: "", OWN: "10.0.0.2:10911", MASTER: "10.0.0.1:10911"}


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[SlaveStand]:
    """One that asks for whole tables alone."""
    with ExitStack() as resources:
        yield SlaveStand(tmp_path, resources, CLASSIC)


events = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.sampled_from([0, 1, 2_999, 3_000, 9_999, 10_000, 60_000])),
        st.tuples(st.just("master"), st.sampled_from([None, OWN, MASTER])),
        st.tuples(st.just("end"), st.sampled_from([0, 1, -1])),
    ),
    max_size=40,
)


@given(happened=events)
def test_the_tables_are_asked_for_when_the_model_asks(
    happened: list[tuple[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """HA-MD-1 "in this order", HA-MD-2 "3 s after the start", HA-MD-3, HA-MD-4 "MUST skip a table", HA-MD-5 "learn it anew",
    HA-MD-6 "more than one timer", HA-MD-8 "MUST ask for topics at the master's port less 2"."""
    with ExitStack() as resources:
        slave = SlaveStand(tmp_path_factory.mktemp("slave"), resources, CLASSIC)
        state, now_ms = reference.on_start(OWN, 0), 0
        expected: list[tuple[str, int]] = []
        for event, value in happened:
            asked = None
            if event == "tick":
                assert isinstance(value, int)
                now_ms += value
                state, asked = reference.on_tick(state, now_ms)
            elif event == "master":
                assert value is None or isinstance(value, tuple)
                state = reference.on_master(state, value)
                slave.rounds.master_addr = ADDRESSES[value]
            elif state.asked is None:
                continue
            else:
                assert isinstance(value, int)
                address, _ = expected.pop()
                slave.client.answer(address, value, b"{}")
                state, asked = reference.on_end(state, state.number, now_ms)
            if event != "master":
                slave.rounds.on_turn(now_ms)
            if asked is not None:
                expected.append((f"{asked.address[0]}:{asked.address[1]}", asked.code))
            assert [(address, command.code) for address, command, _, _ in slave.client.requests] == expected


def test_a_question_is_given_up_after_three_seconds(slave: SlaveStand) -> None:
    """HA-MD-7 "MUST give up a request that has no answer after 3 s"."""
    slave.begin()
    [(address, _, deadline_ms, _)] = slave.client.requests
    assert (address, deadline_ms) == (VIP, 6_000)


def topics_of(version: int, *names: str) -> bytes:
    table = {name: {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in names}
    return json.dumps({"dataVersion": {"counter": version, "timestamp": 7}, "topicConfigTable": table}).encode()


def test_topics_of_another_version_replace_all(slave: SlaveStand, tmp_path: Path) -> None:
    """HA-MD-10 "MUST replace all topics", HA-MD-11 "MUST change nothing on the slave", HA-MD-12."""
    slave.topics.update_topic_config(topic("mine", 1, 1))
    slave.begin()
    slave.answer(VIP, topics_of(9, "a", "b"))
    assert set(slave.topics.topic_config_table) == {"a", "b"}
    assert (slave.topics.data_version.counter, slave.topics.data_version.timestamp) == (9, 7)
    written = json.loads((tmp_path / "config" / "topics.json").read_bytes())
    assert set(written["topicConfigTable"]) == {"a", "b"} and written["dataVersion"]["counter"] == 9
    assert not slave.topics.table.replace(topics_of(9, "c"))
    assert set(slave.topics.topic_config_table) == {"a", "b"}
    mine, theirs = reference.Table((9, 7), {"a": 1}), reference.Table((9, 7), {"c": 1})
    assert reference.topics_or_groups(mine, theirs) is mine
    assert reference.topics_or_groups(mine, reference.Table((9, 8), {"c": 1})).entries == {"c": 1}


def test_offsets_are_merged_by_topic_and_group(slave: SlaveStand, tmp_path: Path) -> None:
    """HA-MD-13 "MUST be merged into the slave's table, whatever it has": an entry is replaced with all its queues."""
    mine: dict[str, dict[int, int]] = {"t@g": {0: 5, 1: 6}, "t@mine": {0: 1}}
    for key, offsets in mine.items():
        for queue_id, offset in offsets.items():
            slave.offsets.commit_offset("", key.split("@")[1], "t", queue_id, offset)
    slave.begin()
    slave.answer(VIP, topics_of(1))
    slave.answer(PLAIN, b'{"offsetTable":{"t@g":{0:3},"t@new":{2:4}}}')
    theirs = {"t@g": {0: 3}, "t@new": {2: 4}}
    assert slave.offsets.offset_table == reference.consumer_offsets(mine, theirs)
    again = ConsumerOffsetManager(tmp_path, TableSettings(), 0)
    again.load()
    assert again.offset_table == slave.offsets.offset_table


def test_a_master_whose_tables_have_impossible_values_changes_nothing(slave: SlaveStand) -> None:
    """HA-BT-77 "a slave takes nothing of an answer that has one": and it goes on with the next table."""
    slave.begin()
    slave.answer(VIP, topics_of(9, "a", "../../x"))
    slave.answer(PLAIN, b'{"offsetTable":{"t@a":{"0":1},"t@b":{"4294967296":1}}}')
    assert not {"a", "../../x"} & set(slave.topics.topic_config_table)
    assert not slave.offsets.offset_table
    slave.answer(PLAIN, b'{"offsetTable":{1:17}}')
    assert slave.delay_offset.read_bytes() == b'{"offsetTable":{1:17}}'


def test_offsets_without_end_are_refused(tmp_path: Path) -> None:
    """HA-BT-60 "MUST bound each of its tables": entries stay, so a master that names others each time would add up."""
    offsets = ConsumerOffsetManager(tmp_path, TableSettings(max_offset_entries=3), 0)
    offsets.merge(b'{"offsetTable":{"t@a":{0:1,1:1}}}')
    offsets.merge(b'{"offsetTable":{"t@a":{0:2},"t@b":{0:1,1:1}}}')
    with pytest.raises(ConfigInvalid, match="found 4 offsets"):
        offsets.merge(b'{"offsetTable":{"t@c":{0:1}}}')
    assert offsets.offset_table == {"t@a": {0: 2}, "t@b": {0: 1, 1: 1}}


def test_delay_offsets_are_written_as_they_came_and_groups_replaced(slave: SlaveStand) -> None:
    """HA-MD-14 "in the form in which they came"; HA-MD-15 "MUST replace all groups of the slave"."""
    slave.groups.update_subscription_group_config(SubscriptionGroupConfig("mine"))
    slave.begin()
    slave.answer(VIP, topics_of(1))
    slave.answer(PLAIN, b'{"offsetTable":{}}')
    slave.answer(PLAIN, b'{"offsetTable":{1:17}}')
    assert slave.delay_offset.read_bytes() == b'{"offsetTable":{1:17}}'
    slave.answer(PLAIN, b'{"dataVersion":{"counter":3,"timestamp":4},"subscriptionGroupTable":{"g":{"groupName":"g"}}}')
    assert set(slave.groups.subscription_group_table) == {"g"} and slave.rounds.taken == 4
    slave.rounds.on_turn(12_999)
    assert slave.client.requests == []
    slave.rounds.on_turn(13_000)
    assert slave.client.addresses() == [VIP]


@pytest.mark.parametrize(("code", "body"), [(1, b"{}"), (-1, b""), (0, b"{"), (0, b"[]"), (0, b'{"offsetTable":3}'), (0, b"")])
def test_an_answer_that_is_no_table_changes_nothing_and_the_round_goes_on(
    slave: SlaveStand, caplog: pytest.LogCaptureFixture, code: int, body: bytes
) -> None:
    """HA-MD-16 "MUST change nothing on the slave"; HA-MD-3 "MUST still ask for the next table"."""
    before = dict(slave.topics.topic_config_table), dict(slave.groups.subscription_group_table)
    slave.begin()
    for address in (VIP, PLAIN, PLAIN, PLAIN):
        slave.answer(address, body, code)
    assert (dict(slave.topics.topic_config_table), dict(slave.groups.subscription_group_table)) == before
    assert slave.offsets.offset_table == {} and not slave.delay_offset.exists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    slave.rounds.on_turn(13_000)
    assert slave.client.addresses() == [VIP]


def test_a_slave_that_follows_gives_consumers_what_the_master_was_sent(tmp_path: Path) -> None:
    """HA-R-14 "MUST connect to the HA address", HA-ST-36: the records that it appends are dispatched."""
    hosts = ("127.0.0.1", 10921), ("127.0.0.1", 10922)
    master = LiveBroker(tmp_path / "master")
    slave = LiveBroker(tmp_path / "slave", BrokerSettings(BrokerRole.SLAVE, *hosts, broker_id=1))
    following = Following(slave.store, lambda log, address: Follower(log, *address, Settings(FILE_SIZE), HARDENED))
    slave.controller.registration.on_master("127.0.0.1:10912", "127.0.0.1:10911")
    assert slave.controller.ha_server_addr == "127.0.0.1:10912"
    assert slave.controller.synchronize is not None and slave.controller.synchronize.master_addr == "127.0.0.1:10911"
    slave.controller.registration.on_master("", "")  # of a name server that knows no master
    assert (slave.controller.ha_server_addr, slave.controller.synchronize.master_addr) == ("127.0.0.1:10912", "127.0.0.1:10911")
    slave.controller.synchronize.master_addr = ""
    slave.controller.topics.update_topic_config(topic("orders", 4, 4))
    try:
        following.start()
        following.follow(master.master.address)
        for number in range(5):
            assert master.send(b"%d" % number).code == 0
        master.turn_until(lambda: slave.controller.figures.max_offset_in_queue("orders", 1) == 5)
        assert [decode(slave.pull(at).body).body for at in range(5)] == [b"%d" % number for number in range(5)]
        assert slave.send().code == 14
        following.check()
    finally:
        following.shutdown()
        slave.close()
        master.close()


@pytest.mark.parametrize("text", ["garbage", "127.0.0.1", "127.0.0.1:2", "127.0.0.1:65536", "[::1]", "x" * 300])
def test_an_address_that_is_none_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """HA-R-14: a name server tells whatever a master has registered; it ended the process of each of its slaves."""
    slave = LiveBroker(tmp_path, BrokerSettings(BrokerRole.SLAVE, ("127.0.0.1", 10921), ("127.0.0.1", 10922), broker_id=1))
    try:
        controller, rounds = slave.controller, slave.controller.synchronize
        assert rounds is not None
        controller.registration.on_master("127.0.0.1:10912", "127.0.0.1:10911")
        for told in ((text, "127.0.0.1:10931"), ("127.0.0.1:10932", text)):
            controller.registration.on_master(*told)
            assert (controller.ha_server_addr, rounds.master_addr) == ("127.0.0.1:10912", "127.0.0.1:10911")
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert [text[:100] in warning and len(warning) < 300 for warning in warnings] == [True, True]
    finally:
        slave.close()


def test_a_slave_knows_when_it_has_taken_all_tables(slave: SlaveStand) -> None:
    """A round in which a table is not taken counts as none; its reason is kept until an answer is taken."""
    slave.begin()
    good = (topics_of(9, "a"), b'{"offsetTable":{}}', b'{"offsetTable":{}}', b'{"subscriptionGroupTable":{}}')
    for address, body in zip((VIP, PLAIN, PLAIN, PLAIN), (*good[:3], b"{"), strict=True):
        assert slave.rounds.synchronized_ms is None
        slave.answer(address, body)
    assert slave.rounds.synchronized_ms is None
    assert "JSON" in slave.rounds.error
    slave.rounds.on_turn(13_000)
    for address, body in zip((VIP, PLAIN, PLAIN, PLAIN), good, strict=True):
        assert slave.rounds.synchronized_ms is None
        slave.client.answer(address, body=body)
        slave.rounds.on_turn(13_500)
    assert (slave.rounds.synchronized_ms, slave.rounds.error) == (13_500, "")
    slave.rounds.on_turn(23_000)
    slave.client.answer(VIP, -1)
    assert (slave.rounds.synchronized_ms, slave.rounds.error) == (
        13_500,
        f"{VIP}: request 21 (GET_ALL_TOPIC_CONFIG): no answer in time",
    )


def test_a_whole_table_that_the_master_does_not_know_is_not_taken(slave: SlaveStand, caplog: pytest.LogCaptureFixture) -> None:
    """HA-MD-16; the round is not whole."""
    slave.begin()
    slave.answer(VIP, b"", ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    for body in (b'{"offsetTable":{}}', b'{"offsetTable":{}}', b'{"subscriptionGroupTable":{}}'):
        slave.answer(PLAIN, body)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert slave.rounds.synchronized_ms is None
    assert slave.rounds.taken == 3


def part(slave: SlaveStand, since: int) -> dict[str, Any]:
    table = slave.groups.table
    found: dict[str, Any] = json.loads(table.changes.part(since, since, table.text_of))
    return found


def test_a_table_that_becomes_another_numbers_what_differs_alone(slave: SlaveStand) -> None:
    """HA-MD-28 "the entries that have changed since the number", in the order of the table."""
    table = slave.groups.table
    first = {f"g{number}": SubscriptionGroupConfig(f"g{number}") for number in range(10)}
    table.become(first)
    at = part(slave, 0)["at"]
    table.become({"g9": first["g9"], "h": SubscriptionGroupConfig("h")})
    found = part(slave, at)
    assert list(found["changed"]) == ["h"]
    assert [name for name in found["gone"] if name in first] == [f"g{number}" for number in range(9)]


def test_after_an_answer_3_the_slave_names_no_life_and_no_numbers(slave: SlaveStand) -> None:
    """HA-MD-30: the next question is one from the begin."""
    part = {"at": 7, "begun": 7, "isEnd": True, "changed": {}, "gone": [], "from": 0}
    tables = dict.fromkeys(("deleted", "topics", "groups", "offsets"), part | {"dataVersion": {"counter": 1, "timestamp": 1}})
    answer = {"life": "L", "maxOffset": 0, "delayOffset": {"offsetTable": {}}, **tables}
    slave.rounds._tables.take_changes(json.dumps(answer).encode())
    assert json.loads(slave.rounds._tables.question())["at"]["topics"] == 7
    slave.rounds._tables.on_not_supported()
    none = dict.fromkeys(tables, 0)
    assert json.loads(slave.rounds._tables.question()) == {"life": "", "at": none, "begun": none, "committed": {}}


def test_the_model_forgets_its_numbers_where_a_master_tells_no_life() -> None:
    """HA-MD-30, for a master that has answered with whole tables."""
    told = metadata_changes.Told("L", {"topics": 7}, {"topics": 7})
    assert metadata_changes.on_life(told, "") == metadata_changes.Told()
