"""Run our master in its own process, where it is also the producer. Between two commands it serves its slaves.

Run as a program with the arguments STORE FILE_SIZE. It answers `port=N`. Then it reads commands, one per line. Each answers
`per_second=N` unless the list says otherwise:

    append COUNT         append messages to the log alone, without the master: the speed of the store
    async COUNT          put without waiting; the loop turns after every 64 puts
    sync COUNT K         put, with at most K puts waiting for the slave
    one COUNT            put one message at a time; also answers p50_us, the median time of a put
    paced RATE COUNT FILE  put without waiting at a steady rate; the loop turns after each put. FILE gets a line
                         `nanoseconds offset` for each put: its start (CLOCK_MONOTONIC), and the offset of its end
    slaves N             wait until N slaves are connected and have the whole log; answers slaves=N
    cpu                  answers seconds=S, the processor time used by the process
    end                  answers offset=N, the max offset of the log
"""

import select
import statistics
import sys
import time
from collections import deque
from itertools import cycle, islice
from pathlib import Path

from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

from .line_process import reply

MESSAGE_COUNT = 1024  # distinct messages, as in StoreBench
BODY_SIZE = 1024
ASYNC_TURN = 64  # puts between two turns of the loop
IDLE_MS = 5  # between two checks for a command
TIMEOUT_S = 120
TAGS = "TAGS\x01TagA"
READ_BUFFER_SIZE = 4096  # as in `rocketmq-ha master`

MESSAGES = [
    Message("Bench", bytes(BODY_SIZE), queue_id=n % 4, properties_string=TAGS, born_timestamp=1) for n in range(MESSAGE_COUNT)
]


class Bench:
    def __init__(self, log: CommitLog) -> None:
        self.log = log
        settings = Settings(mapped_file_size=log.file_size, master_read_buffer_size=READ_BUFFER_SIZE)
        self.master = Master(log, listen("127.0.0.1", 0), settings, HARDENED)

    def append(self, count: int) -> dict[str, float]:
        append = self.log.append
        started = time.perf_counter()
        for message in islice(cycle(MESSAGES), count):
            append(message)
        return _rate(count, started)

    def put_async(self, count: int) -> dict[str, float]:
        put, poll = self.master.put, self.master.poll
        messages = cycle(MESSAGES)
        started = time.perf_counter()
        for _ in range(0, count, ASYNC_TURN):
            for message in islice(messages, ASYNC_TURN):
                put(message, wait=False)
            poll(0)
        return _rate(count, started)

    def put_sync(self, count: int, in_flight: int) -> dict[str, float]:
        put, poll = self.master.put, self.master.poll
        waiting: deque[GroupCommitRequest] = deque()
        ok, bad = PutMessageStatus.PUT_OK, 0  # `ok` saves the slow look-up of an enum member in the loop
        turn = max(1, in_flight // 2)  # the slave handles one half while the other half is put
        messages = islice(cycle(MESSAGES), count)
        started = time.perf_counter()
        left = count
        while left or waiting:
            for message in islice(messages, min(turn, in_flight - len(waiting))):
                waiting.append(put(message, wait=True))
                left -= 1
            poll(0 if left and len(waiting) < in_flight else 1000)
            while waiting and waiting[0].status is not None:
                bad += waiting.popleft().status is not ok
        assert not bad, f"{bad} of {count} puts were not PUT_OK"
        return _rate(count, started)

    def put_one(self, count: int) -> dict[str, float]:
        put, poll = self.master.put, self.master.poll
        took: list[float] = []
        began = time.perf_counter()
        for message in islice(cycle(MESSAGES), count):
            started = time.perf_counter()
            request = put(message, wait=True)
            while request.status is None:
                poll(1000)
            took.append(time.perf_counter() - started)
            assert request.status is PutMessageStatus.PUT_OK
        return _rate(count, began) | {"p50_us": statistics.median(took) * 1e6}

    def put_paced(self, rate: int, count: int, path: Path) -> dict[str, float]:
        put, poll = self.master.put, self.master.poll
        notes: list[tuple[int, int]] = []
        started = time.perf_counter()
        due = started
        for message in islice(cycle(MESSAGES), count):
            while (early := due - time.perf_counter()) > 0:
                if early > 50e-6:
                    time.sleep(early - 50e-6)
            due += 1 / rate
            put_ns = time.monotonic_ns()
            notes.append((put_ns, put(message, wait=False).next_offset))
            poll(0)
        found = _rate(count, started)
        path.write_text("".join(f"{put_ns} {offset}\n" for put_ns, offset in notes), encoding="ascii")
        return found

    def await_slaves(self, count: int) -> dict[str, float]:
        service, deadline = self.master.service, time.monotonic() + TIMEOUT_S
        while (
            service.count_connected() != count
            or min((conn.slave_ack_offset for conn in service.connections), default=self.log.max_offset) < self.log.max_offset
        ):
            assert time.monotonic() < deadline, f"{service.count_connected()} slaves, {service.push2_slave_max_offset}"
            self.master.poll(IDLE_MS)
        if service.count_slaves() < count:  # a slave counts from its first acknowledgement on
            self.master.put(MESSAGES[0], wait=False)
            while service.count_slaves() < count:
                assert time.monotonic() < deadline, f"{service.count_slaves()} of {count} slaves have acknowledged something"
                self.master.poll(IDLE_MS)
        return {"slaves": count}

    def run(self, command: str, *arguments: str) -> dict[str, float]:
        if command == "paced":
            return self.put_paced(int(arguments[0]), int(arguments[1]), Path(arguments[2]))
        if command == "cpu":
            return {"seconds": time.process_time()}
        if command == "end":
            return {"offset": self.log.max_offset}
        methods = {
            "append": self.append,
            "async": self.put_async,
            "sync": self.put_sync,
            "one": self.put_one,
            "slaves": self.await_slaves,
        }
        return methods[command](*map(int, arguments))


def _rate(count: int, started: float) -> dict[str, float]:
    return {"per_second": count / (time.perf_counter() - started)}


def main(store: Path, file_size: int) -> None:
    with CommitLog.open(store, file_size=file_size) as log:
        bench = Bench(log)
        reply(port=bench.master.address[1])
        while True:
            while not select.select([sys.stdin], [], [], 0)[0]:
                bench.master.poll(IDLE_MS)
            words = sys.stdin.readline().split()
            if not words:
                return
            reply(**bench.run(*words))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
