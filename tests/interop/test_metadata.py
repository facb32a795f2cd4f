"""The tables of real slaves and of ours: under one real master, and of a real slave under our master.

HA-MD-10, HA-MD-13 to HA-MD-15, HA-MD-30, HA-MD-32, HA-MD-34, HA-BT-73, HA-BT-81.
"""

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from our_broker import OurBroker
from results import Results
from rocketmq import Rocketmq, wait
from servers import PATIENCE_S

from kit.sends import fields_of
from rocketmq_ha.impl.errors import RequestFailed, RequestInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

TOPIC: Final = "MetadataInterop"
GROUP: Final = "MetadataGroup"
# file, its table: what is compared. A DataVersion is left out: 5.3.3 counts on by itself (HA-MD-11).
TABLES: Final = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
}


def ask(address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    with closing(RemotingClient()) as client:
        return client.ask(address, request(code, fields, body), 10_000)


def update_topic(address: str, topic: str) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert ask(address, 17, fields).code == 0


def commit(address: str, offset: int) -> None:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1", "commitOffset": str(offset)}
    assert ask(address, 15, fields).code == 0


def offset_at(address: str) -> int:
    """The group's offset that a broker answers; -1 for none."""
    try:
        answer = ask(address, 14, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1"})
    except RequestFailed:
        return -1
    return int(answer.ext_fields["offset"]) if answer.code == 0 else -1


def change_tables(address: str) -> None:
    """Topics, a group, an offset, and a delayed message that is due after a second."""
    for topic in (TOPIC, "MetadataDeleted"):
        update_topic(address, topic)
        for properties in ("", "DELAY\x011"):
            changed = {"topic": topic, "queueId": "1", "properties": properties}
            assert ask(address, 310, fields_of(310, **changed), b"body").code == 0
    group = {"groupName": GROUP, "retryMaxTimes": 7, "brokerId": 0}
    assert ask(address, 200, body=json.dumps(group).encode()).code == 0
    commit(address, 1)


def table(file: Path) -> Any:
    """The table of a file; None for one that is not there, or is just being written (by 5.3.3)."""
    try:
        found = body_json.read(file.read_bytes())[TABLES[file.name]]
    except (OSError, RequestInvalid):
        return None
    return found


def agree(results: Results, first: Path, second: Path) -> None:
    """Wait until two directories have the same tables: each is as late as its rounds are.

    Args:  second: where entries may have fields that the first release does not know.
    """
    for name in TABLES:
        deadline = time.monotonic() + PATIENCE_S
        while (differs := difference(table(first / name), table(second / name))) and time.monotonic() < deadline:
            time.sleep(0.2)
        results.check(f"{name}: entries that differ", {}, differs)


def difference(first: Any, second: Any) -> dict[str, Any]:
    """What two tables have by name, where they differ."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return {"tables": [first, second]}
    common = {
        name: {field: entry[field] for field in entry if field in first.get(name, ())} if isinstance(entry, dict) else entry
        for name, entry in second.items()
    }
    return {
        name: [first.get(name), second.get(name)] for name in sorted({*first, *second}) if first.get(name) != common.get(name)
    }


def test_two_slaves_of_a_real_master_have_the_same_tables(
    ours: OurBroker, rocketmq: Rocketmq, tmp_path: Path, results: Results
) -> None:
    """Ours takes whole tables, since the master tells no changes; a slave of 5.3.3 has them after a minute."""
    master = f"127.0.0.1:{rocketmq.ports.master}"
    rocketmq.start_broker("master", rocketmq.work / "master", "ASYNC_MASTER")
    rocketmq.start_broker("slave", tmp_path / "slave", "SLAVE")
    ours.run(brokerRole="SLAVE", brokerId="2", listenPort=str(rocketmq.ports.slave + 50), namesrvAddr=rocketmq.servers.namesrv)
    slave = f"127.0.0.1:{rocketmq.ports.slave + 50}"
    change_tables(master)
    wait("our slave has the offset", lambda: offset_at(slave) == 1, 30)
    wait("the delayed messages are delivered", lambda: table(rocketmq.work / "master/config/delayOffset.json") == {"1": 2}, 60)
    agree(results, tmp_path / "slave/config", ours.store / "config")
    results.check("a question that a real master does not know", 3, ask(master, 30043).code)

    commit(master, 0)  # as a reset does
    wait("a reset reaches our slave", lambda: offset_at(slave) == 0, 30)
    assert ask(master, 215, {"topic": "MetadataDeleted"}).code == 0
    deleted = ours.store / "config/deletedTopics.json"
    wait(
        "our slave deletes what its master has deleted",
        lambda: deleted.exists() and b"MetadataDeleted" in deleted.read_bytes(),
        30,
    )
    answer = ask(slave, 351, {"topic": "MetadataDeleted"})
    results.check("a topic that the master has deleted", 17, answer.code)


def test_a_real_slave_of_our_master_has_its_tables(
    ours: OurBroker, rocketmq: Rocketmq, tmp_path: Path, results: Results
) -> None:
    """5.3.3 asks for 402, 61 and 60 besides, and does without the last two."""
    ours.run(brokerRole="ASYNC_MASTER", namesrvAddr=rocketmq.servers.namesrv)
    rocketmq.start_broker("slave", tmp_path / "slave", "SLAVE")
    change_tables(ours.address)
    config = ours.store / "config"
    wait("the delayed messages are delivered", lambda: table(config / "delayOffset.json") == {"1": 2}, 60)
    agree(results, config, tmp_path / "slave/config")
    results.check("402", b'{"messageRequestModeMap":{}}', ask(ours.address, 402).body)
    results.check("60 and 61", [3, 3], [ask(ours.address, code).code for code in (60, 61)])
