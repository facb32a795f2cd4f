"""Chapter 6, Changes: when a hardened slave asks, what a master's answer has, and what the slave makes of it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.broker_tables import BrokerTables
from kit.metadata import MASTER, OWN, PLAIN, VIP, SlaveStand
from kit.sends import topic
from rocketmq_ha.impl.broker.change_log import ChangeLog
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.reference import metadata_changes as model
from rocketmq_ha.reference import slave_synchronize as asking
from rocketmq_ha.spec.profile import HARDENED

OTHER: Final = ("10.0.0.3", 10911)
ADDRESSES: Final = {None: "", OWN: "10.0.0.2:10911", MASTER: PLAIN, OTHER: "10.0.0.3:10911"}
WHOLE: Final[dict[int, bytes]] = {
    21: b'{"topicConfigTable":{},"dataVersion":{"counter":3,"timestamp":4}}',
    43: b'{"offsetTable":{}}',
    45: b'{"offsetTable":{}}',
    201: b'{"subscriptionGroupTable":{},"dataVersion":{"counter":3,"timestamp":4}}',
}
NONE: Final[dict[str, Any]] = {"from": 0, "at": 0, "begun": 0, "isEnd": True, "changed": {}, "gone": []}
CHANGES: Final = RequestCode.GET_METADATA_CHANGES


def told(life: str = "l", max_offset: int = 0, delays: dict[str, int] | None = None, **parts: dict[str, Any]) -> bytes:
    """The body of an answer to 30043."""
    tables = {name: NONE | parts.get(name, {}) for name in model.TABLES}
    return json.dumps({"life": life, "maxOffset": max_offset, "delayOffset": {"offsetTable": delays or {}}, **tables}).encode()


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[SlaveStand]:
    with ExitStack() as resources:
        yield SlaveStand(tmp_path / "slave", resources, HARDENED)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[BrokerTables]:
    with ExitStack() as resources:
        yield BrokerTables(tmp_path / "master", resources)


# --- When it asks ----------------------------------------------------------------------------------------------------

events = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.sampled_from([0, 1, 499, 500, 999, 1_000, 9_999, 10_000])),
        st.tuples(st.just("master"), st.sampled_from([None, OWN, MASTER, OTHER])),
        st.tuples(st.just("link"), st.sampled_from([0, 1])),
        st.tuples(st.just("end"), st.sampled_from(["taken", "more", "failed", "not supported", "refused", "large"])),
    ),
    max_size=60,
)


@given(happened=events)
def test_changes_and_whole_tables_are_asked_for_when_the_model_asks(
    happened: list[tuple[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """HA-MD-27 "again 500 ms after each such question", HA-MD-29 "asks for the rest at once", HA-MD-30 "not ask it for changes
    again over this connection", HA-MD-31 "if its master is another one by now"."""
    with ExitStack() as resources:
        slave = SlaveStand(tmp_path_factory.mktemp("slave"), resources, HARDENED)
        state, now_ms, numbers = asking.on_start(OWN, 0, asks_changes=True), 0, 0
        links = dict.fromkeys(("", *ADDRESSES.values()), 0)
        asked: list[tuple[int, str, int]] = []  # number, address, code: without an answer yet
        for event, value in happened:
            question = None
            if event == "tick":
                assert isinstance(value, int)
                now_ms += value
                state, question = asking.on_tick(state, now_ms, links[slave.rounds.master_addr])
            elif event == "master":
                assert value is None or isinstance(value, tuple)
                state = asking.on_master(state, value, now_ms)
                slave.rounds.master_addr = ADDRESSES[value]
                state, question = asking.on_tick(state, now_ms, links[slave.rounds.master_addr])
            elif event == "link":
                assert isinstance(value, int)
                numbers += 1
                links |= dict.fromkeys(links, value * numbers)
                state, question = asking.on_tick(state, now_ms, links[slave.rounds.master_addr])
            elif asked:
                number, address, code = asked.pop(0)
                assert isinstance(value, str)
                outcome, size = answer(slave, number, address, code, value)
                link, is_former = links.get(address, numbers), number != state.number
                state, question = asking.on_end(state, number, now_ms, outcome, link=link, size=size)
                if is_former:
                    state, question = asking.on_tick(state, now_ms, links[slave.rounds.master_addr])
            else:
                continue
            slave.client.links.update(links)
            slave.client.links["10.0.0.1:10909"] = slave.client.links["10.0.0.3:10909"] = 7
            slave.rounds.on_turn(now_ms)
            if question is not None:
                asked.append((state.number, f"{question.address[0]}:{question.address[1]}", question.code))
            assert [(where, command.code) for where, command, _, _ in slave.client.requests] == [each[1:] for each in asked]


