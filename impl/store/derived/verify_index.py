"""Check the index of a store against its log: each entry is a key of its message, each slot leads to its newest entry, and
each chain leads backwards.

Releases put different sets of keys, and a broker that takes over a store goes on with its own set. Messages whose sets differ
show which set was in use, in the order of the log. A message without the key of its tags may come from an earlier release. It
lacks the key if a later message has such a key again, or if it is the only message without; otherwise another release continued
there.

Spec: HA-ST-39 to HA-ST-42, HA-ST-47.
"""

import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.index_file import IndexFile
from rocketmq_ha.impl.store.derived.index_keys import KEY_SETS, KeySet, MessageKeys
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.log.reader import LOOK_AGAIN_S, LOOKS, LogReader

_Group = tuple[IndexFile, int, list[int]]  # last file, commit-log offset and hashes of one message


class IndexCheck:
    """Compares the keys in the index with those of the messages. Both come in the order of the log."""

    def __init__(self, index: IndexService, reader: LogReader) -> None:
        self.checked = 0
        self._reader = reader
        self._releases = _Releases()
        self._entries = _groups(index.files)
        self._next = self._advance(reader.min_offset)
        self._began = False

    @property
    def missing(self) -> int:
        """The number of missing keys, of messages behind the first one in the index."""
        return self._releases.missing

    @property
    def releases(self) -> str:
        """The releases that put these keys, in the order of the log."""
        return self._releases.text if self._began else "none"

    def check(self, requests: Sequence[DispatchRequest], properties: Sequence[bytes]) -> None:
        """Check the next messages of the log. Raises: StoreCorrupt."""
        for request, each in zip(requests, properties, strict=True):
            offset = request.commit_log_offset
            if self._next is not None and self._next[1] < offset:
                self._refuse(*self._next)
            keys = MessageKeys(request, each)
            if self._next is None or self._next[1] > offset:
                if self._began:
                    self._releases.lose(keys)
                continue
            self._began = True
            found = self._next[2]
            if not self._releases.take(keys, found):
                self._refuse(*self._next)
            self.checked += len(found)
            self._next = self._advance(offset + 1)

    def finish(self) -> None:
        """Finish at the end of the log. Raises: StoreCorrupt, if the index has another entry within it."""
        if self._next is not None and self._next[1] < self._reader.max_offset:
            self._refuse(*self._next)
        self._releases.finish()

    def _advance(self, offset: int) -> _Group | None:
        """The keys of the next message at or behind an offset. A repeated dispatch may have added earlier messages again."""
        return next((group for group in self._entries if group[1] >= offset), None)

    def _refuse(self, file: IndexFile, offset: int, found: list[int]) -> None:
        raise StoreCorrupt(file.path, offset, f"keys of hashes {found}", "the hashes of a message's keys")


