"""Explore the two ends of a connection separately: the master's, and the slave (snapshot_machines.py)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from formal.snapshot_recorder import Happening, Recorder
from rocketmq_ha.reference import master, slave, store, wire
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Step
from rocketmq_ha.reference.store import Log
from rocketmq_ha.reference.transitions import FILE_SIZE, LATE_MS, SETTINGS, explore
from rocketmq_ha.spec.profile import Profile

# --- The master's connection -------------------------------------------------------------------------------------------------

ROOMS: Final = (
    0,
    5,
    7,
    12,
    14,
    26,
    100,
)  # none, part of a header, a header, part of a body, the same behind a heartbeat, all


def of_master(profile: Profile) -> list[Happening]:
    """Explore a master's connection: whole and partial reports, socket room from none to plenty, puts, time, end of stream."""
    settings = replace(SETTINGS, master_read_buffer_size=16)
    recorder = Recorder(master.classify)
    accepted = master.on_accept(0).state

    def normal(conn: MasterConnection) -> MasterConnection:
        """The state without fields that no later step reads."""
        used, begun = conn.process_position, conn.next_transfer_from_where != -1
        return replace(
            conn,
            last_read_timestamp=0,
            last_write_timestamp=0,
            byte_buffer_read=bytes(used) + conn.byte_buffer_read[used:],
            this_offset=-1 if conn.last_write_over else conn.this_offset,
            slave_request_offset=1 if begun and conn.slave_request_offset >= 0 else conn.slave_request_offset,
            slave_ack_offset=conn.slave_ack_offset if profile.checks_reports else -1,
        )

    def reports(conn: MasterConnection, log: Log) -> Iterator[tuple[str, bytes]]:
        """The bytes that may arrive next. Behind the first byte of a report comes the rest of a report with that first byte."""
        read = conn.byte_buffer_read[conn.process_position :]
        maximum = store.max_offset(log)
        if not read:
            yield "the first byte of one", wire.pack_report(maximum)[:1]
            yield "-5, and the max offset behind it", wire.pack_report(-5) + wire.pack_report(maximum)
        for name, offset in (("0", 0), ("the max offset", maximum), ("beyond the log", maximum + 1), ("-1", -1), ("-5", -5)):
            report = wire.pack_report(offset)
            if report.startswith(read):
                yield name, report[len(read) :]

    def successors(node: tuple[MasterConnection, Log]) -> Iterator[tuple[MasterConnection, Log]]:
        conn, log = node
        is_open = not conn.close_reason
        do = partial(recorder.do, conn, possible=is_open)
        start = conn.slave_request_offset or store.max_offset(log) - store.max_offset(log) % FILE_SIZE
        behind = conn.next_transfer_from_where if conn.next_transfer_from_where != -1 else start
        data = "data" if store.data_at(log, behind, 1) else "no data"
        data = "the request is -1" if conn.slave_request_offset == -1 else data
        for due in (False, True) if conn.last_write_over and conn.slave_request_offset != -1 else (False,):
            ready = replace(conn, last_write_timestamp=-LATE_MS) if due else conn
            for room in ROOMS:
                variant = f"{data}, {'heartbeat due, ' if due else ''}room {room}"
                after = do("transfer", variant, partial(master.on_transfer, ready, log, room, 0, settings))
                if after and after != conn:
                    yield normal(after), log
        # The write side runs whenever it can, so other events never meet a connection with something left to write.
        if is_open and master.on_transfer(conn, log, 0, 0, settings).state != conn:
            return
        for name, arrived in reports(conn, log):
            after = do("reports", name, partial(master.on_reports, conn, arrived, log, 0, settings, profile))
            if after:
                yield normal(after), log
        for age, name in ((0, "in time"), (LATE_MS, "silent for too long")):
            older = replace(conn, last_read_timestamp=-age)
            after = recorder.do(older, "tick", name, partial(master.on_tick, older, 0, settings), is_open)
            if after:
                yield normal(after), log
        if after := do("end_of_stream", "", partial(master.on_end_of_stream, conn)):
            yield normal(after), log
        if is_open and len(log.data) < 15:  # in the last file, and one byte beyond
            yield conn, replace(log, data=log.data + bytes(6))

    explore([(accepted, Log(FILE_SIZE, 0, bytes(3))), (accepted, Log(FILE_SIZE, 0, bytes(FILE_SIZE)))], successors)
    # The only step that reads the min offset, on a log whose first file was deleted.
    log = Log(FILE_SIZE, FILE_SIZE, bytes(3))
    for offset, name in ((FILE_SIZE - 1, "below the min offset"), (FILE_SIZE, "the min offset")):
        deleted = partial(master.on_reports, accepted, wire.pack_report(offset), log, 0, settings, profile)
        recorder.do(accepted, "reports", f"{name}, not 0", deleted)
    return recorder.sorted(("reports", "transfer", "tick", "end_of_stream"))


