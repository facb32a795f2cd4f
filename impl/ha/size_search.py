"""How large a master's commit-log files are: found by asking where one of its files begins. Sans-I/O.

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

# Bytes of the frame that begins at an offset before the last file; None where the master has no data there.
BodySizeAt = Callable[[int], int | None]


class CannotTell(RocketmqHaError):
    """The size of the master's files cannot be seen in what it has now."""


class OnlyLastFile(CannotTell):
    """The master has nothing but its last file."""


class Contradiction(RocketmqHaError):
    """Two answers of a master do not fit each other: it lies, or its log has changed between them."""


def find_file_size(last_file: int, body_size_at: BodySizeAt, likely: int | None = None) -> int:
    """The size of a master's files, by at most MOST_QUESTIONS questions; by three where `likely` is right and a power of two.

    Args:  last_file: the offset at which its last file begins, greater than 0. likely: a size to ask about first.
    Raises: CannotTell; Contradiction; what body_size_at raises.
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
    """Which sizes are still possible, and what to ask next."""

    def __init__(self, last_file: int, body_size_at: BodySizeAt) -> None:
        self._primes = factors(last_file)
        self.sizes = _divisors(self._primes)  # that are possible, ascending
        self.nearest: int | None = None  # the least distance at which a file is known to begin; all from there on is there
        self._gone: set[int] = set()  # distances before which the master has nothing
        self._last_file, self._body_size_at = last_file, body_size_at
        self._questions = 0

    def ask(self, offset: int) -> int | None:
        """The answer of the master. Raises: CannotTell after too many questions."""
        if self._questions == MOST_QUESTIONS:
            raise CannotTell(f"{MOST_QUESTIONS} questions about what is before {self._last_file} were not enough")
        self._questions += 1
        return self._body_size_at(offset)

    def ask_about(self, distance: int, *, closely: bool) -> None:
        """Ask whether a file begins at a distance before the last one, and strike the sizes that cannot be. Raises: as `ask`.

        closely: where the master has not the byte before that place, ask for the byte at it too: if it is there, its log begins
        with it, and so does a file.
        """
        place = self._last_file - distance
        found = self.ask(place - 1)
        if found is None and self.nearest is not None:
            raise Contradiction(f"what it had before {place} it has no longer")
        if found is None and closely and self.ask(place) is not None:
            found = self.ask(place - 1) or 1  # asked again, for a master that is just being started has nothing at first
        if found == 1:
            self.nearest = distance
            self.sizes = [size for size in self.sizes if distance % size == 0]
        elif found is None:
            self._gone.add(distance)
            self.sizes = [size for size in self.sizes if size < distance + (not closely)]
        else:
            self.sizes = [size for size in self.sizes if distance % size]

    def ask_about_file_0(self) -> None:
        """Ask whether file 0 is there, and so all files. Raises: as `ask`."""
        if self.ask(1) is not None:
            self.nearest = self._last_file
        else:  # there is a file before the last one, and it is not file 0
            self.sizes = [size for size in self.sizes if size != self._last_file]

    def next_distance(self) -> int:
        """What to ask about.

        Where a file is known to begin, a prime's share of that distance: if a file begins there too it is the nearest one now,
        and if none does, the prime's power in the size is known. Else, what leaves the fewest sizes in the worse case, and of
        those the smallest, which is the likeliest to be there.
        """
        sizes, nearest = self.sizes, self.nearest
        if nearest is not None:
            shares = (nearest // prime for prime in reversed(self._primes) if nearest % prime == 0)
            return next((share for share in shares if any(share % size == 0 for size in sizes)), nearest)
        asked = [distance for distance in sizes if distance not in self._gone] or sizes

        def worse_case(distance: int) -> int:
            dividing = sum(distance % size == 0 for size in sizes)
            return max(dividing, len(sizes) - dividing)

        # Of a log of many files with many divisors only some are looked at.
        return min(asked[:: 1 + len(sizes) ** 2 // _MOST_TRIED], key=lambda distance: (worse_case(distance), distance))


def factors(number: int) -> dict[int, int]:
    """Prime -> its power in a number, ascending. What is left without a factor up to 2**20 counts as a prime.

    Below 2**40 it is one. Else no size can contain it, or be mistaken because of it: a file that begins at a distance shows
    that the size divides the distance, whose factors are all known.

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
    """The divisors that can be the size of a file, ascending.

    >>> _divisors(factors(72))
    [8, 9, 12, 18, 24, 36, 72]
    """
    found = [1]
    for prime, power in primes.items():
        found = [
            one * prime**exponent for one in found for exponent in range(power + 1) if one * prime**exponent <= MAX_FILE_SIZE
        ]
    return sorted(one for one in found if one >= END_FILE_MIN_BLANK_SIZE)
