"""A model of the disk after a power cut, computed from real files beside the process that writes them.

A `Disk` observes a directory tree after each relevant system call, and remembers the contents of each page since its last sync.
A crash then leaves

- for each 4 KiB page, any of its contents since the last sync of its file, including the synced contents. A page may be torn:
  each 512-byte sector comes from one of two contents. Pages are independent, so they may reach the disk in any order;
- for each directory, a prefix of its changes since its own last sync: names created, moved and removed, and lengths of its
  files. Directories are independent;
- everything covered by a sync: fsync or fdatasync of a file covers its pages and its length, fsync of a directory its names.

The model assumes more than POSIX in one point: the changes of one directory reach the disk in order, including the lengths of
its files. So a renamed file has at least the length that it had under its old name. The journals of ext4, XFS and btrfs give
this. It assumes less than these in another: fsync of a new file need not bring its name. POSIX does not require it.

Only the loss is simulated: the store's system calls really happen, and each image is a directory of real files.
"""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

PAGE: Final = 4096
SECTOR: Final = 512
# Modes of a crash: which unsynced pages reach the disk, and with which contents.
_PAGE_CHOICES: Final = ("none", "few", "any", "any", "any", "newest", "newest", "most", "all")
# System calls that change names, lengths or bytes; writes to a mapping are observed separately.
_CALLS: Final = (
    *("posix_fallocate", "ftruncate", "truncate", "pwrite", "pwritev"),
    *("link", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
)
# Never opened here: closing any descriptor of this file would release the store's lock. It is empty.
_NEVER_OPENED: Final = "lock"


@dataclass(eq=False)
class Node:
    """A file or directory: its state on the disk, and the changes that may have reached the disk since."""

    is_dir: bool
    fd: int = -1
    now: bytes = b""  # contents at the last observation
    disk: bytes = b""  # contents at the last sync
    size: int = 0  # length on the disk
    versions: dict[int, list[bytes]] = field(default_factory=dict)  # page -> contents since the last sync, oldest first
    names: dict[str, int] = field(default_factory=dict)  # of a directory, at the last observation: name -> inode
    disk_names: dict[str, int] = field(default_factory=dict)  # of a directory, on the disk
    journal: list["Change"] = field(default_factory=list)  # of a directory: changes since the last sync


@dataclass(frozen=True)
class Change:
    """One step of a directory's journal. Any of the three may be missing."""

    removed: str = ""
    added: tuple[str, int] = ("", 0)
    resized: tuple[int, int] = (0, -1)  # inode, length


@dataclass(frozen=True)
class Image:
    """The files after a crash: path -> contents, None for a directory; parents first."""

    files: dict[str, bytes | None]
    how: str

    def write(self, root: Path) -> None:
        root.mkdir()
        for name, content in self.files.items():
            if content is None:
                (root / name).mkdir()
            else:
                (root / name).write_bytes(content)


class Disk:
    """The disk under a directory tree. At the start everything is on the disk.

    Args:  one_journal: any sync covers all names and lengths, as with the single journal of ext4.
    """

    def __init__(self, root: Path, *, one_journal: bool = False) -> None:
        self.root = root
        self._one_journal = one_journal
        self._nodes: dict[int, Node] = {}
        self._top = root.stat().st_ino
        self._last: list[tuple[Node, int, bytes, bytes]] = []  # of the last observation: file, page, contents before and after
        self.observe()
        for inode, node in list(self._nodes.items()):
            self._sync(inode, node)

    # --- Watching ----------------------------------------------------------------------------------------------------

    def observe(self, *, linked: bool = False) -> None:
        """Record the changes since the last observation. linked: a new file got its length before its name."""
        self._last = []
        self._walk(self._top, self.root, linked=linked)

    def synced(self, fd: int) -> None:
        """Record a sync: the last observed state of the file or directory behind a descriptor is on the disk."""
        inode = os.fstat(fd).st_ino
        if inode in self._nodes:
            self._sync(inode, self._nodes[inode])

    def close(self) -> None:
        for node in self._nodes.values():
            if node.fd >= 0:
                os.close(node.fd)
        self._nodes = {}

    def _sync(self, inode: int, node: Node) -> None:
        if not node.is_dir:
            node.disk, node.size, node.versions = node.now, len(node.now), {}
            for directory in self._nodes.values():  # the length is on the disk, even if the name is not
                directory.journal = [change for change in directory.journal if change.resized[0] != inode]
        for directory in self._nodes.values() if self._one_journal else (node,):
            sizes: dict[int, int] = {}
            for change in directory.journal:
                _apply(change, directory.disk_names, sizes)
            for child, size in sizes.items():
                self._nodes[child].size = size
            directory.journal = []

    def _walk(self, inode: int, path: Path, *, linked: bool) -> None:
        node = self._nodes.get(inode)
        if node is None:
            node = self._nodes[inode] = Node(is_dir=True)
        with os.scandir(path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.inode() not in self._nodes and not entry.is_dir():
                # The open descriptor keeps the inode from being reused.
                fd = -1 if entry.name == _NEVER_OPENED else os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
                self._nodes[entry.inode()] = Node(is_dir=False, fd=fd)
                if linked:
                    self._note_pages(node, entry.inode(), self._nodes[entry.inode()])
        _note_names(node, {entry.name: entry.inode() for entry in entries})
        for entry in entries:
            if entry.is_dir():
                self._walk(entry.inode(), Path(entry.path), linked=linked)
            else:
                self._note_pages(node, entry.inode(), self._nodes[entry.inode()])

    def _note_pages(self, directory: Node, inode: int, file: Node) -> None:
        if file.fd < 0:
            return
        content = os.pread(file.fd, os.fstat(file.fd).st_size, 0)
        if content == file.now:
            return
        before, file.now = file.now, content
        if len(before) != len(content):
            directory.journal.append(Change(resized=(inode, len(content))))
        for start in range(0, len(content), PAGE):
            new = content[start : start + PAGE].ljust(PAGE, b"\0")
            old = before[start : start + PAGE].ljust(PAGE, b"\0")
            if new != old:
                file.versions.setdefault(start // PAGE, []).append(new)
                self._last.append((file, start // PAGE, old, new))

    # --- The crash ---------------------------------------------------------------------------------------------------

    def crash(self, rng: random.Random) -> Image:
        """Draw one of the many possible images after a crash at the last observation."""
        pages, names = rng.choice(_PAGE_CHOICES), rng.choice(("none", "all", "some", "some"))
        torn = rng.choice((0.0, 0.0, 0.2, 0.7))
        files: dict[str, bytes | None] = {}
        sizes: dict[int, int] = {}
        directories = [(self._top, "")]
        while directories:
            inode, prefix = directories.pop()
            node = self._nodes[inode]
            held = dict(node.disk_names)
            count = {"none": 0, "all": len(node.journal)}.get(names, rng.randint(0, len(node.journal)))
            for change in node.journal[:count]:
                _apply(change, held, sizes)
            for name, child in sorted(held.items()):
                path, below = f"{prefix}{name}", self._nodes[child]
                if below.is_dir:
                    files[path] = None
                    directories.append((child, f"{path}/"))
                else:
                    files[path] = _content(below, sizes.get(child, below.size), rng, pages, torn)
        return Image(files, f"pages {pages}, names {names}, torn {torn:.0%}")

    def crash_amid(self, rng: random.Random) -> Image:
        """Draw an image of a crash inside the last change: an ascending copy that stops at some byte.

        Only for changes of one file. The order of changes to several files is unknown; then this is `crash`.
        """
        last = self._last
        if not last or any(file is not last[0][0] for file, _, _, _ in last):
            return self.crash(rng)
        file, cut_page, old, new = last[rng.randrange(len(last))]
        differing = [at for at in range(PAGE) if old[at] != new[at]]
        cut = rng.choice(differing)
        kept = {page: list(versions) for page, versions in file.versions.items()}
        try:
            for _, page, _, _ in last:
                if page == cut_page:
                    file.versions[page][-1] = new[:cut] + old[cut:]
                elif page > cut_page:
                    file.versions[page].pop()
            file.versions = {page: versions for page, versions in file.versions.items() if versions}
            image = self.crash(rng)
        finally:
            file.versions = kept
        return Image(image.files, f"amid a copy, {image.how}")


def _apply(change: Change, names: dict[str, int], sizes: dict[int, int]) -> None:
    names.pop(change.removed, None)
    if change.added[0]:
        names[change.added[0]] = change.added[1]
    inode, size = change.resized
    if size >= 0:
        sizes[inode] = size


def _note_names(node: Node, found: dict[str, int]) -> None:
    """Add the changes of names to a directory's journal. A renamed file is one change."""
    if found == node.names:
        return
    gone = {inode: name for name, inode in node.names.items() if found.get(name) != inode}
    for name, inode in found.items():
        if node.names.get(name) != inode:
            node.journal.append(Change(removed=gone.pop(inode, ""), added=(name, inode)))
    node.journal += [Change(removed=name) for name in gone.values() if name not in found]
    node.names = found


def _content(file: Node, size: int, rng: random.Random, pages: str, torn: float) -> bytes:
    """The contents on the disk of a file of this length."""
    share = {"none": 0.0, "few": 0.1, "most": 0.9, "all": 1.0}.get(pages, 0.5)
    content = bytearray(file.disk[:size].ljust(size, b"\0"))
    for page, versions in file.versions.items():
        start = page * PAGE
        if start >= size or rng.random() >= share:
            continue
        newest = pages in ("all", "newest")
        chosen = versions[-1] if newest or rng.random() < 0.5 else rng.choice(versions)
        if rng.random() < torn:
            disk = file.disk[start : start + PAGE].ljust(PAGE, b"\0")
            other = disk if newest or rng.random() < 0.7 else rng.choice(versions)
            both = (chosen, other)
            chosen = b"".join(both[rng.random() < 0.5][at : at + SECTOR] for at in range(0, PAGE, SECTOR))
        content[start : start + PAGE] = chosen[: size - start]
    return bytes(content)


# --- The hooks -------------------------------------------------------------------------------------------------------

Told = Callable[[str, str], None]  # (name of the system call, path or "")


@contextmanager
def watching(disk: "Callable[[], Disk | None]", told: Told) -> Iterator[None]:
    """Observe a disk after each relevant system call of this process, and before each sync; then call back.

    Args:  disk: the disk to look at now; None while there is none. told: is called after each look.
    """
    with ExitStack() as undo:
        for name in ("fsync", "fdatasync"):
            original = getattr(os, name)
            synced = _syncing(original, name, disk, told)
            for owner in (os, *_modules_that_have(original)):
                for attribute in [key for key, value in vars(owner).items() if value is original]:
                    undo.callback(setattr, owner, attribute, original)
                    setattr(owner, attribute, synced)
        for name in _CALLS:
            original = getattr(os, name, None)
            if original is not None:
                undo.callback(setattr, os, name, original)
                setattr(os, name, _looking(original, name, disk, told))
        yield


def _modules_that_have(function: Callable[..., Any]) -> list[ModuleType]:
    """The store's modules that have taken a function of `os` under a name of their own."""
    ours = [module for name, module in sys.modules.items() if name.startswith("rocketmq_ha.impl.")]
    return [module for module in ours if any(value is function for value in vars(module).values())]


def _syncing(
    original: Callable[[int], None], name: str, disk: "Callable[[], Disk | None]", told: Told
) -> Callable[[int], None]:
    def sync(fd: int) -> None:
        on, path = disk(), _path_of(fd)
        if on is None or not path.startswith(str(on.root)):
            original(fd)
            return
        on.observe()
        told(f"before {name}", path)
        original(fd)
        on.synced(fd)
        told(name, path)

    return sync


def _looking(original: Callable[..., Any], name: str, disk: "Callable[[], Disk | None]", told: Told) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        on = disk()
        if on is not None:
            on.observe(linked=name == "link")
            first = args[1] if name == "link" else args[0]
            told(name, _path_of(first) if isinstance(first, int) else os.fsdecode(first))
        return result

    return call


def _path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())
