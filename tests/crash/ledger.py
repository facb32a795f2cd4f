"""The ledger process: it records which puts of a writer were acknowledged, and kills the writer.

The writer reports each begun put and each acknowledgement through a pipe. An entry is one write, so it is never partial. The
ledger kills the writer at a chosen moment, reads the pipe to its end and prints the entries: only these puts count as
acknowledged.

    python tests/crash/ledger.py AFTER DELAY_S < pipe

AFTER: kill after this number of acknowledged puts; -1: when the writer has reported its process id; -2: when it closes its
store.
"""

import contextlib
import json
import os
import signal
import struct
import sys
import threading
from dataclasses import asdict, dataclass, field
from typing import Final

# kind: P: the writer's process id (as offset). S: a put begins. A: it was acknowledged. C: the store is being closed.
ENTRY: Final = struct.Struct(">cqiIiq")  # kind, offset, size, CRC of the body, queue id, queue offset
AMID_OPEN: Final = -1
AMID_CLOSE: Final = -2


@dataclass
class Ledger:
    """The puts begun and acknowledged until the writer was killed."""

    killed: bool = False  # False: the writer ended by itself
    begun: int = 0
    acknowledged: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # an ENTRY without its kind

    @property
    def in_flight(self) -> int:
        return self.begun - len(self.acknowledged)


def keep(after: int, delay_s: float) -> Ledger:
    ledger, process_id, closes = Ledger(), 0, False
    killer: threading.Timer | None = None

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):  # the writer has ended by itself
            os.kill(process_id, signal.SIGKILL)
            ledger.killed = True

    while entry := sys.stdin.buffer.read(ENTRY.size):
        kind, *fields = ENTRY.unpack(entry)
        match kind:
            case b"P":
                process_id = fields[0]
            case b"S":
                ledger.begun += 1
            case b"A":
                ledger.acknowledged.append(tuple(fields))
            case b"C":
                closes = True
        is_due = closes if after == AMID_CLOSE else len(ledger.acknowledged) >= after
        if process_id and is_due and killer is None:
            killer = threading.Timer(delay_s, kill)
            killer.start()
    if killer is not None:
        killer.join()
    return ledger


if __name__ == "__main__":
    json.dump(asdict(keep(int(sys.argv[1]), float(sys.argv[2]))), sys.stdout)
