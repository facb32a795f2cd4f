"""Chapter 5, the commit log: its files, its records and its BLANKs. What is put on a disk, and what comes over the HA port."""

import hashlib
import zlib
from itertools import pairwise

import record_figure
from link_specimens import Frame
from registry import claim
from store_specimens import Blank, LogFile, StoredRecord, number

from rocketmq_ha.reference import message
from rocketmq_ha.spec import constants
from rocketmq_ha.spec.release_table import value_of

BORN_V6, STORE_V6 = 0x10, 0x20
V2 = constants.MESSAGE_MAGIC_CODE_V2
# Fields of the figure: their bytes, and the name by which the client reports them.
FIGURE_FIELDS = {
    "total size": (4, "store_size"),
    "CRC of the body": (4, "body_crc"),
    "queue id": (4, "queue_id"),
    "flag": (4, "flag"),
    "queue offset": (8, "queue_offset"),
    "physical offset of this record": (8, "commit_log_offset"),
    "born timestamp": (8, "born_timestamp_ms"),
    "store timestamp": (8, "store_timestamp_ms"),
    "reconsume times": (4, "reconsume_times"),
    "prepared transaction offset": (8, "prepared_transaction_offset"),
}


@claim("HA-ST-1", "files of one fixed size", "20-digit offset of its first byte")
def a_file_is_named_by_its_first_offset(file: LogFile) -> bool:
    steps = [int(b) - int(a) for a, b in pairwise(file.names)]
    return len(file.name) == 20 and file.name.isdecimal() and all(step == file.size for step in steps)


@claim("HA-ST-11", "keep the size with which it was begun")
def files_keep_one_size(file: LogFile) -> bool:
    return file.size == int(file.store.manifest["master_conf"]["mappedFileSizeCommitLog"])


@claim("HA-ST-12", "one at a time, whatever their topic")
def messages_stand_one_behind_the_other(record: StoredRecord) -> bool | None:
    return None if record.before is None else record.before == record.offset


@claim("HA-ST-13", "start of its first file")
def the_log_begins_with_its_first_file(file: LogFile) -> bool | None:
    """What a record there says of its own place is the name of the file."""
    if file.name != file.names[0] or int(file.name) not in file.store.records:
        return None
    return file.store.records[int(file.name)].record.physical_offset == int(file.name)


@claim(
    "HA-ST-2",
    "queue id, flag, queue offset, physical offset, sysFlag",
    "reconsume times, prepared transaction offset",
)
def a_record_has_what_the_client_reported(record: StoredRecord) -> bool | None:
    """Every field but the size of the body as it is stored, which the client does not tell of a compressed one."""
    told, read = record.told, record.record
    if told is None:
        return None
    sys_flag = read.sys_flag & ~constants.SYS_FLAG_COMPRESSED if record.store.release.startswith("5.") else read.sys_flag
    if not read.sys_flag & constants.SYS_FLAG_COMPRESSED and told["body_size"] != len(read.body):
        return False
    return (
        number(record.raw, 0, 4) == told["store_size"] == len(record.raw)
        and sys_flag == told["sys_flag"]
        and (read.queue_id, read.flag) == (told["queue_id"], told["flag"])
        and (read.queue_offset, read.physical_offset) == (told["queue_offset"], told["commit_log_offset"])
        and (read.born_timestamp, read.store_timestamp) == (told["born_timestamp_ms"], told["store_timestamp_ms"])
        and (read.reconsume_times, record.topic) == (told["reconsume_times"], told["topic"])
        and read.prepared_transaction_offset == told["prepared_transaction_offset"]
    )


@claim("HA-ST-2", "as the figure says", "HA-ST-14", "0x10 for the born and 0x20 for the store host")
def the_fields_stand_where_the_figure_says(record: StoredRecord) -> bool | None:
    """By the figure alone, without the model: the numbers that the client reported, up to where an IPv6 host moves them."""
    told, figure = record.told, record_figure.read()
    if told is None:
        return None
    bits = number(record.raw, figure.positions["sysFlag"], 4)
    born_v6, store_v6 = (bool(bits & figure.bits[name]) for name in ("born v6", "store v6"))
    if (born_v6, store_v6) != tuple(told[name].count(":") > 1 for name in ("born_host", "store_host")):
        return False
    moved = {"born timestamp": 0, "store timestamp": 12 * born_v6, "reconsume times": 12 * (born_v6 + store_v6)}
    moved["prepared transaction offset"] = moved["reconsume times"]
    return all(
        number(record.raw, figure.positions[name] + moved.get(name, 0), width) == told[key]
        for name, (width, key) in FIGURE_FIELDS.items()
    )


@claim("HA-ST-2", "each of the last three behind its length")
def a_record_is_as_long_as_its_parts(record: StoredRecord) -> bool:
    """91 bytes, one more in V2, 12 more for each IPv6 host, and the three parts of any length."""
    magic = int.from_bytes(record.raw[4:8], "big")
    hosts = sum(bool(record.record.sys_flag & bit) for bit in (BORN_V6, STORE_V6))
    read = record.record
    parts = len(read.body) + len(read.topic) + len(read.properties)
    return len(record.raw) == 91 + (magic == V2) + 12 * hosts + parts


@claim("HA-ST-2", "total size, magic", "HA-ST-72", "127 bytes in a V1 record", "in a V2 record")
def topics_beyond_127_bytes_make_v2(record: StoredRecord) -> bool | None:
    magic = int.from_bytes(record.raw[4:8], "big")
    return magic == V2 if len(record.record.topic) > 127 else magic == constants.MESSAGE_MAGIC_CODE


