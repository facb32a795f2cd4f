"""Chapter 6: what a slave asks its master, how a frame of remoting looks, and what is in the answers."""

import json
import re
from typing import Any

from registry import claim
from remoting_specimens import SYNC_CODES, Exchange, RemotingFrame, SyncRound, quoted_keys
from store_specimens import SlaveConfig

REQUIRED = {"code", "language", "version", "opaque", "flag", "serializeTypeCurrentRPC"}
OPTIONAL = {"remark", "extFields"}
Table = dict[str, dict[str, Any]]
ANSWER_BIT, ONEWAY_BIT = 1, 2
TABLES = {21: "topicConfigTable", 43: "offsetTable", 45: "offsetTable", 201: "subscriptionGroupTable"}


@claim("HA-MD-1", "four tables, in this order: topics, consumer offsets, delay offsets, subscription groups")
def a_slave_asks_for_four_tables_in_this_order(round_: SyncRound) -> bool:
    return tuple(round_.codes) == SYNC_CODES


@claim("HA-MD-8", "port less 2, the VIP port", "other three tables at the port itself")
def topics_are_asked_for_at_the_vip_port(exchange: Exchange) -> bool | None:
    if "port" not in exchange.row or exchange.code not in SYNC_CODES or exchange.row["who"] != "slave":
        return None
    return bool(exchange.row["port"] == ("vip" if exchange.code == 21 else "plain"))


@claim("HA-MD-10", "replace all topics of the slave, together with the version")
def topics_that_come_replace_the_slaves(config: SlaveConfig) -> bool | None:
    return is_replaced(config) if config.code == 21 else None


@claim("HA-MD-15", "replace all groups of the slave, together with the version")
def groups_that_come_replace_the_slaves(config: SlaveConfig) -> bool | None:
    return is_replaced(config) if config.code == 201 else None


def is_replaced(config: SlaveConfig) -> bool:
    """What the slave wrote is the last answer, and so is the version; in 5.x what is replaced moves that on afterwards."""
    ours, theirs = tables(config)
    is_version = ours["dataVersion"] == theirs["dataVersion"]
    if not config.store.release.startswith("4."):
        is_version = counter(ours) > counter(theirs)
    return ours[TABLES[config.code]] == theirs[TABLES[config.code]] and is_version


@claim("HA-MD-13", "merged into the slave's table")
def offsets_that_came_are_in_the_slaves_table(config: SlaveConfig) -> bool | None:
    if config.code != 43:
        return None
    ours, theirs = (table["offsetTable"] for table in tables(config))
    return all(ours[group][queue] == offset for group, offsets in theirs.items() for queue, offset in offsets.items())


@claim("HA-MD-14", "in the form in which they came")
def delay_offsets_are_written_as_they_came(config: SlaveConfig) -> bool | None:
    return config.text == config.answer if config.code == 45 else None


@claim("HA-MD-18", "4-byte length that does not count itself, one byte of serialize type, a 3-byte header length")
def a_frame_is_a_length_a_type_a_header_and_a_body(frame: RemotingFrame) -> bool:
    """The length does not count itself; what the header's length leaves is the body."""
    length = int.from_bytes(frame.raw[:4], "big")
    body_size = frame.exchange.row["response_body_size" if frame.is_answer else "request_body_size"]
    is_whole = length == len(frame.raw) - 4 == 4 + frame.header_length + len(frame.body)
    return is_whole and frame.raw[4] == 0 and len(frame.body) == body_size and frame.raw[8 : 8 + 1] == b"{"


@claim(
    "HA-MD-20",
    "code, language, version, opaque, flag and serializeTypeCurrentRPC",
    "remark and extFields may be left out",
)
def a_header_has_these_fields(frame: RemotingFrame) -> bool:
    return set(frame.header) >= REQUIRED and set(frame.header) <= REQUIRED | OPTIONAL


@claim(
    "HA-MD-20",
    "The bit of value 1 of flag marks an answer, which repeats the opaque of its request",
    "the bit of value 2 marks a request that wants no answer",
)
def flag_says_what_a_frame_is(frame: RemotingFrame) -> bool:
    """The bit of value 1 of an answer, which has its request's opaque; that of value 2 of a request without an answer."""
    flag = frame.header["flag"]
    if frame.is_answer:
        return flag == ANSWER_BIT and frame.header["opaque"] == frame.exchange.request.header["opaque"]
    return flag == (ONEWAY_BIT if frame.exchange.answer is None else 0)


@claim("HA-MD-21", "integers without quotes")
def integer_keys_have_no_quotes(frame: RemotingFrame) -> bool | None:
    """In the tables of offsets; with quotes put to them, the body is JSON."""
    if not frame.is_answer or frame.exchange.code not in (43, 45) or not re.search(r"[{,]\"?-?\d+\"?:", frame.body.decode()):
        return None
    text = frame.body.decode()
    return re.search(r"[{,]\d+:", text) is not None and re.search(r"[{,]\"\d+\":", text) is None and bool(frame.table)


@claim("HA-MD-22", "code 21 MUST have dataVersion and topicConfigTable")
def topics_are_a_table_with_a_version(frame: RemotingFrame) -> bool | None:
    if not answers(frame, 21):
        return None
    names = {"topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order"}
    topics = frame.table["topicConfigTable"]
    has_names = all(set(topic) >= names and topic["topicName"] == name for name, topic in topics.items())
    return {"dataVersion", "topicConfigTable"} <= set(frame.table) and bool(topics) and has_names


@claim("HA-MD-23", "code 43 MUST have offsetTable, from topic@group")
def consumer_offsets_are_a_table(frame: RemotingFrame) -> bool | None:
    if not answers(frame, 43):
        return None
    table = frame.table["offsetTable"]
    is_keyed = all(name.count("@") == 1 for name in table)
    return is_keyed and all(queue.isdecimal() and offset >= 0 for queues in table.values() for queue, offset in queues.items())


@claim("HA-MD-24", "code 45 MUST have offsetTable, from delay level to offset")
def delay_offsets_are_a_table(frame: RemotingFrame) -> bool | None:
    if not answers(frame, 45):
        return None
    return all(1 <= int(level) <= 18 and offset >= 0 for level, offset in frame.table["offsetTable"].items())


@claim("HA-MD-25", "code 201 MUST have subscriptionGroupTable and dataVersion")
def subscription_groups_are_a_table_with_a_version(frame: RemotingFrame) -> bool | None:
    if not answers(frame, 201):
        return None
    groups = frame.table["subscriptionGroupTable"]
    is_named = all(group["groupName"] == name for name, group in groups.items())
    return {"subscriptionGroupTable", "dataVersion"} <= set(frame.table) and bool(groups) and is_named


def answers(frame: RemotingFrame, code: int) -> bool:
    return frame.is_answer and frame.exchange.code == code and frame.header["code"] == 0


def counter(table: Table) -> int:
    """How often a version has moved on."""
    found = table["dataVersion"]["counter"]
    assert isinstance(found, int)
    return found


def tables(config: SlaveConfig) -> tuple[Table, Table]:
    """(the slave's file, the master's answer)."""
    return json.loads(quoted_keys(config.text)), json.loads(quoted_keys(config.answer))
