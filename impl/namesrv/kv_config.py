"""The texts that a name server keeps by namespace and key, in RocketMQ's file `kvConfig.json`.

A change is on the disk before it counts: the file is replaced atomically. RocketMQ replaces it in steps, and leaves the former
content beside it, as `kvConfig.json.bak`; that is read where the file itself is missing or damaged.
"""

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from rocketmq_ha.impl.errors import ConfigInvalid, RequestInvalid
from rocketmq_ha.impl.remoting.json_faults import found_and_expected
from rocketmq_ha.impl.store.log.layout import sync_directory

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"  # the namespace of the topics whose messages are ordered
MAX_SIZE: Final = 1024 * 1024  # bytes of the file, which is written anew at each change
_EXPECTED: Final = "JSON with a configTable of texts, by namespace and key"

Table = Mapping[str, Mapping[str, str]]

log = logging.getLogger(__name__)


class KVConfigManager:
    """The table of one name server, and its file. Not thread-safe.

    Spec: HA-R-52 "MUST keep texts by namespace and key, and answer the codes of the table as it says".
    """

    def __init__(self, path: Path, max_size: int = MAX_SIZE) -> None:
        """Read the file, if there is one. Raises: ConfigInvalid for one that is damaged; OSError."""
        self._path, self._max_size = path, max_size
        self._others, self._table = _load(path)  # others: what a newer release has in the file beside the table

    @property
    def path(self) -> Path:
        return self._path

    def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Keep a text. Raises: RequestInvalid if there is no room for it; OSError with the path."""
        self._change({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Forget a text, if it is there; its namespace stays. Raises: OSError with the path."""
        if key in self._table.get(namespace, {}):
            left = {name: value for name, value in self._table[namespace].items() if name != key}
            self._change({**self._table, namespace: left})

    def get_kv_list_by_namespace(self, namespace: str) -> Mapping[str, str] | None:
        """The texts of a namespace; None if nothing was ever kept there."""
        return self._table.get(namespace)

    def _change(self, table: Table) -> None:
        """HA-R-53 "MUST be in the file kvConfigPath, and synced, before it is answered", "a change that cannot be written
        MUST be refused with SYSTEM_ERROR, and take no effect".
        """
        if table == self._table:
            return
        data = msgspec.json.encode({**self._others, "configTable": table})
        if len(data) > self._max_size:  # HA-R-56 "or more texts than it was told to"
            raise RequestInvalid("texts", f"{len(data)} bytes in all", f"at most {self._max_size}")
        _replace(self._path, data)
        self._table = table


def _load(path: Path) -> tuple[dict[str, Any], Table]:
    """Raises: ConfigInvalid, OSError."""
    backup = path.with_name(path.name + ".bak")
    try:
        return _parse(path)
    except (FileNotFoundError, ConfigInvalid) as error:
        try:
            found = _parse(backup)
        except FileNotFoundError:
            if isinstance(error, ConfigInvalid):
                raise error from None
            return {}, {}
        log.warning("%s is read instead of %s: %s", backup, path.name, error)
        return found


def _parse(path: Path) -> tuple[dict[str, Any], Table]:
    """Raises: ConfigInvalid, FileNotFoundError, OSError."""
    data = path.read_bytes()
    try:
        others = msgspec.json.decode(data, type=dict[str, Any])
        return others, msgspec.convert(others.pop("configTable", None), dict[str, dict[str, str]])
    except msgspec.DecodeError as error:
        found, _ = found_and_expected(error, _EXPECTED)
    except UnicodeDecodeError:
        found = "bytes that are no UTF-8"
    except RecursionError:
        found = "too many levels of arrays and objects"
    raise ConfigInvalid(f"{path}: found {found}, expected {_EXPECTED}")


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically, and sync it. Raises: OSError with the path; the file is as it was then."""
    new = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # a failed write knows only the descriptor
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise
