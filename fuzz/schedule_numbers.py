"""The numbers that a schedule from a file may have: what the two sides of each world can take, in little time and memory.

Schedules that a seed draws, or that a campaign makes, stay far within these ranges. A number that the setup bounds as well,
such as that of a slave, is checked by the world (`World.fits`); texts and lists stand in schedule_texts.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.worlds.world import Schedule
from rocketmq_ha.spec.profile import Settings

Range = tuple[int, int]  # the least and the greatest value

I32: Final[Range] = (-(1 << 31), (1 << 31) - 1)
I64: Final[Range] = (-(1 << 63), (1 << 63) - 1)
FEW: Final[Range] = (0, 9)  # slaves, clients, queues, and how far back something is
SOME: Final[Range] = (1, 9)
COUNT: Final[Range] = (0, 1 << 16)
SIZE: Final[Range] = (0, 1 << 16)  # bytes
A_BYTE_OR_MORE: Final[Range] = (1, 1 << 16)
ROOM: Final[Range] = (0, 1 << 18)  # bytes that a socket takes
MS: Final[Range] = (0, 1 << 20)
TURNS: Final[Range] = (-9, 9)  # places that are counted in a circle
PERM: Final[Range] = (0, 7)

# World -> class and field, or a field of the schedule itself.
NUMBERS: Final[Mapping[str, Mapping[str, Range]]] = {
    "link": {
        "slaves": SOME,
        "Settings.mapped_file_size": (200, SIZE[1]),
        "Settings.slave_file_size": SIZE,
        "Settings.ha_transfer_batch_size": A_BYTE_OR_MORE,
        "Settings.ha_send_heartbeat_interval_ms": MS,
        "Settings.ha_housekeeping_interval_ms": MS,
        "Settings.ha_slave_fallbehind_max": (0, 1 << 28),
        "Settings.sync_flush_timeout_ms": MS,
        "Settings.master_read_buffer_size": (8, SIZE[1]),
        "Settings.slave_read_buffer_size": (13, SIZE[1]),
        "Settings.replicas": SOME,
        "Put.queue_id": FEW,
        "Resume.nth": FEW,
        "Tick.ms": MS,
        "Connect.slave": FEW,
        "Connect.room": ROOM,
        "Connect.slave_room": ROOM,
        "Grant.slave": FEW,
        "Grant.room": ROOM,
        "DeliverFrames.slave": FEW,
        "DeliverFrames.nbytes": (-ROOM[1], ROOM[1]),
        "DeliverReports.slave": FEW,
        "DeliverReports.nbytes": (-ROOM[1], ROOM[1]),
        "ForgeReport.slave": FEW,
        "ForgeReport.offset": I64,
        "ForgeHeader.slave": FEW,
        "ForgeHeader.body_size": I32,
        "Clog.slave": FEW,
        "Clog.room": ROOM,
        "DiskFull.slave": FEW,
        "Cut.slave": FEW,
        "RestartSlave.slave": FEW,
        "RestartMaster.lost": FEW,
    },
    "replicas": {
        "Settings.mapped_file_size": (700, SIZE[1]),
        "Settings.slave_file_size": SIZE,
        "Settings.ha_transfer_batch_size": A_BYTE_OR_MORE,
        "Settings.ha_send_heartbeat_interval_ms": MS,
        "Settings.ha_housekeeping_interval_ms": MS,
        "Settings.ha_slave_fallbehind_max": (0, 1 << 28),
        "Settings.sync_flush_timeout_ms": MS,
        "Settings.master_read_buffer_size": (8, SIZE[1]),
        "Settings.slave_read_buffer_size": (13, 1 << 22),
        "Settings.replicas": SOME,
        "Put.size": (0, 100),
        "Accept.address": FEW,
        "Accept.subject": (-1, 9),
        "Transfer.connection": TURNS,
        "Report.connection": TURNS,
        "Report.message": (0, 1 << 10),
        "Report.more": (-(1 << 41), 1 << 41),
        "Close.connection": TURNS,
        "Flush.failures": FEW,
        "Tick.ms": MS,
    },
    "reads": {
        "ReadsSetup.permission": PERM,
        "ReadsSetup.queues": SOME,
        "ReadsSetup.file_entries": (2, 1_000),
        "ReadsSetup.log_file_size": (64, SIZE[1]),
        "ReadsSetup.memory": (0, 1 << 40),
        "ReadsSetup.messages_in_memory": COUNT,
        "ReadsSetup.bytes_in_memory": (0, 1 << 18),
        "ReadsSetup.messages_on_disk": COUNT,
        "ReadsSetup.bytes_on_disk": SIZE,
        "ReadsSetup.max_parked": COUNT,
        "ReadsSetup.max_parked_of_connection": COUNT,
        "ReadsSetup.max_parked_tags": COUNT,
        "ReadsSetup.short_polling_time_mills": MS,
        "Message.queue_id": FEW,
        "Message.size": A_BYTE_OR_MORE,
        "Message.gap": SIZE,
        "Message.skipped": FEW,
        "Message.high": (-256, 255),
        "Pull.channel": (0, 2),
        "Pull.queue_id": (-1, 9),
        "Pull.more": (-100, 100),
        "Pull.max_msg_nums": (-1, 1_000),
        "Pull.sys_flag": (0, 31),
        "Pull.suspend_timeout_millis": MS,
        "Pull.sub_version": FEW,
        "Pull.commit_offset": FEW,
        "Tick.ms": MS,
        "CloseChannel.channel": (0, 2),
        "Expire.files": SOME,
        "SetTopic.perm": PERM,
        "SetTopic.read_queue_nums": FEW,
        "SetGroup.broker_id": FEW,
        "SetGroup.which_broker_when_consume_slowly": FEW,
        "SetConsumers.sub_version": FEW,
    },
    "routes": {
        "Bounds.brokers": (2, 1_000),
        "Bounds.queue_datas": (4, 1_000),
        "BrokerSettings.broker_id": FEW,
        "BrokerSettings.period_ms": (1, MS[1]),
        "BrokerSettings.permission": PERM,
        "Settings.listen_port": (1, 65_535),
        "Settings.text_size": (60, 100_000),
        "Settings.servers": SOME,
        "Settings.timeout_ms": (1, MS[1]),
        "Register.server": FEW,
        "Register.channel": (0, 2),
        "Unregister.server": FEW,
        "Unregister.channel": (0, 2),
        "SignOfLife.server": FEW,
        "SignOfLife.channel": (0, 2),
        "QueryVersion.server": FEW,
        "QueryVersion.channel": (0, 2),
        "Close.server": FEW,
        "Close.channel": (0, 2),
        "Registration.broker_id": FEW,
        "Registration.heartbeat_timeout_ms": MS,
        "DataVersion.counter": FEW,
        "DataVersion.state_version": FEW,
        "DataVersion.timestamp": FEW,
        "QueueData.perm": PERM,
        "QueueData.read_queue_nums": FEW,
        "QueueData.write_queue_nums": FEW,
        "QueueData.topic_sys_flag": FEW,
        "Ask.server": FEW,
        "Ask.code": (0, 9_999),
        "Change.server": FEW,
        "Change.code": (0, 9_999),
        "PutText.server": FEW,
        "DeleteText.server": FEW,
        "StartBroker.broker": FEW,
        "StopBroker.broker": FEW,
        "UpdateTopic.broker": FEW,
        "UpdateTopic.queue_nums": SOME,
        "UpdateTopic.perm": PERM,
        "DropTopic.broker": FEW,
        "Deliver.broker": FEW,
        "Deliver.server": FEW,
        "Answer.broker": FEW,
        "Answer.server": FEW,
        "Cut.broker": FEW,
        "Cut.server": FEW,
        "CloseStale.server": FEW,
        "Disk.server": FEW,
        "RestartServer.server": FEW,
        "Tick.ms": MS,
    },
    "store": {
        "StoreSettings.mapped_file_size": (600, SIZE[1]),
        "StoreSettings.queue_file_size": (20, 20_000),
        "StoreSettings.hash_slot_num": (1, 1_000),
        "StoreSettings.index_num": (2, 1_000),
        "StoreSettings.file_reserved_ms": MS,
        "StoreSettings.delete_when": (0, 23),
        "StoreSettings.disk_max_used_space_ratio": (1, 100),
        "StoreSettings.max_log_size": (0, 1 << 20),
        "Put.queue_id": FEW,
        "Put.sys_flag": (0, 12),
        "PutBatch.queue_id": FEW,
        "Tick.ms": (-MS[1], MS[1]),
        "Flush.least_pages": FEW,
        "DiskFails.after": (-1, 9),
        "Clean.hour": (0, 23),
        "Clean.used_percent": (0, 100),
        "Clean.needed_size": (-1, 1 << 20),
        "PowerCut.pages": (0, (1 << 64) - 1),
        "PowerCut.names": FEW,
        "PowerCut.torn": (0, 511),
        "Damage.file": TURNS,
        "Damage.position": SIZE,
        "Damage.size": A_BYTE_OR_MORE,
        "Damage.mask": (0, 255),
        "Shorten.file": TURNS,
        "Shorten.length": SIZE,
    },
    "metadata": {
        "Settings.most_size": (1, 1 << 18),
        "Settings.most_gone": (0, 10_000),
        "PutTopic.master": FEW,
        "PutTopic.queue_nums": SOME,
        "DeleteTopic.master": FEW,
        "PutGroup.master": FEW,
        "PutGroup.retry_max_times": FEW,
        "DeleteGroup.master": FEW,
        "PutMessage.process": (-1, 9),
        "PutMessage.queue_id": FEW,
        "Commit.process": (-1, 9),
        "Commit.queue_id": FEW,
        "Commit.offset": FEW,
        "DeliverDelayed.master": FEW,
        "DeliverDelayed.progress": FEW,
        "RestartMaster.master": FEW,
        "Follow.master": (-2, 9),
        "Repeat.nth": FEW,
        "BreakConnection.master": FEW,
        "Disk.process": (-1, 9),
        "Tick.ms": MS,
    },
    "remoting": {
        "Settings.clients": SOME,
        "Settings.pending": A_BYTE_OR_MORE,
        "Settings.pending_in_all": A_BYTE_OR_MORE,
        "Settings.unsent": SIZE,
        "Settings.unfinished": SIZE,
        "Settings.stall_ms": (1, MS[1]),
        "Settings.frame_ms": (1, MS[1]),
        "Settings.idle_ms": (1, MS[1]),
        "Frame.code": (0, (1 << 15) - 1),
        "Frame.opaque": I32,
        "Frame.flag": (0, 3),
        "Frame.body_size": (0, 1 << 12),  # bytes: each frame of a file becomes that much memory
        "Connect.client": FEW,
        "End.client": FEW,
        "Send.client": FEW,
        "Reply.client": FEW,
        "Reply.back": TURNS,
        "Reply.body_size": SIZE,
        "Take.client": FEW,
        "Take.nbytes": (1, ROOM[1]),
        "Read.client": FEW,
        "Read.nbytes": (1, ROOM[1]),
        "Serve.nth": COUNT,
        "Serve.code": (0, SIZE[1]),
        "Serve.body_size": SIZE,
        "Invoke.client": FEW,
        "Invoke.in_ms": MS,
        "Notify.client": FEW,
        "Tick.ms": MS,
    },
}


# Numbers of a setup that stand for whole units, and those that another number or the profile bounds.
UNITS: Final[Mapping[str, int]] = {
    "Settings.master_read_buffer_size": 8,  # a report (HA-M-10)
    "StoreSettings.queue_file_size": 20,  # an entry
}
LEAST_FILE: Final = 8  # bytes: a BLANK
CLASSIC_REPLICAS: Final = 1  # HA-G-33


def check(world: str, name: str, value: Any, place: str) -> None:
    """Check a value in depth. Raises: FuzzError for the first number that may not stand there."""
    for found, number, where in numbers(name, value):
        least, greatest = NUMBERS[world][found]
        if not least <= number <= greatest:
            raise FuzzError(f"{place}{where}: found {number}, expected {least} to {greatest}")
        if number % UNITS.get(found, 1):
            raise FuzzError(f"{place}{where}: found {number}, expected a multiple of {UNITS[found]}")


def check_settings(schedule: Schedule, place: str) -> None:
    """Check the replicas and the slave's files of a link, or of a master. Raises: FuzzError."""
    settings = getattr(schedule, "settings", None)
    if isinstance(settings, Settings):
        if settings.replicas != CLASSIC_REPLICAS and not schedule.profile.counts_replicas:
            found = f"found {settings.replicas} with the profile {schedule.profile.name}"
            raise FuzzError(f"{place}: setup.settings.replicas: {found}, expected {CLASSIC_REPLICAS}")
        if 0 < settings.slave_file_size < LEAST_FILE:
            found = f"found {settings.slave_file_size}, expected 0 or at least {LEAST_FILE}"
            raise FuzzError(f"{place}: setup.settings.slave_file_size: {found}")


def numbers(name: str, value: Any) -> Iterator[tuple[str, int, str]]:
    """Every number in a value, in depth. Yields: its name in NUMBERS, the number, and where it stands in the value."""
    return ((found, leaf, where) for found, leaf, where in leaves(name, value) if type(leaf) is int)


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """Every value in a value, in depth, that is no object. Yields: its class and field, it, and where it stands."""
    kind: type = type(value)
    if is_dataclass(kind):
        for field, named in _fields(kind):
            for found, leaf, where in leaves(named, getattr(value, field)):
                yield found, leaf, f".{field}{where}"
        return
    yield name, value, ""
    if isinstance(value, tuple):
        for at, one in enumerate(value):
            for found, leaf, where in leaves(name, one):
                yield found, leaf, f"[{at}]{where}"


@cache
def _fields(kind: type) -> tuple[tuple[str, str], ...]:
    """The fields of a dataclass: name, and the class with it."""
    return tuple((field.name, f"{kind.__name__}.{field.name}") for field in fields(kind))
