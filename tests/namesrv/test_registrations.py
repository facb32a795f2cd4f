"""What a name server makes of registrations, of unregistrations, and of connections that close. HA-R-10, HA-R-32 to HA-R-47."""

import logging
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from kit.name_server import NAMES, NameServer, body_of, compressed_body, registration, topic_config
from rocketmq_ha.impl.namesrv.route_info_manager import RouteLimits
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.reference import route_table as model

A1 = NAMES["brokerAddr"]
A2 = "10.0.0.2:10911"
T = body_of(topic_config("T"))
SLAVE = {"brokerAddr": A2, "haServerAddr": "10.0.0.2:10912"}


def test_a_master_is_told_of_nobody_and_its_topics_have_a_route(name_server: NameServer) -> None:
    """HA-R-3 "MUST count as one group"; HA-R-19 "each with the addresses of its group by brokerId"."""
    answer = name_server.serve(registration(T))
    assert (answer.code, answer.ext_fields, answer.body) == (ResponseCode.SUCCESS, {}, b"")
    name_server.serve(registration(T, 1, **SLAVE))
    assert name_server.route("T") == {
        "brokerDatas": [{"brokerAddrs": {"0": A1, "1": A2}, "brokerName": "a", "cluster": "c"}],
        "filterServerTable": {},
        "queueDatas": [{"brokerName": "a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}],
    }


def test_a_slave_is_told_of_its_master_while_that_is_listed(name_server: NameServer) -> None:
    """HA-R-10 "of the group's master if that is alive"."""
    assert name_server.serve(registration(T, 1, **SLAVE)).ext_fields == {}
    name_server.serve(registration(T))
    told = {"haServerAddr": NAMES["haServerAddr"], "masterAddr": A1}
    assert name_server.serve(registration(T, 1, **SLAVE)).ext_fields == told
    name_server.ask(RequestCode.UNREGISTER_BROKER, **NAMES, brokerId="0")
    assert name_server.serve(registration(T, 1, **SLAVE)).ext_fields == {}


@pytest.mark.parametrize(
    ("field", "expected"),
    [*((name, "text") for name in ("brokerName", "brokerAddr", "clusterName", "haServerAddr")), ("brokerId", "an i64")],
)
def test_a_registration_without_a_field_is_refused(name_server: NameServer, field: str, expected: str) -> None:
    """HA-R-32 "whose header lacks a field of the table that is not optional, with SYSTEM_ERROR, and change nothing"."""
    request = registration(T)
    del request.ext_fields[field]
    answer = name_server.serve(request)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"field {field}: found nothing, expected {expected}",
    )
    assert not name_server.routes.broker_live_table


@pytest.mark.parametrize("field", ["compressed", "bodyCrc32"])
def test_an_optional_field_may_be_missing(name_server: NameServer, field: str) -> None:
    request = registration(T)
    del request.ext_fields[field]
    assert name_server.serve(request).code == ResponseCode.SUCCESS
    assert name_server.brokers("T") == {"a": {"0": A1}}


@pytest.mark.parametrize(("crc", "is_taken"), [("0", True), ("1", False), ("-1", False), (None, True)])
def test_a_body_with_another_crc_is_refused(name_server: NameServer, crc: str | None, *, is_taken: bool) -> None:
    """HA-R-33 "is not 0, and not the CRC-32 of the body as it was sent"."""
    changes = {} if crc is None else {"bodyCrc32": crc}
    assert (name_server.serve(registration(T, **changes)).code == ResponseCode.SUCCESS) is is_taken
    assert bool(name_server.brokers("T")) is is_taken


def test_the_crc_has_no_highest_bit(name_server: NameServer) -> None:
    """HA-R-33 "without its highest bit": the CRC-32 of b"{}" with it is 2745614147."""
    assert name_server.serve(registration(b"{}", bodyCrc32=str(2745614147 & 0x7FFFFFFF))).code == ResponseCode.SUCCESS


def test_a_compressed_body_is_read(name_server: NameServer) -> None:
    """HA-R-34 "as the zlib stream below if compressed is true"; its CRC is that of what was sent."""
    body = compressed_body(b'{"counter":1,"timestamp":7}', b"T 4 3 2 SINGLE_TAG", b"U 1 1 6 MULTI_TAG")
    assert name_server.serve(registration(body, compressed="true")).code == ResponseCode.SUCCESS
    assert name_server.route("T")["queueDatas"] == [
        {"brokerName": "a", "perm": 2, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 3}
    ]
    assert name_server.brokers("U")


@pytest.mark.parametrize("behind", [b" {}", b' {"+message.type":"NORMAL"}', b' {"a":"b c"}', b" ", b" \xff\n"])
def test_attributes_of_a_topic_do_not_count(name_server: NameServer, behind: bytes) -> None:
    """HA-R-34 "filter type of a topic does not count": 5.x puts the topic's attributes there."""
    body = compressed_body(b"{}", b"T 4 3 2 SINGLE_TAG" + behind, b"U 1 1 6 SINGLE_TAG")
    assert name_server.serve(registration(body, compressed="true")).code == ResponseCode.SUCCESS
    assert name_server.route("T")["queueDatas"][0]["writeQueueNums"] == 3
    assert name_server.brokers("U")


@pytest.mark.parametrize(
    ("body", "compressed"),
    [
        (compressed_body(b"{}", b"T 4 4 6 SINGLE_TAGx"), "true"),
        (b"x", "false"),
        (b"[]", "false"),
        (b'{"topicConfigSerializeWrapper":1}', "false"),
        (body_of({"topicName": "T", "perm": 1 << 31}), "false"),
        (T[:-1], "false"),
        (T, "true"),
        (compressed_body(b"{}")[:-1], "true"),
        (compressed_body(b"{"), "true"),
        (zlib.compress(b""), "true"),
        (zlib.compress(b"\0\0\0\x09{}"), "true"),  # a part of 9 bytes where 2 are left
        (compressed_body(b"{}", b"T 4 4 6"), "true"),
        (compressed_body(b"{}", b"T 4 4 6 SINGLE"), "true"),
        (compressed_body(b"{}", b"T 4 x 6 SINGLE_TAG"), "true"),
        (compressed_body(b"{}", b"T 4 2147483648 6 SINGLE_TAG"), "true"),
        (compressed_body(b"{}", b"T\xff 4 4 6 SINGLE_TAG"), "true"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(name_server: NameServer, body: bytes, compressed: str) -> None:
    """HA-R-34 "A body that it cannot read MUST be refused with SYSTEM_ERROR, and change nothing"."""
    answer = name_server.serve(registration(body, compressed=compressed))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "\n" not in answer.remark
    assert not name_server.routes.broker_live_table


def test_a_body_that_inflates_to_more_than_a_frame_is_refused(name_server: NameServer) -> None:
    bomb = compressed_body(b"{}", behind=bytes(16 * 1024 * 1024))
    answer = name_server.serve(registration(bomb, compressed="true"))
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "body: found more than 16777216 bytes, expected a zlib stream of fewer",
    )


def test_a_registration_without_a_body_lists_the_broker(name_server: NameServer) -> None:
    assert name_server.serve(registration()).code == ResponseCode.SUCCESS
    assert list(name_server.routes.broker_live_table) == [A1]


def test_a_slaves_topics_count_from_5_0_0_on_while_it_has_the_least_id(name_server: NameServer) -> None:
    """HA-R-35 "of one that gives enableActingMaster if no broker of its group has a smaller id"; of a 4.x slave "MUST NOT take
    those of any other".
    """
    name_server.serve(registration(T, 1, **SLAVE))
    assert name_server.route("T") is None
    name_server.serve(registration(T, 1, **SLAVE, enableActingMaster="false"))
    assert name_server.brokers("T") == {"a": {"1": A2}}
    third = {"brokerAddr": "10.0.0.3:10911", "enableActingMaster": "true"}
    name_server.serve(registration(body_of(topic_config("U")), 2, **third))
    assert name_server.route("U") is None


def test_topics_change_with_the_version_alone(name_server: NameServer) -> None:
    """HA-R-36 "if the address was not listed with that group, id and DataVersion, or if the group has nothing of that topic",
    "else it MUST change nothing".
    """
    name_server.serve(registration(T))
    name_server.serve(registration(body_of(topic_config("T", queues=8), topic_config("U"))))
    assert name_server.route("T")["queueDatas"][0]["readQueueNums"] == 4
    assert name_server.brokers("U")
    name_server.serve(registration(body_of(topic_config("T", queues=8), counter=2)))
    assert name_server.route("T")["queueDatas"][0]["readQueueNums"] == 8


def test_a_topic_that_another_group_has_comes_back_all_the_same(name_server: NameServer) -> None:
    """HA-R-36 "or if the group has nothing of that topic": what other groups have of it does not count."""
    name_server.serve(registration(T, brokerName="b", clusterName="d", brokerAddr="10.0.0.9:10911"))
    name_server.serve(registration(T))
    name_server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T", clusterName="c")
    assert set(name_server.brokers("T")) == {"b"}
    name_server.serve(registration(T))
    assert set(name_server.brokers("T")) == {"a", "b"}


def test_a_promoted_slave_brings_its_topics(name_server: NameServer) -> None:
    """HA-R-36 "listed with that group, id and DataVersion": its id was another one."""
    name_server.serve(registration(T))
    own = body_of(topic_config("T", queues=2))
    name_server.serve(registration(own, 1, **SLAVE))
    name_server.serve(registration(own, 0, **SLAVE))
    assert name_server.brokers("T") == {"a": {"0": A2}}
    assert name_server.route("T")["queueDatas"][0]["readQueueNums"] == 2


def test_a_topic_that_is_not_named_stays(name_server: NameServer) -> None:
    """HA-R-37 "MUST NOT take a topic off because a registration does not name it"."""
    name_server.serve(registration(T))
    name_server.serve(registration(body_of(topic_config("U"), counter=2)))
    assert name_server.brokers("T")
    assert name_server.brokers("U")


def test_an_address_is_in_one_place(name_server: NameServer) -> None:
    """HA-R-38 "its address under no other group and no other id"; the group that it has left is gone."""
    name_server.serve(registration(T))
    name_server.serve(registration(body_of(topic_config("U")), brokerName="b"))
    assert name_server.route("T") is None
    assert name_server.brokers("U") == {"b": {"0": A1}}


def test_a_broker_whose_id_is_taken_is_no_longer_listed(name_server: NameServer) -> None:
    """HA-R-38 "a broker that had the id before MUST no longer be listed"."""
    name_server.serve(registration(T), "old")
    name_server.serve(registration(T, 0, **SLAVE), "new")
    assert name_server.brokers("T") == {"a": {"0": A2}}
    name_server.routes.on_channel_close("old", 0)
    assert name_server.brokers("T") == {"a": {"0": A2}}


def test_brokers_that_take_each_others_place_are_warned_of(name_server: NameServer, caplog: pytest.LogCaptureFixture) -> None:
    """Two brokers of one name and id are a mistake of configuration; one that comes alone, or again, is none."""
    with caplog.at_level(logging.WARNING):
        name_server.serve(registration(T))
        name_server.serve(registration(T))
        name_server.serve(registration(T, 1, **SLAVE))
        assert caplog.messages == []
        name_server.serve(registration(T, 0, **SLAVE))
        name_server.serve(registration(T))
    taken = "broker %s is listed as id 0 of a, instead of %s: expected one broker with this id"
    assert caplog.messages == [taken % (A2, A1), taken % (A1, A2)]


def test_a_master_of_an_older_term_is_not_listed(name_server: NameServer, caplog: pytest.LogCaptureFixture) -> None:
    """HA-R-39 "without haServerAddr and masterAddr, and its address MUST NOT be listed"."""
    name_server.serve(registration(body_of(topic_config("T"), state_version=3)))
    with caplog.at_level(logging.WARNING):
        answer = name_server.serve(registration(body_of(topic_config("T"), state_version=2), 0, **SLAVE))
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
    assert name_server.brokers("T") == {"a": {"0": A1}}
    assert f"{A2}: not listed as id 0 of a: {A1} has it since a later term" in caplog.text
    name_server.serve(registration(body_of(topic_config("T"), state_version=3), 0, **SLAVE))
    assert name_server.brokers("T") == {"a": {"0": A2}}


@pytest.mark.parametrize(("fields", "limit_ms"), [({}, 120_000), ({"heartbeatTimeoutMillis": "5000"}, 5_000)])
def test_a_silent_broker_is_taken_off(name_server: NameServer, fields: dict[str, str], limit_ms: int) -> None:
    """HA-R-17 "from which nothing has come for more than 120 s"; HA-R-40 "after that time instead of 120 s"; HA-R-42 "MUST
    close the connection of a broker".
    """
    name_server.serve(registration(T, **fields), "x")
    assert name_server.routes.scan_not_active_broker(limit_ms) == []
    assert name_server.routes.scan_not_active_broker(limit_ms + 1) == ["x"]
    assert name_server.route("T") is None


def test_a_shared_connection_stays_while_a_broker_needs_it(name_server: NameServer) -> None:
    """HA-R-42 "unless another broker is listed that registered by it"."""
    name_server.serve(registration(T), "x")
    name_server.now_ms = 60_000
    name_server.serve(registration(T, 1, **SLAVE), "x")
    assert name_server.routes.scan_not_active_broker(120_001) == []
    assert name_server.brokers("T") == {"a": {"1": A2}}


@pytest.mark.parametrize("sign", ["registration", "heartbeat", "question"])
def test_a_sign_of_life_keeps_a_broker(name_server: NameServer, sign: str) -> None:
    """HA-R-46 "an equal one MUST count as a sign of life"; HA-R-50, code 904."""
    name_server.serve(registration(T))
    name_server.now_ms = 100_000
    fields = {**NAMES, "brokerId": "0"}
    match sign:
        case "registration":
            name_server.serve(registration(T))
        case "heartbeat":
            name_server.ask(RequestCode.BROKER_HEARTBEAT, **fields)
        case "question":
            name_server.ask(RequestCode.QUERY_DATA_VERSION, b'{"counter":1,"timestamp":7}', **fields)
    assert name_server.routes.scan_not_active_broker(220_000) == []
    assert len(name_server.routes.scan_not_active_broker(220_001)) == 1


def test_the_question_says_whether_topics_have_changed(name_server: NameServer) -> None:
    """HA-R-46 "MUST say in changed whether the DataVersion of its body differs", "have the latter as its body"."""
    fields = {**NAMES, "brokerId": "0"}
    answer = name_server.ask(RequestCode.QUERY_DATA_VERSION, b'{"counter":1,"timestamp":7}', **fields)
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
    name_server.serve(registration(T))
    for counter, changed in ((1, "false"), (2, "true")):
        asked = b'{"counter":%d,"timestamp":7}' % counter
        answer = name_server.ask(RequestCode.QUERY_DATA_VERSION, asked, **fields)
        assert (answer.ext_fields, answer.body) == ({"changed": changed}, b'{"counter":1,"timestamp":7,"stateVersion":0}')


def test_a_close_takes_the_brokers_of_the_connection_off(name_server: NameServer) -> None:
    """HA-R-41 "the brokers whose last registration came by it MUST be taken off the routes, and no others"; HA-R-17 "whose
    connection has closed".
    """
    name_server.serve(registration(T), "x")
    name_server.serve(registration(T, 1, **SLAVE), "x")
    name_server.serve(registration(T, brokerName="b", brokerAddr="10.0.0.3:10911"), "y")
    name_server.routes.on_channel_close("x", 0)
    assert name_server.brokers("T") == {"b": {"0": "10.0.0.3:10911"}}


def test_a_late_close_leaves_the_newer_registration(name_server: NameServer) -> None:
    """HA-R-41 "however late the close is seen"."""
    name_server.serve(registration(T), "old")
    name_server.serve(registration(T), "new")
    name_server.routes.on_channel_close("old", 0)
    assert name_server.brokers("T") == {"a": {"0": A1}}
    name_server.routes.on_channel_close("new", 0)
    assert name_server.brokers("T") == {}


def test_a_late_unregistration_leaves_the_successor(name_server: NameServer) -> None:
    """HA-R-43 "MUST take off the broker of the address that it gives if that is listed in the group that it gives, and nothing
    else".
    """
    name_server.serve(registration(T, 0, **SLAVE))
    gone = {**NAMES, "brokerId": "0"}
    assert name_server.ask(RequestCode.UNREGISTER_BROKER, **gone).code == ResponseCode.SUCCESS
    assert name_server.brokers("T") == {"a": {"0": A2}}
    name_server.ask(RequestCode.UNREGISTER_BROKER, **{**gone, **SLAVE, "brokerName": "b"})
    assert name_server.brokers("T") == {"a": {"0": A2}}
    name_server.ask(RequestCode.UNREGISTER_BROKER, **{**gone, **SLAVE})
    assert name_server.brokers("T") == {}


def test_the_topics_stay_until_the_last_broker_of_the_group_goes(name_server: NameServer) -> None:
    """HA-R-44 "While a broker is left, the topics MUST stay", "a topic without queues and a cluster without groups MUST be
    forgotten".
    """
    name_server.serve(registration(T), "x")
    name_server.serve(registration(T, 1, **SLAVE), "y")
    name_server.routes.on_channel_close("x", 0)
    assert name_server.brokers("T") == {"a": {"1": A2}}
    name_server.routes.on_channel_close("y", 0)
    assert name_server.json(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": []}
    empty = {"brokerAddrTable": {}, "clusterAddrTable": {}}
    assert name_server.json(RequestCode.GET_BROKER_CLUSTER_INFO) == empty


def test_the_answer_has_the_topics_whose_messages_are_ordered(name_server: NameServer) -> None:
    """HA-R-45 "SHOULD have the table of the namespace ORDER_TOPIC_CONFIG"."""
    name_server.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
    assert name_server.serve(registration(T)).body == b'{"table":{"T":"a:4"}}'


def test_name_servers_know_nothing_of_each_other(name_server: NameServer, tmp_path: Path) -> None:
    """HA-R-47 "each has the routes that brokers register with it, in memory alone"."""
    name_server.serve(registration(T))
    assert NameServer(tmp_path / "namesrv" / "kvConfig.json").route("T") is None


def test_what_a_name_server_holds_is_bounded(tmp_path: Path) -> None:
    """HA-R-56 "that would make a name server hold more brokers, more topics of groups or more texts than it was told to, or a
    longer name, or one with a control character".
    """
    name_server = NameServer(tmp_path / "kv.json", limits=RouteLimits(brokers=2, queue_datas=3), kv_size=100)
    assert name_server.serve(registration(body_of(topic_config("T"), topic_config("U")))).code == ResponseCode.SUCCESS
    assert name_server.serve(registration(T, 1, **SLAVE)).code == ResponseCode.SUCCESS
    full = [
        registration(T, 2, brokerAddr="10.0.0.3:10911"),
        registration(body_of(topic_config("V"), topic_config("W"), counter=2)),
        RemotingCommand(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            ext_fields={"topic": "n" * 513},
            body=b'{"queueDatas":[{"brokerName":"a"}]}',
        ),
        registration(body_of(topic_config("n" * 513), counter=2)),
        registration(T, clusterName="n" * 513),
        RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields={"namespace": "n", "key": "k", "value": "v" * 100}),
        RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields={"namespace": "n" * 513, "key": "k", "value": "v"}),
    ]
    before = name_server.json(RequestCode.GET_BROKER_CLUSTER_INFO)
    for request in full:
        answer = name_server.serve(request)
        assert answer.code == ResponseCode.SYSTEM_ERROR, request
        assert "at most" in str(answer.remark)
    assert name_server.json(RequestCode.GET_BROKER_CLUSTER_INFO) == before
    assert name_server.json(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": ["T", "U"]}
    # What is there already may register again, and one more topic of a group fits.
    assert name_server.serve(registration(body_of(topic_config("V"), counter=3))).code == ResponseCode.SUCCESS
    one_more = name_server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, b'{"queueDatas":[{"brokerName":"a"}]}', topic="X")
    assert one_more.code == ResponseCode.SYSTEM_ERROR


A3 = "10.0.0.3:10911"


def said_of(broker_id: int = 0, **changes: str) -> model.Registration:
    """What `registration(T, ...)` says, for the model."""
    fields = {**NAMES, **changes}
    cluster, name, addr, ha_addr = (fields[key] for key in ("clusterName", "brokerName", "brokerAddr", "haServerAddr"))
    topics = (("T", model.QueueData(4, 4, 6)),)
    return model.Registration(cluster, name, broker_id, addr, ha_addr, model.DataVersion(1, 7), topics)


@pytest.mark.parametrize(
    ("broker_id", "changes", "listed"),
    [
        pytest.param(0, {}, {"a": {"0": A1, "1": A2}}, id="the master again"),
        pytest.param(2, {}, {"a": {"1": A2, "2": A1}}, id="the master with another id"),
        pytest.param(1, {}, {"a": {"1": A1}}, id="the master with the id of its slave"),
        pytest.param(0, {"brokerName": "b"}, {"b": {"0": A1}, "a": {"1": A2}}, id="the master in another group"),
        pytest.param(0, {"clusterName": "d"}, {"a": {"0": A1, "1": A2}}, id="the master in another cluster"),
        pytest.param(0, {"brokerAddr": A3}, {"a": {"0": A3, "1": A2}}, id="another master in its place"),
        pytest.param(1, {"brokerAddr": A3}, {"a": {"0": A1, "1": A3}}, id="another slave in its place"),
        pytest.param(2, {"brokerAddr": A3}, None, id="a third of the group"),
        pytest.param(0, {"brokerAddr": A3, "brokerName": "b"}, None, id="a third in a group of its own"),
    ],
)
def test_a_full_name_server_refuses_new_brokers_alone(
    tmp_path: Path, broker_id: int, changes: dict[str, str], listed: dict[str, dict[str, str]] | None
) -> None:
    """HA-R-56 "that would make a name server hold more brokers": one that is listed under whatever id, and one that takes the
    place of another, makes none more. Here two are listed, and no more may be.
    """
    bounds, table = model.Bounds(2, 9), model.RouteTable()
    for said in (said_of(), said_of(1, **SLAVE), said_of(broker_id, **changes)):
        table, told = model.register(table, said, 1, 0, bounds)
    assert (told is None) is (listed is None)
    if listed is not None:
        assert {
            name: {str(key): addr for key, addr in addrs.items()} for name, (_, addrs) in model.groups(table).items()
        } == listed
    name_server = NameServer(tmp_path / "kv.json", limits=RouteLimits(brokers=2, queue_datas=9))
    name_server.serve(registration(T))
    name_server.serve(registration(T, 1, **SLAVE))
    before = name_server.json(RequestCode.GET_BROKER_CLUSTER_INFO)
    answer = name_server.serve(registration(T, broker_id, **changes))
    after = name_server.json(RequestCode.GET_BROKER_CLUSTER_INFO)
    if listed is None:
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "brokers: found 2 and a new one, expected at most 2 (--max-brokers)",
        )
        assert after == before
        return
    assert answer.code == ResponseCode.SUCCESS
    found = {name: data["brokerAddrs"] for name, data in after["brokerAddrTable"].items()}
    assert found == listed


def test_a_group_is_in_every_cluster_that_a_broker_of_it_has_named(name_server: NameServer) -> None:
    """HA-R-50, code 106: also one that a broker names which is listed already; its own is the first one."""
    name_server.serve(registration(T))
    name_server.serve(registration(T, 1, **SLAVE, clusterName="d"))
    name_server.serve(registration(T, clusterName="e"))
    found = name_server.json(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert found["clusterAddrTable"] == {"c": ["a"], "d": ["a"], "e": ["a"]}
    assert found["brokerAddrTable"]["a"]["cluster"] == "c"
    for cluster in ("c", "d", "e"):
        assert name_server.json(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=cluster) == {"topicList": ["T"]}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (T, ResponseCode.SUCCESS),
        (body_of(topic_config("T", queues=8), counter=2), ResponseCode.SUCCESS),
        (body_of(topic_config("U", queues=8), counter=2), ResponseCode.SUCCESS),
        (body_of(counter=2), ResponseCode.SUCCESS),
        (b"", ResponseCode.SUCCESS),
        (body_of(topic_config("T"), topic_config("V"), counter=2), ResponseCode.SYSTEM_ERROR),
        (body_of(topic_config("T"), topic_config("V")), ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_full_name_server_refuses_new_topics_alone(tmp_path: Path, body: bytes, code: ResponseCode) -> None:
    """HA-R-56 "more topics of groups": what is there may change, and who brings none may come."""
    name_server = NameServer(tmp_path / "kv.json", limits=RouteLimits(brokers=9, queue_datas=2))
    name_server.serve(registration(body_of(topic_config("T"), topic_config("U"))))
    assert name_server.serve(registration(body)).code == code
    assert name_server.json(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": ["T", "U"]}
    assert name_server.serve(registration(T, 1, **SLAVE)).code == ResponseCode.SUCCESS
    others = registration(T, brokerName="b", brokerAddr=A3)
    assert name_server.serve(others).code == ResponseCode.SYSTEM_ERROR


def test_a_topic_that_changes_counts_once(tmp_path: Path) -> None:
    """HA-R-56 "more topics of groups": the same one is not more."""
    name_server = NameServer(tmp_path / "kv.json", limits=RouteLimits(brokers=9, queue_datas=2))
    same = b'{"queueDatas":[{"brokerName":"a"}]}'
    for counter in range(1, 4):
        changed = registration(body_of(topic_config("T", queues=counter), counter=counter))
        assert name_server.serve(changed).code == ResponseCode.SUCCESS
        assert name_server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, same, topic="T").code == ResponseCode.SUCCESS
    assert name_server.routes.queue_data_count == 1
    assert name_server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, same, topic="U").code == ResponseCode.SUCCESS
    assert name_server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, same, topic="V").code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("others", "before", "now", "is_taken"),
    [
        pytest.param((), None, 1, True, id="alone"),
        pytest.param((), 1, 2, True, id="alone, with a greater id than before"),
        pytest.param((), 2, 1, True, id="alone, with a smaller id than before"),
        pytest.param((), 0, 1, True, id="alone, a master before"),
        pytest.param((3,), 1, 2, True, id="another with a greater id, and itself with a smaller one before"),
        pytest.param((1,), 3, 2, False, id="another with a smaller id"),
        pytest.param((1,), None, 1, True, id="in the place of another"),
        pytest.param((1, 2), 2, 1, True, id="in the place of the least"),
        pytest.param((0,), 2, 1, False, id="a master"),
        pytest.param((3,), None, 1, True, id="the least of two"),
    ],
)
def test_the_least_id_of_the_others_says_who_acts_as_master(
    name_server: NameServer, others: tuple[int, ...], before: int | None, now: int, *, is_taken: bool
) -> None:
    """HA-R-35 "of one that gives enableActingMaster if no broker of its group has a smaller id": its own former one is none."""
    none, table = body_of(counter=9), model.RouteTable()
    listed = [] if before is None else [(before, SLAVE)]
    listed += [(each, {"brokerAddr": f"10.0.1.{each}:10911"}) for each in others if each != before]
    for broker_id, changes in listed:
        name_server.serve(registration(none, broker_id, **changes))
        table, _ = model.register(table, replace(said_of(broker_id, **changes), topics=()), 1, 0, model.Bounds(9, 9))
    name_server.serve(registration(T, now, **SLAVE, enableActingMaster="true"))
    acting = replace(said_of(now, **SLAVE), gives_acting_master=True)
    table, _ = model.register(table, acting, 1, 0, model.Bounds(9, 9))
    assert bool(name_server.route("T")) is is_taken is (model.route(table, "T") is not None)


@pytest.mark.parametrize(
    ("state_version", "held", "is_listed"), [(2, 3, False), (3, 3, True), (4, 3, True), (None, 1, False), (None, None, True)]
)
def test_the_term_of_another_broker_counts_and_not_its_own(
    name_server: NameServer, state_version: int | None, held: int | None, *, is_listed: bool
) -> None:
    """HA-R-39 "with a smaller stateVersion than that broker's": of another that has the id. The same broker may go back."""
    name_server.serve(registration(T, brokerName="other", **SLAVE))
    name_server.serve(registration(body_of(topic_config("T"), state_version=held)))
    name_server.serve(registration(body_of(topic_config("T"), state_version=state_version), 0, **SLAVE))
    listed = {"a": {"0": A2 if is_listed else A1}}
    assert name_server.brokers("T") == listed  # and the group `other` is gone in both cases
    again = registration(body_of(topic_config("T"), state_version=0), 0, **(SLAVE if is_listed else {}))
    name_server.serve(again)
    assert name_server.brokers("T") == listed
