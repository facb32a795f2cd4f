"""A name server's answers to questions, and the changes that it is asked for. HA-R-48 to HA-R-55."""

from pathlib import Path

import pytest

from kit.name_server import NAMES, NameServer, body_of, registration, topic_config
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode

A1 = NAMES["brokerAddr"]
B1 = "10.0.0.9:10911"


@pytest.fixture
def filled(name_server: NameServer) -> NameServer:
    """Two groups of two clusters: a has T, U and S, b has T alone."""
    name_server.serve(registration(body_of(topic_config("T"), topic_config("U", sys_flag=1), topic_config("S", sys_flag=2))))
    name_server.serve(registration(body_of(topic_config("T", queues=2)), brokerName="b", clusterName="d", brokerAddr=B1), "y")
    return name_server


def test_a_topic_that_no_group_has_is_answered_17(filled: NameServer) -> None:
    """HA-R-48 "MUST be answered with TOPIC_NOT_EXIST (17)"."""
    answer = filled.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="nobody's")
    assert (answer.code, answer.remark) == (17, "no broker has the topic nobody's")


def test_a_route_is_standard_json_for_every_client(filled: NameServer) -> None:
    """HA-R-49 "MUST be JSON with queueDatas, brokerDatas and filterServerTable, all its keys in quotes"."""
    old = filled.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
    new = filled.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", acceptStandardJsonOnly="true").body
    assert old == new
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in old
    assert b"orderTopicConf" not in old


def test_a_route_gives_the_order_of_a_topic_if_it_is_told_to(tmp_path: Path) -> None:
    """HA-R-49: with `orderMessageEnable`."""
    name_server = NameServer(tmp_path / "kv.json", order_message_enable=True)
    name_server.serve(registration(body_of(topic_config("T"), topic_config("U"))))
    name_server.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
    assert name_server.route("T")["orderTopicConf"] == "a:4"
    assert "orderTopicConf" not in name_server.route("U")


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (
            106,
            {},
            {
                "brokerAddrTable": {
                    "a": {"brokerAddrs": {"0": A1}, "brokerName": "a", "cluster": "c"},
                    "b": {"brokerAddrs": {"0": B1}, "brokerName": "b", "cluster": "d"},
                },
                "clusterAddrTable": {"c": ["a"], "d": ["b"]},
            },
        ),
        (206, {}, {"topicList": ["S", "T", "U"]}),
        (224, {"cluster": "d"}, {"topicList": ["T"]}),
        (224, {"cluster": "e"}, {"topicList": []}),
        (304, {}, {"topicList": ["a", "b", "c", "d"], "brokerAddr": A1}),
        (311, {}, {"topicList": ["U"]}),
        (312, {}, {"topicList": ["S"]}),
        (313, {}, {"topicList": ["S"]}),
        (
            901,
            {"brokerName": "a", "clusterName": "c"},
            {"brokerMemberGroup": {"brokerAddrs": {"0": A1}, "brokerName": "a", "cluster": "c"}},
        ),
        (
            901,
            {"brokerName": "z", "clusterName": "c"},
            {"brokerMemberGroup": {"brokerAddrs": {}, "brokerName": "z", "cluster": "c"}},
        ),
    ],
)
def test_each_question_has_its_answer(filled: NameServer, code: int, fields: dict[str, str], expected: object) -> None:
    """HA-R-50 "MUST answer the codes of the table as it says"."""
    assert filled.json(code, **fields) == expected


def test_without_a_broker_there_is_no_address(name_server: NameServer) -> None:
    assert name_server.json(304) == {"topicList": []}


def test_the_permission_to_write_is_taken_and_given(filled: NameServer) -> None:
    """HA-R-51 "MUST carry out the codes of the table as it says", 205 and 327."""
    assert filled.ask(205, brokerName="a").ext_fields == {"wipeTopicCount": "3"}
    assert [data["perm"] for data in filled.route("T")["queueDatas"]] == [4, 6]
    assert filled.ask(205, brokerName="z").ext_fields == {"wipeTopicCount": "0"}
    assert filled.ask(327, brokerName="a").ext_fields == {"addTopicCount": "3"}
    assert [data["perm"] for data in filled.route("T")["queueDatas"]] == [6, 6]


@pytest.mark.parametrize(("cluster", "left"), [(None, set()), ("", set()), ("c", {"b"}), ("d", {"a"}), ("e", {"a", "b"})])
def test_a_topic_is_forgotten(filled: NameServer, cluster: str | None, left: set[str]) -> None:
    """HA-R-51, code 216."""
    fields = {"topic": "T"} if cluster is None else {"topic": "T", "clusterName": cluster}
    assert filled.ask(216, **fields).code == ResponseCode.SUCCESS
    assert set(filled.brokers("T")) == left
    assert filled.ask(216, topic="nobody's").code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("groups", "listed"), [(["a"], {"a"}), (["a", "b"], {"a", "b"}), (["a", "z"], set()), ([], set())])
def test_a_topic_is_added_by_itself(filled: NameServer, groups: list[str], listed: set[str]) -> None:
    """HA-R-51, code 217."""
    rows = ",".join(f'{{"brokerName":"{name}","perm":6,"readQueueNums":3,"writeQueueNums":3}}' for name in groups)
    assert filled.ask(217, b'{"queueDatas":[%s]}' % rows.encode(), topic="N").code == ResponseCode.SUCCESS
    assert set(filled.brokers("N")) == listed


def test_the_configuration_is_shown_and_not_changed_by_the_network(name_server: NameServer) -> None:
    """HA-R-54 "MUST refuse code 318, which changes its configuration, with NO_PERMISSION (16)"; HA-R-55 "a line key=value for
    each setting".
    """
    shown = name_server.ask(RequestCode.GET_NAMESRV_CONFIG).body
    assert shown.startswith(b"listenPort=9876\nkvConfigPath=/")
    for body in (b"", b"listenPort=1\n", b"kvConfigPath=/etc/passwd\n", b"\xff"):
        assert name_server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body).code == 16
    assert name_server.ask(RequestCode.GET_NAMESRV_CONFIG).body == shown
