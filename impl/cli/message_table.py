"""Messages as a table for people. Only printable characters are shown, so that a body cannot control the terminal."""

import codecs
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from rocketmq_ha.impl.cli.table import Column, console_for, print_table
from rocketmq_ha.impl.wire.message import COMPRESSION_TYPE_MASK, COMPRESSION_TYPES, Message
from rocketmq_ha.spec.constants import SYS_FLAG_COMPRESSED

_PREVIEW_SIZE: Final = 64  # bytes of the decompressed body

MESSAGE_COLUMNS: Final = (
    *(Column(name, is_number=True) for name in ("offset", "size", "queue", "queue offset")),
    *(Column(name) for name in ("topic", "stored (UTC)", "tags", "keys")),
    Column("body", least=16),
)


def print_messages(records: Iterator[tuple[int, int, Message]]) -> None:
    """Print the messages as a table. If `records` raises an error, the messages before it are printed first."""
    rows: list[list[str]] = []
    try:
        for offset, size, message in records:
            rows.append(message_row(offset, size, message))
    finally:
        print_table(console_for(), MESSAGE_COLUMNS, rows)


def message_row(offset: int, size: int, message: Message) -> list[str]:
    """Return the cells of a row, in the order of MESSAGE_COLUMNS."""
    properties = message.properties
    return [
        str(offset),
        str(size),
        str(message.queue_id),
        str(message.queue_offset),
        _printable(message.topic),
        _time(message.store_timestamp),
        _printable(properties.get("TAGS", "")),
        _printable(properties.get("KEYS", "")),
        preview(message),
    ]


def preview(message: Message) -> str:
    """Return the beginning of the body: as text if it is printable UTF-8, else as hexadecimal."""
    body = _body_beginning(message)
    is_cut = len(body) > _PREVIEW_SIZE
    try:
        # Not final, because the cut may go through a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(body[:_PREVIEW_SIZE], final=not is_cut)
        if all(character.isprintable() or character in "\t\r\n" for character in text):
            return _printable(text) + ("…" if is_cut else "")
    except UnicodeDecodeError:
        pass
    size = _PREVIEW_SIZE // 4
    return f"0x{body[:size].hex()}" + ("…" if len(body) > size else "")


def _body_beginning(message: Message) -> bytes:
    compression = COMPRESSION_TYPES.get(message.sys_flag & COMPRESSION_TYPE_MASK)
    if message.sys_flag & SYS_FLAG_COMPRESSED and compression == "zlib":
        try:
            return zlib.decompressobj().decompress(message.body, _PREVIEW_SIZE + 1)
        except zlib.error:
            pass  # show the bytes as they are stored
    return message.body[: _PREVIEW_SIZE + 1]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "·" for character in text)


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # an i64 reaches beyond the calendar
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"
