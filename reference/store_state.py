"""The state of a store through starts, stops and crashes: what a process knows of it, and what is on the disk.

                     open                                   close, kill, power_cut
    stopped | crashed ----> empty | dirty | flushed | settled ----> stopped | crashed
                     ----> refused   (HA-ST-20, HA-ST-21, HA-ST-92)

While the store is closed, its files are whole: nothing says how far one is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocketmq_ha.reference import consume_queue, mapped_file_queue, store
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.dispatch import Dispatched, DispatchSettings
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.retention import Policy
from rocketmq_ha.reference.store import Log, max_offset
from rocketmq_ha.spec.profile import Profile

Path = tuple[str, int, str]  # of a file of a consume queue: topic, queue id, name


class StoreLifeState(Enum):
    """The discrete state of a store, for the table of transitions."""

    STOPPED = "stopped"  # closed, without the file `abort`
    CRASHED = "crashed"  # closed, with it
    REFUSED = "refused"  # closed, and the last opening was refused
    EMPTY = "empty"  # open, without a byte in the log
    DIRTY = "dirty"  # open; bytes of the log are not on the disk
    FLUSHED = "flushed"  # open; the log is on the disk, but a crash would lose what queues, index or checkpoint know of it
    SETTLED = "settled"  # open; all is on the disk, and the checkpoint says so


class Spare(Enum):
    """An empty file behind the last one with bytes in it."""

    NONE = "none"
    PREPARED = "prepared"  # made ahead of the writer; the log has not taken it yet
    LAST = "last"  # the log's last file


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Sizes in bytes, and what is deleted. Small sizes reach every boundary in few steps."""

    mapped_file_size: int = 1024
    queue_file_size: int = 20 * 64
    hash_slot_num: int = 5
    index_num: int = 40
    sync_flush: bool = False
    file_reserved_ms: int | None = None
    delete_when: tuple[int, ...] | None = (4,)
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly: bool = False
    max_log_size: int | None = None


@dataclass(frozen=True, slots=True)
class Healthy:
    """The files of the log before damage was done to them."""

    log: Log
    spare: Spare
    synced: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class StoreLife:
    """All of it. Fields of a closed store that a process alone has are what an opening will set anew."""

    log: Log
    now_ms: int
    is_open: bool = False
    spare: Spare = Spare.NONE
    # The disk. Bytes of a file that no sync has covered yet are zeros there.
    synced: Mapping[int, bytes] = field(default_factory=dict)  # start of a file of the log: its bytes of the last sync
    named: frozenset[int] = frozenset()  # starts of the files whose names a sync has covered
    modified_ms: Mapping[int, int] = field(default_factory=dict)
    synced_queues: Mapping[Path, bytes] = field(default_factory=dict)
    synced_index: tuple[bytes, ...] = ()  # of the first files
    checkpoint_file: StoreCheckpoint | None = None
    abort: bool = False
    healthy: Healthy | None = None  # the files before they were damaged
    shortened: tuple[int, int] | None = None  # a file that was cut: its start and its length
    # The process.
    dispatched: Dispatched = field(default_factory=Dispatched)
    checkpoint: StoreCheckpoint = field(default_factory=StoreCheckpoint)
    flushed_where: int = 0
    owes_names: bool = False  # a flush has to sync the directory of the log first
    last_stored_ms: int = 0
    dispatched_ms: int = 0
    queue_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    messages: tuple[tuple[int, int], ...] = ()  # end offset and store timestamp of each message of the log
    cleaned_to: int = 0  # the min offset for which queues and index were cleaned
    is_full: bool = False  # the disk
    refuses: bool = False  # puts, since the watch has found the disk full
    fails_after: int = -1  # syncs of the log's files that succeed before the disk fails; below 0 it does not
    # The outcome of the last event.
    refused: str = ""  # the file, or the offset in it, for which the opening was refused
    recovery_start: int = 0  # of the last opening
    told: tuple[object, ...] = ()  # what a producer or an operator was told
    # For the properties (store_life.broken), which speak of undamaged stores.
    promised: int = 0  # everything before this offset was on the disk
    before: bytes = b""  # the log of the process that was killed, from its min offset on
    is_tainted: bool = False


