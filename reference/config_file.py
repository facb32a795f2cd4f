"""A file of `config/` and its copy: what a broker that starts reads, and what a kill may leave of a change.

Spec: HA-BT-4, HA-BT-5.  Source: 4.9.8 ConfigManager.load, MixAll.string2File.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Files:
    """The contents of the file and of its copy `.bak`; None if there is none."""

    file: bytes | None
    copy: bytes | None


class Start(Enum):
    """What a broker does that finds no table."""

    EMPTY = "it begins with an empty table"
    REFUSE = "it does not start"


def read(files: Files, is_table: Callable[[bytes], bool]) -> bytes | Start:
    """HA-BT-5 "that finds a file missing, empty or damaged MUST read its `.bak`"; "of which one is damaged, MUST NOT start"."""
    contents = [content for content in (files.file, files.copy) if content is not None and content.strip()]
    tables = [content for content in contents if is_table(content)]
    if tables:
        return tables[0]
    return Start.REFUSE if contents else Start.EMPTY


def after_kill(before: Files, new: bytes, has_links: bool) -> list[Files]:
    """HA-BT-4 "MUST replace the file atomically, and keep the file before it as `.bak`": what a kill may leave, in order.

    has_links: whether the file system can give a file two names. Without them there is the copy alone for a moment.
    """
    if before.file is None:
        return [before, Files(new, before.copy)]
    copied = Files(before.file if has_links else None, before.file)
    return [before, copied, Files(new, before.file)]