@claim("HA-ST-14", "8 bytes, or 20", "0x10 for the born and 0x20 for the store host")
def hosts_are_what_the_client_reported(record: StoredRecord) -> bool | None:
    told = record.told
    if told is None:
        return None
    hosts = (record.record.born_host, BORN_V6, told["born_host"]), (record.record.store_host, STORE_V6, told["store_host"])
    return all(
        len(host) == (20 if record.record.sys_flag & bit else 8) and java_host(host) == reported
        for host, bit, reported in hosts
    )


@claim("HA-ST-14", "8 bytes, or 20", "0x10 for the born")
def an_ipv6_host_takes_20_bytes(record: StoredRecord) -> bool | None:
    """The store timestamp stands behind the born host, and is not long after the born timestamp."""
    if not record.record.sys_flag & (BORN_V6 | STORE_V6):
        return None
    width = 20 if record.record.sys_flag & BORN_V6 else 8
    return 0 <= number(record.raw, 48 + width, 8) - number(record.raw, 40, 8) < 600_000


@claim("HA-ST-15", "commit-log offset of the record itself")
def a_record_says_where_it_stands(record: StoredRecord) -> bool:
    return number(record.raw, 28, 8) == record.offset


@claim("HA-ST-16", "one string, name 0x01 value 0x02 name 0x01 value")
def properties_are_one_string(record: StoredRecord) -> bool | None:
    """The pairs of the string are the properties that the client reported; a 0x02 may be missing behind the last."""
    if record.told is None:
        return None
    text = record.record.properties.decode()
    pairs = text.removesuffix("\x02").split("\x02") if text else []
    return all(pair.count("\x01") == 1 for pair in pairs) and parted(pairs) == record.told["properties"]


@claim("HA-ST-16", "0x02 behind the last value, and without it")
def the_last_0x02_is_what_versions_toml_says(record: StoredRecord) -> bool | None:
    if not record.record.properties:
        return None
    is_written = value_of("0x02 behind the last property", record.store.release) == "is written"
    return record.record.properties.endswith(b"\x02") == is_written


@claim("HA-ST-3", "a message and 8 bytes more do not fit")
def a_message_leaves_8_bytes_of_its_file(record: StoredRecord) -> bool:
    size = record.store.log.file_size
    return record.offset % size + len(record.raw) + 8 <= size


@claim("HA-ST-3", "its size and the BLANK magic", "the message opens the next file")
def a_blank_is_the_rest_of_its_file(blank: Blank) -> bool:
    """With its size and its magic in front; the message that opens the next file would not have fitted."""
    head = blank.store.bytes_at(blank.offset, 8)
    is_headed = head == blank.size.to_bytes(4, "big") + constants.BLANK_MAGIC_CODE.to_bytes(4, "big")
    following = blank.store.records.get(blank.offset + blank.size)
    if following is None:
        return False
    return is_headed and batch_size(following) + 8 > blank.size and (blank.offset + blank.size) % blank.store.log.file_size == 0


@claim("HA-ST-4", "CRC-32 of the stored body, without its highest bit")
def the_crc_is_of_the_stored_body(record: StoredRecord) -> bool:
    return number(record.raw, 8, 4) == zlib.crc32(record.record.body) % (1 << 31)


@claim("HA-ST-4", "checked as it is stored, compressed")
def the_crc_is_of_the_compressed_body(record: StoredRecord) -> bool | None:
    """Where it is compressed, its bytes are others than those that the client gave."""
    if not record.record.sys_flag & constants.SYS_FLAG_COMPRESSED or record.told is None:
        return None
    is_other = hashlib.sha256(record.record.body).hexdigest() != record.told["body_sha256"]
    return is_other and message.body_crc(record.record.body) == number(record.raw, 8, 4) == record.told["body_crc"]


@claim("HA-ST-6", "written from its start")
def replicated_bytes_stand_at_their_offset(frame: Frame) -> bool | None:
    """In the slave's log, whose first file is the one that holds the first frame's offset."""
    if not frame.body_size or not frame.is_whole:
        return None
    slave = frame.connection.slave
    first = frame.connection.index == 0 and frame.after is None
    is_base = slave.log.base == frame.offset - frame.offset % slave.log.file_size
    return slave.bytes_at(frame.offset, frame.body_size) == frame.body and (is_base or not first)


def java_host(host: bytes) -> str:
    """An address as Java writes it: of IPv6 eight groups without leading zeros, none left out."""
    *address, port = (int.from_bytes(host[at : at + 2], "big") for at in range(0, len(host) - 2, 2))
    assert port == 0, "a port of more than 16 bits"
    ip = ":".join(f"{group:x}" for group in address) if len(host) == 20 else ".".join(map(str, host[:4]))
    return f"{ip}:{int.from_bytes(host[-2:], 'big')}"


def parted(pairs: list[str]) -> dict[str, str]:
    return dict(pair.split("\x01", 1) for pair in pairs)


def batch_size(record: StoredRecord) -> int:
    """Of a batch, which is put as one: its messages stand one behind the other, with one store timestamp."""
    size = 0
    here: StoredRecord | None = record
    while here is not None and here.record.store_timestamp == record.record.store_timestamp:
        size += len(here.raw)
        here = here.store.records.get(here.offset + len(here.raw))
        if record.properties.get("kind") != "batch":
            break
    return size
