"""HA-R-15 to HA-R-18, HA-BT-13, HA-SE-40 and 41: when a broker registers, and what it says."""

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.asked import Asked
from kit.sends import MemoryFile, topic
from rocketmq_ha.impl.broker.broker import BrokerSettings, _registration_settings
from rocketmq_ha.impl.broker.registration import BrokerOuterAPI, RegistrationSettings
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.namesrv.registration import read_registration
from rocketmq_ha.reference import broker_registration as reference
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile
from rocketmq_ha.spec.role import BrokerRole


def settings(servers: int = 2, **changed: object) -> RegistrationSettings:
    names = tuple(f"127.0.0.1:{9870 + number}" for number in range(servers))
    usual = {"broker_addr": "10.0.0.7:10911", "ha_server_addr": "10.0.0.8:10912", "name_servers": names}
    return RegistrationSettings("cluster", "broker-a", 0, **{**usual, **changed})  # type: ignore[arg-type]


def registering(**changed: object) -> tuple[BrokerOuterAPI, Asked, TopicConfigManager]:
    client = Asked()
    topics = TopicConfigManager(Path(), TableSettings(), wall_clock=lambda: 1_700_000_000_000, file=MemoryFile())
    topics.update_topic_config(topic("orders", 3, 4))
    return BrokerOuterAPI(settings(**changed), topics, client), client, topics  # type: ignore[arg-type]


events = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.sampled_from([1, 999, 1_000, 5_000, 9_999, 10_000, 30_000, 60_000, 600_000])),
        st.tuples(st.just("change"), st.just(0)),
        st.tuples(st.just("answer"), st.integers(0, 2)),
        st.tuples(st.just("refuse"), st.integers(0, 2)),
        st.tuples(st.just("fail"), st.integers(0, 2)),
    ),
    max_size=30,
)


@example(1, 1, [("answer", 0), ("tick", 10_000), ("answer", 0), ("tick", 5_000)])
@example(1, 99_000, [("answer", 0), ("tick", 10_000), ("answer", 0), ("tick", 60_000)])
@example(2, 30_000, [("fail", 0), ("answer", 1), ("tick", 999), ("tick", 1), ("fail", 0), ("tick", 1_000), ("answer", 0)])
@example(1, 30_000, [("change", 0), ("fail", 0), ("tick", 1_000), ("refuse", 0), ("tick", 1_000)])
@example(1, 30_000, [("fail", 0), ("change", 0), ("answer", 0), ("tick", 1_000)])
@given(servers=st.integers(0, 3), period=st.sampled_from([1, 10_000, 30_000, 60_000, 99_000]), happened=events)
def test_registrations_are_made_when_the_model_makes_them(servers: int, period: int, happened: list[tuple[str, int]]) -> None:
    """HA-R-15 "with every name server it knows", HA-R-16 "again after 10 s", HA-BT-13 "registered with the
    name servers at once", HA-SE-41 "when that answer has come", HA-R-58 "MUST register with it again 1 s later"."""
    for registers_again in (False, True):
        registrations_of_both(servers, period, happened, registers_again=registers_again)


def registrations_of_both(servers: int, period: int, happened: list[tuple[str, int]], *, registers_again: bool) -> None:
    registrations, client, _ = registering(servers=servers, register_name_server_period=period, registers_again=registers_again)
    names = settings(servers).name_servers
    now_ms = 1_000
    registrations.start(now_ms)
    state, asked = reference.on_start(servers, period, now_ms, registers_again=registers_again)
    expected = [names[number] for number in asked]
    assert client.addresses() == expected
    for event, value in happened:
        if event == "tick":
            now_ms += value
            state, asked = reference.on_tick(state, now_ms)
        elif event == "change":
            registrations.topics_changed()
            state, asked = reference.on_change(state)
        else:
            if value >= servers or not state.servers[value].asked:
                continue
            expected.remove(names[value])
            client.answer(names[value], {"answer": 0, "refuse": 1, "fail": -1}[event])
            state, asked = reference.on_failure(state, value, now_ms) if event == "fail" else reference.on_answer(state, value)
        registrations.on_turn(now_ms)
        expected += [names[number] for number in asked]
        assert client.addresses() == expected


def test_a_registration_says_what_a_name_server_reads() -> None:
    """HA-R-15 "and its topics in the body"; HA-R-13 "MUST be `brokerIP2:haListenPort`"."""
    registrations, client, topics = registering(servers=1)
    registrations.start(0)
    [(_, command, deadline_ms, _)] = client.requests
    assert command.code == 103 and deadline_ms == 6_000
    found = read_registration(command, 100)
    assert (found.cluster_name, found.broker_name, found.broker_id) == ("cluster", "broker-a", 0)
    assert (found.broker_addr, found.ha_server_addr) == ("10.0.0.7:10911", "10.0.0.8:10912")
    assert set(found.topics) == set(topics.topic_config_table)
    orders = found.topics["orders"]
    assert (orders.read_queue_nums, orders.write_queue_nums, orders.perm) == (3, 4, 6)
    assert command.ext_fields["bodyCrc32"] == str(zlib.crc32(command.body) & 0x7FFFFFFF)