def answer(slave: SlaveStand, number: int, address: str, code: int, kind: str) -> tuple[asking.Outcome, int]:
    """Answer the oldest question. Returns: the outcome as the model has it, and the bytes that were taken."""
    body = told() if code == CHANGES else WHOLE[code]
    if kind == "failed":
        slave.client.answer(address, -1)
        return "failed", 0
    if kind == "refused":
        slave.client.answer(address, ResponseCode.SYSTEM_ERROR)
        return "failed", 0
    if kind == "not supported":
        slave.client.answer(address, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return ("not supported" if code == CHANGES else "failed"), 0
    if kind == "more" and code == CHANGES:
        slave.client.answer(address, 0, told(topics={"at": number, "isEnd": False}))
        return "more", 0
    if kind == "large":
        body += b" " * 300_000
    slave.client.answer(address, 0, body)
    return "taken", len(body)


# --- What an answer has ----------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "ü"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), names, st.integers(0, 99)),
        st.tuples(st.just("removed"), names, st.just(0)),
        st.tuples(st.just("part"), st.sampled_from(["", "a slave", "another"]), st.sampled_from([-1, 3, 50])),
    ),
    max_size=60,
)


@given(happened=steps, most_size=st.sampled_from([1, 20, 1_000]), most_gone=st.sampled_from([0, 1, 9]))
def test_the_parts_of_an_answer_are_those_of_the_model(
    happened: list[tuple[str, str, int]], most_size: int, most_gone: int
) -> None:
    """HA-MD-28 "in the order in which they changed", "is told the whole table from its begin"; HA-MD-29 "by which the part has
    262,144 bytes or more". Whoever asks again and again has the table in the end."""
    log, found = ChangeLog(), model.ChangeLog()
    log.most_size, log.most_gone = most_size, most_gone
    table: dict[str, object] = {}
    at = dict.fromkeys(("", "a slave", "another"), (0, 0))

    def text_of(name: str) -> bytes:
        return b"%b:%b" % (body_json.write(name), body_json.write(table[name]))

    for event, name, value in happened:
        if event == "set":
            table[name] = {"n": value}
            log.set(name)
            found = model.on_set(found, name)
        elif event == "removed":
            if table.pop(name, None) is not None:
                log.removed(name)
                found = model.on_removed(found, name, most_gone)
        else:
            since, begun = at[name] if value == -1 else (value, value // 2)  # the log may not know such numbers
            found, part = model.part(found, table, since, begun, most_size)
            expected = {"from": part.begin, "at": part.at, "begun": part.begun, "isEnd": part.is_end}
            expected |= {"changed": dict(part.changed), "gone": list(part.gone)}
            assert json.loads(log.part(since, begun, text_of)) == expected
            at[name] = part.at, part.begun
    slave: dict[str, object] = {}
    numbers = model.Told()
    for _ in range(2 * len(table) + 2 * len(happened) + 2):
        told_part = json.loads(log.part(numbers.at.get("topics", 0), numbers.begun.get("topics", 0), text_of))
        fields = ("from", "at", "begun", "isEnd", "changed")
        part = model.Part(*(told_part[field] for field in fields), tuple(told_part["gone"]))
        taken = model.take(numbers, "topics", slave, part, part.changed)
        assert taken is not None
        numbers, slave = taken
        if part.is_end:
            break
    assert slave == table


def test_a_change_that_nobody_was_told_of_yet_needs_no_new_number() -> None:
    """So the commits of a consumer between two questions cost a look-up."""
    log = ChangeLog()
    for _ in range(1_000):
        log.set("orders@group")
    assert json.loads(log.part(0, 0, lambda _: b'"orders@group":{}'))["at"] == 1
    for _ in range(1_000):
        log.set("orders@group")
    assert json.loads(log.part(1, 1, lambda _: b'"orders@group":{}'))["at"] == 2


def test_a_slave_has_all_tables_of_its_master_at_once(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-28: also what stands beside the known fields (HA-BT-8), the DataVersions, and what is not a Java broker's."""
    master.topics.update_topic_config(topic("orders", 4, 4))
    master.offsets.commit_offset("", "group", "orders", 3, 17)
    master.put("gone", 0)
    master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "gone"})
    slave.topics.update_topic_config(topic("mine", 1, 1))
    slave.synchronize(master)
    assert slave.topics.encode() == master.topics.encode()
    assert slave.groups.encode() == master.groups.encode()
    assert slave.offsets.encode() == master.offsets.encode()
    assert slave.tables.deleted.table.entries == {"gone": master.store.max_offset}
    assert slave.rounds.error == "" and slave.rounds.taken == 1


