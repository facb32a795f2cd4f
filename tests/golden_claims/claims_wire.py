"""Chapter 1: what a slave and a master of RocketMQ say to each other on the HA port."""

from link_specimens import Connection, Frame, Report
from registry import claim
from store_specimens import Defaults

from rocketmq_ha.spec import constants


@claim("HA-W-1", "slave's max physical offset")
def a_report_is_the_slaves_max_offset(report: Report) -> bool:
    """The slave had nothing but what frames brought it, so its max offset is 0 or where one of them ended."""
    each: Connection | None = report.connection
    ends = {0}
    while each is not None:
        ends.update(end_of(frame) for frame in each.frames)
        each = each.before
    return report.offset in ends


@claim("HA-W-1", "MUST be 8 bytes", "without header or length", "HA-W-7", "nothing but reports from the slave")
def reports_are_all_that_a_slave_sends(connection: Connection) -> bool:
    offsets = [report.offset for report in connection.reports]
    return len(connection.from_slave) % constants.REPORT_SIZE == 0 and offsets == sorted(offsets)


@claim("HA-W-9", "where the slave wants to start (the first report of a connection)")
def the_first_report_says_where_the_slave_wants_to_start(connection: Connection) -> bool | None:
    """0 asks for the last file, from its start; anything else for that offset, which a heartbeat may say as well."""
    if not connection.frames or not connection.reports:
        return None
    first, start = connection.reports[0].offset, connection.frames[0].offset
    return start % connection.store.log.file_size == 0 if first == 0 else start == first


@claim(
    "HA-W-2",
    "12-byte header",
    "signed 64-bit integer",
    "signed 32-bit integer",
    "that many bytes of the commit log",
)
def a_frame_is_a_header_and_bytes_of_the_log(frame: Frame) -> bool | None:
    """Of the master's own file, as it lay on its disk in the end."""
    if not frame.body_size or not frame.is_whole:
        return None
    return frame.body == frame.store.bytes_at(frame.offset, frame.body_size)


@claim("HA-W-3", "body size of 0 is a heartbeat", "next_transfer_from_where")
def a_heartbeat_says_where_the_next_frame_starts(frame: Frame) -> bool | None:
    if frame.body_size or frame.after is None:
        return None
    following = next((each for each in frames_behind(frame)), None)
    return frame.offset == frame.after and (following is None or following.offset == frame.offset)


@claim("HA-W-4", "MUST NOT cross the end of a commit-log file")
def a_frame_stays_in_its_file(frame: Frame) -> bool | None:
    size = frame.store.log.file_size
    return frame.offset // size == (frame.offset + frame.body_size - 1) // size if frame.body_size else None


@claim("HA-W-5", "body of a frame MUST NOT be larger than ha_transfer_batch_size", "the header does not count")
def a_body_is_no_larger_than_a_batch(frame: Frame) -> bool | None:
    return frame.body_size <= constants.HA_TRANSFER_BATCH_SIZE if frame.body_size else None


@claim("HA-W-5", "32 KiB by default")
def a_batch_is_32_kib_by_default(defaults: Defaults) -> bool:
    return defaults.settings["haTransferBatchSize"] == "32768"


@claim("HA-W-10", "MAY begin and end anywhere in a record")
def a_frame_begins_or_ends_within_a_record(frame: Frame) -> bool | None:
    """It may: so every frame that does is one more that shows it, and none could refute it."""
    edges = {part.offset for part in frame.store.parts} | {frame.store.end}
    is_within = frame.body_size and not {frame.offset, frame.offset + frame.body_size} <= edges
    return True if is_within else None


@claim("HA-W-6", "MUST be big-endian")
def a_header_is_big_endian(frame: Frame) -> bool | None:
    """Read the other way round, its offset is beyond the log."""
    if frame.offset == 0:
        return None
    return 0 <= frame.offset <= frame.store.end < int.from_bytes(frame.header[:8], "little")


@claim("HA-W-6", "MUST be big-endian")
def a_report_is_big_endian(report: Report) -> bool | None:
    if report.offset == 0:
        return None
    return 0 <= report.offset <= report.store.end < int.from_bytes(report.raw, "little")


@claim("HA-W-7", "From its first byte to its last", "frames from the master")
def frames_are_all_that_a_master_sends(connection: Connection) -> bool:
    """From the first byte to the last, each where the one before it ended."""
    frames = connection.frames
    size = sum(len(frame.header) + len(frame.body) for frame in frames)
    return size == len(connection.from_master) and all(frame.after in (None, frame.offset) for frame in frames)


def end_of(frame: Frame) -> int:
    return frame.offset + frame.body_size


def frames_behind(frame: Frame) -> list[Frame]:
    frames = frame.connection.frames
    return frames[next(at for at, each in enumerate(frames) if each is frame) + 1 :]
