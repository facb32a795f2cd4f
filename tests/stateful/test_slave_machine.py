"""A slave that hostile masters send anything to is in the model's state after each byte, and never claims a byte that it lacks.

The lock-step has honest masters, and forges headers alone. Here the test is the master: it sends frames of any offset and
size, overlapping ones, bodies that end amid records, BLANKs and heads that lie, another history, or one of another file size.
It splits them anywhere, cuts the connection at any byte, and connects as another master. HA-S-4 to HA-S-14, HA-S-61 to HA-S-63,
HA-S-90 to HA-S-93.
"""

import struct
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import currently_in_test_context, event, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kit.examples import machine_settings
from rocketmq_ha.fuzz.channel import ScriptedSocket
from rocketmq_ha.fuzz.lockstep import scratch_directory
from rocketmq_ha.impl.errors import FileSizeDiffers, OutOfStep, PeerViolation, StoreCorrupt
from rocketmq_ha.impl.ha import slave as impl_slave
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.link import SlaveLink
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.reference import mapped_file_queue, overlap, slave, store, store_recovery, wire
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Close, Step, sent
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import PROFILES, Settings

I64_MAX: Final = (1 << 63) - 1
FILE_SIZES: Final = (256, 300, 511, 511, 512, 1000)  # 2^63 - 1 is a multiple of 511: a file can end there
# Bodies that claim these sizes do not come, or not wholly.
NO_SIZES: Final = (-1, -(1 << 31), (1 << 31) - 13, (1 << 31) - 12, (1 << 31) - 1, 1 << 20)
NO_OFFSETS: Final = (-1, -300, -(1 << 63), I64_MAX, I64_MAX - 255, I64_MAX - 256, 1 << 40)
HEAD: Final = struct.Struct(">iI")
MAGICS: Final = (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, BLANK_MAGIC_CODE, BLANK_MAGIC_CODE, 1)
ALL: Final = 1 << 20
OddHead = tuple[bool, int, int]  # (counted from the end of the slave's file, bytes, magic)
ODD_HEADS: Final[list[OddHead]] = [
    *((True, size, MESSAGE_MAGIC_CODE) for size in (-9, -8, -7, 0, 1)),
    *((True, size, BLANK_MAGIC_CODE) for size in (-1, 0, 1, 244)),
    *((False, size, BLANK_MAGIC_CODE) for size in (-1, 7, 8, 20, 60, 100)),
    *((False, size, magic) for size in (90, 91, 92) for magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2)),
    (False, 100, 1),
]

# (counted from the end of the slave's file, bytes)
sizes = st.one_of(
    st.tuples(st.just(True), st.sampled_from((0, 0, 1, -1, 8, -7, -8, -9, -91))),
    st.tuples(st.just(False), st.sampled_from(NO_SIZES) | st.integers(0, 1100) | st.integers(88, 96)),
)
pieces = st.one_of(
    st.just([ALL]),
    st.just([ALL]),
    st.lists(st.sampled_from((11, 12, 13)) | st.integers(1, 200), max_size=4).map(lambda sizes: [*sizes, ALL]),
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.sampled_from(([-1], [-2], [-5, ALL])),  # -5: sixty times 5 bytes
)


@cache
def history(number: int, file_size: int) -> Log:
    """The log of a master. All begin with the same two messages; a different number puts others behind them."""
    log = Log(file_size)
    while len(log.data) < 3 * file_size + 100:
        index = len(log.data) // 64
        told = 0 if len(log.data) < 200 else number
        body = bytes((index + at * told) % 251 for at in range(20 + index * 7 % 60))
        record = Record(b"T", body, b"K\x01v" if index % 3 else b"", store_timestamp=1_000 + index + told)
        log, _, _ = store.append_record(log, record)
    return log


@dataclass
class Master:
    """One that a slave is connected to. offset: where an honest one would begin its next frame."""

    log: Log
    offset: int


class SlaveMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._resources = ExitStack()
        self._stores = 0

    @initialize(
        profile=st.sampled_from(("hardened", "classic")),
        file_size=st.sampled_from(FILE_SIZES),
        read_buffer_size=st.sampled_from((1 << 16, 1 << 16, 600, 300, 150, 13)),
        first_buffer_size=st.sampled_from((1 << 16, 100, 16, 1)),
        adopts=st.booleans(),
        masters=st.sampled_from((0, 0, *FILE_SIZES)),
    )
    def start(
        self, profile: str, file_size: int, read_buffer_size: int, first_buffer_size: int, adopts: bool, masters: int
    ) -> None:
        """first_buffer_size: of a read buffer that grows. masters: the file size of the first master; 0 is the slave's."""
        self.profile = PROFILES[profile]
        self.settings = Settings(file_size, slave_read_buffer_size=read_buffer_size, adopts_file_size=adopts)
        self._resources.enter_context(mock.patch.object(impl_slave, "RECV_SIZE", first_buffer_size))
        self.other = 0, masters  # the master to connect to next: number of its history, file size
        self.directory = self._resources.enter_context(scratch_directory())
        self.now_ms = 1_000_000
        self.begin_anew(file_size)

    def begin_anew(self, file_size: int) -> None:
        self._stores += 1
        self.model = Slave(Log(file_size))
        self.open()
        self.after_restart()

    def open(self) -> None:
        profile = self.profile
        path = self.directory / str(self._stores)
        size = None if self.model.log.base is not None else self.model.log.file_size
        self.log = CommitLog.open(path, file_size=size, clear_tail=profile.clears_tail, strict=profile.checks_recovery)

    def after_restart(self) -> None:
        self.client = SlaveClient("master", self.log, self.settings, self.profile)
        self.master: Master | None = None
        self.sock = ScriptedSocket(0)
        self.link = SlaveLink(self.sock, self.client)
        self.wire = bytearray()  # sent by the master, not delivered
        self.reports = bytearray()  # of the model, on this connection

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        self._resources.close()

    # --- Judging ---------------------------------------------------------------------------------------------------------

    def agree(self) -> None:
        """Compare all that is visible of the connection and the log."""
        model, client = self.model, self.client
        assert (client.connected, client.close_reason) == (model.connected, model.close_reason)
        assert self.sock.in_flight == self.reports
        assert client.deaf == model.deaf
        assert client.unparsed == slave.unparsed(model)
        assert client.unparsed_size == len(client.unparsed)
        assert client.current_reported_offset == model.current_reported_offset
        assert client.last_write_timestamp == model.last_write_timestamp
        assert client.last_read_timestamp == model.last_read_timestamp
        log = model.log
        assert (self.log.min_offset, self.log.max_offset) == (store.min_offset(log), store.max_offset(log))
        assert self.log.file_size == log.file_size
        if not client.connected:
            self.master = None

    @invariant()
    def files_agree(self) -> None:
        log = self.model.log
        files = {path.name: path.read_bytes() for path in self.log.queue.directory.iterdir()}
        if self.log.max_offset > self.log.min_offset:  # a new file without a byte is none of the model's
            files = {name: content for name, content in files.items() if int(name) < self.log.max_offset or any(content)}
        assert files == mapped_file_queue.files(log)
        if self.profile.checks_appends and self.profile.checks_frames:
            for at in range(0, len(self.reports), 8):  # HA-S-38 "MUST NOT report any of them"
                assert int.from_bytes(self.reports[at : at + 8], "big") <= max(1, self.log.max_offset)

    def grown(self, before: Log) -> None:
        """What the log had it has; HA-S-5 "A body MUST be appended only when all of it is there"."""
        after = self.model.log
        assert after.data[: len(before.data)] == before.data
        assert before.base is None or after.base == before.base

    def after(self, step: Step[Slave]) -> None:
        self.model = step.state
        self.reports += sent(step)

    def refused(self, step: Step[Slave], violation: PeerViolation | None) -> None:
        """Each refusal is of the right type, names its clause and both values."""
        closes = [output.reason for output in step.outputs if isinstance(output, Close)]
        error = self.link.out_of_step
        match closes:
            case ["offset"]:
                assert violation is not None
                assert violation.clause in step.clauses
                assert violation.clause in ("HA-S-4", "HA-S-63")
            case ["frame"]:
                assert violation is not None
                assert violation.clause in ("HA-S-11", "HA-S-52")
                assert (violation.clause == "HA-S-52") == ("a frame at offset" in str(violation))
            case ["file_size"]:
                assert isinstance(error, FileSizeDiffers)
                assert error.expected == self.log.file_size
                assert error.masters != self.log.file_size
            case ["diverged"]:
                assert isinstance(error, OutOfStep)
                assert not isinstance(error, FileSizeDiffers)
            case _:
                assert violation is None, violation
                assert error is None, error
        if closes and currently_in_test_context():
            event(f"closed: {closes[0]}")

    # --- Connections -----------------------------------------------------------------------------------------------------

    def connect(self, room: int = ALL, base: int = 0) -> None:
        """Connect, unless there is a connection. base: number of the file at which an empty log begins."""
        if self.client.connected:
            return
        number, file_size = self.other
        file_size = file_size or self.model.log.file_size
        log = history(number, max(file_size, min(FILE_SIZES)))  # a slave may adopt a size in which no message of ours has room
        self.sock, self.wire, self.reports = ScriptedSocket(room), bytearray(), bytearray()
        self.link = SlaveLink(self.sock, self.client)
        self.link.on_connect(self.now_ms)
        self.after(slave.on_connect(self.model, room, self.now_ms, self.profile))
        offset = self.model.current_reported_offset
        self.master = Master(log, base * log.file_size if offset == 0 else offset)
        self.agree()

    @rule(
        before=st.integers(0, 30),
        number=st.sampled_from((0, 0, 0, 1, 2)),
        file_size=st.sampled_from((0, 0, 0, *FILE_SIZES)),
        base=st.integers(0, 3),
        room=st.sampled_from((ALL, ALL, ALL, 0, 7, 8, 20)),
    )
    def reconnect(self, before: int, number: int, file_size: int, base: int, room: int) -> None:
        """The stream ends behind any byte; the slave connects again, perhaps to another master. file_size: 0 is its own."""
        self.take(before)
        if self.client.connected:
            self.sock.end_of_stream = True
            assert self.link.on_frames(self.now_ms) is None
            self.model = slave.on_end_of_stream(self.model).state
            self.agree()
        self.other = number, file_size
        self.connect(room, base)

    @rule()
    def restart(self) -> None:
        """The process ends at once and starts over its files."""
        before = self.model.log
        self.log.close()
        stopped = slave.on_restart(self.model, self.profile)
        try:
            self.open()
        except StoreCorrupt as error:
            assert self.profile.checks_recovery
            end = store.max_offset(stopped.state.log) or store.min_offset(before)
            foreign = store_recovery.damage(before, end, True, StoreCheckpoint()) is not None
            foreign |= stopped.state.log.base is None and store_recovery.no_log(before) is not None
            assert foreign or "physical offset" in str(error), error  # a record of another place: no tear makes one
            self.begin_anew(self.settings.mapped_file_size)
            return
        self.model = stopped.state
        self.after_restart()
        self.agree()

    @rule(ms=st.sampled_from((1, 4999, 5001, 20_001)))
    def tick(self, ms: int) -> None:
        self.now_ms += ms
        step = slave.on_tick(self.model, self.sock.room, self.now_ms, self.settings, self.profile)
        if self.client.connected:
            self.link.on_tick(self.now_ms)
        self.after(step)
        self.agree()

    # --- What a master sends ---------------------------------------------------------------------------------------------

    def send(self, offset: int, body: bytes, size: int | None = None) -> None:
        """Put a frame on the wire. size: what its header claims, if that is not the size of its body."""
        claimed = len(body) if size is None else size
        if not -(1 << 63) <= offset <= I64_MAX:
            return
        if currently_in_test_context():
            note(f"frame at {offset}, of {claimed} bytes, {len(body)} come")
        self.wire += wire.pack_header(offset, claimed) + body
        if self.master is not None and offset == self.master.offset:
            self.master.offset += len(body)

    def at(self) -> int:
        """Where an honest master would begin its next frame."""
        self.connect()
        assert self.master is not None
        return self.master.offset

    def of_history(self, offset: int, size: int) -> bytes:
        assert self.master is not None
        return store.data_at(self.master.log, offset, min(size, self.settings.slave_read_buffer_size - TRANSFER_HEADER_SIZE))

    @rule(sizes=st.lists(st.sampled_from((1000, 100, 300, 31, 7, 1)), min_size=1, max_size=6), pieces=pieces)
    def serve(self, sizes: list[int], pieces: list[int]) -> None:
        """Frames as an honest master sends them."""
        for size in sizes:
            if body := self.of_history(offset := self.at(), size):
                self.send(offset, body)
        self.arrive(pieces)

    @rule(pieces=pieces)
    def follow(self, pieces: list[int]) -> None:
        """All that an honest master has, over the ends of files."""
        while body := self.of_history(offset := self.at(), 200):
            self.send(offset, body)
        self.arrive(pieces)

    @rule(size=st.integers(1, 400), back=st.integers(-3, 200), claims=st.booleans(), pieces=pieces)
    def overlap(self, size: int, back: int, claims: bool, pieces: list[int]) -> None:
        """Bytes that were sent before, or that skip some. claims: the header says that they are the next ones."""
        offset = self.at()
        body = self.of_history(offset - back, size)
        self.send(offset if claims else offset - back, body)
        self.arrive(pieces)

    @rule(
        shift=st.sampled_from((0, 0, 0, 0, 1, -1, 8)),
        offset=st.sampled_from((*[0] * 12, *NO_OFFSETS)),
        size=sizes,
        comes=st.integers(0, 1100) | st.just(ALL),
        pieces=pieces,
    )
    def lie(self, shift: int, offset: int, size: tuple[bool, int], comes: int, pieces: list[int]) -> None:
        """A header of any offset and size, with as many bytes of its body as it may have. offset: 0 is the next, shifted."""
        self.connect()
        offset = offset or self.at() + shift
        to_end, claimed = size
        if to_end:
            claimed += self.left_in_file(offset)
        self.send(offset, bytes(at % 253 for at in range(min(comes, max(0, claimed), 2000))), claimed)
        self.arrive(pieces)

    def left_in_file(self, offset: int) -> int:
        return self.model.log.file_size - offset % self.model.log.file_size

    @rule(
        heads=st.lists(st.tuples(sizes, st.sampled_from(MAGICS)), min_size=1, max_size=3), cut=st.integers(0, 12), pieces=pieces
    )
    def heads(self, heads: list[tuple[tuple[bool, int], int]], cut: int, pieces: list[int]) -> None:
        """Records and BLANKs of any size, by their heads."""
        body, offset = b"", self.at()
        for (to_end, size), magic in heads:
            left = self.left_in_file(offset + len(body))
            told = left + size if to_end else size
            body += HEAD.pack(told, magic) + b"\x01" * (min(max(told, 8), left) - 8)
            if not 8 <= told < left:
                break
        for start in range(0, len(body) - cut, 120):
            self.send(self.at(), body[start : min(start + 120, len(body) - cut)])
        self.arrive(pieces)

    @rule(count=st.integers(1, 3), shift=st.sampled_from((0, 0, 0, 0, 1, -1)), pieces=pieces)
    def heartbeat(self, count: int, shift: int, pieces: list[int]) -> None:
        for _ in range(count):
            self.send(self.at() + shift, b"")
        self.arrive(pieces)

    @rule(again=st.booleans(), size=st.integers(1, 300), index=st.integers(0, 311), to=st.integers(0, 255), pieces=pieces)
    def garble(self, again: bool, size: int, index: int, to: int, pieces: list[int]) -> None:
        """One byte of an honest frame changes. again: the frame is the first of a connection."""
        if again:
            self.reconnect(0, *self.other, 0, ALL)
        self.send(offset := self.at(), self.of_history(offset, size))
        if self.wire:
            self.wire[index % len(self.wire)] = to
        self.arrive(pieces)

    @rule(
        file=st.sampled_from((0, 1, -1, -1)),
        records=st.integers(0, 9),
        head=st.sampled_from(ODD_HEADS),
        more=st.sampled_from((0, 0, 1, 90)),
        frame=st.sampled_from((150, 97, 31)),
        split=st.sampled_from((0, 0, 5)),
        pieces=pieces,
    )
    def odd_end(self, file: int, records: int, head: OddHead, more: int, frame: int, split: int, pieces: list[int]) -> None:
        """An empty log begins at a file, -1 is the last there can be, with honest records; then comes the head of another."""
        self.log.close()
        self.begin_anew(self.settings.mapped_file_size)
        file_size = self.model.log.file_size
        base = file % ((1 << 63) // file_size) * file_size
        self.connect()
        assert self.master is not None
        self.master.offset, held = base, self.master.log.data
        end = 0
        while records and int.from_bytes(held[end : end + 4], "big") + end + 8 < file_size:
            end, records = end + int.from_bytes(held[end : end + 4], "big"), records - 1
        for start in range(0, end, frame):
            self.send(self.at(), held[start : min(start + frame, end)])
        to_end, told, magic = head
        told += (file_size - end) * to_end
        if abs(told) < 1 << 31:
            rest = b"\x01" * (min(max(told, 8), file_size - end) - 8 + more)
            body = (HEAD.pack(told, magic) + rest)[: file_size - end]
            for part in filter(None, (body[:split], body[split:])):
                self.send(self.at(), part)
        self.arrive(pieces)

    # --- What arrives ----------------------------------------------------------------------------------------------------

    def arrive(self, pieces: list[int]) -> None:
        """What is on the wire arrives in pieces; the rest stays on it."""
        for size in pieces:
            for _ in range(1 if size > 0 else 60):
                self.take(abs(size))

    def take(self, nbytes: int) -> None:
        """So many of the bytes that are on the wire arrive at once."""
        arrived = bytes(self.wire[:nbytes])
        del self.wire[:nbytes]
        if not arrived or not self.client.connected:
            return
        before = self.model.log
        step = slave.on_frames(self.model, arrived, self.sock.room, self.now_ms, self.settings, self.profile)
        self.sock.arrived += arrived
        violation = self.link.on_frames(self.now_ms)
        self.after(step)
        self.refused(step, violation)
        self.grown(before)
        self.agree()


TestSlaveMachine = SlaveMachine.TestCase
TestSlaveMachine.settings = machine_settings(70, steps=25)


# --- Lives that a few random ones may not reach ------------------------------------------------------------------------

FIRST_FILE: Final = Log(256, 0, history(0, 256).data[:256])
LAST_RECORD: Final = overlap.last_record(FIRST_FILE) or (0, 0)
FIRST_SIZE: Final = int.from_bytes(FIRST_FILE.data[:4], "big")
BLANK_AT: Final = TRANSFER_HEADER_SIZE + LAST_RECORD[1] - LAST_RECORD[0]  # in the first frame that an honest master sends again
MESSAGE, BLANK, NEXT = MESSAGE_MAGIC_CODE, BLANK_MAGIC_CODE, {"number": 0, "file_size": 0, "base": 0, "room": ALL, "before": 0}
Life = tuple[str, bool, list[tuple[str, dict[str, Any]]]]  # profile, whether it adopts a file size, steps


def odd_end(records: int, *head: int, more: int = 0, frame: int = 97, split: int = 0) -> tuple[str, dict[str, Any]]:
    rest = {"head": head, "more": more, "frame": frame, "split": split, "pieces": [ALL]}
    return "odd_end", {"file": 0, "records": records, **rest}


LIVES: Final[dict[str, Life]] = {
    "a deaf slave hears the next master": (
        "classic",
        False,
        [
            ("lie", {"shift": 0, "offset": 0, "size": (False, -1), "comes": 0, "pieces": [ALL]}),
            ("reconnect", NEXT),
            ("follow", {"pieces": [ALL]}),
        ],
    ),
    "a slave of one record asks for offset 1": ("hardened", False, [odd_end(1, False, 100, 1), ("reconnect", NEXT)]),
    **{
        f"byte {at} of a BLANK comes again as another": (
            "hardened",
            False,
            [
                ("serve", {"sizes": [1000], "pieces": [ALL]}),
                ("garble", {"again": True, "size": 300, "index": BLANK_AT + at, "to": 77, "pieces": [ALL]}),
            ],
        )
        for at in (0, 7, 8)
    },
    **{
        f"a record leaves {-left} bytes of its file, its head split at {split}": (
            "hardened",
            False,
            [odd_end(0, True, left, MESSAGE, split=split), ("reconnect", NEXT), ("follow", {"pieces": [ALL]})],
        )
        for left in (-9, -8, -7)
        for split in (0, 5)
    },
    **{
        f"{more} bytes behind a BLANK that ends a shorter file": ("hardened", True, [odd_end(1, False, 60, BLANK, more=more)])
        for more in (0, 1)
    },
    "the head of a record in two frames, before a BLANK that ends a shorter file": (
        "hardened",
        False,
        [odd_end(2, False, 20, BLANK, frame=FIRST_SIZE + 5)],
    ),
    "one byte at the end of a buffer that grows": ("hardened", False, [("serve", {"sizes": [3, 100], "pieces": [16, ALL]})]),
    "a slave that adopted files of 8 bytes, and the next master": (
        "hardened",
        True,
        [odd_end(0, False, 8, BLANK), ("restart", {}), ("follow", {"pieces": [ALL]})],
    ),
    "heads in pieces": ("hardened", True, [odd_end(9, False, 30, BLANK), ("reconnect", NEXT), ("follow", {"pieces": [-1]})]),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_of_a_slave_agrees_with_the_model(name: str) -> None:
    profile, adopts, steps = LIVES[name]
    machine = SlaveMachine()
    try:
        machine.start(profile, 256, 1 << 16, 16, adopts, 0)
        for rule_name, arguments in steps:
            getattr(machine, rule_name)(**arguments)
            machine.files_agree()
    finally:
        machine.teardown()


@pytest.mark.parametrize("profile", ["classic", "hardened"])
@pytest.mark.parametrize(("file_size", "is_taken"), [(511, True), (512, False)])
def test_a_file_may_end_at_the_greatest_offset_and_none_beyond(profile: str, file_size: int, is_taken: bool) -> None:
    """HA-S-52 "A frame whose file would end beyond the greatest offset": 2^63 - 1 is a multiple of 511, not of 512."""
    machine = SlaveMachine()
    try:
        machine.start(profile, file_size, 1 << 16, 16, False, 0)
        machine.odd_end(-1, 0, (True, 0, 1), 0, 97, 0, [ALL])
        assert (machine.log.max_offset == I64_MAX) == is_taken
        machine.send(I64_MAX, b"")  # a heartbeat, which a full log cannot have either
        machine.arrive([ALL])
        assert not machine.client.connected
    finally:
        machine.teardown()
