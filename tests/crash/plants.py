"""Planted faults of the store: edits of a copy of it, each of which must break a promise.

    python tests/crash/plants.py                           all of them, each in its script (scripts.py)
    python tests/crash/plants.py crc-unchecked             one
    python tests/crash/plants.py --hunt crc-unchecked      by random lives; takes one to ten minutes

fuzz/faults.py makes the copies.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from campaign import Outcome, memory_directory, run_life

from kit.children import Child
from kit.waiting import PATIENCE_S
from rocketmq_ha.fuzz.faults import Fault, plant

POINTS: Final = 6000
CAMPAIGN_S: Final = 1800.0  # of a campaign with a fault
FAULTS: Final = (
    Fault(
        "checkpoint-before-log",
        "store/housekeeping.py",
        "            checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, dispatched_ms)\n",
        "            checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, dispatched_ms)\n"
        "            checkpoint.physic_msg_timestamp = max(checkpoint.physic_msg_timestamp, dispatched_ms)\n",
        "the checkpoint vouches for messages that were dispatched, before the log is flushed (HA-ST-24)",
    ),
    Fault(
        "crc-unchecked",
        "store/log/scan.py",
        "            if crc32(view[position + body_from : position + topic_from]) & BODY_CRC_MASK != body_crc:\n",
        "            if False:\n",
        "recovery takes a record for whole of which a sector of the body has not come to the disk (HA-ST-5)",
    ),
    Fault(
        "tail-not-cleared",
        "store/log/opening.py",
        "queue.truncate(found.end, clear=clear_tail and bool(found.cut_size))",
        "queue.truncate(found.end, clear=False)",
        "what recovery cuts off stays behind the end of the log (HA-ST-7)",
    ),
    Fault(
        "checkpoint-bound-ignored",
        "store/log/checkpoint.py",
        "min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS",
        "max(self.physic_msg_timestamp, self.logics_msg_timestamp) + SAFETY_MS",
        "recovery begins behind what the checkpoint vouches for (HA-ST-19)",
    ),
    Fault(
        "tear-taken-for-damage",
        "store/log/recovery.py",
        "find_record(later, start, flushed_before_ms)",
        "find_record(later, start)",
        "a whole record behind a hole is damage, though nobody was promised that it is on the disk (HA-ST-20)",
    ),
    Fault(
        "names-not-synced",
        "store/log/mapped_file_queue.py",
        "                self._sync_names(set() if synced is None else synced)\n",
        "                pass\n",
        "a file is flushed, and its name is not (HA-ST-28)",
    ),
    Fault(
        "log-not-synced",
        "store/log/mapped_file.py",
        "                _sync_data(fd)\n                self._check_found(os.fstat(fd))\n",
        "                self._check_found(os.fstat(fd))\n",
        "the flushed position advances without a sync (HA-ST-28)",
    ),
    Fault(
        "sectors-unchecked",
        "store/log/recovery.py",
        "    suspect_from_ms = flushed_before_ms if strict else None\n",
        "    suspect_from_ms = None\n",
        "a record is taken for whole of which a sector of the properties has not come to the disk (HA-ST-10)",
    ),
    Fault(
        "abort-not-synced",
        "store/log/checkpoint.py",
        "    (store_dir / ABORT_FILE).touch()\n    sync_directory(store_dir)\n",
        "    (store_dir / ABORT_FILE).touch()\n",
        "the mark of a running store may be missing after a power cut, so that its recovery looks only at the end (HA-ST-23)",
    ),
)


def show(fault: Fault) -> str | None:
    """Play the script of a fault on a store with the fault. Returns: the first broken promise; None if none was broken."""
    for _, what in _broken(fault, "--script", fault.name):
        return what
    return None


def hunt(fault: Fault, seed: int = 1, points: int = POINTS) -> str | None:
    """Find a life that breaks a promise with the fault but not without it. Returns: "life: promise", or None."""
    for life, what in _broken(fault, "--points", str(points), "--seed", str(seed), "--failures", "40"):
        if not _breaks(life):
            return f"{life}: {what}"
    return None


def _broken(fault: Fault, *arguments: str) -> Iterator[tuple[str, str]]:
    """Yield (life, broken promise) from a campaign on a copy with the fault."""
    with tempfile.TemporaryDirectory(prefix="crash-", dir=memory_directory()) as directory:
        root = plant(fault, Path(directory))
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        with Child(
            [sys.executable, str(Path(__file__).with_name("campaign.py")), *arguments, "--json"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "CRASH_DIR": directory},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            limit_s=CAMPAIGN_S,
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    life, what = json.loads(line)
                    yield life, what
                status = process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait(PATIENCE_S)
        assert status in (0, 1), f"{fault.name}: the campaign ended with status {status}"


_known: Final[dict[str, bool]] = {}


def _breaks(life: str) -> bool:
    """Return True if the unchanged store breaks a promise in this life."""
    if life not in _known:
        outcome = Outcome()
        run_life(life, outcome)
        _known[life] = bool(outcome.failures)
    return _known[life]


def main() -> int:
    arguments = sys.argv[1:]
    look = hunt if "--hunt" in arguments else show
    names = [name for name in arguments if name != "--hunt"]
    unfound = 0
    for fault in FAULTS:
        if names and fault.name not in names:
            continue
        began = time.monotonic()
        found = look(fault)
        unfound += found is None
        print(f"{fault.name:26} {time.monotonic() - began:5.1f} s  {found or 'NOT FOUND'}"[:200], flush=True)  # noqa: T201
    return unfound


if __name__ == "__main__":
    sys.exit(main())
