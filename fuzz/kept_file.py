"""A file of `config/` in memory, whose disk may refuse: for worlds and tests in which its bytes on a disk do not matter."""

from collections.abc import Callable


class MemoryFile:
    """What a table needs of its file (impl/broker/config_file.py). is_full: whether the disk refuses to write."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.is_unsaved = self.is_full = False
        self.writes = 0

    def load(self, decode: Callable[[bytes], None]) -> bool:
        if self.content is None:
            return False
        decode(self.content)
        return True

    def persist(self, content: bytes) -> bool:
        self.is_unsaved = self.is_full
        if self.is_full:
            return False
        self.content, self.writes = content, self.writes + 1
        return True
