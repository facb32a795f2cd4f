"""How far each consumer group has come in each queue, kept in `config/consumerOffset.json`.

The file is written every 5 s, not for every commit. A broker that is killed forgets the commits of up to 5 s, and the groups
get those messages again.

Spec: HA-BT-30 to HA-BT-35, HA-BT-60, HA-BT-76, HA-BT-77.  Source: 4.9.8 ConsumerOffsetManager, BrokerController.initialize.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.broker.body_fields import shown
from rocketmq_ha.impl.broker.change_log import ChangeLog
from rocketmq_ha.impl.broker.config_file import ConfigFile, KeptFile
from rocketmq_ha.impl.broker.config_table import I32, I64
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.errors import ConfigInvalid, RequestInvalid
from rocketmq_ha.impl.remoting import body_json

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

TOPIC_GROUP_SEPARATOR: Final = "@"
_QUEUE_ID: Final = re.compile(r"-?[0-9]{1,10}")
_EMPTY_SIZE: Final = len('{"offsetTable":{}}')
_KEY_SIZE: Final = len(":{},")
_OFFSET_SIZE: Final = len('"":,') + len(str(-(1 << 63)))  # an offset may get more digits with each commit
_FIRST_PERSIST_MS: Final = 10_000  # after the start


class ConsumerOffsetManager:
    """The offsets of one broker's consumer groups: a table from `topic@group` to a table from queue id to offset.

    HA-BT-32 "MUST be kept under `topic@group`". HA-BT-34 "no timer removes them".

    now_ms: the time of the start, by a clock that does not step, as `on_tick` gets it. on_commit: called with topic@group and
    queue id before a client's commit changes an offset. changes: by topic@group, for slaves.
    """

    def __init__(self, store_dir: Path, settings: TableSettings, now_ms: int, file: KeptFile | None = None) -> None:
        self._file: KeptFile = file or ConfigFile(store_dir / "config" / "consumerOffset.json")
        self._settings = settings
        self._table: dict[str, dict[int, int]] = {}
        self._count = 0  # of offsets, over all keys
        self._size = _EMPTY_SIZE  # bytes: what `encode` is at most, whatever is committed next for these queues
        self._has_changed = False  # since the file was written
        self._persist_at = now_ms + _FIRST_PERSIST_MS
        self.on_commit: Callable[[str, int], None] | None = None
        self.changes: Final = ChangeLog()

    @property
    def offset_table(self) -> Mapping[str, Mapping[int, int]]:
        """All offsets: topic@group, then queue id."""
        return self._table

    @property
    def encoded_size(self) -> int:
        """Bytes that the answer to 43 has at most, while no queue is added. HA-BT-76 "each offset counts as 20 characters"."""
        return self._size

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store how far a group has come in a queue, even if that is less than before. HA-BT-30 "MUST store the offset".

        Returns: False, with nothing stored, if the table is full.
        Raises: RequestInvalid if the names are too long (HA-BT-60).
        """
        key = topic + TOPIC_GROUP_SEPARATOR + group
        self._check_length(key)
        offsets = self._table.get(key)
        if offsets is None or queue_id not in offsets:
            size = self._size + (_key_size(key) if offsets is None else 0) + _offset_size(queue_id)
            if not self._fits(self._count + 1, size):
                logger.warning("%s: no offset is stored for %s: found %d of %d bytes, expected room for another",
                               client_host, key, self._count, self._size)  # fmt: skip
                return False
            self._count, self._size = self._count + 1, size
            offsets = self._table.setdefault(key, {})
        elif offset < offsets[queue_id]:
            logger.info("%s: %s, queue %d: %d is committed after %d", client_host, key, queue_id, offset, offsets[queue_id])
        if self.on_commit is not None:
            self.on_commit(key, queue_id)
        offsets[queue_id] = offset
        self._has_changed = True
        self.changes.set(key)
        return True

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has come in a queue; -1 if it has not committed there."""
        return self._table.get(topic + TOPIC_GROUP_SEPARATOR + group, _NONE).get(queue_id, -1)

    def query_offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """How far a group has come in the queues of a topic."""
        return self._table.get(topic + TOPIC_GROUP_SEPARATOR + group, _NONE)

    def which_topic_by_consumer(self, group: str) -> list[str]:
        """The topics in which a group has committed, sorted."""
        end = TOPIC_GROUP_SEPARATOR + group  # comparing the ends first is ten times faster than splitting each key
        return sorted(key[: -len(end)] for key in self._table if key.endswith(end) and _is_plain(key))

    def which_group_by_topic(self, topic: str) -> list[str]:
        """The groups that have committed in a topic, sorted."""
        begin = topic + TOPIC_GROUP_SEPARATOR
        return sorted(key[len(begin) :] for key in self._table if key.startswith(begin) and _is_plain(key))

    def clone_offset(self, src_group: str, dest_group: str, topic: str) -> bool:
        """Copy the offsets of one group in a topic to another.

        Returns: False, with nothing done, if they have no room.
        Raises: RequestInvalid if the names are too long (HA-BT-60).
        """
        offsets = self._table.get(topic + TOPIC_GROUP_SEPARATOR + src_group)
        if offsets is None:
            return True
        key = topic + TOPIC_GROUP_SEPARATOR + dest_group
        self._check_length(key)
        old = {key: self._table[key]} if key in self._table else {}
        count = self._count + len(offsets) - _count_of(old)
        size = self._size + _size_of({key: offsets}) - _size_of(old)
        if not self._fits(count, size):
            return False
        self._table[key] = dict(offsets)
        self._count, self._size, self._has_changed = count, size, True
        self.changes.set(key)
        return True

    def _fits(self, count: int, size: int) -> bool:
        """HA-BT-60 "MUST bound each of its tables"; HA-BT-76 "MUST refuse an offset"."""
        return count <= self._settings.max_offset_entries and size <= self._settings.max_offset_size

    def _check_length(self, key: str) -> None:
        """HA-BT-60 "refuse with SYSTEM_ERROR what does not fit": else a few keys would make the answer to 43 no frame."""
        if len(key) > self._settings.max_offset_key_length:
            raise RequestInvalid(
                "topic@consumerGroup", f"{len(key)} characters", f"at most {self._settings.max_offset_key_length}"
            )

    def remove_offset(self, group: str) -> None:
        """Remove all offsets of a group. HA-BT-24."""
        for topic in self.which_topic_by_consumer(group):
            key = topic + TOPIC_GROUP_SEPARATOR + group
            removed = {key: self._table.pop(key)}
            self._count -= _count_of(removed)
            self._size -= _size_of(removed)
            self._has_changed = True
            self.changes.removed(key)

    # --- JSON and the file -------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The answer to GET_ALL_CONSUMER_OFFSET. HA-MD-23 "MUST have `offsetTable`"; queue ids are quoted (HA-MD-21)."""
        return body_json.write({"offsetTable": self._table})

    def text_of(self, key: str) -> bytes:
        """The offsets of a topic@group as a member of a JSON object."""
        return b"%b:%b" % (body_json.write(key), body_json.write(self._table[key]))

    def decode(self, content: bytes) -> None:
        """Take the offsets of the file, at the start.

        Raises: ConfigInvalid for what is no such table; then nothing has changed.
        """
        self._table = read_table(content)
        self._count, self._size = _count_of(self._table), _EMPTY_SIZE + _size_of(self._table)
        for key in self._table:
            self.changes.set(key)

    def merge(self, content: bytes) -> None:
        """Take the offsets of a master's answer, and write the file; entries that it does not name stay.

        Raises: ConfigInvalid for what is no such table; then nothing has changed.
        Spec: HA-MD-13 "MUST be merged into the slave's table, whatever it has".
        """
        self.set_offsets(read_table(content))
        self.persist()

    def set_offsets(self, changed: Mapping[str, dict[int, int]], gone: Collection[str] = ()) -> None:
        """Have these offsets under these keys, topic@group, and none under those that are gone.

        Raises: ConfigInvalid for more than the table may have; then nothing has changed.
        """
        old = {key: self._table[key] for key in (*changed, *gone) if key in self._table}
        count = self._count + _count_of(changed) - _count_of(old)
        size = self._size + _size_of(changed) - _size_of(old)
        if not self._fits(count, size):
            found = f"found {count} offsets of {size} bytes with those that are here"
            most = f"at most {self._settings.max_offset_entries} of {self._settings.max_offset_size}"
            raise ConfigInvalid(f"offsetTable: {found}, expected {most}")
        for key in gone:
            if self._table.pop(key, None) is not None:
                self.changes.removed(key)
        for key, offsets in changed.items():
            self._table[key] = offsets
            self.changes.set(key)
        self._count, self._size, self._has_changed = count, size, True

    def load(self) -> bool:
        """Read the file. Returns: False if there is none. Raises: ConfigInvalid, OSError; see ConfigFile.load."""
        return self._file.load(self.decode)

    def persist(self) -> bool:
        """Write the file if an offset has changed since the last time. Returns: False if that failed."""
        if not self._has_changed and not self._file.is_unsaved:
            return True
        lines = b",\n\t\t".join(b"%b:%b" % (body_json.write(key), body_json.write(found)) for key, found in self._table.items())
        saved = self._file.persist(b'{\n\t"offsetTable":{\n\t\t%b\n\t}\n}' % lines)
        self._has_changed = not saved
        return saved

    def on_tick(self, now_ms: int) -> None:
        """HA-BT-33 "MUST be written 10 s after the start, then every `flushConsumerOffsetInterval` (5 s)"."""
        if now_ms >= self._persist_at:
            self._persist_at = now_ms + self._settings.flush_consumer_offset_interval
            self.persist()


