"""In which fields two observations differ: the same for every world.

An observation is a dataclass or a named tuple. A field that holds a tuple of such objects has one for each of several actors:
for `links` of a master, the actor of a difference is `link 3`, by the number that the part has (`link_id`), or else by its
place in the tuple. All other fields belong to the actor `master`, or to the one that the observation's class names as ACTOR.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

MASTER: Final = "master"
MOST_CHARACTERS: Final = 160  # of a value in a difference; a queue's entries have thousands
BEFORE: Final = 40  # of them stand before the first difference


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which the two sides differ."""

    actor: str  # master, link N, slave N, ...
    field: str
    reference: str
    implementation: str

    def __str__(self) -> str:
        return f"{self.actor}.{self.field}: reference {self.reference}, implementation {self.implementation}"


def differences(reference: Any, implementation: Any) -> list[Difference]:
    """All fields that differ, first those of the observation itself."""
    if reference == implementation:
        return []
    actor = getattr(type(reference), "ACTOR", MASTER)
    parts = [name for name in _names(reference) if _has_parts(reference, name, implementation)]
    found = _of(actor, reference, implementation, skip=parts)
    for name in parts:
        ours, theirs = getattr(reference, name), getattr(implementation, name)
        numbers = [[_number(index, part) for index, part in enumerate(side)] for side in (ours, theirs)]
        if numbers[0] != numbers[1]:
            return [*found, Difference(actor, name, *map(str, numbers))]
        for number, our_part, their_part in zip(numbers[0], ours, theirs, strict=True):
            found += _of(f"{_singular(name)} {number}", our_part, their_part)
    return found


def _has_parts(reference: object, name: str, implementation: object) -> bool:
    both = (*_tuple(getattr(reference, name)), *_tuple(getattr(implementation, name)))
    return bool(both) and all(is_dataclass(part) or hasattr(part, "_fields") for part in both)


def _names(observation: Any) -> Sequence[str]:
    """The names of the fields."""
    names: Sequence[str] = getattr(observation, "_fields", None) or [field.name for field in fields(observation)]
    return names


def _tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def _singular(name: str) -> str:
    """The name of one of several parts.

    >>> _singular("links"), _singular("process")
    ('link', 'process')
    """
    return name if name.endswith("ss") else name.removesuffix("s")


def _number(index: int, part: object) -> object:
    return getattr(part, "link_id", index)


def _of(actor: str, reference: Any, implementation: Any, skip: Sequence[str] = ()) -> list[Difference]:
    if reference == implementation:
        return []
    found = []
    for name in _names(reference):
        ours, theirs = getattr(reference, name), getattr(implementation, name)
        if name not in skip and ours != theirs:
            found.append(Difference(actor, name, *_show(ours, theirs)))
    return found


def _show(ours: object, theirs: object) -> tuple[str, str]:
    """Format both values; of long ones only what is about their first difference."""
    if isinstance(ours, bytes) and isinstance(theirs, bytes) and max(len(ours), len(theirs)) > 16:
        at = _first_difference(ours, theirs)
        return tuple(f"{len(side)} bytes, from {at}: {side[at : at + 8].hex(' ') or 'end'}" for side in (ours, theirs))  # type: ignore[return-value]
    both = [side.hex(" ") if isinstance(side, bytes) else repr(side) for side in (ours, theirs)]
    begin = max(0, _first_difference(*both) - BEFORE) if max(map(len, both)) > MOST_CHARACTERS else 0
    return _part(both[0], begin), _part(both[1], begin)


def _first_difference(ours: Sequence[object], theirs: Sequence[object]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))


def _part(text: str, begin: int) -> str:
    """At most MOST_CHARACTERS of a text, with a mark where it goes on."""
    end = begin + MOST_CHARACTERS
    return ("… " if begin else "") + text[begin:end] + (" …" if end < len(text) else "")
