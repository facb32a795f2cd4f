"""Scripted lives: each ends at the point where one planted fault shows; the image after the crash is drawn many times.

Random lives reach such a point sooner or later, but which seed does changes with every system call of the store. A script names
the point. Only the pages, sectors and names that reach the disk are drawn, often enough to find the fault every time.

    python tests/crash/campaign.py --script crc-unchecked       on the unchanged store; plants.py runs them with the faults
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pages import Image, watching
from workload import CrashPoint, Shape, Workload, at_hand

from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.message_store import StoreOptions
from rocketmq_ha.impl.wire.message import Message

CRASHES: Final = 120
SHAPE: Final = Shape(
    StoreOptions(file_size=24_576, queue_file_size=1200, index_geometry=Geometry(50, 300), floor_size=0),
    queues=[("orders", 0)],
    largest=300,
    log_flushes=0,
)
SIX_PAGES: Final = 22_000  # bytes of a body that fills whole pages


class Scripted(Workload):
    """A life with scripted steps. It crashes only at its end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shape = SHAPE

    def _consider(self, call: str, path: str) -> None:
        self.looks += bool(call or path)
        self._note_promises()

    def play(self, script: Callable[["Scripted"], None]) -> None:
        with at_hand(self.clock), watching(lambda: self._disk, self._on_call):
            try:
                self._open(Image({}, "a new store"))
                script(self)
                disk, rng = self._disk, random.Random(self.seed)
                assert disk is not None
                disk.observe()
                self._note_promises()
                for number in range(CRASHES):
                    image = disk.crash(rng)
                    self._points.append(CrashPoint("script", f"crash {number}", image, self.durable, self._min_offset))
                self._try_out()
            finally:
                self._leave()

    # --- Steps of scripts --------------------------------------------------------------------------------------------

    def put(self, count: int = 1, *, size: int = 0, note: int = 0, step_ms: int = 1000) -> None:
        """Put messages of random bytes at fixed intervals of store time. note: bytes of a property."""
        store = self._store
        assert store is not None
        for _ in range(count):
            self.clock.ms += step_ms
            named = f"KEYS\1k{len(self.records)}" + ("\2note\1" + "n" * note if note else "")
            message = Message("orders", self.rng.randbytes(size), properties_string=named)
            self._end_put([message], store.put(message))
            assert self._disk is not None
            self._disk.observe()

    def flush_log(self) -> None:
        assert self._store is not None
        self._store.log_flush.flush()

    def flush_derived(self, *, thorough: bool) -> None:
        store = self._store
        assert store is not None
        store._is_thorough = lambda: thorough  # type: ignore[assignment]
        store._flush_derived()

    def dispatch(self) -> None:
        self._dispatch()

    def reopen(self) -> None:
        """Stop cleanly and start again."""
        store, disk = self._store, self._disk
        assert store is not None
        assert disk is not None
        store.close()
        self._store = None
        self._open_here(disk.root)


# --- One script for each fault ---------------------------------------------------------------------------------------


def _derived_before_the_log(life: Scripted) -> None:
    """Queues and index are on the disk, and the checkpoint says so; the log is not."""
    life.put(20, size=1500, step_ms=5000)
    life.dispatch()
    life.flush_derived(thorough=True)


def _body_not_flushed(life: Scripted) -> None:
    """The file is on the disk, but its contents are not: a body may have only its first and last bytes."""
    life.put()
    life.flush_log()
    life.put(size=SIX_PAGES)


def _log_before_the_derived(life: Scripted) -> None:
    """Three files of the log are on the disk, and the checkpoint says so; the queues are not."""
    life.put(30, size=1500)
    life.flush_log()
    life.dispatch()
    life.flush_derived(thorough=False)


def _whole_records_behind_a_hole(life: Scripted) -> None:
    """A part of the log is on the disk, and the checkpoint says so; later records are not."""
    life.put()
    life.flush_log()
    life.flush_derived(thorough=False)
    life.put(12, size=1500, step_ms=5000)


def _log_flushed(life: Scripted) -> None:
    life.put(20, size=1500)
    life.flush_log()


def _properties_not_flushed(life: Scripted) -> None:
    """Like `_body_not_flushed`, for properties."""
    life.put()
    life.flush_log()
    life.put(note=SIX_PAGES)


def _second_run(life: Scripted) -> None:
    """After a clean stop six more files are written and not flushed."""
    life.put()
    life.dispatch()
    life.reopen()
    life.put(70, size=1500)


SCRIPTS: Final[dict[str, Callable[[Scripted], None]]] = {
    "checkpoint-before-log": _derived_before_the_log,
    "crc-unchecked": _body_not_flushed,
    "tail-not-cleared": _body_not_flushed,
    "checkpoint-bound-ignored": _log_before_the_derived,
    "tear-taken-for-damage": _whole_records_behind_a_hole,
    "names-not-synced": _log_flushed,
    "log-not-synced": _log_flushed,
    "sectors-unchecked": _properties_not_flushed,
    "abort-not-synced": _second_run,
}


def play(name: str, work: Path, try_out: Callable[[Workload, CrashPoint], None]) -> Workload:
    """Play the script of a fault on this process's copy of the store, with many crashes."""
    life = Scripted(name, work, 0, try_out)
    life.play(SCRIPTS[name])
    return life