_NONE: Final[dict[int, int]] = {}


def _key_size(key: str) -> int:
    """Bytes of a key in JSON, with the signs around it."""
    return len(body_json.write(key)) + _KEY_SIZE


def _offset_size(queue_id: int) -> int:
    """Bytes of the longest offset of a queue in JSON, with the signs around it."""
    return len(str(queue_id)) + _OFFSET_SIZE


def _count_of(table: Mapping[str, Mapping[int, int]]) -> int:
    return sum(map(len, table.values()))


def _size_of(table: Mapping[str, Mapping[int, int]]) -> int:
    """Bytes of the offsets of some keys in JSON, at most."""
    return sum(_key_size(key) + sum(map(_offset_size, offsets)) for key, offsets in table.items())


def _is_plain(key: str) -> bool:
    """Whether a key has a topic and a group: one with another number of separators has neither."""
    return key.count(TOPIC_GROUP_SEPARATOR) == 1


def read_table(content: bytes) -> dict[str, dict[int, int]]:
    """The offsets of a JSON text. Raises: ConfigInvalid."""
    try:
        found = body_json.read(content, "the file")
    except RequestInvalid as error:
        raise ConfigInvalid(str(error)) from None
    table = found.get("offsetTable") if isinstance(found, dict) else None
    if not isinstance(table, dict):
        raise ConfigInvalid("no offsetTable in it, expected one")
    return {str(key): read_offsets(str(key), offsets) for key, offsets in table.items()}


def read_offsets(key: str, offsets: object) -> dict[int, int]:
    """Queue id to offset, from the JSON object of a topic@group. Raises: ConfigInvalid."""
    if not isinstance(offsets, dict):
        raise ConfigInvalid(f"{key}: found {shown(offsets)}, expected an object")
    for queue_id, offset in offsets.items():
        if not _QUEUE_ID.fullmatch(queue_id) or int(queue_id) not in I32:
            raise ConfigInvalid(f"{key:.300}: found the queue {shown(queue_id)}, expected an i32")
        if type(offset) is not int or offset not in I64:
            raise ConfigInvalid(f"{key:.300}: queue {queue_id}: found the offset {shown(offset)}, expected an i64")
    return {int(queue_id): offset for queue_id, offset in offsets.items()}
