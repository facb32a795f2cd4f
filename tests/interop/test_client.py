"""Our producer, pull consumer and administrator at real brokers and a real name server. Chapter 15."""

import base64
import json
import subprocess
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from golden_cluster import BROKER_NAME, COMMON_CONF
from results import Results
from rocketmq import Rocketmq, wait
from servers import PATIENCE_S

from kit.command_line import COMMAND

TOPIC = "ClientInterop"
LINES = 300
ROW = tuple[int, int, int, str, str]  # queue id, queue offset, CRC-32 of the body, tags, keys


class Ours:
    """Our commands, at the name server of a release."""

    def __init__(self, rocketmq: Rocketmq) -> None:
        self._name_server = rocketmq.servers.namesrv

    def run(self, *words: object, lines: bytes = b"") -> list[str]:
        """The lines that a command prints. Raises: AssertionError with its error if it does not end well."""
        command = [*COMMAND, *map(str, words), "--namesrv", self._name_server]
        done = subprocess.run(command, input=lines, capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, (words, done.returncode, done.stderr.decode())
        return done.stdout.decode().splitlines()

    def json(self, *words: object, lines: bytes = b"") -> list[dict[str, Any]]:
        return list(map(json.loads, self.run(*words, "--json", lines=lines)))

    def consumed(self, topic: str, *words: object) -> list[ROW]:
        """What is left of a topic, or all of it; sorted."""
        found = map(
            json.loads, self.run("consume", "--topic", topic, "--from", "first", "--stop-at-end", "--body", "base64", *words)
        )
        return sorted(
            (
                each["queue_id"],
                each["queue_offset"],
                zlib.crc32(base64.b64decode(each["body_base64"])),
                each["tags"] or "",
                " ".join(each["keys"]),
            )
            for each in found
        )


def read_by_java(rocketmq: Rocketmq, topic: str) -> list[ROW]:
    """Our client in Java prints what a message has not as "null"."""
    rows = rocketmq.read_all(topic)
    return sorted((row[1], row[2], row[4], row[5].replace("null", ""), row[6].replace("null", "")) for row in rows)


def test_ours_at_a_real_broker(rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """Topics are made by us; what we send a real consumer reads, what a real producer sends we read; a group goes on."""
    rocketmq.start_broker("master", tmp_path / "store", "ASYNC_MASTER")
    address = f"127.0.0.1:{rocketmq.ports.master}"
    wait("the broker is registered", lambda: rocketmq.servers.knows(address))
    ours = Ours(rocketmq)
    results.check("clusters", [(COMMON_CONF["brokerClusterName"], BROKER_NAME, address)], [
        (each["cluster"], each["broker"], each["address"]) for each in ours.json("admin", "clusters")
    ])  # fmt: skip
    ours.run("admin", "create-topic", TOPIC, "--queues", 4)
    wait("the topic has a route", lambda: TOPIC in [each["topic"] for each in ours.json("admin", "topics")])
    (route,) = ours.json("admin", "routes", TOPIC)
    results.check("the topic's queues", (4, 4, 6), (route["read"], route["write"], route["perm"]))

    singles = b"".join(b"line %d\n" % number for number in range(LINES)) + b"z" * 9000 + b"\n"
    sent = ours.json("send", "--topic", TOPIC, "--tags", "one", "--keys", "k1 k2", lines=singles)
    sent += ours.json("send", "--topic", TOPIC, "--tags", "two", "--batch", 32, lines=singles)
    results.check("how our sends end", {"SEND_OK"}, {each["status"] for each in sent})
    places = sorted((each["queue_id"], each["queue_offset"]) for each in sent)
    wait("all are dispatched", lambda: len(read_by_java(rocketmq, TOPIC)) == len(sent))
    java = read_by_java(rocketmq, TOPIC)
    results.check("ours are where we were told", True, places == [(row[0], row[1]) for row in java])
    bodies = Counter(map(zlib.crc32, 2 * singles.splitlines()))
    results.check("the bodies", True, bodies == Counter(row[2] for row in java))
    results.check("tags and keys", {("one", "k1 k2"), ("two", "")}, {(row[3], row[4]) for row in java})
    results.check("read by ours", True, ours.consumed(TOPIC) == java)
    two = ours.consumed(TOPIC, "--tags", "two || three")
    results.check("those of a tag", len(sent) // 2, len(two))

    before = len(ours.consumed(TOPIC, "--group", "g"))
    results.check("a new group reads all", len(sent), before)
    results.check("theirs", {"SEND_OK": LINES}, rocketmq.send(TOPIC, LINES))
    wait("all are dispatched", lambda: len(read_by_java(rocketmq, TOPIC)) == len(sent) + LINES)
    behind = sum(each["lag"] for each in ours.json("admin", "progress", "g"))
    results.check("the lag of the group", LINES, behind)
    rest = ours.consumed(TOPIC, "--group", "g")
    results.check("the group goes on with what is new", LINES, len(rest))
    results.check("it is at the end", 0, sum(each["lag"] for each in ours.json("admin", "progress", "g")))
    ours.run("admin", "reset-offset", "g", TOPIC, "--to", "first")
    results.check("after a reset it reads all", len(sent) + LINES, len(ours.consumed(TOPIC, "--group", "g")))

    made = ours.json("send", "--topic", "MadeBySending", "--body", "x")
    results.check("a topic that the broker makes", "SEND_OK", made[0]["status"])
    ours.run("admin", "create-group", "made-group", "--retries", 3)
    groups = {each["group"]: each["retries"] for each in ours.json("admin", "groups")}
    results.check("a group that we made", 3, groups.get("made-group"))
    (status,) = ours.json("admin", "status")
    results.check("the broker's figures", True, "brokerVersionDesc" in status["figures"])
    ours.run("admin", "delete-topic", "MadeBySending")
    results.check("a topic that we deleted", False, "MadeBySending" in [
        each["topic"] for each in ours.json("admin", "topics")
    ])  # fmt: skip