def test_a_large_table_comes_in_parts(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-29 "the slave asks for the rest at once"."""
    master.topics.table.put_all({f"topic-{number}": topic(f"topic-{number}", 4, 4) for number in range(5_000)})
    master.groups.table.remove("CID_ONSAPI_OWNER")
    slave.synchronize(master)
    assert slave.rounds.taken == 3
    assert slave.topics.encode() == master.topics.encode() and len(master.topics.encode()) > 2 * model.MOST_SIZE
    assert slave.groups.encode() == master.groups.encode()
    before = (slave.delay_offset.parent / "topics.json").stat().st_mtime_ns
    slave.synchronize(master, 3_500)
    assert slave.rounds.taken == 4 and (slave.delay_offset.parent / "topics.json").stat().st_mtime_ns == before


def test_a_second_answer_has_only_what_is_new(slave: SlaveStand, master: BrokerTables) -> None:
    slave.synchronize(master)
    master.topics.update_topic_config(topic("new", 1, 1))
    slave.rounds.on_turn(3_500)
    answer = master.json(CHANGES, body=slave.asked().body)
    changed = {name: (list(answer[name]["changed"]), answer[name]["gone"]) for name in model.TABLES}
    assert changed == {"deleted": ([], []), "topics": (["new"], []), "groups": ([], []), "offsets": ([], [])}


# --- What a slave makes of it ----------------------------------------------------------------------------------------


def test_an_answer_of_a_former_master_is_passed_over(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-31 "MUST change nothing on the slave if its master is another one by now"."""
    slave.begin()
    answer = master.ask(CHANGES, body=slave.asked().body)
    slave.rounds.master_addr = "10.0.0.3:10911"
    slave.rounds.on_turn(3_000)
    assert slave.client.addresses() == [PLAIN, "10.0.0.3:10911"]
    before = slave.topics.encode()
    slave.answer(PLAIN, answer.body)
    assert slave.topics.encode() == before and slave.rounds.taken == 0
    assert slave.client.addresses() == ["10.0.0.3:10911"]


GOOD: Final = {"at": 1, "changed": {"a": {"topicName": "a"}}, "dataVersion": {"counter": 9, "timestamp": 9}}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (told().replace(b'"life"', b'"lives"'), "life"),
        (told(topics=GOOD | {"from": 3}), "topics: found a part from 3, expected 0 or 0"),
        (told(topics=GOOD | {"changed": {"a": 3}}), "topics: a: found 3, expected an object"),
        (told(topics=GOOD | {"changed": {"../a": {}}}), "topics: found the name '../a'"),
        (told(topics=GOOD | {"changed": {"a": {"readQueueNums": -1}}}), "topics: a: readQueueNums: found -1"),
        (told(topics=GOOD | {"dataVersion": 3}), "topics: dataVersion: found 3"),
        (told(offsets=GOOD | {"changed": {"t@g": {"x": 1}}}), "offsets: t@g: found the queue"),
        (told(offsets=GOOD | {"changed": {"t@g": 1}}), "offsets: t@g: found 1"),
        (told(deleted=GOOD | {"changed": {"t": {"logOffset": -1}}}), "deleted: t: logOffset: found -1"),
        (told(delays={"x": 1}), "delayOffset: found"),
        (told(delays={"1": 1 << 63}), "delayOffset: found"),
        (told().replace(b'{"offsetTable": {}}', b"{}"), "delayOffset: no offsetTable"),
    ],
)
def test_what_cannot_be_taken_leaves_its_table_as_it_was(
    slave: SlaveStand, master: BrokerTables, body: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-MD-31: the table is as before; one line says why; the next question comes after 500 ms, and not at once."""
    slave.begin()
    before = slave.topics.encode(), slave.offsets.encode(), slave.groups.encode(), dict(slave.tables.deleted.table.entries)
    slave.answer(PLAIN, body)
    after = slave.topics.encode(), slave.offsets.encode(), slave.groups.encode(), dict(slave.tables.deleted.table.entries)
    if b"GROUP" not in body:
        assert after[1:2] == before[1:2] and after[3] == before[3]
    assert why in slave.rounds.error and slave.rounds.synchronized_ms is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] and slave.client.requests == []
    slave.synchronize(master, 3_500)
    assert slave.rounds.error == "" and slave.rounds.synchronized_ms == 3_500
    assert slave.topics.encode() == master.topics.encode()


def test_a_table_that_cannot_be_taken_holds_up_no_other(slave: SlaveStand) -> None:
    slave.begin()
    slave.answer(PLAIN, told(topics=GOOD | {"changed": {"a": 3}, "isEnd": False}, offsets={"changed": {"t@g": {"0": 4}}}))
    assert slave.offsets.offset_table == {"t@g": {0: 4}}
    assert slave.client.requests == []  # the topics were not brought on, so the rest is not asked for at once


def test_more_entries_than_a_table_may_have_are_refused(slave: SlaveStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_ha.impl.broker.config_table.MOST_ENTRIES", 20)
    slave.begin()
    slave.answer(PLAIN, told(topics=GOOD | {"changed": {f"t{number}": {} for number in range(21)}}))
    assert "topicConfigTable: found more than 20 entries" in slave.rounds.error
    assert "t0" not in slave.topics.topic_config_table


# --- Offsets ---------------------------------------------------------------------------------------------------------


def of(slave: SlaveStand) -> int:
    return slave.offsets.query_offset("group", "orders", 1)


def test_what_was_committed_while_the_master_was_away_stays_and_reaches_it(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-32 "MUST NOT make a consumer's offset less than it is"; HA-MD-33 "MUST name in its question the offsets that
    consumers have committed to it"."""
    master.put("orders", 1, 9)
    master.offsets.commit_offset("", "group", "orders", 1, 3)
    slave.synchronize(master)
    assert of(slave) == 3
    slave.offsets.commit_offset("", "group", "orders", 1, 8)
    slave.rounds.on_turn(3_500)
    assert json.loads(slave.asked().body)["committed"] == {"orders@group": {"1": [3, 8]}}
    slave.synchronize(master, 3_500)
    assert (of(slave), master.offsets.query_offset("group", "orders", 1)) == (8, 8)
    slave.rounds.on_turn(4_000)
    assert json.loads(slave.asked().body)["committed"] == {}


def test_a_reset_at_the_master_reaches_the_slave(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-32 "unless the master itself has gone back"."""
    master.put("orders", 1, 9)
    master.offsets.commit_offset("", "group", "orders", 1, 7)
    slave.synchronize(master)
    slave.offsets.commit_offset("", "group", "orders", 1, 8)
    master.offsets.commit_offset("", "group", "orders", 1, 2)  # as a consumer does that was told to by request 222
    slave.synchronize(master, 3_500)
    assert (of(slave), master.offsets.query_offset("group", "orders", 1)) == (2, 2)  # the 8 came after the reset


def test_a_group_that_is_deleted_at_the_master_has_no_offsets_on_the_slave(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-BT-24: else a group of the same name would begin where that one ended."""
    master.offsets.commit_offset("", "group", "orders", 1, 7)
    slave.offsets.commit_offset("", "other", "orders", 1, 8)
    slave.synchronize(master)
    master.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "group", "removeOffset": "true"})
    slave.synchronize(master, 3_500)
    assert slave.offsets.offset_table == {"orders@other": {1: 8}}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"orders@group": {"1": [3, 8]}}, 8),
        ({"orders@group": {"1": [2, 8]}}, 3),  # the master has another by now
        ({"orders@group": {"1": [3, 3]}}, 3),
        ({"orders@group": {"1": [3, 9]}}, 9),
        ({"orders@group": {"1": [3, 10]}}, 3),  # the queue has no such offset
        ({"orders@group@": {"1": [3, 8]}, "orders": {"1": [3, 8]}, "@group": {"1": [-1, 8]}}, 3),
    ],
)
def test_a_master_takes_a_greater_offset_if_its_own_is_the_one_that_the_slave_knows(
    master: BrokerTables, named: dict[str, object], expected: int
) -> None:
    """HA-MD-33 "if its own is still the one that the slave was told, and its queue goes as far"."""
    master.put("orders", 1, 9)
    master.offsets.commit_offset("", "group", "orders", 1, 3)
    at = dict.fromkeys(model.TABLES, 0)
    found = master.json(CHANGES, body={"life": "", "at": at, "begun": at, "committed": named})
    assert found["offsets"]["changed"] == {"orders@group": {"1": expected}}


