"""Recovery in the model: after a clean stop, after a crash that loses any unflushed pages, and of RocketMQ's own store.

The whole machine crashes: any part of each page that was written since the last flush may be missing on the disk.

Spec: HA-ST-5, HA-ST-7, HA-ST-13, HA-ST-18 to HA-ST-21, HA-ST-23, HA-ST-24, HA-ST-28, HA-ST-38.
"""

import json
import random
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.golden import RELEASES, VECTORS, WITH_KEYS_OF_TAGS
from kit.recovery_model import Images, load
from rocketmq_ha.reference import (
    checkpoint as checkpoints,
)
from rocketmq_ha.reference import (
    consume_queue,
    dispatch,
    dispatch_request,
    index_file,
    index_service,
    mapped_file_queue,
    message,
    store,
    store_recovery,
)
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.dispatch import Dispatched, DispatchSettings
from rocketmq_ha.reference.dispatch_request import DispatchRequest
from rocketmq_ha.reference.mapped_file_queue import Refused
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.store import Log
from rocketmq_ha.reference.store_recovery import Store
from rocketmq_ha.spec import constants
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

LOG_FILE_SIZE, PAGE_SIZE, SECTOR_SIZE = 2048, 512, 128  # a sector is larger than the head of a record, as real ones are
SIZES = DispatchSettings(mapped_file_size_consume_queue=240, max_hash_slot_num=3, max_index_num=6)
KEYS = ("k", "l", "m")
MADE_AT = "20261120095708693"  # the name of an index file that is made
profiles = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)


# --- A store on a disk -----------------------------------------------------------------------------------------------


def images_of(state: Store) -> Images:
    """Every file, by its path."""
    images: Images = {("commitlog", name): data for name, data in mapped_file_queue.files(state.log).items()}
    for (topic, queue_id), queue in state.dispatched.queues.items():
        for name, data in mapped_file_queue.files(queue.mapped_file_queue).items():
            images["consumequeue", topic, str(queue_id), name] = data
    images |= {("index", file.name): file.data for file in state.dispatched.index}
    return images | {("checkpoint",): checkpoints.encode(state.checkpoint)}


def after_a_crash(flushed: Images, written: Images, draw: random.Random) -> Images:
    """The files after a crash: each page as flushed, as written, or torn between sectors. A new file exists, full of zeros."""
    images = {}
    for path, new in written.items():
        old = flushed.get(path, bytes(len(new)))
        pages = []
        for at in range(0, len(new), PAGE_SIZE):
            cuts = range(at, min(at + PAGE_SIZE, len(new)), SECTOR_SIZE)
            whole, torn = draw.choice((0, 1)), draw.random() < 0.3
            pages += [(new if (draw.choice((0, 1)) if torn else whole) else old)[cut : cut + SECTOR_SIZE] for cut in cuts]
        images[path] = b"".join(pages)[: len(new)]
    return images


# --- A campaign of crashes -------------------------------------------------------------------------------------------


