"""Run our slave in its own process.

Run as a program with the arguments STORE FILE_SIZE PORT END [NOTES]. It answers `ready=1` when its log is open. On the next
line of input it connects and follows until its log reaches END. Then it answers:

    seconds                     from before the connect to the last byte
    first_byte_ms               from before the connect to the first append
    rss_before_kib, rss_most_kib  its anonymous memory (without pages of files) before the connect, and the maximum since

NOTES: a file that gets a line `nanoseconds offset` (CLOCK_MONOTONIC) for each append.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import HARDENED, Settings

from .line_process import reply

SAMPLE_TURNS = 8  # turns of the follower between two samples of its memory


class TimedLog(CommitLog):
    """A log that records the time and the max offset of each append."""

    notes: list[tuple[int, int]]

    def append_data(self, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        super().append_data(offset, buffers)
        self.notes.append((time.monotonic_ns(), self.max_offset))


def rss_anon_kib() -> int:
    with Path("/proc/self/status").open(encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def follow(log: CommitLog, port: int, end: int) -> dict[str, float]:
    rss_before = rss_most = rss_anon_kib()  # before the follower makes its buffers
    follower = Follower(log, "127.0.0.1", port, Settings(mapped_file_size=log.file_size), HARDENED)
    start, turns, first_byte_s = log.max_offset, 0, 0.0

    def is_done() -> bool:
        nonlocal turns, first_byte_s, rss_most
        at = log.max_offset
        if not first_byte_s and at > start:
            first_byte_s = time.perf_counter() - started
        if turns % SAMPLE_TURNS == 0 or at >= end:
            rss_most = max(rss_most, rss_anon_kib())
        turns += 1
        return at >= end

    started = time.perf_counter()
    follower.run(is_done)
    took = time.perf_counter() - started
    assert follower.connects == 1, follower.last_close_reason
    return {
        "seconds": took,
        "first_byte_ms": first_byte_s * 1e3,
        "rss_before_kib": rss_before,
        "rss_most_kib": rss_most,
    }


def main(store: Path, file_size: int, port: int, end: int, notes: Path | None = None) -> None:
    log = (TimedLog if notes else CommitLog).open(store, file_size=file_size)
    if isinstance(log, TimedLog):
        log.notes = []
    with log:
        reply(ready=1)
        sys.stdin.readline()
        found = follow(log, port, end)
        if notes and isinstance(log, TimedLog):
            notes.write_text("".join(f"{at_ns} {offset}\n" for at_ns, offset in log.notes), encoding="ascii")
        reply(**found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]), *map(Path, sys.argv[5:]))
