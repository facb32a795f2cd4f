"""A file of `config/` with one table as JSON, and its copy `.bak` from before the last change.

    write:  X.json.tmp, synced  ->  X.json becomes X.json.bak  ->  X.json.tmp becomes X.json
    read:   X.json, or where that is missing, empty or damaged: X.json.bak

At every moment one of the two names has a complete table. So neither a kill nor a full disk loses more than the last change.

Spec: HA-BT-3 to HA-BT-6.  Source: 4.9.8 ConfigManager, MixAll.string2File.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.log.layout import sync_directory

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())


class KeptFile(Protocol):
    """What a table needs of its file."""

    is_unsaved: bool

    def load(self, decode: Callable[[bytes], None]) -> bool: ...
    def persist(self, content: bytes) -> bool: ...


class ConfigFile:
    """One such file.

    is_unsaved: whether the last `persist` failed. The file then has an older table, and the caller tries again later.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.backup: Final = path.with_name(path.name + ".bak")
        self.is_unsaved = False

    def load(self, decode: Callable[[bytes], None]) -> bool:
        """Give the file's content to `decode`, or that of the copy. A damaged file is kept as `X.json.unreadable`.

        Args:  decode: raises ConfigInvalid for what is no such table, and then has changed nothing.
        Returns: False if there is neither; an empty file counts as none.
        Raises: ConfigInvalid, if there is one and none can be read (HA-BT-5 "MUST read its `.bak`", "MUST NOT start"); OSError.
        """
        found: list[str] = []
        for path in (self.path, self.backup):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            if not content.strip():
                found.append(f"{path} is empty")
                continue
            try:
                decode(content)
            except ConfigInvalid as error:
                found.append(f"{path}: {error}")
                continue
            if path is self.backup:
                why = found[0] if found else f"{self.path} is missing"
                logger.warning("%s; the table before the last change is read from %s", why, path)
                self._set_aside()
            return True
        damaged = [fault for fault in found if not fault.endswith(" is empty")]
        if damaged:
            raise ConfigInvalid(f"{damaged[0]}; no {self.backup.name} can be read in its place: restore the file or remove it")
        if found:
            logger.warning("%s, and there is no %s: the table begins empty", found[0], self.backup.name)
        return False

    def persist(self, content: bytes) -> bool:
        """Replace the file, and keep the one before as the copy. HA-BT-4 "MUST replace the file atomically".

        Returns: False if the system refuses; then one line is logged for the first failure in a row, and the file is as it was.
        """
        new = self.path.with_name(self.path.name + ".tmp")
        try:
            is_new = not self.path.parent.is_dir()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._keep_backup()
            new.replace(self.path)
            for directory in (self.path.parent, *([self.path.parent.parent] if is_new else [])):
                sync_directory(directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            if not self.is_unsaved:
                logger.error("%s is not saved, which is tried again: %s", self.path, error.strerror or error)
            self.is_unsaved = True
            return False
        if self.is_unsaved:
            logger.info("%s is saved again", self.path)
        self.is_unsaved = False
        return True

    def _keep_backup(self) -> None:
        """Give the file the name of its copy as well, so that at no moment both names are gone."""
        link = self.backup.with_name(self.backup.name + ".tmp")
        link.unlink(missing_ok=True)
        try:
            os.link(self.path, link)
        except FileNotFoundError:
            return
        except OSError:  # a file system without links: for a moment only the copy is there, which `load` reads
            self.path.replace(self.backup)
            return
        link.replace(self.backup)

    def _set_aside(self) -> None:
        """Keep a file that could not be read: the next `persist` must not make it the copy."""
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(self.path.with_name(self.path.name + ".unreadable"))
