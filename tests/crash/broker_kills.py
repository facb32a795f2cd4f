"""Kill a broker, and then a name server, by kill -9 under load, many times: nothing acknowledged may be missing.

    PYTHONPATH=tests python tests/crash/broker_kills.py --rounds 100 --seed 1

The client is in this process, so it survives. It sends messages and commits offsets until the kill, and reads the answers that
had left the broker by then. Then the broker starts again on what is left, and must have:

- every acknowledged message, once, where the answer said; no queue offset is missing or given twice;
- of each queue the offset that the group had in `config/consumerOffset.json` at the kill, and no later one. The file is written
  10 s after the start and then every 5 s (HA-BT-33), so RocketMQ promises no more; the rounds "offsets" live long enough.

A name server keeps the KV configuration alone. Each value that it acknowledged must be there after its kill (HA-R-53), and the
broker, which goes on with its sends meanwhile, must register again.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from judge import Broken

from kit.brokers import pull_fields
from kit.sends import fields_of
from kit.waiting import LONG_S
from rocketmq_ha.fuzz.ports import free_port
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.fuzz.progress import run_progress
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.wire.message import decode

TOPIC: Final = "orders"
GROUP: Final = "group"
NAMESPACE: Final = "ns"
QUEUES: Final = 4
IN_FLIGHT: Final = 64
UNHELD: Final = "4"  # a pull with a subscription, which is answered at the end of a queue too
NEW_STORE_EVERY: Final = 10  # rounds
ANSWER_MS: Final = LONG_S * 1000
OFFSETS_S: Final = 17.0  # life of a broker that has written its offsets twice
MOMENTS: Final = ("load", "open", "close", "load", "load")
Told = RemotingCommand | RequestFailed


@dataclass
class Kills:
    """The results of all rounds."""

    rounds: Counter[str] = field(default_factory=Counter)  # number of rounds by the moment of the kill
    acknowledged: int = 0
    in_flight: list[int] = field(default_factory=list)  # sends in flight, in the rounds amid load
    offsets_lost_s: list[float] = field(default_factory=list)  # how old the oldest commit was that a kill lost
    values: int = 0  # acknowledged by a name server


class Load:
    """A client that keeps sends and commits of offsets in flight, and notes what was acknowledged."""

    def __init__(self, address: str, seed: str) -> None:
        self.address = address
        self.client = RemotingClient()
        self.acknowledged: dict[int, tuple[int, int, bytes]] = {}  # by number: queue id, queue offset, body
        self.committed: list[list[tuple[float, int]]] = [[] for _ in range(QUEUES)]  # when, and the offset
        self.in_flight = 0
        self._draw, self._number = random.Random(seed), 0

    def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            while self.in_flight < IN_FLIGHT:
                self._send()
            self.client.poll(20)

    def run_for(self, seconds: float, broker: Node) -> None:
        """Run for this time, and until some sends have been answered. Raises: FuzzError if the broker ends."""
        is_late, enough = after(seconds), len(self.acknowledged) + IN_FLIGHT

        def is_over() -> bool:
            broker.check()
            return is_late() and len(self.acknowledged) >= enough

        self.run(is_over)

    def drain(self) -> None:
        """Read the answers that had left the broker; the other sends fail with the connection."""
        deadline = time.monotonic() + LONG_S
        while self.in_flight:
            if time.monotonic() > deadline:
                raise Broken(f"{self.in_flight} sends have no outcome")
            self.client.poll(20)
        self.client.disconnect(self.address)

    def ask(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        return self.client.ask(self.address, request(code, fields), ANSWER_MS)

    def _send(self) -> None:
        number, self._number = self._number, self._number + 1
        body = b"%d %s" % (number, self._draw.randbytes(self._draw.randrange(400)))
        queue_id = number % QUEUES
        command = request(RequestCode.SEND_MESSAGE, fields_of(10, topic=TOPIC, queueId=str(queue_id)), body)
        self.in_flight += 1
        self.client.invoke(self.address, command, clock_ms() + ANSWER_MS, partial(self._on_sent, number, body))

    def _on_sent(self, number: int, body: bytes, told: Told) -> None:
        self.in_flight -= 1
        if isinstance(told, RequestFailed):
            return
        if told.code != ResponseCode.SUCCESS:
            raise Broken(f"send {number}: answered {told.code}: {told.remark}")
        queue_id, queue_offset = (int(told.ext_fields[name]) for name in ("queueId", "queueOffset"))
        self.acknowledged[number] = (queue_id, queue_offset, body)
        if number % 8 < QUEUES:
            self._commit(queue_id, queue_offset + 1)

    def _commit(self, queue_id: int, offset: int) -> None:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": str(offset)}
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

        def on_answer(told: Told) -> None:
            if isinstance(told, RemotingCommand) and told.code == ResponseCode.SUCCESS:
                self.committed[queue_id].append((time.monotonic(), offset))

        self.client.invoke(self.address, command, clock_ms() + ANSWER_MS, on_answer)


def check_messages(load: Load) -> None:
    """Every acknowledged message is there once, where its answer said. Raises: Broken."""
    held: dict[int, tuple[int, int, bytes]] = {}
    until = time.monotonic() + LONG_S
    for queue_id in range(QUEUES):
        expected = 0
        end = max((offset + 1 for queue, offset, _ in load.acknowledged.values() if queue == queue_id), default=0)
        while True:
            answer = load.ask(
                RequestCode.PULL_MESSAGE, pull_fields(expected, 0, topic=TOPIC, queueId=str(queue_id), sysFlag=UNHELD)
            )
            if answer.code != ResponseCode.SUCCESS:
                if expected >= end or time.monotonic() > until:
                    break
                time.sleep(0.01)  # the broker has answered the send, and not put the message into its queue yet
                continue
            left = answer.body
            while left:
                size = int.from_bytes(left[:4])
                message = decode(left[:size])
                if message.queue_offset != expected:
                    raise Broken(f"queue {queue_id}: expected offset {expected}, found {message.queue_offset}")
                number = int(message.body.split(b" ", 1)[0])
                if number in held:
                    raise Broken(f"message {number} is there twice: {held[number][:2]} and {queue_id, expected}")
                held[number] = (queue_id, expected, message.body)
                expected += 1
                left = left[size:]
    for number, found in load.acknowledged.items():
        if held.get(number) != found:
            raise Broken(f"message {number}: acknowledged {found!r:.100}; the broker has {held.get(number)!r:.100}")


def check_offsets(load: Load, written: dict[int, int], killed_at: float) -> float:
    """The group's offsets are those of the file at the kill. Raises: Broken.

    Returns: the age of the oldest commit that was lost, in s.
    """
    oldest = killed_at
    for queue_id in range(QUEUES):
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
        answer = load.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        found = int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else None
        # Of a group without an offset the broker says 0 while the first message is in memory (HA-BT-31).
        if found != written.get(queue_id) and (queue_id in written or found != 0):
            raise Broken(f"queue {queue_id}: the group is at {found}, the file had {written.get(queue_id)}")
        lost = [at for at, offset in load.committed[queue_id] if offset > (found or 0)]
        oldest = min([oldest, *lost])
        load.committed[queue_id] = [(at, offset) for at, offset in load.committed[queue_id] if offset <= (found or 0)]
    return killed_at - oldest


def written_offsets(store: Path) -> dict[int, int]:
    """What `config/consumerOffset.json` has of the group: its offset by queue id."""
    file = store / "config" / "consumerOffset.json"
    if not file.exists():
        return {}
    table = json.loads(file.read_text(encoding="utf-8"))["offsetTable"].get(f"{TOPIC}@{GROUP}", {})
    return {int(queue_id): offset for queue_id, offset in table.items()}


class Place:
    """Where a broker and its name server are: a directory, and ports that stay the same."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker, self.namesrv = (f"127.0.0.1:{free_port(-2)}" for _ in range(2))

    def start_broker(self, store: Path) -> Node:
        """Start it. It may not listen yet."""
        words = ("--store", str(store), "--listen", self.broker, "--ha-listen", "127.0.0.1:0", "--file-size", str(1 << 20))
        return Node(self.directory / "broker.log", "broker", *words, "--namesrv", self.namesrv)

    def start_namesrv(self) -> Node:
        words = ("--listen", self.namesrv, "--kv-config", str(self.directory / "kvConfig.json"))
        return Node(self.directory / "namesrv.log", "namesrv", *words)