def test_the_numbers_of_another_life_mean_nothing(slave: SlaveStand, master: BrokerTables, tmp_path: Path) -> None:
    """HA-MD-28 "is told the whole table from its begin": a master that was restarted has other numbers."""
    slave.synchronize(master)
    with ExitStack() as resources:
        other = BrokerTables(tmp_path / "other", resources)
        for number in range(99):
            other.topics.update_topic_config(topic(f"topic-{number}", 1, 1))
        slave.rounds.on_turn(3_500)
        found = other.json(CHANGES, body=slave.asked().body)
        assert {found[name]["from"] for name in model.TABLES} == {0} and "topic-0" in found["topics"]["changed"]
        slave.synchronize(other, 3_500)
        assert slave.topics.encode() == other.topics.encode() and slave.rounds.error == ""


def test_a_question_that_is_none_is_refused(master: BrokerTables) -> None:
    at = dict.fromkeys(model.TABLES, 0)
    many = {f"t{number}@g": {"0": [-1, 0]} for number in range(1_001)}
    for body, why in (
        (b"{}", "life"),
        ({"life": "", "at": 3, "begun": at}, "at"),
        ({"life": "", "at": at, "begun": at, "committed": many}, "found 1001 offsets, expected at most 1000"),
    ):
        answer = master.ask(CHANGES, body=body)
        assert answer.code == ResponseCode.SYSTEM_ERROR and why in (answer.remark or "")


