"""What an administrator reads of the answers of brokers, those in Java among them. HA-C-1, HA-BT-64."""

import pytest

from kit.scripted_client import route_body
from rocketmq_ha.impl.client.admin import Admin, BrokerAddress
from rocketmq_ha.impl.client.object_keys import quote_object_keys
from rocketmq_ha.impl.client.route_data import MessageQueue
from rocketmq_ha.impl.errors import ConfigInvalid, RequestFailed, RequestInvalid, RequestRefused
from rocketmq_ha.impl.remoting.command import RemotingCommand

# As fastjson writes them: keys that are objects, and integers without quotes.
STATS = b"""{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":1,"topic":"{\\"T}"}:{"brokerOffset":9,"consumerOffset"
:4,"lastTimestamp":7},{"brokerName":"b","queueId":0,"topic":"{\\"T}"}:{"brokerOffset":3,"consumerOffset":3,"lastTimestamp":0}}}"""
TOPIC = (
    b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"{\\"T}"}:{"lastUpdateTimestamp":1,"maxOffset":9,"minOffset":2}}}'
)
CLUSTERS = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"b:1",1:"b:2"},"brokerName":"b"}},"clusterAddrTable":{"c":["b"]}}'


class Answers:
    """A client whose servers give fixed answers by code; None for no answer. asked: addresses and codes; fields: of each.

    dead: the addresses that do not answer; refusing: those that answer SYSTEM_ERROR.
    """

    def __init__(self, **by_code: RemotingCommand | bytes | None) -> None:
        self._answers = {int(code.removeprefix("c")): answer for code, answer in by_code.items()}
        self.dead: set[str] = set()
        self.refusing: set[str] = set()
        self.asked: list[tuple[str, int]] = []
        self.fields: list[dict[str, str]] = []

    def ask(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        del timeout_ms
        self.asked.append((address, command.code))
        self.fields.append(command.ext_fields)
        answer = self._answers.get(command.code)
        if address in self.dead or answer is None:
            raise RequestFailed(address, command.code, "no answer in time")
        if address in self.refusing:
            return RemotingCommand(1, flag=1, remark="no")
        return answer if isinstance(answer, RemotingCommand) else RemotingCommand(0, flag=1, body=answer)


def admin(answers: Answers) -> Admin:
    return Admin(answers, ["one:1", "two:2"])


def test_progress_at_a_broker_in_java() -> None:
    """HA-BT-64: fastjson writes a queue as a key that is an object."""
    found = admin(Answers(c208=STATS, c202=TOPIC)).progress("b:1", "g")
    assert [(each.queue.queue_id, each.min_offset, each.lag) for each in found] == [(0, 0, 0), (1, 2, 5)]
    assert found[1].queue == MessageQueue('{"T}', "b", 1)


def test_json_stays_as_it_is() -> None:
    for body in (b"{}", b'{"a":{"b":1},"c":[{"d":2}]}', b'{"{\\"a\\":1}:":{"b":"{}:"}}'):
        assert quote_object_keys(body) == body


def test_brokers_whose_ids_have_no_quotes() -> None:
    """HA-MD-21 "MUST accept map keys that are integers without quotes"."""
    asked = admin(Answers(c106=CLUSTERS))
    assert [(each.cluster, each.broker_id, each.address) for each in asked.brokers()] == [("c", 0, "b:1"), ("c", 1, "b:2")]
    assert [each.address for each in asked.masters(cluster="c", broker_name="b")] == ["b:1"]
    with pytest.raises(ConfigInvalid, match="expected one of the cluster other"):
        asked.masters(cluster="other")


def test_the_next_name_server_is_asked() -> None:
    """HA-C-1 "A name server that does not answer MUST be followed by the next one"."""
    answers = Answers(c105=route_body(("b", 1, {0: "b:1"})))
    answers.dead.add("one:1")
    assert admin(answers).route("T").addrs("b") == {0: "b:1"}
    answers.dead.add("two:2")
    with pytest.raises(RequestFailed, match="two:2"):
        admin(answers).route("T")


def test_a_topic_is_deleted_at_every_name_server_that_answers() -> None:
    answers = Answers(c106=CLUSTERS, c215=b"", c216=b"")
    asked = admin(answers)
    brokers = asked.masters()
    answers.dead.add("one:1")
    [failure] = asked.delete_topic("T", brokers)
    assert str(failure).startswith("one:1: ")
    assert answers.asked[1:] == [("b:1", 215), ("one:1", 216), ("two:2", 216)]
    answers.dead.add("two:2")
    with pytest.raises(RequestFailed):
        asked.delete_topic("T", brokers)


@pytest.mark.parametrize("refusing", ["one:1", "two:2"])
@pytest.mark.parametrize("other_answers", [True, False])
def test_a_name_server_that_refuses_to_delete_a_topic_is_told_of_after_all_were_asked(
    refusing: str, other_answers: bool
) -> None:
    """It still lists the topic, so the command has not done what it says; the others need not list it as well."""
    answers = Answers(c106=CLUSTERS, c215=b"", c216=b"")
    answers.refusing.add(refusing)
    if not other_answers:
        answers.dead |= {"one:1", "two:2"} - {refusing}
    asked = admin(answers)
    with pytest.raises(RequestRefused, match=f"^{refusing}: request DELETE_TOPIC_IN_NAMESRV: found the answer SYSTEM_ERROR"):
        asked.delete_topic("T", [BrokerAddress("c", "b", 0, "b:1")])
    assert answers.asked == [("b:1", 215), ("one:1", 216), ("two:2", 216)]


def test_a_broker_that_does_not_know_who_replicates() -> None:
    assert admin(Answers(c907=RemotingCommand(3, flag=1))).ha_status("b:1") is None
    with pytest.raises(RequestRefused, match="found the answer SYSTEM_ERROR"):
        admin(Answers(c907=RemotingCommand(1, flag=1, remark="no"))).ha_status("b:1")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"x":{}}}', b'{"offsetTable":{"[]":{}}}', STATS[:-9] + b"}}}"]
)
def test_an_answer_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(RequestInvalid):
        admin(Answers(c208=body, c202=TOPIC)).progress("b:1", "g")