# --- The slave ---------------------------------------------------------------------------------------------------------------

ROOMS_FOR_A_REPORT: Final = (100, 3)  # one takes a whole report, one only a part
TICKS: Final = (  # time since the last byte read and since the last report
    ("in time", 0, 0),
    ("a report is due", 0, 2),
    ("silence", LATE_MS, 0),
    ("silence, a report is due", LATE_MS, 2),
)


def of_slave(profile: Profile) -> list[Happening]:
    """Explore a slave: whole and partial frames and reports, frames that no correct master sends, time, restarts."""
    recorder = Recorder(slave.classify)

    def normal(client: Slave) -> Slave:
        used = client.dispatch_position
        read = bytes(used) + client.byte_buffer_read[used:]
        return replace(client, last_read_timestamp=0, last_write_timestamp=0, byte_buffer_read=read, close_reason="")

    def frames(log: Log) -> Iterator[tuple[str, bytes, bytes]]:
        """Frames for a slave without unparsed bytes: (name, first bytes, remaining bytes)."""
        maximum = store.max_offset(log)
        room = FILE_SIZE - maximum % FILE_SIZE
        where = "" if maximum else ", on an empty log"

        def frame(offset: int, size: int) -> bytes:
            return wire.pack_header(offset, size) + b"\x01" * size

        heartbeat = frame(maximum, 0)
        yield "a heartbeat", heartbeat, b""
        yield "a heartbeat, its first byte", heartbeat[:1], heartbeat[1:]
        if maximum < 2 * FILE_SIZE:
            whole, behind = frame(maximum, room), frame(maximum + room, 1)
            yield "a frame", whole, b""
            yield "a frame, its first byte", whole[:1], whole[1:]
            yield "a frame, its header", whole[:12], whole[12:]
            yield "a frame, all but its last byte", whole[:-1], whole[-1:]
            yield (
                "a frame without its last byte, a size of -1 behind it",
                whole[:-1],
                whole[-1:] + wire.pack_header(maximum + room, -1),
            )
            yield "a frame and a heartbeat", whole + frame(maximum + room, 0), b""
            yield "a frame and a part of the next", whole + behind[:5], behind[5:]
        yield f"a heartbeat at another offset{where}", frame(maximum + 1, 0), b""
        yield f"a frame at another offset{where}", frame(maximum + 1, 1), b""
        yield f"a frame at a negative offset{where}", frame(-5, 1), b""
        yield "a frame beyond the end of a file", frame(maximum, room + 1)[: SETTINGS.slave_read_buffer_size], b""
        yield "a frame that the buffer cannot hold", frame(maximum, SETTINGS.slave_read_buffer_size - 11), b""
        for name, size in (("-1", -1), ("2^31 - 1", (1 << 31) - 1)):
            header = wire.pack_header(maximum, size)
            yield f"a size of {name}, its first byte", header[:1], header[1:]
            yield f"a size of {name}, and a heartbeat behind it", header + heartbeat, b""

    def successors(node: tuple[Slave, bytes]) -> Iterator[tuple[Slave, bytes]]:
        client, rest = node

        def do(
            event: str, name: str, call: Callable[[], Step[Slave]], possible: bool, left: bytes
        ) -> Iterator[tuple[Slave, bytes]]:
            if after := recorder.do(client, event, name, call, possible):
                yield normal(after), left if after.connected else b""

        streams = frames(client.log) if not slave.unparsed(client) else iter(())
        if rest:
            behind = ("the rest of the frame and a part of the next", rest + wire.pack_header(0, 0)[:5], b"")
            streams = iter((("the rest of the frame", rest, b""), behind, ("a byte of it", rest[:1], rest[1:])))
        for room in ROOMS_FOR_A_REPORT:
            connects = partial(slave.on_connect, client, room, 0, profile)
            yield from do("connect", f"room {room}", connects, not client.connected, b"")
        for name, arrived, left in streams:
            for room in ROOMS_FOR_A_REPORT:
                reads = partial(slave.on_frames, client, arrived, room, 0, SETTINGS, profile)
                yield from do("frames", f"{name}, room {room}", reads, client.connected, left)
        for name, read_age, write_age in TICKS:
            older = replace(client, last_read_timestamp=-read_age, last_write_timestamp=-write_age)
            for room in ROOMS_FOR_A_REPORT:
                ticks = partial(slave.on_tick, older, room, 0, SETTINGS, profile)
                if after := recorder.do(older, "tick", f"{name}, room {room}", ticks, client.connected):
                    yield normal(after), rest if after.connected else b""
        yield from do("end_of_stream", "", partial(slave.on_end_of_stream, client), client.connected, b"")
        yield from do("restart", "", partial(slave.on_restart, client, profile), True, b"")

    explore([(Slave(Log(FILE_SIZE)), b"")], successors)
    return recorder.sorted(("connect", "frames", "tick", "end_of_stream", "restart"))