def test_a_slave_names_a_thousand_offsets_at_a_time(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-33 "at most 1,000"."""
    for number in range(1_500):
        slave.offsets.commit_offset("", "group", "orders", number, 1)
    slave.synchronize(master)
    slave.rounds.on_turn(3_500)
    named = json.loads(slave.asked().body)["committed"]
    assert sum(map(len, named.values())) == 1_000


# --- Deleted topics, topics of the log, delays ------------------------------------------------------------------------


def test_a_topic_that_is_deleted_at_the_master_is_hidden_on_the_slave(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-34 "MUST take the deleted topics that its master tells in place of its own, and hide their messages"."""
    for broker in (master, slave.tables):  # as replication makes it
        broker.put("orders", 1, 2)
        broker.put("refunds", 0, 2)
    master.topics.note_queues({"orders": 2, "refunds": 1})
    slave.tables.deleted.delete("refunds", is_known=False)  # by a former master
    slave.synchronize(master)
    assert slave.tables.queues.queue_nums() == {"orders": 2, "refunds": 1}
    assert slave.tables.queues.first_visible_in_queue("refunds", 0) == 0
    master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    slave.synchronize(master, 3_500)
    assert slave.topics.select_topic_config("orders") is None
    assert slave.tables.queues.queue_nums() == {"refunds": 1}
    for broker in (master, slave.tables):
        broker.put("orders", 1)
    found = slave.topics.select_topic_config("orders")  # it is there again, and the slave has not been told yet
    assert found is not None and (found.read_queue_nums, found.perm) == (2, 6)
    assert slave.tables.queues.first_visible_in_queue("orders", 1) == 2


def test_a_slave_answers_for_a_topic_of_its_log_which_its_table_lacks(slave: SlaveStand) -> None:
    """HA-MD-35 "with the perm 6 and one read and write queue more than the greatest id of its queues"."""
    assert slave.topics.select_topic_config("orders") is None
    slave.tables.put("orders", 3)
    found = slave.topics.select_topic_config("orders")
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums, found.perm, found.topic_filter_type) == (4, 4, 6, "SINGLE_TAG")
    assert "orders" not in slave.topics.topic_config_table and b"orders" not in slave.topics.encode()


def test_the_progress_of_delays_waits_for_the_log(slave: SlaveStand) -> None:
    """HA-MD-36 "MUST NOT use the progress of the delay levels before its log has reached the `maxOffset`"."""
    slave.tables.put("orders", 0)
    end = slave.tables.store.max_offset
    slave.begin()
    slave.answer(PLAIN, told(max_offset=end, delays={"1": 5}))
    slave.rounds.on_turn(3_500)
    slave.answer(PLAIN, told(max_offset=end + 1, delays={"1": 6}), now_ms=3_500)
    slave.rounds.on_turn(4_000)
    slave.answer(PLAIN, told(max_offset=end + 9_000, delays={"1": 7}), now_ms=4_000)
    slave.rounds.on_turn(13_000)
    assert json.loads(slave.delay_offset.read_bytes()) == {"offsetTable": {"1": 5}}
    slave.tables.put("orders", 0)
    slave.rounds.on_turn(13_100)
    slave.rounds.finish()
    assert json.loads(slave.delay_offset.read_bytes()) == {"offsetTable": {"1": 6}}