def after(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def kill_broker(place: Place, store: Path, load: Load, moment: str, draw: random.Random, kills: Kills) -> None:
    """Run a broker until it is killed, start it again, and compare. Raises: Broken."""
    broker = place.start_broker(store)
    try:
        if moment == "open":
            time.sleep(draw.uniform(0, 1))
        else:
            broker.line("listening", LONG_S)
            load.run_for(OFFSETS_S if moment == "offsets" else draw.uniform(0.05, 0.4), broker)
            if moment == "close":
                broker.terminate()
                load.run(after(draw.uniform(0, 0.1)))
            else:
                kills.in_flight.append(load.in_flight)
    finally:
        broker.kill()
    killed_at = time.monotonic()
    load.drain()
    written = written_offsets(store)
    again = place.start_broker(store)
    try:
        again.line("listening", LONG_S)
        check_messages(load)
        kills.offsets_lost_s.append(check_offsets(load, written, killed_at))
    finally:
        again.kill()
        load.client.disconnect(load.address)
    kills.rounds[moment] += 1


def run(rounds: int, seed: int, directory: Path, told: Callable[[int], None] = lambda _: None, *, long: bool = True) -> Kills:
    """Kill a broker in each round, with a new store every 10. long: with rounds "offsets". Raises: Broken, with its round."""
    kills, place = Kills(), Place(directory)
    load = Load(place.broker, "")
    for number in range(rounds):
        draw = random.Random(f"{seed}/{number}")
        store = directory / f"store-{number // NEW_STORE_EVERY}"
        if number % NEW_STORE_EVERY == 0:
            load.client.close()
            load = Load(place.broker, f"{seed}/{number}")
        moment = "offsets" if long and number % NEW_STORE_EVERY == 5 else MOMENTS[number % len(MOMENTS)]
        before = len(load.acknowledged)
        try:
            kill_broker(place, store, load, moment, draw, kills)
        except Broken as broken:
            raise Broken(f"round {number} of seed {seed}, killed amid {moment}: {broken}") from broken
        kills.acknowledged += len(load.acknowledged) - before
        told(number + 1)
    load.client.close()
    return kills


class Values:
    """Puts of KV values at a name server, each once the one before it has its outcome."""

    def __init__(self, load: Load, place: Place, draw: random.Random) -> None:
        self._client, self._address, self._draw = load.client, place.namesrv, draw
        self.acknowledged: dict[str, str] = {}
        self.unsure: tuple[str, str] | None = None  # the put without an outcome: it may have been done
        self.is_open = True
        self.count = 0

    def put(self) -> None:
        key, value = f"key-{self._draw.randrange(50)}", str(self.count)
        self.unsure = key, value
        fields = {"namespace": NAMESPACE, "key": key, "value": value}
        command = request(RequestCode.PUT_KV_CONFIG, fields)
        self._client.invoke(self._address, command, clock_ms() + ANSWER_MS, self._on_answer)

    def _on_answer(self, told: Told) -> None:
        if isinstance(told, RequestFailed):
            self.is_open = False
            return
        if told.code != ResponseCode.SUCCESS or self.unsure is None:
            raise Broken(f"{self.unsure}: answered {told.code}: {told.remark}")
        key, value = self.unsure
        self.acknowledged[key], self.unsure = value, None
        self.count += 1
        self.put()

    def check(self) -> None:
        """The name server, which has started again, has them. Then the puts may go on. Raises: Broken."""
        for key, value in self.acknowledged.items():
            command = request(RequestCode.GET_KV_CONFIG, {"namespace": NAMESPACE, "key": key})
            found = self._client.ask(self._address, command, ANSWER_MS).ext_fields.get("value")
            if found != value and (key, found) != self.unsure:
                raise Broken(f"{key}: acknowledged {value}, the name server has {found}")
        if self.unsure is not None:
            self.acknowledged.pop(self.unsure[0], None)  # either value is right from now on
        self.is_open = True


def is_registered(load: Load, place: Place) -> bool:
    answer = load.client.ask(place.namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO), ANSWER_MS)
    return place.broker.encode() in answer.body