class _Releases:
    """Determines which set of keys is in use, message by message, and counts its missing keys."""

    def __init__(self) -> None:
        self.missing = 0
        self._possible: tuple[KeySet, ...] = KEY_SETS  # the sets without a missing key so far
        self._before: list[tuple[KeySet, ...]] = []  # the sets in use earlier, in order
        # The number of messages with all keys of another set, since the last one with all keys of the set in use.
        self._doubtful = self._doubtful_keys = 0
        self._doubtful_possible: tuple[KeySet, ...] = ()

    def take(self, keys: MessageKeys, found: list[int]) -> bool:
        """Take the keys that the index has of a message. Returns: True if one set contains all of them."""
        whole = tuple(key_set for key_set in self._possible if _lacking(keys.hashes(key_set), found) == 0)
        if whole:
            if self._doubtful and not any(_lacking(keys.hashes(each), found) == 0 for each in self._doubtful_possible):
                self._forget_doubt()  # the set in use continues, so the messages in between lack keys
            self._possible = whole
            return True
        lacking = {key_set: _lacking(keys.hashes(key_set), found) for key_set in KEY_SETS}
        fitting = {key_set: count for key_set, count in lacking.items() if count is not None}
        counts = [count for key_set, count in fitting.items() if key_set in self._possible]
        others = tuple(key_set for key_set, count in fitting.items() if count == 0)
        if not fitting:
            return False
        if counts and others:
            self._doubt(min(counts), others)
        elif others:
            self._change(others)
        else:
            self.missing += min(counts or fitting.values())
        return True

    def lose(self, keys: MessageKeys) -> None:
        """Take a message of which the index has no key."""
        self.missing += min(len(keys.hashes(key_set)) for key_set in self._possible)

    def finish(self) -> None:
        """Finish at the end of the log. A single message that lacks a key is one at which a dispatch was interrupted."""
        if self._doubtful == 1:
            self._forget_doubt()
        elif self._doubtful:
            self._change(self._doubtful_possible)

    @property
    def text(self) -> str:
        return ",".join(_text(key_sets) for key_sets in (*self._before, self._possible))

    def _doubt(self, lacking: int, others: tuple[KeySet, ...]) -> None:
        self._doubtful += 1
        self._doubtful_keys += lacking
        self._doubtful_possible = tuple(each for each in self._doubtful_possible if each in others) or others

    def _forget_doubt(self) -> None:
        self.missing += self._doubtful_keys
        self._doubtful = self._doubtful_keys = 0
        self._doubtful_possible = ()

    def _change(self, possible: tuple[KeySet, ...]) -> None:
        self._before.append(self._possible)
        if self._doubtful and self._doubtful_possible != possible:
            self._before.append(self._doubtful_possible)
        self._doubtful = self._doubtful_keys = 0
        self._doubtful_possible = ()
        self._possible = possible


def _lacking(hashes: list[int], found: list[int]) -> int | None:
    """Count the hashes of a message that were not found; None if a further hash was found."""
    if hashes == found:
        return 0
    if set(found) - set(hashes):
        return None
    return sum((Counter(hashes) - Counter(found)).values())


def _text(key_sets: tuple[KeySet, ...]) -> str:
    return "any" if key_sets == KEY_SETS else "/".join(key_set.releases for key_set in key_sets)


def _groups(files: tuple[IndexFile, ...]) -> Iterator[_Group]:
    """Yield the keys of each message from all index files.

    Raises: StoreCorrupt, if an entry does not point to the previous one of its slot, or a slot not to its newest entry.
    """
    last: _Group | None = None
    for file in files:
        slots = array("i", bytes(4 * file.geometry.hash_slot_num))
        number = 0
        for number, (key_hash, offset, _, previous) in enumerate(file.entries(), start=1):
            slot = key_hash % file.geometry.hash_slot_num
            if slots[slot] != previous:
                raise StoreCorrupt(file.path, offset, f"entry {number} points to {previous}", f"{slots[slot]}, as its slot did")
            slots[slot] = number
            if last is not None and last[1] == offset:
                last[2].append(key_hash)
            else:
                if last is not None:
                    yield last
                last = (file, offset, [key_hash])
        _check_slots(file, slots, number + 1)
    if last is not None:
        yield last


def _check_slots(file: IndexFile, expected: "array[int]", count: int) -> None:
    """Check that each slot leads to the newest entry of its hashes: HA-ST-40 "the number of the newest entry of its hash".

    A live writer writes entries, their count and slots one after another. So a slot that leads to an entry which has been
    counted meanwhile is right, and any other that differs is read again.

    Args:  expected: by the entries. count: of entries that were read, entry 0 included.
    Raises: StoreCorrupt.
    """
    for look in range(LOOKS):
        if look:
            time.sleep(LOOK_AGAIN_S)
        found = file.slots()
        if found == expected:
            return
        new = range(count, file.count_now())
        wrong = next((slot for slot, number in enumerate(found) if number != expected[slot] and number not in new), None)
        if wrong is None:
            return
    assert wrong is not None
    newest = next(islice(file.entries(), expected[wrong] - 1, None)) if expected[wrong] else None
    offset = file.header.begin_phy_offset if newest is None else newest[1]
    expected_text = f"{expected[wrong]}, its newest entry" if expected[wrong] else "none, for no entry is of it"
    raise StoreCorrupt(file.path, offset, f"slot {wrong} leads to entry {found[wrong]}", expected_text)