# --- A master that tells no changes ----------------------------------------------------------------------------------


def whole(slave: SlaveStand, topics: list[str], offsets: dict[str, object], now_ms: int) -> None:
    """A round of whole tables."""
    slave.rounds.on_turn(now_ms)
    if slave.asked().code == CHANGES:
        slave.answer(PLAIN, b"", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, now_ms)
    table = {name: {"topicName": name} for name in topics}
    body = {"dataVersion": {"counter": now_ms, "timestamp": 1}, "topicConfigTable": table}
    slave.answer(VIP, json.dumps(body).encode(), now_ms=now_ms)
    slave.answer(PLAIN, json.dumps({"offsetTable": offsets}).encode(), now_ms=now_ms)
    slave.answer(PLAIN, b'{"offsetTable":{1:17}}', now_ms=now_ms)
    slave.answer(PLAIN, WHOLE[201], now_ms=now_ms)
    assert slave.rounds.error == "" and slave.rounds.taken_by == "whole tables"


def test_one_that_tells_no_changes_is_asked_for_whole_tables(slave: SlaveStand) -> None:
    """HA-MD-30 "MUST take whole tables from it": the same holds of its offsets (HA-MD-32)."""
    slave.offsets.commit_offset("", "group", "orders", 1, 8)
    slave.begin()
    whole(slave, ["a"], {"orders@group": {"1": 5}, "orders@gone": {"1": 1}}, 3_000)
    assert slave.offsets.offset_table == {"orders@group": {1: 8}, "orders@gone": {1: 1}}
    assert slave.delay_offset.read_bytes() == b'{"offsetTable":{1:17}}'
    whole(slave, ["a"], {"orders@group": {"1": 6}}, 4_000)
    assert slave.offsets.offset_table == {"orders@group": {1: 8}}
    whole(slave, ["a"], {"orders@group": {"1": 4}}, 5_000)
    assert slave.offsets.offset_table == {"orders@group": {1: 4}}
    slave.client.links[PLAIN] += 1  # another process may answer
    whole(slave, ["a"], {"orders@group": {"1": 2}}, 6_000)
    assert slave.offsets.offset_table == {"orders@group": {1: 4}}


def test_after_whole_tables_a_former_master_tells_all(slave: SlaveStand, master: BrokerTables) -> None:
    """HA-MD-30 "MUST take whole tables from it": its tables then are not of the numbers that the first one told."""
    master.topics.update_topic_config(topic("orders", 4, 4))
    slave.synchronize(master)
    assert "orders" in slave.topics.topic_config_table
    slave.rounds.master_addr = ADDRESSES[OTHER]
    slave.rounds.on_turn(4_000)
    slave.answer(ADDRESSES[OTHER], b"", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 4_000)
    whole = json.dumps({"dataVersion": {"counter": 9, "timestamp": 9}, "topicConfigTable": {}}).encode()
    slave.answer("10.0.0.3:10909", whole, now_ms=4_000)
    assert "orders" not in slave.topics.topic_config_table
    slave.client.requests.clear()  # the next whole table, of which no answer comes any more
    slave.synchronize(master, now_ms=5_000)
    assert json.loads(slave.topics.encode()) == json.loads(master.topics.encode())


def test_a_topic_that_goes_from_whole_tables_is_deleted(slave: SlaveStand) -> None:
    """HA-MD-34 "a topic that has gone from the table between two answers over one connection", "forgets the deletion of each
    topic that the master's table has"."""
    for name in ("a", "b", "c"):
        slave.tables.put(name, 0)
    slave.tables.deleted.delete("c", is_known=False)
    end = slave.tables.store.max_offset
    slave.begin()
    whole(slave, ["a", "c", "no messages"], {}, 3_000)
    assert slave.tables.deleted.table.entries == {}  # b may be missing with a master that was promoted
    whole(slave, ["c"], {}, 4_000)
    assert slave.tables.deleted.table.entries == {"a": end}
    assert slave.tables.queues.queue_nums() == {"b": 1, "c": 1}
    slave.client.links[VIP] += 1
    whole(slave, [], {}, 5_000)
    assert slave.tables.deleted.table.entries == {"a": end}
    whole(slave, ["a"], {}, 6_000)
    assert slave.tables.deleted.table.entries == {} and slave.tables.queues.queue_nums() == {"a": 1, "b": 1, "c": 1}