@pytest.mark.parametrize(("permission", "perm"), [(6, 6), (7, 6), (4, 4), (2, 2), (0, 0)])
def test_the_permission_of_the_broker_stands_before_that_of_a_topic(permission: int, perm: int) -> None:
    """HA-SE-40 "in place of the topic's own"."""
    registrations, client, _ = registering(servers=1, broker_permission=permission)
    registrations.start(0)
    found = read_registration(client.requests[0][1], 100)
    assert found.topics["orders"].perm == perm == reference.registered_perm(6, permission)
    assert found.topics["TBW102"].perm == (7 if perm == 6 else perm)


def test_the_answer_names_the_ordered_topics_and_the_master() -> None:
    """HA-BT-16 "that the name server lists as ordered"; an answer without a table changes no topic."""
    registrations, client, topics = registering(servers=1)
    told: list[tuple[str, str]] = []
    registrations.on_master = lambda ha_server_addr, master_addr: told.append((ha_server_addr, master_addr))
    registrations.start(0)
    client.answer(
        *settings(1).name_servers, body=json.dumps({"table": {"orders": "a:4"}}).encode(), haServerAddr="h", masterAddr="m"
    )
    assert topics.is_order_topic("orders") and told == [("h", "m")] and registrations.is_registered
    for body in (b"", b"{", b"[]", b'{"table":3}'):
        registrations.topics_changed()
        registrations.on_turn(1)
        client.answer(*settings(1).name_servers, body=body)
        assert topics.is_order_topic("orders")
    assert told[1:] == [("", "")] * 4


def test_a_failure_is_logged_once_until_a_registration_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    registrations, client, _ = registering(servers=1)
    address = settings(1).name_servers[0]
    registrations.start(0)
    for code in (-1, 1, 0, -1):
        client.answer(address, code)
        registrations.topics_changed()
        registrations.on_turn(1)
    texts = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert texts == [
        f"{address}: not registered, which is tried again: {address}: request 103 (REGISTER_BROKER): no answer in time",
        f"{address}: not registered, which is tried again: {address}: request 103 (REGISTER_BROKER): no answer in time",
    ]
    assert registrations.registrations == 1 and not registrations.is_registered


def test_each_name_server_has_its_last_registration_and_what_has_failed_since() -> None:
    registrations, client, _ = registering(servers=2)
    first, second = settings(2).name_servers
    assert registrations.name_servers == [(first, None, ""), (second, None, "")]
    registrations.start(1_000)
    client.answer(first)
    client.answer(second, -1)
    assert registrations.name_servers == [(first, 1_000, ""), (second, None, "no answer in time")]
    registrations.on_turn(11_000)
    client.answer(second)
    client.answer(first, 1)
    assert registrations.name_servers == [(first, 1_000, "code 1: remark"), (second, 11_000, "")]


def test_a_broker_that_stops_unregisters_everywhere() -> None:
    """HA-R-18 "SHOULD unregister, with code 104"."""
    registrations, client, _ = registering(servers=2)
    registrations.start(0)
    client.requests.clear()
    registrations.unregister_broker_all(100)
    names = {"brokerName": "broker-a", "brokerAddr": "10.0.0.7:10911", "clusterName": "cluster", "brokerId": "0"}
    assert [(command.code, command.ext_fields, until) for _, command, until, _ in client.requests] == [(104, names, 3_100)] * 2
    first, second = settings(2).name_servers
    client.answer(first)
    assert not registrations.has_left
    client.answer(second, -1)
    assert registrations.has_left


@pytest.mark.parametrize("answers", ["before", "after", "fails before", "fails after"])
def test_a_broker_that_has_said_goodbye_registers_no_more(answers: str) -> None:
    """HA-R-18: a registration that was to follow would put it on the routes again, for two minutes after its end."""
    registrations, client, _ = registering(servers=1)
    (server,) = settings(1).name_servers
    registrations.start(0)
    if "fails" not in answers:
        registrations.topics_changed()
    code = -1 if "fails" in answers else 0
    if "before" in answers:
        client.answer(server, code)
    registrations.unregister_broker_all(100)
    if "after" in answers:
        client.answer(server, code)
    for now_ms in (200, 5_000):
        registrations.on_turn(now_ms)
        assert [command.code for _, command, _, _ in client.requests] == [104]


@pytest.mark.parametrize(
    ("codes", "is_registered"), [((None, None), False), ((0, None), True), ((0, 1), False), ((-1, None), False), ((0, 0), True)]
)
def test_a_broker_is_registered_when_a_name_server_says_so_and_none_has_failed(
    codes: tuple[int | None, int | None], is_registered: bool
) -> None:
    registrations, client, _ = registering(servers=2)
    registrations.start(0)
    for server, code in zip(settings(2).name_servers, codes, strict=True):
        if code is not None:
            client.answer(server, code)
    assert registrations.is_registered is is_registered


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_a_broker_registers_again_as_its_profile_says(profile: Profile) -> None:
    """HA-R-58; RocketMQ waits for its next period."""
    hosts = ("10.0.0.7", 10911), ("10.0.0.7", 10912)
    found = _registration_settings(BrokerSettings(BrokerRole.ASYNC_MASTER, *hosts, profile=profile))
    assert found.registers_again is (profile is HARDENED)