@pytest.mark.parametrize("body", [b'{"brokerAddrTable":{"b":{"brokerAddrs":{"x":"y"}}}}', b'{"brokerAddrTable":{"b":7}}'])
def test_a_list_of_brokers_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(RequestInvalid):
        admin(Answers(c106=body)).brokers()


CONSUMERS = b'{"consumerIdList":["c1","c2"]}'


@pytest.mark.parametrize("code", [1, 2, 16, 25])
def test_a_group_without_consumers_is_told_from_a_broker_that_refuses(code: int) -> None:
    """38: SYSTEM_ERROR says that there are none. After any other refusal nobody knows, and offsets must not be reset."""
    assert admin(Answers(c38=CONSUMERS)).consumers("b:1", "g") == ["c1", "c2"]
    asked = admin(Answers(c38=RemotingCommand(code, flag=1, remark="no")))
    if code == 1:
        assert asked.consumers("b:1", "g") == []
    else:
        with pytest.raises(RequestRefused):
            asked.consumers("b:1", "g")


def test_a_refusal_of_a_name_server_is_an_answer() -> None:
    """HA-C-1 "A name server that does not answer MUST be followed by the next one": one that refuses has answered."""
    answers = Answers(c105=RemotingCommand(17, flag=1, remark="none"), c216=RemotingCommand(1, flag=1))
    with pytest.raises(RequestRefused, match="TOPIC_NOT_EXIST"):
        admin(answers).route("T")
    assert answers.asked == [("one:1", 105)]
    with pytest.raises(RequestRefused):
        admin(answers).delete_topic("T", [])


@pytest.mark.parametrize(
    ("where", "code", "timestamp"), [("first", 31, None), ("last", 30, None), (99, 29, "99"), (0, 29, "0")]
)
def test_the_offset_of_a_place(where: str | int, code: int, timestamp: str | None) -> None:
    told = RemotingCommand(0, flag=1, ext_fields={"offset": "7"})
    answers = Answers(**{f"c{code}": told})
    assert admin(answers).offset_of("b:1", MessageQueue("T", "b", 3), where) == 7
    assert answers.asked == [("b:1", code)]
    fields = {"topic": "T", "queueId": "3"} | ({} if timestamp is None else {"timestamp": timestamp})
    assert answers.fields == [fields]


def test_brokers_are_sorted_and_named_by_their_cluster() -> None:
    """That of a group is the one that it says; else the first that lists it."""
    body = (
        b'{"brokerAddrTable":{"z":{"brokerAddrs":{"1":"z:2","0":"z:1"},"cluster":"c1","brokerName":"z"},"a":{"brokerAddrs":'
        b'{"0":"a:1"},"brokerName":"a"}},"clusterAddrTable":{"c2":["a","z"],"c1":["z"]}}'
    )
    asked = admin(Answers(c106=body))
    assert [each.address for each in asked.brokers()] == ["z:1", "z:2", "a:1"]
    assert [each.address for each in asked.masters()] == ["z:1", "a:1"]
    assert [each.address for each in asked.masters(cluster="c2")] == ["a:1"]
    assert [each.address for each in asked.masters(broker_name="z")] == ["z:1"]
    with pytest.raises(ConfigInvalid, match="expected one of the cluster c2"):
        asked.masters(cluster="c2", broker_name="z")