def run_namesrv(rounds: int, seed: int, directory: Path, told: Callable[[int], None] = lambda _: None) -> Kills:
    """Kill a name server in each round, while a broker that registers there takes messages. Raises: Broken, with its round."""
    kills, place = Kills(), Place(directory)
    load = Load(place.broker, f"{seed}")
    values = Values(load, place, random.Random(f"{seed} values"))
    namesrv, broker = place.start_namesrv(), place.start_broker(directory / "store")
    try:
        broker.line("listening", LONG_S)
        namesrv.line("listening", LONG_S)
        for number in range(rounds):
            draw = random.Random(f"{seed}/{number}")
            values.put()
            before = values.count
            load.run_for(draw.uniform(0.05, 0.5), broker)
            load.run(lambda before=before: values.count > before or not values.is_open)  # type: ignore[misc]
            namesrv.kill()
            load.run(lambda: not values.is_open)
            namesrv = place.start_namesrv()
            namesrv.line("listening", LONG_S)
            try:
                values.check()
            except Broken as broken:
                raise Broken(f"round {number} of seed {seed}: {broken}") from broken
            kills.rounds["name server"] += 1
            told(number + 1)
        load.drain()
        wait(lambda: is_registered(load, place), "the broker registers again")
        check_messages(load)
    finally:
        namesrv.kill()
        broker.kill()
        load.client.close()
    kills.acknowledged, kills.values = len(load.acknowledged), values.count
    return kills


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        if time.monotonic() > deadline:
            raise Broken(f"not within {LONG_S} s: {what}")
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for what, kill in (("broker", run), ("name server", run_namesrv)):
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="broker-kills-") as directory,
            run_progress(f"kills of a {what}", arguments.rounds) as told,
        ):
            try:
                kills = kill(arguments.rounds, arguments.seed, Path(directory), told)
            except Broken as broken:
                print(f"BROKEN {broken}")  # noqa: T201
                return 1
        moments = ", ".join(f"{count} amid {moment}" for moment, count in sorted(kills.rounds.items()))
        print(f"{what}: {kills.rounds.total()} kills ({moments}) in {time.monotonic() - began:.0f} s")  # noqa: T201
        print(f"{kills.acknowledged} messages acknowledged, none missing, none twice")  # noqa: T201
        if kills.values:
            print(f"{kills.values} KV values acknowledged, none missing")  # noqa: T201
        else:
            lost = max(kills.offsets_lost_s)
            print(f"the oldest commit of an offset that a kill lost was {lost:.1f} s old")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
