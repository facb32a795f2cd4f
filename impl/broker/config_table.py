"""A table of entries by name with a DataVersion, kept in one file of `config/`: what topics and groups have in common.

The JSON text of each entry is kept, since a table of 20,000 entries is written for every new one, and asked for by every slave
every ten seconds.

Spec: HA-BT-1 to HA-BT-8, HA-BT-77, HA-MD-22, HA-MD-25, HA-MD-28.
Source: 4.9.8 ConfigManager, TopicConfigSerializeWrapper.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Generic, TypeVar

from rocketmq_ha.impl.broker.body_fields import shown
from rocketmq_ha.impl.broker.change_log import ChangeLog
from rocketmq_ha.impl.broker.config_file import KeptFile
from rocketmq_ha.impl.broker.data_version import DataVersion, read_data_version
from rocketmq_ha.impl.errors import ConfigInvalid, RequestInvalid
from rocketmq_ha.impl.remoting import body_json

Entry = TypeVar("Entry")
RETRY_MS: Final = 5_000
COUNTS: Final = range(1 << 31)
I32: Final = range(-(1 << 31), 1 << 31)
I64: Final = range(-(1 << 63), 1 << 63)
MOST_ENTRIES: Final = 100_000  # of a table that a slave is told; a master of ours has at most 37,000 topics by requests
_NAME_MAX: Final = 262  # characters of the longest retry topic of a Java broker


class ConfigTable(Generic[Entry]):
    """The entries and their file.

    Args:  field: the table's name in the JSON. read: an entry from its name and its JSON object; raises ConfigInvalid.
           fields: the JSON object of an entry. wall_clock: milliseconds since 1970, for the version's timestamp.
    changes: for slaves.
    """

    def __init__(
        self,
        file: KeptFile,
        field: str,
        read: Callable[[str, Mapping[str, object]], Entry],
        fields: Callable[[Entry], Mapping[str, object]],
        wall_clock: Callable[[], int],
    ) -> None:
        self._file, self._field, self._read, self._fields = file, field, read, fields
        self._wall_clock = wall_clock
        self._retry_at = 0
        self._entries: dict[str, Entry] = {}
        self._texts: dict[str, bytes] = {}
        self._encoded: bytes | None = None  # the answer to a request for the table, until it changes
        self.data_version: DataVersion = DataVersion(0, wall_clock())
        self.entries: Final[Mapping[str, Entry]] = self._entries
        self.changes: Final = ChangeLog()
        self._is_dirty = False  # the file lacks what a master has told

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def get(self, name: str) -> Entry | None:
        """The entry of a name."""
        return self._entries.get(name)

    def begin_with(self, name: str, entry: Entry) -> None:
        """Set an entry that every broker begins with. It makes no new version, and an entry of the file replaces it."""
        self._set(name, entry)

    def put(self, name: str, entry: Entry) -> None:
        """Set an entry, count the version on, and write the file."""
        self._set(name, entry)
        self.changed()

    def put_all(self, entries: Mapping[str, Entry]) -> None:
        """Set several entries as one change. None at all is no change."""
        for name, entry in entries.items():
            self._set(name, entry)
        if entries:
            self.changed()

    def remove(self, name: str) -> bool:
        """Remove an entry, count the version on, and write the file. Returns: False, with nothing done, if it is not there."""
        if name not in self._entries:
            return False
        self._remove(name)
        self.changed()
        return True

    def become(self, entries: Mapping[str, Entry]) -> None:
        """Have these entries and no other, as one change. No difference is no change."""
        if entries != self._entries:
            self._set_all(entries)
            self.changed()

    def changed(self) -> None:
        """HA-BT-2 "MUST count its version on by one, and set the timestamp"; HA-BT-3 "MUST be written"."""
        self.data_version = self.data_version.next_version(self._wall_clock())
        self._encoded = None
        self.persist()

    def take(self, changed: Mapping[str, object], gone: Collection[str]) -> None:
        """Take what a master tells of its table: JSON objects by name, and names that are gone. See `settle`.

        Raises: ConfigInvalid for what is no entry, and for more than 100,000; then nothing has changed.
        """
        entries = self._parse_entries(changed)
        if len(self._entries) + len(entries.keys() - self._entries.keys()) - len(self._entries.keys() & gone) > MOST_ENTRIES:
            raise ConfigInvalid(f"{self._field}: found more than {MOST_ENTRIES} entries")
        for name in gone:
            if name in self._entries:
                self._remove(name)
                self._encoded, self._is_dirty = None, True
        for name, entry in entries.items():
            if self._entries.get(name) != entry:
                self._set(name, entry)
                self._is_dirty = True

    def settle(self, version: DataVersion) -> None:
        """The table is the master's by now: take over its version, and write the file if something is new."""
        if self._is_dirty or version != self.data_version:
            self.data_version, self._encoded, self._is_dirty = version, None, False
            self.persist()

    # --- JSON --------------------------------------------------------------------------------------------------------

    def text_of(self, name: str) -> bytes:
        """An entry as a member of a JSON object."""
        return self._texts[name]

    def encode(self) -> bytes:
        """The table as JSON on one line: the answer to a request for all of it."""
        if self._encoded is None:
            version = body_json.write(self.data_version.fields())
            entries = b",".join(self._texts.values())
            self._encoded = b'{"dataVersion":%b,"%b":{%b}}' % (version, self._field.encode(), entries)
        return self._encoded

    def decode(self, content: bytes) -> None:
        """Take the entries and the version of a JSON text. Entries that it does not name stay, as at a Java broker's start.

        Raises: ConfigInvalid for what is no such table; then nothing has changed.
        """
        entries, version = self._parse(content)
        for name, entry in entries.items():
            self._set(name, entry)
        self.data_version = version

    def replace(self, content: bytes) -> bool:
        """Take the table of a master in place of this one, if its version is another, and write the file.

        Returns: whether it was another. Raises: ConfigInvalid for what is no such table; then nothing has changed.
        Spec: HA-MD-10 "MUST replace all topics of the slave, together with the version"; HA-MD-11 "MUST change nothing on the
        slave"; HA-MD-15 "MUST replace all groups of the slave".
        """
        before = self.data_version
        self.replace_all(content)
        return self.data_version != before

    def replace_all(self, content: bytes) -> frozenset[str]:
        """`replace`. Returns: the names that the master's table has."""
        entries, version = self._parse(content)
        if version != self.data_version:
            self._set_all(entries)
            self.data_version, self._encoded, self._is_dirty = version, None, False
            self.persist()
        return frozenset(entries)

    def _parse(self, content: bytes) -> tuple[dict[str, Entry], DataVersion]:
        """Raises: ConfigInvalid."""
        try:
            found = body_json.read(content, "the file")
        except RequestInvalid as error:
            raise ConfigInvalid(str(error)) from None
        table = found.get(self._field) if isinstance(found, dict) else None
        if not isinstance(found, dict) or not isinstance(table, dict):
            raise ConfigInvalid(f"no {self._field} in it, expected one")
        return self._parse_entries(table), read_data_version(found.get("dataVersion"), self.data_version)

    def _parse_entries(self, table: Mapping[str, object]) -> dict[str, Entry]:
        """Raises: ConfigInvalid."""
        entries: dict[str, Entry] = {}
        for name, fields in table.items():
            check_name(name)
            if not isinstance(fields, dict):
                raise ConfigInvalid(f"{name}: found {shown(fields)}, expected an object")
            entries[name] = self._read(name, fields)
        return entries

    # --- The file ----------------------------------------------------------------------------------------------------

    def load(self) -> bool:
        """Read the file. Returns: False if there is none. Raises: ConfigInvalid, OSError; see ConfigFile.load."""
        return self._file.load(self.decode)

    def persist(self) -> bool:
        """Write the file, with one line an entry. Returns: False if that failed; `on_tick` tries again."""
        version = body_json.write(self.data_version.fields())
        entries = b",\n\t\t".join(self._texts.values())
        return self._file.persist(
            b'{\n\t"dataVersion":%b,\n\t"%b":{\n\t\t%b\n\t}\n}' % (version, self._field.encode(), entries)
        )

    def on_tick(self, now_ms: int) -> None:
        """Write the file if the last time failed. HA-BT-6 "MUST keep the change in memory and go on", "MUST try again".

        now_ms: by a clock that does not step. A whole table is written, so it is tried only every 5 s.
        """
        if self._file.is_unsaved and now_ms >= self._retry_at:
            self._retry_at = now_ms + RETRY_MS
            self.persist()

    def close(self) -> None:
        """Write the file once more if the last time failed. The process ends."""
        if self._file.is_unsaved:
            self.persist()

    def _set_all(self, entries: Mapping[str, Entry]) -> None:
        for name in [name for name in self._entries if name not in entries]:
            self._remove(name)
        for name, entry in entries.items():
            if self._entries.get(name) != entry:
                self._set(name, entry)

    def _set(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry
        self._texts[name] = b"%b:%b" % (body_json.write(name), body_json.write(self._fields(entry)))
        self._encoded = None
        self.changes.set(name)

    def _remove(self, name: str) -> None:
        del self._entries[name], self._texts[name]
        self.changes.removed(name)


def read_int(name: str, fields: Mapping[str, object], field: str, missing: int | None, within: range = I32) -> int:
    """A whole number of an entry; `missing` if it is not there.

    Raises: ConfigInvalid, also for one that is not `within`, and for one that is not there if `missing` is None.
    """
    value = fields.get(field, missing)
    if type(value) is not int:
        raise ConfigInvalid(f"{name}: {field}: found {shown(value)}, expected a whole number")
    if value not in within:
        raise ConfigInvalid(f"{name}: {field}: found {shown(value)}, expected {within[0]} to {within[-1]}")
    return value


def check_name(name: str) -> None:
    """HA-BT-77 "that has a value outside the table below": a topic or a group of a file. Raises: ConfigInvalid."""
    if not 0 < len(name) <= _NAME_MAX or "/" in name or "\0" in name or name in (".", ".."):
        raise ConfigInvalid(f"found the name {name!r:.60}, expected 1 to {_NAME_MAX} characters that can name a directory")


def read_bool(name: str, fields: Mapping[str, object], field: str, missing: bool) -> bool:
    """A truth value of an entry; `missing` if it is not there. Raises: ConfigInvalid."""
    value = fields.get(field, missing)
    if type(value) is not bool:
        raise ConfigInvalid(f"{name}: {field}: found {shown(value)}, expected true or false")
    return value


def read_str(name: str, fields: Mapping[str, object], field: str, missing: str) -> str:
    """A text of an entry; `missing` if it is not there. Raises: ConfigInvalid."""
    value = fields.get(field, missing)
    if type(value) is not str:
        raise ConfigInvalid(f"{name}: {field}: found {shown(value)}, expected a text")
    return value
