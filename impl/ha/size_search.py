"""Find the size of a master's commit-log files by asking whether files begin at certain offsets. Sans-I/O.

A frame never crosses the end of a file (HA-W-4). So the frame that begins one byte before an offset has one byte if a file
begins at that offset, and more bytes if none does. All files of a log have one size, and each begins at a multiple of it. So
the size divides the offset at which the last file begins, and one question about a distance before that offset tells much:

    a file begins there                    the size divides the distance
    none does                              the size does not divide the distance
    the master has no byte before there    the size is at most the distance, since it has a file before its last one

Spec: HA-S-96, HA-S-97.
"""

# ruff: noqa: N818  (the names say what is the case, as in errors.py)

from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.store.log.layout import MAX_FILE_SIZE
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE

MOST_QUESTIONS: Final = 64
_TRIED_FACTORS: Final = 1 << 20
_MOST_TRIED: Final = 100_000  # pairs of sizes, for one question

# Returns the body size of the frame at an offset before the last file; None if the master has no data there.
BodySizeAt = Callable[[int], int | None]


class CannotTell(RocketmqHaError):
    """The files that the master has now do not reveal their size."""


class OnlyLastFile(CannotTell):
    """The master has only its last file."""


class Contradiction(RocketmqHaError):
    """Two answers of a master contradict each other: it is wrong, or its log has changed between them."""


def find_file_size(last_file: int, body_size_at: BodySizeAt, likely: int | None = None) -> int:
    """Find the size with at most MOST_QUESTIONS questions; with three if `likely` is right and a power of two.

    Args:  last_file: the offset at which its last file begins, greater than 0. likely: the size to try first.
    Raises: CannotTell; Contradiction; exceptions of body_size_at.
    Spec: HA-S-96 "the smallest divisor of the offset at which the master's last file begins for which another file begins
    exactly that many bytes earlier"; HA-S-97 "MUST NOT ask more than 64 questions".
    """
    search = _Search(last_file, body_size_at)
    if not search.sizes:
        raise CannotTell(f"its last file begins at {last_file}, which is no multiple of any size that a file can have")
    found = search.ask(last_file - 2)
    if found is None:
        raise OnlyLastFile(f"it has nothing before its last file, which begins at {last_file}")
    if found == 1:
        raise CannotTell("it sends its log byte by byte, so that the end of a file looks like any other place")
    if found > 2:
        raise Contradiction(f"a frame of {found} bytes from {last_file - 2}, and its last file begins at {last_file}")
    if likely in search.sizes and likely != last_file:
        assert likely is not None
        search.ask_about(likely, closely=True)
    if search.nearest is None:
        search.ask_about_file_0()
    while search.sizes and search.sizes != [search.nearest]:
        search.ask_about(search.next_distance(), closely=len(search.sizes) == 1)
    if not search.sizes:
        raise Contradiction(f"no size fits its answers about what is before {last_file}")
    return search.sizes[0]


class _Search:
    """The sizes that are still possible, and the choice of the next question."""

    def __init__(self, last_file: int, body_size_at: BodySizeAt) -> None:
        self._primes = factors(last_file)
        self.sizes = _divisors(self._primes)  # possible sizes, ascending
        # the least distance at which a file is known to begin; the master has everything from there on
        self.nearest: int | None = None
        self._gone: set[int] = set()  # distances before which the master has no data
        self._last_file, self._body_size_at = last_file, body_size_at
        self._questions = 0

    def ask(self, offset: int) -> int | None:
        """Ask the master. Raises: CannotTell after too many questions."""
        if self._questions == MOST_QUESTIONS:
            raise CannotTell(f"{MOST_QUESTIONS} questions about what is before {self._last_file} were not enough")
        self._questions += 1
        return self._body_size_at(offset)

    def ask_about(self, distance: int, *, closely: bool) -> None:
        """Ask whether a file begins at a distance before the last one, and remove impossible sizes. Raises: as `ask`.

        closely: if the master does not have the byte before that place, also ask for the byte at it. If it is there, the log
        begins with it, and so does a file.
        """
        place = self._last_file - distance
        found = self.ask(place - 1)
        if found is None and self.nearest is not None:
            raise Contradiction(f"what it had before {place} it has no longer")
        if found is None and closely and self.ask(place) is not None:
            found = self.ask(place - 1) or 1  # ask again, since a master that is just starting has no data at first
        if found == 1:
            self.nearest = distance
            self.sizes = [size for size in self.sizes if distance % size == 0]
        elif found is None:
            self._gone.add(distance)
            self.sizes = [size for size in self.sizes if size < distance + (not closely)]
        else:
            self.sizes = [size for size in self.sizes if distance % size]

    def ask_about_file_0(self) -> None:
        """Ask whether the master has file 0, and so all files. Raises: as `ask`."""
        if self.ask(1) is not None:
            self.nearest = self._last_file
        else:  # the master has a file before the last one, but not file 0
            self.sizes = [size for size in self.sizes if size != self._last_file]

    def next_distance(self) -> int:
        """The distance to ask about next.

        If a file is known to begin at a distance, ask about that distance divided by a prime. If a file begins there, it is the
        nearest one now; if not, the power of that prime in the size is known. Otherwise choose the distance that leaves the
        fewest sizes in the worse case; of several, the smallest one, which the master most likely has.
        """
        sizes, nearest = self.sizes, self.nearest
        if nearest is not None:
            shares = (nearest // prime for prime in reversed(self._primes) if nearest % prime == 0)
            return next((share for share in shares if any(share % size == 0 for size in sizes)), nearest)
        asked = [distance for distance in sizes if distance not in self._gone] or sizes

        def worse_case(distance: int) -> int:
            dividing = sum(distance % size == 0 for size in sizes)
            return max(dividing, len(sizes) - dividing)

        # With many files and many divisors only some distances are tried.
        return min(asked[:: 1 + len(sizes) ** 2 // _MOST_TRIED], key=lambda distance: (worse_case(distance), distance))


def factors(number: int) -> dict[int, int]:
    """Map prime -> power in a number, ascending. A rest without a factor up to 2**20 counts as a prime.

    Below 2**40 such a rest is a prime. A larger one is harmless: a file that begins at a distance shows that the size divides
    the distance, and all factors of the distance are known.

    >>> factors(72), factors(2**31 - 1)
    ({2: 3, 3: 2}, {2147483647: 1})
    """
    found: dict[int, int] = {}
    factor = 2
    while factor * factor <= number and factor <= _TRIED_FACTORS:
        while number % factor == 0:
            number //= factor
            found[factor] = found.get(factor, 0) + 1
        factor += 1 + (factor > 2)
    if number > 1:
        found[number] = 1
    return found


def _divisors(primes: dict[int, int]) -> list[int]:
    """The divisors that are possible file sizes, ascending.

    >>> _divisors(factors(72))
    [8, 9, 12, 18, 24, 36, 72]
    """
    found = [1]
    for prime, power in primes.items():
        found = [
            one * prime**exponent for one in found for exponent in range(power + 1) if one * prime**exponent <= MAX_FILE_SIZE
        ]
    return sorted(one for one in found if one >= END_FILE_MIN_BLANK_SIZE)