def classify(life: StoreLife) -> StoreLifeState:
    if not life.is_open:
        if life.refused:
            return StoreLifeState.REFUSED
        return StoreLifeState.CRASHED if life.abort else StoreLifeState.STOPPED
    if not life.log.data:
        return StoreLifeState.EMPTY
    if life.flushed_where < max_offset(life.log):
        return StoreLifeState.DIRTY
    return StoreLifeState.SETTLED if _is_settled(life) else StoreLifeState.FLUSHED


def _is_settled(life: StoreLife) -> bool:
    told = life.checkpoint_file
    last_ms = life.messages[-1][1] if life.messages else 0
    is_dispatched = life.dispatched.reput_from_offset >= max_offset(life.log)
    return told is not None and is_dispatched and min(told.physic_msg_timestamp, told.logics_msg_timestamp) >= last_ms


def new_store(settings: StoreSettings, now_ms: int) -> StoreLife:
    """No store yet: an empty directory."""
    return StoreLife(Log(settings.mapped_file_size), now_ms)


def policy_of(settings: StoreSettings) -> Policy:
    return Policy(
        settings.file_reserved_ms,
        None if settings.delete_when is None else frozenset(settings.delete_when),
        settings.disk_max_used_space_ratio,
        settings.clean_file_forcibly,
        settings.max_log_size,
    )


def sizes_of(settings: StoreSettings) -> DispatchSettings:
    return DispatchSettings(settings.queue_file_size, settings.hash_slot_num, settings.index_num)


def profile_of_store(profile: Profile) -> Profile:
    """This project's store has one kind of queues and index, and one dispatch, in both profiles: hardened's."""
    return replace(profile, keeps_queues_right=True, keeps_index_right=True, stops_at_damage=True)


# --- The files -------------------------------------------------------------------------------------------------------


def starts(life: StoreLife) -> list[int]:
    """The first offsets of the files that are there, with one that was prepared."""
    log = life.log
    base, count = log.base or 0, mapped_file_queue.file_count(log)
    return [base + index * log.file_size for index in range(count + (life.spare is not Spare.NONE))]


def file_count(life: StoreLife) -> int:
    """The number of the log's own files."""
    return mapped_file_queue.file_count(life.log) + (life.spare is Spare.LAST)


def begins_file(life: StoreLife) -> bool:
    """Whether the log ends at the start of a file that is there: classic's may hold stale bytes."""
    return life.spare is Spare.LAST or (bool(life.log.stale) and len(life.log.data) % life.log.file_size == 0)


def images(life: StoreLife) -> dict[int, bytes]:
    """The whole bytes of each file of the log, by its start."""
    log, found = life.log, {}
    image = log.data + log.stale
    for start in starts(life):
        position = start - (log.base or 0)
        found[start] = image[position : position + log.file_size].ljust(log.file_size, b"\0")
    return found


def of_images(life: StoreLife, found: Mapping[int, bytes]) -> StoreLife:
    """The store whose log has these files, each of full length."""
    return replace(life, log=log_of(life.log.file_size, found), spare=Spare.NONE)


def log_of(file_size: int, found: Mapping[int, bytes]) -> Log:
    """The log of these files, each of full length, by their starts."""
    return Log(file_size, min(found), b"".join(found[start] for start in sorted(found))) if found else Log(file_size)


def queue_images(life: StoreLife) -> dict[Path, bytes]:
    """The whole bytes of each file of the consume queues."""
    return {
        (*key, name): data
        for key, queue in life.dispatched.queues.items()
        for name, data in mapped_file_queue.files(queue.mapped_file_queue).items()
    }


def index_images(life: StoreLife) -> tuple[bytes, ...]:
    return tuple(file.data for file in life.dispatched.index)


def loaded(dispatched: Dispatched, queue_files: Mapping[Path, bytes]) -> Dispatched:
    """Queues and index as a process finds them that starts: each queue's files count as full."""
    queues = {}
    for key, queue in dispatched.queues.items():
        found = {name: data for (*of, name), data in queue_files.items() if tuple(of) == key}
        files = mapped_file_queue.load(queue.mapped_file_queue.file_size, found)
        assert isinstance(files, Log), files
        queues[key] = consume_queue.ConsumeQueue(*key, files)
    return Dispatched(queues, dispatched.index)


def last_message_before(life: StoreLife, offset: int) -> int:
    """The store timestamp of the last message that ends by an offset; 0 if there is none."""
    return next((stored_ms for end, stored_ms in reversed(life.messages) if end <= offset), 0)


def min_offset(life: StoreLife) -> int:
    return store.min_offset(life.log)
