"""Our master in a process of its own, its own producer: it serves its log between the lines that it is told.

Run as a program: STORE FILE_SIZE; it answers `port=N`. Then, with `per_second=N` but where it says otherwise:

    append COUNT         messages put into the log by themselves, no master at hand: what the store can do
    async COUNT          put, none waiting; the loop turns after every 64
    sync COUNT K         put, never more than K waiting for the slave
    one COUNT            one at a time; also p50_us, the median time of one
    paced RATE COUNT FILE  async at a steady rate, the loop turning after each; FILE has a line `nanoseconds offset` for each:
                         when its put began (CLOCK_MONOTONIC), and where it ends. Answers per_second
    slaves N             waits until N slaves are connected and have everything; answers slaves=N
    cpu                  answers seconds=S, the processor time that it has used
    end                  answers offset=N, the max offset of its log
"""

import select
import statistics
import sys
import time
from collections import deque
from itertools import cycle, islice
from pathlib import Path

from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.net.server import Master, listen
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

from .line_process import reply

MADE = 1024  # messages, as in StoreBench
SIZE = 1024  # bytes of a body
ASYNC_TURN = 64  # puts
IDLE_MS = 5  # between two looks at the lines
PATIENCE_S = 120
TAGS = "TAGS\x01TagA"
READ_BUFFER_SIZE = 4096  # as `rocketmq-ha master` has it

MESSAGES = [Message("Bench", bytes(SIZE), queue_id=n % 4, properties_string=TAGS, born_timestamp=1) for n in range(MADE)]


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
        ok, bad = PutMessageStatus.PUT_OK, 0  # a member of an enumeration is slow to look up
        turn = max(1, in_flight // 2)  # so that the slave is busy with one half while the other is put
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
        service, deadline = self.master.service, time.monotonic() + PATIENCE_S
        while (
            service.count_connected() != count
            or min((conn.slave_ack_offset for conn in service.connections), default=self.log.max_offset) < self.log.max_offset
        ):
            assert time.monotonic() < deadline, f"{service.count_connected()} slaves, {service.push2_slave_max_offset}"
            self.master.poll(IDLE_MS)
        if service.count_slaves() < count:  # each counts from its first acknowledgement on
            self.master.put(MESSAGES[0], wait=False)
            while service.count_slaves() < count:
                assert time.monotonic() < deadline, f"{service.count_slaves()} of {count} slaves have acknowledged something"
                self.master.poll(IDLE_MS)
        return {"slaves": count}

    def do(self, what: str, *words: str) -> dict[str, float]:
        if what == "paced":
            return self.put_paced(int(words[0]), int(words[1]), Path(words[2]))
        if what == "cpu":
            return {"seconds": time.process_time()}
        if what == "end":
            return {"offset": self.log.max_offset}
        work = {
            "append": self.append,
            "async": self.put_async,
            "sync": self.put_sync,
            "one": self.put_one,
            "slaves": self.await_slaves,
        }
        return work[what](*map(int, words))


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
            reply(**bench.do(*words))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