@dataclass
class Broker:
    """A running store, and its disk."""

    state: Store
    flushed: Images
    clock_ms: int = 1_000_000
    made: int = 0

    def put(self, draw: random.Random) -> None:
        self.clock_ms += draw.choice((0, 0, 700, 2_000, 4_000))
        topic, queue_id = draw.choice("AB"), draw.randrange(2)
        queue_offset = self.queue_offset(topic, queue_id)
        properties = f"KEYS\x01{draw.choice(KEYS)}\x02TAGS\x01{draw.choice('xyz')}"
        body = draw.randbytes(draw.choice((1, 60, 250, 400)))
        record = Record(topic.encode(), body, properties.encode(), queue_id, 0, queue_offset, store_timestamp=self.clock_ms)
        log, _, _ = store.append_record(self.state.log, record)
        self.state = replace(self.state, log=log)

    def queue_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message. It is read from the log, for the dispatch may be behind."""
        complete = self.dispatched(self.state.dispatched)
        queue = complete.queues.get((topic, queue_id))
        return consume_queue.max_offset_in_queue(queue) if queue else 0

    def dispatched(self, state: Dispatched, most: int | None = None) -> Dispatched:
        self.made += 1
        return dispatch.do_reput(state, self.state.log, f"{self.made:017d}", SIZES, HARDENED, most=most)

    def dispatch(self, draw: random.Random) -> None:
        self.state = replace(self.state, dispatched=self.dispatched(self.state.dispatched, draw.choice((1, 5, None))))

    def flush(self) -> None:
        self.state = store_recovery.flush(self.state)
        self.flushed = images_of(self.state)

    def expire(self) -> None:
        """Delete the oldest file of the log. The deletion is on the disk before anything else is written."""
        count = mapped_file_queue.file_count(self.state.log)
        if count > 3 and self.state.dispatched.reput_from_offset > store.min_offset(self.state.log) + LOG_FILE_SIZE:
            log = mapped_file_queue.delete_first_files(self.state.log, 1)
            self.state = replace(self.state, log=log, dispatched=dispatch.delete_expired(self.state.dispatched, log, HARDENED))
            self.flush()


def broker() -> Broker:
    state = store_recovery.start(Store(Log(LOG_FILE_SIZE)))
    return Broker(state, images_of(state))


def run(seed: int, sabotage: Callable[[Broker], None] | None = None) -> None:
    """Put, dispatch, flush and expire, then crash and recover, three times. Assert what a recovery promises."""
    draw = random.Random(seed)
    at_work = broker()
    for _ in range(3):
        for _ in range(draw.randrange(1, 40)):
            action = draw.random()
            if action < 0.6:
                at_work.put(draw)
            elif action < 0.85:
                at_work.dispatch(draw)
            elif action < 0.95:
                at_work.flush()
            else:
                at_work.expire()
        if sabotage:
            sabotage(at_work)
        crash(at_work, draw)


def crash(at_work: Broker, draw: random.Random) -> None:
    """The machine fails and starts again. HA-ST-5, HA-ST-38."""
    before = at_work.state
    found = load(after_a_crash(at_work.flushed, images_of(before), draw), SIZES, LOG_FILE_SIZE, abort=True)
    assert isinstance(found, Store), found
    recovered = store_recovery.recover(found, MADE_AT, SIZES, HARDENED, SECTOR_SIZE)
    assert isinstance(recovered, Store), recovered
    # Nothing torn is served, and nothing flushed is lost.
    written = before.log.data + bytes(LOG_FILE_SIZE)
    assert written.startswith(recovered.log.data)
    if recovered.log.base is not None:
        assert recovered.log.base == before.log.base
    assert store.max_offset(recovered.log) >= before.flushed_where
    at_work.state = store_recovery.start(recovered)
    agrees(at_work)
    at_work.state = replace(at_work.state, dispatched=at_work.dispatched(at_work.state.dispatched))
    at_work.flush()


def agrees(at_work: Broker, *, to_the_byte: bool = True) -> None:
    """Assert that queues and index agree with the log after the dispatch.

    Without `to_the_byte` compare only the index's answers.
    """
    state = at_work.dispatched(at_work.state.dispatched)
    anew = at_work.dispatched(Dispatched())
    log = at_work.state.log
    assert state.reput_from_offset == anew.reput_from_offset
    for key, queue in anew.queues.items():
        assert consume_queue.max_offset_in_queue(state.queues[key]) == consume_queue.max_offset_in_queue(queue)
        low = consume_queue.min_offset_in_queue(queue)
        corrected = consume_queue.correct_min_offset(state.queues[key], store.min_offset(log), HARDENED)
        assert consume_queue.min_offset_in_queue(corrected) == low
        for index in range(low, consume_queue.max_offset_in_queue(queue)):
            assert consume_queue.entry_at(state.queues[key], index) == consume_queue.entry_at(queue, index)
    for topic in "AB":
        for word in KEYS:
            answers = [
                {offset for offset in answer if offset >= store.min_offset(log)}
                for answer in (_all(each.index, topic, word) for each in (state, anew))
            ]
            assert answers[0] == answers[1]
    if store.min_offset(log) == 0 and to_the_byte:
        # Nothing has expired, so compare bytes too, except the names, which are times.
        assert [file.data for file in state.index] == [file.data for file in anew.index]


def _all(index: index_service.Index, topic: str, key: str) -> list[int]:
    key = index_file.build_key(topic, key)
    return [offset for file in index for offset in index_file.select_phy_offset(file, key, 1 << 30, 0, 1 << 62)]


@pytest.mark.parametrize("seed", range(60))
def test_after_a_crash_nothing_flushed_is_lost_nothing_torn_is_served_and_all_agree(seed: int) -> None:
    """HA-ST-5 "Recovery MUST end behind the last whole record", HA-ST-38 "MUST NOT name a message beyond the end"."""
    run(seed)


def _checkpoint_ahead(at_work: Broker) -> None:
    """Write the checkpoint before the data that it vouches for."""
    last = StoreCheckpoint(at_work.clock_ms, at_work.clock_ms, at_work.clock_ms)
    at_work.state = replace(at_work.state, checkpoint=replace(last, index_msg_timestamp=0))
    at_work.flushed = at_work.flushed | {("checkpoint",): checkpoints.encode(at_work.state.checkpoint)}


def _index_checkpoint_ahead(at_work: Broker) -> None:
    ahead = replace(at_work.state.checkpoint, index_msg_timestamp=at_work.clock_ms)
    at_work.state = replace(at_work.state, checkpoint=ahead)
    at_work.flushed = at_work.flushed | {("checkpoint",): checkpoints.encode(ahead)}


def _fails(seeds: range, sabotage: Callable[[Broker], None] | None = None) -> bool:
    for seed in seeds:
        try:
            run(seed, sabotage)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("sabotage", [_checkpoint_ahead, _index_checkpoint_ahead])
def test_the_campaign_notices_a_checkpoint_that_says_more_than_is_so(sabotage: Callable[[Broker], None]) -> None:
    """HA-ST-24 "up to which messages, then consume queues, then the index are on the disk": a checkpoint that is written too
    early loses messages.
    """
    assert _fails(range(100), sabotage)


def test_the_campaign_notices_a_missing_crc_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-5 "the first record that is not whole": without its CRC a body with a hole is whole."""

    def no_crc(data: bytes, position: int = 0) -> tuple[Record, int] | None:
        size = int.from_bytes(data[position : position + 4], "big")
        at = position + 88 - 4
        body = data[at + 4 : at + 4 + int.from_bytes(data[at : at + 4], "big")]
        image = (
            data[position : position + 8] + message.body_crc(body).to_bytes(4, "big") + data[position + 12 : position + size]
        )
        return decode(image) if size else None

    decode = message.decode
    monkeypatch.setattr(message, "decode", no_crc)
    assert _fails(range(100))


