"""The changes of one table of a master, by number: what a slave that has come to a number has to be told.

    b=2  c=4  d=5   gone: a=3        behind 2: gone a, c, d; the last number is 5

Numbers are of this process alone. A change of an entry of which nobody has been told yet needs no new number, so that the
commits of consumers, of which there may be thousands a second, mostly cost a look-up.

Spec: HA-MD-28, HA-MD-29.  Source: this project.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Final

from rocketmq_ha.impl.remoting import body_json

MOST_SIZE: Final = 262_144  # bytes of JSON by which an answer's part of a table ends
MOST_GONE: Final = 10_000  # names that are gone and remembered
_Numbered = tuple[int, str, bool]  # number, name, whether the table has it


class ChangeLog:
    """The numbers of a table's names. All methods are for the loop's thread.

    most_size, most_gone: the bounds; tests have others.
    """

    __slots__ = ("_forgotten", "_gone", "_last", "_live", "_told", "most_gone", "most_size")

    def __init__(self) -> None:
        self.most_size, self.most_gone = MOST_SIZE, MOST_GONE
        self._live: dict[str, int] = {}  # in the order of the numbers, like `_gone`
        self._gone: dict[str, int] = {}
        self._last = 0  # the greatest number
        self._told = 0  # the greatest number of which an answer has told
        self._forgotten = 0  # up to this number names that are gone may be missing

    def set(self, name: str) -> None:
        """An entry is made or changed."""
        live = self._live
        if live.get(name, 0) > self._told:
            return
        live.pop(name, None)
        self._gone.pop(name, None)
        self._last += 1
        live[name] = self._last

    def removed(self, name: str) -> None:
        """An entry is gone."""
        gone = self._gone
        self._live.pop(name, None)
        gone.pop(name, None)
        self._last += 1
        gone[name] = self._last
        if len(gone) > self.most_gone:
            self._forgotten = gone.pop(next(iter(gone)))

    def part(self, since: int, begun: int, text_of: Callable[[str], bytes], version: bytes = b"") -> bytes:
        """The JSON object of a table in an answer, for a slave that has come to a number. 0: of another life.

        Args:  begun: the last number when the slave was told the table from its begin: of names that were gone by then it knows
               nothing. text_of: the name with its entry, as a member of a JSON object. version: `,"dataVersion":...`, or
               nothing.
        Spec: HA-MD-28 "the entries that have changed since the number that the slave names, and the names that are gone";
        HA-MD-29 "MUST end its part of a table with the first entry or name by which".
        """
        begin = since if since <= self._last and self._forgotten <= max(since, begun) else 0
        if begin == 0:
            begun = self._last
        changed: list[bytes] = []
        gone: list[bytes] = []
        size, at, is_end = 0, begin, True
        for number, name, is_live in self._behind(begin):
            if size >= self.most_size:
                is_end = False
                break
            text = text_of(name) if is_live else body_json.write(name)
            (changed if is_live else gone).append(text)
            size, at = size + len(text) + 1, number
        if is_end:
            at = self._last
        self._told = max(self._told, at)
        return b'{"from":%d,"at":%d,"begun":%d,"isEnd":%b,"changed":{%b},"gone":[%b]%b}' % (
            *(begin, at, begun, b"true" if is_end else b"false", b",".join(changed), b",".join(gone), version),
        )

    def _behind(self, begin: int) -> Iterable[_Numbered]:
        live = _behind(self._live, begin, is_live=True)
        return merge(live, _behind(self._gone, begin, is_live=False)) if begin and self._gone else live


def _behind(numbers: dict[str, int], begin: int, *, is_live: bool) -> list[_Numbered]:
    """The names with greater numbers, in their order. A dict keeps that order, so only these names are looked at."""
    found = list(_back_to(numbers, begin, is_live))
    found.reverse()
    return found


def _back_to(numbers: dict[str, int], begin: int, is_live: bool) -> Iterator[_Numbered]:
    for name, number in reversed(numbers.items()):
        if number <= begin:
            return
        yield number, name, is_live
