"""The discrete states of a slave's copies of its master's tables, and the transitions of a step.

synchronizing    idle <--> changes, or: idle --> topics --> offsets --> delays --> groups --> idle
slave_table      alone, new, partial, behind, in_step; of a master that tells no changes: other, same
consumer_offset  absent, told, ahead, lone: an offset of the slave beside what its master has told
delay_progress   none, waiting, usable, both
table_file       none, saved, unsaved
"""

import zlib
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from rocketmq_ha.reference import metadata_changes
from rocketmq_ha.reference.consumer_offsets import Key
from rocketmq_ha.reference.metadata_process import VERSIONED, Process
from rocketmq_ha.reference.slave_synchronize import CHANGES
from rocketmq_ha.reference.step import Transition

if TYPE_CHECKING:
    from rocketmq_ha.reference.metadata import Metadata, Slave

TABLES_A_PROCESS: Final = len(VERSIONED)
SLAVE_INSTANCE: Final = 90  # of the slave's first file; those of the masters are numbered from 0 on


class SynchronizingState(Enum):
    IDLE = "idle"
    CHANGES = "changes"
    TOPICS = "topics"
    OFFSETS = "offsets"
    DELAYS = "delays"
    GROUPS = "groups"


class SlaveTableState(Enum):
    """ALONE: no master is followed. NEW: of this life of the master nothing has been told. OTHER: the version is another."""

    ALONE = "alone"
    NEW = "new"
    PARTIAL = "partial"
    BEHIND = "behind"
    IN_STEP = "in_step"
    OTHER = "other"
    SAME = "same"


class ConsumerOffsetState(Enum):
    """AHEAD: greater than what the master has told. LONE: the master has told none."""

    ABSENT = "absent"
    TOLD = "told"
    AHEAD = "ahead"
    LONE = "lone"


class DelayProgressState(Enum):
    NONE = "none"
    WAITING = "waiting"
    USABLE = "usable"
    BOTH = "both"


class TableFileState(Enum):
    NONE = "none"
    SAVED = "saved"
    UNSAVED = "unsaved"


_ASKED = (SynchronizingState.TOPICS, SynchronizingState.OFFSETS, SynchronizingState.DELAYS, SynchronizingState.GROUPS)


def of_asking(slave: "Slave") -> SynchronizingState:
    asked = slave.asking.asked
    if asked is None:
        return SynchronizingState.IDLE
    return SynchronizingState.CHANGES if asked == CHANGES else _ASKED[asked]


def of_table(state: "Metadata", name: str) -> SlaveTableState:
    """One table of the slave beside that of the master that it follows now."""
    asking = state.slave.asking
    if asking.master is None or asking.master == asking.own:
        return SlaveTableState.ALONE
    at = int(asking.master[0].rpartition(".")[2]) - 1
    master, told = state.masters[at], state.slave.told
    if not asking.asks_changes or (asking.whole_link and asking.whole_link == state.links[at]):
        return _of_whole(state.slave.process, master, name)
    if told.life != f"m{at}-{master.life}":
        return SlaveTableState.NEW
    if name in told.seen:
        return SlaveTableState.PARTIAL
    log = master.offsets_log if name == "offsets" else master.tables[name].log
    return SlaveTableState.IN_STEP if told.at.get(name, 0) == log.last else SlaveTableState.BEHIND


def _of_whole(mine: Process, theirs: Process, name: str) -> SlaveTableState:
    if name == "offsets":
        is_same = mine.offsets.in_memory == theirs.offsets.in_memory
    elif name == "deleted":
        is_same = True  # such a master tells none
    else:
        is_same = mine.tables[name].version == theirs.tables[name].version
    return SlaveTableState.SAME if is_same else SlaveTableState.OTHER


def of_offset(slave: "Slave", key: Key) -> ConsumerOffsetState:
    mine, told = slave.process.offsets.in_memory.get(key), slave.of_offsets.told.get(key)
    if mine is None:
        return ConsumerOffsetState.ABSENT
    if told is None:
        return ConsumerOffsetState.LONE
    return ConsumerOffsetState.AHEAD if mine > told else ConsumerOffsetState.TOLD


def of_delays(slave: "Slave") -> DelayProgressState:
    delays = slave.delays
    if delays.usable is None:
        return DelayProgressState.NONE if delays.waiting is None else DelayProgressState.WAITING
    return DelayProgressState.USABLE if delays.waiting is None else DelayProgressState.BOTH


def of_file(process: Process, name: str) -> TableFileState:
    file = process.tables[name].file
    if file.is_unsaved:
        return TableFileState.UNSAVED
    return TableFileState.NONE if file.content is None else TableFileState.SAVED


def rows(
    before: "Metadata", after: "Metadata", event: str, clauses: tuple[str, ...], touched: set[str], *, asking: bool
) -> Iterable[Transition]:
    """Every machine whose state has changed, and those that the event is about."""

    def row(actor: str, instance: int, old: Enum, new: Enum) -> Transition:
        return Transition(actor, instance, event, old.value, new.value, -1, 0, -1, 0, clauses)

    old_slave, slave = before.slave, after.slave
    if asking or old_slave.asking.asked != slave.asking.asked:
        yield row("synchronizing", 0, of_asking(old_slave), of_asking(slave))
    for at, name in enumerate(metadata_changes.TABLES):
        old, new = of_table(before, name), of_table(after, name)
        if old is not new or name in touched:
            yield row("slave_table", at, old, new)
    if old_slave.process.offsets is not slave.process.offsets or old_slave.of_offsets is not slave.of_offsets:
        tables = old_slave.process.offsets.in_memory, slave.process.offsets.in_memory
        for key in sorted({*tables[0], *tables[1]}):
            mine, now = of_offset(old_slave, key), of_offset(slave, key)
            if mine is not now or tables[0].get(key) != tables[1].get(key):
                yield row("consumer_offset", zlib.crc32(f"{key[0]}/{key[1]}".encode()) & 0x7FFF_FFFF, mine, now)
    delays = of_delays(old_slave), of_delays(slave)
    if delays[0] is not delays[1] or "delays" in touched:
        yield row("delay_progress", 0, *delays)
    processes = zip((*before.masters, old_slave.process), (*after.masters, slave.process), strict=True)
    for at, (was, process) in enumerate(processes):
        if was.tables is process.tables:
            continue
        first = SLAVE_INSTANCE if at == len(after.masters) else TABLES_A_PROCESS * at
        for instance, name in enumerate(VERSIONED, first):
            if was.tables[name].file is not process.tables[name].file:
                yield row("table_file", instance, of_file(was, name), of_file(process, name))