def test_the_campaign_notices_a_margin_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-19 "less 3 s": of two messages of one ms one may be on the disk and the other not."""
    monkeypatch.setattr(checkpoints, "MARGIN_MS", 0)
    assert _fails(range(200))


def test_the_campaign_notices_queues_that_are_not_cut_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-38 "MUST NOT name a message beyond the end of the commit log": torn entries would be taken for good ones."""
    monkeypatch.setattr(consume_queue, "cut", lambda queue, *_, **__: consume_queue.recover(queue, HARDENED))
    assert _fails(range(100))


# --- Stops and starts ------------------------------------------------------------------------------------------------


def filled(seed: int, count: int) -> Broker:
    draw = random.Random(seed)
    at_work = broker()
    for _ in range(count):
        at_work.put(draw)
    at_work.state = replace(at_work.state, dispatched=at_work.dispatched(at_work.state.dispatched))
    return at_work


@profiles
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_after_a_clean_stop_a_store_is_what_it_was(profile: Profile, count: int) -> None:
    """HA-ST-23 "from the start of a broker to its clean stop", HA-ST-18 "MUST begin three files before the end of the log"."""
    stopped = store_recovery.stop(filled(count, count).state)
    assert not stopped.abort
    found = load(images_of(stopped), SIZES, LOG_FILE_SIZE, abort=stopped.abort)
    assert isinstance(found, Store)
    recovered = store_recovery.recover(found, MADE_AT, SIZES, profile)
    assert isinstance(recovered, Store)
    assert recovered.log == stopped.log
    assert recovered.dispatched.queues == stopped.dispatched.queues
    assert recovered.dispatched.index == stopped.dispatched.index
    assert recovered.dispatched.reput_from_offset == store.max_offset(stopped.log) == recovered.flushed_where
    assert images_of(recovered) == images_of(stopped)


def test_a_stop_before_the_dispatch_is_done_is_not_clean() -> None:
    """HA-ST-23 "finding it at the start means that the last stop was not clean": a slave with a part of a record (quirk 31)."""
    at_work = filled(3, 5)
    assert not store_recovery.stop(at_work.state).abort
    part = store.append_data(at_work.state.log, store.max_offset(at_work.state.log), b"\0\0\0\x64")
    assert store_recovery.stop(replace(at_work.state, log=part)).abort


@profiles
@pytest.mark.parametrize("count", [0, 7, 85])
@pytest.mark.parametrize("is_killed", [True, False])
def test_what_a_process_appends_without_dispatching_is_dispatched_by_the_next_broker(
    profile: Profile, count: int, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-ST-50 "MUST leave `abort` behind", HA-ST-51 "MUST first lower the checkpoint's second time": every message, every key.

    After 85 messages two index files are full, and a third nearly is. Classic throws the third away.
    """
    monkeypatch.setattr(sys.modules[__name__], "SIZES", replace(SIZES, max_index_num=30))
    at_work = filled(count, count)
    stopped = store_recovery.stop(at_work.state)
    stopped = replace(stopped, checkpoint=replace(stopped.checkpoint, logics_physical_offset=1 << 40))
    at_work.state = store_recovery.start_bare(stopped)
    assert at_work.state.checkpoint.logics_physical_offset == 0  # HA-ST-51 "MUST set the i64 at byte 40 of the checkpoint to 0"
    draw = random.Random(count)
    for _ in range(20):
        at_work.put(draw)
    state = at_work.state if is_killed else store_recovery.stop_bare(at_work.state, stopped)
    assert state.abort
    assert state.checkpoint.physic_msg_timestamp == (stopped.checkpoint.physic_msg_timestamp if is_killed else at_work.clock_ms)
    found = load(images_of(state), SIZES, LOG_FILE_SIZE, abort=True)
    assert isinstance(found, Store)
    recovered = store_recovery.recover(found, MADE_AT, SIZES, profile)
    assert isinstance(recovered, Store)
    assert recovered.log == state.log
    assert recovered.checkpoint.logics_physical_offset == 0
    at_work.state = recovered
    agrees(at_work, to_the_byte=profile is HARDENED)  # classic begins another index file after a full one


def test_a_process_that_appends_nothing_leaves_the_store_as_it_was() -> None:
    """HA-ST-50 "If it has appended nothing, it MUST leave the store as it was"."""
    stopped = store_recovery.stop(filled(3, 63).state)
    assert not stopped.abort
    begun = store_recovery.start_bare(stopped)
    assert begun.abort
    assert begun.checkpoint != stopped.checkpoint
    assert store_recovery.stop_bare(begun, stopped) == stopped


def test_a_classic_store_is_recovered_from_a_crash_of_the_process_too() -> None:
    """HA-ST-19 "After any other stop": the page cache survives, so log and queues come back as they were."""
    at_work = filled(7, 40)
    at_work.flush()
    for draw in (random.Random(seed) for seed in range(5)):
        at_work.put(draw)
    state = replace(at_work.state, dispatched=at_work.dispatched(at_work.state.dispatched))
    found = load(images_of(state), SIZES, LOG_FILE_SIZE, abort=True)
    assert isinstance(found, Store)
    recovered = store_recovery.recover(found, MADE_AT, SIZES, CLASSIC)
    assert isinstance(recovered, Store)
    assert recovered.log == state.log
    assert recovered.dispatched.queues == state.dispatched.queues
    assert recovered.dispatched.reput_from_offset == store.max_offset(state.log)


def test_classic_loses_keys_between_its_last_full_index_file_and_where_recovery_begins() -> None:
    """HA-ST-24 "up to which messages, then consume queues, then the index": hardened begins at the least of them."""
    at_work = filled(7, 12)
    at_work.clock_ms += 60_000
    at_work.flush()
    draw = random.Random(1)
    while mapped_file_queue.file_count(at_work.state.log) < 8:
        at_work.put(draw)
    at_work.state = replace(at_work.state, dispatched=at_work.dispatched(at_work.state.dispatched))
    images = images_of(at_work.state) | {("checkpoint",): checkpoints.encode(StoreCheckpoint(1 << 40, 1 << 40, 0))}
    complete = at_work.dispatched(Dispatched())
    lost = {}
    for profile in (CLASSIC, HARDENED):
        found = load(images, SIZES, LOG_FILE_SIZE, abort=True)
        assert isinstance(found, Store)
        recovered = store_recovery.recover(found, MADE_AT, SIZES, profile)
        assert isinstance(recovered, Store)
        again = at_work.dispatched(recovered.dispatched)
        lost[profile.name] = sum(
            len(set(_all(complete.index, topic, key)) - set(_all(again.index, topic, key))) for topic in "AB" for key in KEYS
        )
    assert lost["classic"] > 0
    assert lost["hardened"] == 0


@profiles
def test_without_commit_log_files_there_are_no_queues(profile: Profile) -> None:
    """HA-ST-38 "without commit-log files there are no consume queues"."""
    images = {path: data for path, data in images_of(filled(1, 9).state).items() if path[0] != "commitlog"}
    found = load(images, SIZES, LOG_FILE_SIZE, abort=False)
    assert isinstance(found, Store)
    recovered = store_recovery.recover(found, MADE_AT, SIZES, profile)
    assert isinstance(recovered, Store)
    assert recovered.dispatched.queues == {}
    assert recovered.log == Log(LOG_FILE_SIZE)


# --- Where recovery begins -------------------------------------------------------------------------------------------


def log_with_times(*times: int, base: int = 0) -> Log:
    """A log with one message in each file, stored at these times."""
    log = Log(LOG_FILE_SIZE, base)
    for time in times:
        log, _, _ = store.append_record(log, Record(b"T", bytes(1800), store_timestamp=time))
    return log


@pytest.mark.parametrize(
    ("times", "checkpoint", "first_file"),
    [
        ((10_000, 20_000, 30_000, 40_000, 50_000), None, 2),
        ((10_000, 20_000), None, 0),
        ((10_000, 20_000, 30_000, 40_000), StoreCheckpoint(33_000, 99_000, 0), 2),
        ((10_000, 20_000, 30_000, 40_000), StoreCheckpoint(32_999, 99_000, 0), 1),
        ((10_000, 20_000, 30_000, 40_000), StoreCheckpoint(99_000, 33_000, 0), 2),
        ((10_000, 20_000, 30_000, 40_000), StoreCheckpoint(99_000, 99_000, 0), 3),
        ((10_000, 20_000, 30_000, 40_000), StoreCheckpoint(0, 99_000, 0), 0),
        ((10_000, 20_000, 30_000, 40_000), StoreCheckpoint(12_999, 99_000, 0), 0),
        ((10_000, 20_000, 0, 40_000), StoreCheckpoint(33_000, 33_000, 0), 1),
        ((10_000, 50_000, 20_000, 60_000), StoreCheckpoint(33_000, 33_000, 0), 2),  # the last, whatever the times before it
    ],
)
@pytest.mark.parametrize("base", [0, 5 * LOG_FILE_SIZE])
def test_where_recovery_begins(times: tuple[int, ...], checkpoint: StoreCheckpoint | None, first_file: int, base: int) -> None:
    """HA-ST-18 "three files before the end of the log", HA-ST-19 "a store timestamp that is not 0 and not after"."""
    log = log_with_times(*times, base=base)
    for profile in (CLASSIC, HARDENED):
        start = store_recovery.start_of_recovery(log, checkpoint is None, checkpoint or StoreCheckpoint(), profile)
        assert start == base + first_file * LOG_FILE_SIZE


def test_a_file_that_begins_with_no_message_is_none_to_begin_at() -> None:
    """HA-ST-19 "whose first message has a known magic": V2 is known, a BLANK or zeros are not."""
    log = log_with_times(1, 1)
    assert mapped_file_queue.file_count(log) == 2
    for magic, expected in ((0xDAA320A7, 1), (0xDAA320AB, 1), (constants.BLANK_MAGIC_CODE, 0), (0, 0)):  # V2 has another layout
        data = log.data[: LOG_FILE_SIZE + 4] + magic.to_bytes(4, "big") + log.data[LOG_FILE_SIZE + 8 :]
        start = store_recovery.start_of_recovery(replace(log, data=data), False, StoreCheckpoint(9_000, 9_000, 0), CLASSIC)
        assert start == expected * LOG_FILE_SIZE


@pytest.mark.parametrize("present", [8, 61, 62, 63, 100, 1890])
def test_a_file_whose_first_message_is_not_whole_is_none_to_begin_at(present: int) -> None:
    """HA-ST-46 "whose first message is not whole MUST NOT be the one": a partly written time is a wrong time."""
    times = [0x18BCFE56800 + 10**6 * index for index in range(3)]
    log = log_with_times(*times)
    assert mapped_file_queue.file_count(log) == 3
    # vouches for the first two files, not for the first message of the third
    checkpoint = StoreCheckpoint(times[2], times[2], 0)
    torn = replace(log, data=log.data[: 2 * LOG_FILE_SIZE + present].ljust(len(log.data), b"\0"))
    begin = [
        store_recovery.start_of_recovery(torn, False, checkpoint, profile) // LOG_FILE_SIZE for profile in (CLASSIC, HARDENED)
    ]
    assert begin == [2 if 60 < present < 63 else 1, 1]


@pytest.mark.parametrize(("checkpoint", "first"), [(StoreCheckpoint(), 0), (StoreCheckpoint(10_000, 10_000, 0), 1)])
def test_a_file_that_begins_with_a_time_below_0_is_none_to_begin_at(checkpoint: StoreCheckpoint, first: int) -> None:
    """HA-ST-46 "The same holds where the store timestamp of that message is below 0": a damaged time, which no CRC shows."""
    log = log_with_times(5_000, 7_000, -1)
    begin = [
        store_recovery.start_of_recovery(log, False, checkpoint, profile) // LOG_FILE_SIZE for profile in (CLASSIC, HARDENED)
    ]
    assert begin == [2, first]


@profiles
@pytest.mark.parametrize("seed", range(10))
def test_nothing_before_the_start_is_read(profile: Profile, seed: int) -> None:
    """HA-ST-18 "MUST begin three files before the end of the log": so the cost depends on the tail, not on the whole log."""
    stopped = store_recovery.stop(filled(seed, 60).state)
    start = store_recovery.start_of_recovery(stopped.log, True, stopped.checkpoint, profile)
    assert start > 0
    found = load(images_of(stopped), SIZES, LOG_FILE_SIZE, abort=False)
    assert isinstance(found, Store)
    noise = random.Random(seed).randbytes(start)
    spoilt = replace(found, log=replace(found.log, data=noise + found.log.data[start:]))
    sound, recovered = (store_recovery.recover(each, MADE_AT, SIZES, profile) for each in (found, spoilt))
    assert isinstance(sound, Store)
    assert isinstance(recovered, Store)
    assert recovered.log.data == noise + sound.log.data[start:]
    assert recovered.dispatched.reput_from_offset == sound.dispatched.reput_from_offset


# --- Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 5 * LOG_FILE_SIZE])
def test_damage_that_the_checkpoint_vouches_for_is_refused_and_what_was_never_flushed_is_cut(base: int) -> None:
    """HA-ST-20 "stored later than 3 s before the checkpoint's first time does not count as the whole record"."""
    log = log_with_times(10_000, 20_000, 30_000, base=base)
    hole = replace(log, data=log.data[: LOG_FILE_SIZE + 100] + b"X" + log.data[LOG_FILE_SIZE + 101 :])
    for abort, physic, refused in (
        (False, 0, True),
        (True, 33_000, True),
        (True, 32_999, False),
        (True, 0, False),
    ):
        state = Store(hole, Dispatched(), StoreCheckpoint(physic, 0, 0), abort)
        after = store_recovery.recover(state, MADE_AT, SIZES, HARDENED)
        if refused:
            end, behind = base + LOG_FILE_SIZE, base + 2 * LOG_FILE_SIZE
            assert after == Refused("no record, and a whole one behind it", f"{end:020d}", end, behind)
        else:
            assert isinstance(after, Store)
            assert after.log == Log(LOG_FILE_SIZE, base, log.data[:LOG_FILE_SIZE])
        classic = store_recovery.recover(state, MADE_AT, SIZES, CLASSIC)
        assert isinstance(classic, Store)
        assert classic.log.data == log.data[:LOG_FILE_SIZE]


@pytest.mark.parametrize("base", [0, 8192])
def test_a_sector_that_is_missing_from_properties_ends_the_log_where_nobody_was_promised_it(base: int) -> None:
    """HA-ST-10 "hold nothing but zeros from a multiple of 512 in its file to the next one, or to the end of the record"."""
    first = Record(b"T", b"b", b"K\x01" + b"v" * 1400, store_timestamp=10_000)
    log, second, size = store.append_record(store.append_record(Log(8192, base), first)[0], replace(first, properties=b""))
    assert (size, second - base) == (93, 93 + 1402)

    def recovered(start: int, end: int, physic: int, *, abort: bool = True) -> int:
        data = log.data[:start] + bytes(end - start) + log.data[end:]
        state = Store(replace(log, data=data), Dispatched(), StoreCheckpoint(physic, 0, 0), abort)
        after = store_recovery.recover(state, MADE_AT, SIZES, HARDENED)
        assert isinstance(after, Store)
        return len(after.log.data)

    whole = len(log.data)
    for start, end in ((512, 1024), (512, 1495), (1024, 1495)):
        assert recovered(start, end, 12_999) == 0
        assert recovered(start, end, 13_000) == whole  # the checkpoint vouches for the record, so its zeros are genuine
        assert recovered(start, end, 0, abort=False) == whole
    for start, end in ((513, 1024), (512, 1023), (500, 1000), (300, 300)):
        assert recovered(start, end, 0) == whole


def test_a_file_of_another_length_or_name_is_refused_with_both_numbers() -> None:
    """HA-ST-21 "A store with a commit-log file of another length than the others MUST be refused"."""
    files = mapped_file_queue.files(log_with_times(1, 1, 1))
    names = list(files)
    short = files | {names[1]: files[names[1]][:-1]}
    assert mapped_file_queue.load(LOG_FILE_SIZE, short) == Refused(
        "length of a file", names[1], LOG_FILE_SIZE - 1, LOG_FILE_SIZE
    )
    gap = {name: files[name] for name in (names[0], names[2])}
    refused = mapped_file_queue.load(LOG_FILE_SIZE, gap)
    assert refused == Refused("name of a file", names[2], 2 * LOG_FILE_SIZE, LOG_FILE_SIZE)


# --- Files -----------------------------------------------------------------------------------------------------------


@profiles
@pytest.mark.parametrize("base", [0, 3 * LOG_FILE_SIZE])
def test_a_truncated_log_ends_there_and_clears_or_keeps_what_was_behind(profile: Profile, base: int) -> None:
    """HA-ST-7 "What recovery cuts off MUST be set to zero, and a store without a whole record MUST have no files"; classic:
    quirk 35.
    """
    whole = random.Random(base).randbytes(3 * LOG_FILE_SIZE - 100)
    log = Log(LOG_FILE_SIZE, base, whole)
    for position in range(0, len(whole) + 1, 7):
        cut = mapped_file_queue.truncate_dirty_files(log, base + position, profile)
        image = b"".join(mapped_file_queue.files(cut).values())
        end_of_file = position // LOG_FILE_SIZE * LOG_FILE_SIZE + LOG_FILE_SIZE
        if profile is HARDENED:
            assert image == whole[:position].ljust(-(-position // LOG_FILE_SIZE) * LOG_FILE_SIZE, b"\0")
            assert cut.base == (base if position else None)
        else:
            assert store.max_offset(cut) == base + position
            assert image == whole[:end_of_file].ljust(len(image), b"\0")
    assert mapped_file_queue.truncate_dirty_files(log, base - 1, profile) == Log(LOG_FILE_SIZE)


@profiles
@pytest.mark.parametrize("seed", range(20))
def test_recovery_cuts_as_truncation_does(profile: Profile, seed: int) -> None:
    """HA-ST-5 "the first record that is not whole, and all beyond it, is cut off": the same files and bytes are left."""
    log = filled(seed, 30).state.log
    draw = random.Random(seed)
    at = draw.randrange(len(log.data))
    bad = replace(log, data=log.data[:at] + bytes([log.data[at] ^ 0x40]) + log.data[at + 1 :])
    recovered = store.recover(bad, profile).state
    assert recovered == mapped_file_queue.truncate_dirty_files(bad, store.max_offset(recovered), profile)


@pytest.mark.parametrize(
    ("ages", "clean_at_once", "deleted"),
    [
        ((9, 9, 9), False, 2),  # never the last
        ((9, 1, 9), False, 1),  # none after a file that stays
        ((1, 9, 9), False, 0),
        ((5, 4, 0), False, 1),
        ((1, 1, 1), True, 2),
        ((9,) * 15, False, 10),  # ten at a time
        ((9,), False, 0),
    ],
)
def test_expiry_moves_the_min_offset(ages: tuple[int, ...], clean_at_once: bool, deleted: int) -> None:
    """HA-ST-13 "The min offset of a log MUST be the start of its first file: older files may have been deleted"."""
    log = Log(100, 700, bytes(100 * len(ages) - 1))
    after = mapped_file_queue.delete_expired_file_by_time(log, [1_000 - age for age in ages], 1_000, 5, clean_at_once)
    assert store.min_offset(after) == 700 + 100 * deleted
    assert store.max_offset(after) == store.max_offset(log)
    assert mapped_file_queue.file_names(after) == mapped_file_queue.file_names(log)[deleted:]
    held = {mapped_file_queue.file_at(after, offset) for offset in range(store.min_offset(after), store.max_offset(after))}
    assert held == set(range(len(ages) - deleted))
    assert mapped_file_queue.file_at(after, store.min_offset(after) - 1) is None


# --- Flush -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12), st.integers(0, 2))
@settings(deadline=None)
def test_the_flushed_position_advances_only_over_what_was_synced(pages: int, rounds: list[tuple[int, bool]], base: int) -> None:
    """HA-ST-28 "MUST advance only over bytes that a successful sync has covered"; one file a round, and enough pages."""
    page, file_size = checkpoints.OS_PAGE_SIZE, 8 * checkpoints.OS_PAGE_SIZE
    log = Log(file_size, base * file_size, bytes(pages * page + 9))
    flushed_where = store.min_offset(log)
    for least_pages, synced in rounds:
        after = checkpoints.flush(log, flushed_where, least_pages, synced)
        end_of_file = flushed_where - flushed_where % file_size + file_size
        available = min(end_of_file, store.max_offset(log))
        enough = available == end_of_file or available // page - flushed_where // page >= least_pages
        assert after == (available if synced and enough else flushed_where)
        flushed_where = after


def test_the_checkpoint_says_when_the_last_flushed_message_was_stored() -> None:
    """HA-ST-24 "up to which messages, then consume queues, then the index are on the disk"; a failed sync adds nothing."""
    at_work = filled(5, 30)
    failed = store_recovery.flush(at_work.state, synced=False)
    assert (failed.checkpoint, failed.flushed_where) == (StoreCheckpoint(), 0)
    flushed = store_recovery.flush(at_work.state)
    assert flushed.flushed_where == store.max_offset(flushed.log)
    full = [file for file in flushed.dispatched.index if index_file.is_write_full(file)]
    assert full
    assert flushed.checkpoint == StoreCheckpoint(at_work.clock_ms, at_work.clock_ms, index_file.header(full[-1]).end_timestamp)
    times = [checkpoints.last_store_timestamp(flushed.log, until) for until in range(0, store.max_offset(flushed.log) + 1, 97)]
    times.append(checkpoints.last_store_timestamp(flushed.log, store.max_offset(flushed.log)))
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0, at_work.clock_ms)


# --- The golden stores -----------------------------------------------------------------------------------------------

GOLDEN_SIZES = DispatchSettings(6_000, 1_000, 4_000)
GOLDEN_FILE_SIZE = 1 << 20


# The model's dispatch puts no keys of tags: HA-ST-47.
@pytest.fixture(scope="module", params=[release for release in RELEASES if release not in WITH_KEYS_OF_TAGS])
def vectors(request: pytest.FixtureRequest) -> Path:
    """The files that a release wrote, and what its client reported."""
    return VECTORS / f"rocketmq-{request.param}"


def _members(vectors: Path) -> Iterator[tuple[tuple[str, ...], bytes]]:
    with tarfile.open(vectors / "store.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            yield tuple(member.name.removeprefix("./").split("/")), file.read()


@pytest.fixture(scope="module")
def golden(vectors: Path) -> Images:
    """The files that Apache RocketMQ left after a clean stop."""
    return {path: data for path, data in _members(vectors) if path[0] in ("commitlog", "consumequeue", "index", "checkpoint")}


@pytest.fixture(scope="module")
def anew(golden: Images) -> Store:
    """Recover the golden log without queues and index, and dispatch all of it."""
    found = load(
        {path: golden[path] for path in golden if path[0] in ("commitlog", "checkpoint")},
        GOLDEN_SIZES,
        GOLDEN_FILE_SIZE,
        abort=False,
    )
    assert isinstance(found, Store)
    state = store_recovery.recover(found, MADE_AT, GOLDEN_SIZES, CLASSIC)
    assert isinstance(state, Store)
    dispatched = dispatch.do_reput(state.dispatched, state.log, MADE_AT, GOLDEN_SIZES, CLASSIC)
    return replace(state, dispatched=dispatched)


def test_the_golden_queues_come_out_of_its_log_byte_for_byte(golden: Images, anew: Store) -> None:
    """HA-ST-29 "of 20-byte entries", HA-ST-31 "MUST be entry n of its queue", HA-ST-32 "it is the time of delivery"."""
    expected = {path: data for path, data in golden.items() if path[0] == "consumequeue"}
    assert len(expected) == 24
    assert {path: data for path, data in images_of(anew).items() if path[0] == "consumequeue"} == expected


def test_the_golden_index_comes_out_of_its_log_byte_for_byte(golden: Images, anew: Store) -> None:
    """HA-ST-39 "The header of an index file MUST be 40 bytes", HA-ST-40 to HA-ST-42; their names are creation times."""
    expected = [golden[path] for path in sorted(golden) if path[0] == "index"]
    assert [len(data) for data in expected] == [84_040, 84_040]
    assert [file.data for file in anew.dispatched.index] == expected


def test_the_golden_index_answers_as_the_broker_did(anew: Store, vectors: Path) -> None:
    """HA-ST-44 "A query MUST find messages by key", HA-ST-86 "MUST be thrown away by their reader"."""
    manifest = json.loads((vectors / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["index_queries"]
    for query in manifest["index_queries"]:
        found = index_service.query_offset(anew.dispatched.index, query["topic"], query["key"], query["max_num"], 0, 1 << 62)
        keys = {offset: dispatch_request.check_message_and_return_size(anew.log, offset) for offset in found}
        answer = [
            offset
            for offset, request in sorted(keys.items())
            if isinstance(request, DispatchRequest) and request.topic == query["topic"] and query["key"] in request.keys
        ]
        assert answer == query["commit_log_offsets"], query


@profiles
def test_the_golden_store_recovers_to_itself(golden: Images, anew: Store, vectors: Path, profile: Profile) -> None:
    """HA-ST-18 "MUST begin three files before the end of the log": log, queues and index are left as RocketMQ left them."""
    found = load(golden, GOLDEN_SIZES, GOLDEN_FILE_SIZE, abort=False)
    assert isinstance(found, Store)
    recovered = store_recovery.recover(found, MADE_AT, GOLDEN_SIZES, profile)
    assert isinstance(recovered, Store)
    assert images_of(recovered) == golden
    assert recovered.dispatched.queues == anew.dispatched.queues
    end = json.loads((vectors / "manifest.json").read_text(encoding="utf-8"))["log"]["commit_log_max_offset"]
    assert recovered.dispatched.reput_from_offset == store.max_offset(recovered.log) == end


def test_the_golden_checkpoint_is_of_the_last_message_and_of_the_last_full_index_file(golden: Images, anew: Store) -> None:
    """HA-ST-24 "begins with three times in ms, each an i64"."""
    checkpoint = checkpoints.decode(golden["checkpoint",])
    assert checkpoints.encode(checkpoint) == golden["checkpoint",]
    last = checkpoints.last_store_timestamp(anew.log, store.max_offset(anew.log))
    full = index_file.header(anew.dispatched.index[0]).end_timestamp
    assert checkpoint == StoreCheckpoint(last, last, full)
    assert store_recovery.flush(anew).checkpoint == checkpoint


def test_the_golden_store_after_a_crash_that_lost_its_queues_and_index(golden: Images, anew: Store) -> None:
    """HA-ST-19 "where there is none, at the first file", HA-ST-73 "MUST be dispatched again": without a checkpoint all queues
    and index files are made again, and are the same.
    """
    images = {path: bytes(len(data)) if path[0] != "commitlog" else data for path, data in golden.items()}
    found = load(images, GOLDEN_SIZES, GOLDEN_FILE_SIZE, abort=True)
    assert isinstance(found, Store)
    state = store_recovery.recover(found, MADE_AT, GOLDEN_SIZES, HARDENED)
    assert isinstance(state, Store)
    again = dispatch.do_reput(state.dispatched, state.log, MADE_AT, GOLDEN_SIZES, HARDENED)
    assert images_of(replace(state, dispatched=again, checkpoint=anew.checkpoint)) == images_of(anew)


@pytest.mark.parametrize(
    ("end", "flushed", "least_pages", "synced", "expected"),
    [
        pytest.param(12_288, 8_192, 4, True, 12_288, id="a full file, whatever is new in it"),
        pytest.param(12_287, 8_192, 4, True, 8_192, id="too few pages"),
        pytest.param(12_287, 4_096, 1, True, 12_287, id="enough pages"),
        pytest.param(12_287, 4_096, 2, True, 4_096, id="a page that is not full does not count"),
        pytest.param(12_300, 0, 0, True, 12_288, id="one file in a round"),
        pytest.param(12_288, 12_288, 0, True, 12_288, id="nothing is new"),
        pytest.param(12_288, 0, 0, False, 0, id="the sync failed"),
    ],
)
def test_a_round_of_flushing(end: int, flushed: int, least_pages: int, synced: bool, expected: int) -> None:
    """HA-ST-28 "MUST advance only over bytes that a successful sync has covered". A file has three pages."""
    assert checkpoints.flush(Log(12_288, 0, bytes(end)), flushed, least_pages, synced) == expected
