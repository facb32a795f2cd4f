"""Schedules as JSON: what a corpus, a folder of failures and a replay of a file hold.

    {"world": "link", "seed": 42, "profile": "hardened", "setup": {...}, "events": [["Put", {...}], ...]}

`setup` has the other fields of the world's schedule class. An event is the name of its class with its fields; fields with
their default value may be missing. Bytes are written in hexadecimal. The format needs no version: a field that a class does
not have, or a value that it cannot have, is an error that names it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from rocketmq_ha.fuzz import schedule_numbers, schedule_texts
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule
from rocketmq_ha.spec.profile import PROFILES

_OF_EVERY_SCHEDULE: Final = ("seed", "profile", "events")
# Bytes of a file. The largest schedule of a million guided runs took 0.6 MB, and a file may have ten times the events of one.
# Python's objects take up to a hundred times the bytes of their JSON, so that a larger bound would cost a machine its memory.
MOST_SIZE: Final = 16 << 20
_DIGITS: Final = 20
_NAMES: Final = {int: "an integer", str: "a text", bool: "true or false"}
_SHOWN: Final = 60  # characters of a wrong value
_SHOWN_OF_A_FIELD: Final = 20  # characters, where an event is shown whole


def to_json(schedule: Schedule) -> str:
    """A schedule as text. The same schedule gives the same text."""
    world = registry.world_of(schedule)
    own = [field.name for field in fields(schedule) if field.name not in _OF_EVERY_SCHEDULE]  # type: ignore[arg-type]
    setup = {name: _plain(getattr(schedule, name)) for name in own}
    document = {
        "world": world.name,
        "seed": schedule.seed,
        "profile": schedule.profile.name,
        "setup": setup,
        "events": [[type(event).__name__, _plain(event)] for event in schedule.events],
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def from_json(text: str, place: str = "schedule") -> Schedule:
    """The schedule of a text. Raises: FuzzError, with the place and the field that is wrong."""
    try:
        document = json.loads(text, parse_int=_int, object_pairs_hook=_Fields)
    except ValueError as error:
        raise FuzzError(f"{place}: found no JSON ({error}), expected a schedule") from error
    except RecursionError as error:
        raise FuzzError(f"{place}: found JSON that is nested too deep, expected a schedule") from error
    if not isinstance(document, dict) or {*document} != {"world", *_OF_EVERY_SCHEDULE, "setup"}:
        found = _names(document) if isinstance(document, dict) else _shown(document)
        raise FuzzError(f"{place}: found {found or 'nothing'}, expected world, seed, profile, setup and events")
    _once(document, place)
    name = _value(str, document["world"], f"{place}: world")
    try:
        (world,) = registry.find([name[:_SHOWN]])
    except FuzzError as error:
        raise FuzzError(f"{place}: {error.message}") from error
    if document["profile"] not in [*PROFILES]:
        raise FuzzError(f"{place}: profile: found {_shown(document['profile'])}, expected one of {', '.join(PROFILES)}")
    kinds = {kind.__name__: kind for kind in world.event_types}
    events = []
    for index, entry in enumerate(_list(document["events"], f"{place}: events")):
        name, values = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if name not in [*kinds]:
            raise FuzzError(f"{place}: event {index}: found {_shown(entry)}, expected [NAME, FIELDS] of {', '.join(kinds)}")
        events.append(_object(kinds[name], values, f"{place}: event {index}, {name}"))
    if not events:
        raise FuzzError(f"{place}: events: found none, expected at least one")
    fixed = {"seed": _seed(document["seed"], f"{place}: seed"), "profile": PROFILES[document["profile"]]}
    schedule: Schedule = _object(world.schedule_type, document["setup"], f"{place}: setup", **fixed, events=tuple(events))
    return schedule


def _seed(value: Any, place: str) -> int:
    """A seed is the number of a run, which the event log has in 64 bits."""
    least, most = schedule_numbers.I64
    if type(value) is not int or not least <= value <= most:
        raise FuzzError(f"{place}: found {_shown(value)}, expected an integer from {least} to {most}")
    return value


def from_user(text: str, place: str) -> Schedule:
    """The schedule of a text that a user may have written: it is checked as well. Raises: FuzzError."""
    schedule = from_json(text, place)
    check(schedule, place)
    return schedule


def check(schedule: Schedule, place: str) -> None:
    """See that both sides of its world can take a schedule. Raises: FuzzError, with the place of what they cannot take."""
    world = registry.world_of(schedule)
    least, most = schedule_texts.EVENTS
    if not least <= len(schedule.events) <= most:
        raise FuzzError(f"{place}: events: found {len(schedule.events)}, expected {least} to {most}")
    parts = [
        (field.name, getattr(schedule, field.name), f"{place}: setup.{field.name}")
        for field in fields(schedule)  # type: ignore[arg-type]
        if field.name not in _OF_EVERY_SCHEDULE
    ]
    events = [("", event, f"{place}: event {index}, {type(event).__name__}") for index, event in enumerate(schedule.events)]
    for name, value, where in (*parts, *events):
        schedule_numbers.check(world.name, name, value, where)
        schedule_texts.check(world.name, name, value, where)
    schedule_numbers.check_settings(schedule, place)
    for _, event, where in events:
        if not world.fits(schedule, event):
            raise FuzzError(f"{where}: found {_shown_fields(event)}, expected {world.fitting(event)}")


def read(file: Path) -> Schedule:
    """The schedule in a file. Raises: FuzzError."""
    try:
        with file.open("rb") as source:
            data = source.read(MOST_SIZE + 1)  # a device may have no end
    except OSError as error:
        raise FuzzError(f"{file}: found {error.strerror}, expected a schedule as JSON") from error
    return from_user(decoded(data, str(file)), str(file))


def decoded(data: bytes, place: str) -> str:
    """The text of a file, of which at most MOST_SIZE bytes and one more were read. Raises: FuzzError."""
    if len(data) > MOST_SIZE:
        raise FuzzError(f"{place}: found more than {MOST_SIZE:,} bytes, expected at most that number")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FuzzError(f"{place}: found no UTF-8 at byte {error.start}, expected a text") from error


@dataclass(frozen=True, slots=True)
class _Number:
    """An integer that is larger than any of a schedule: Python reads none of thousands of digits."""

    digits: int

    def __str__(self) -> str:
        return f"a number of {self.digits} digits"


def _int(text: str) -> int | _Number:
    digits = len(text.lstrip("-"))
    return int(text) if digits <= _DIGITS else _Number(digits)


class _Fields(dict[str, Any]):
    """The fields of an object. Which of them stands in it twice is told where the object's place is known."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs) if len(self) < len(pairs) else {}
        self.twice = [name for name, times in counts.items() if times > 1]


def _once(values: Any, place: str) -> None:
    if isinstance(values, _Fields) and values.twice:
        raise FuzzError(f"{place}: found field {_names(values.twice)} twice, expected it once")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _object(kind: type, values: Any, place: str, **fixed: Any) -> Any:
    """An object of a dataclass from its fields; `fixed` are given as they are."""
    if not isinstance(values, dict):
        raise FuzzError(f"{place}: found {_shown(values)}, expected an object of fields")
    _once(values, place)
    hints = {field.name: _hints(kind)[field.name] for field in fields(kind) if field.name not in fixed}
    if unknown := [name for name in values if name not in hints]:
        raise FuzzError(f"{place}: found field {_names(unknown)}, expected {', '.join(hints) or 'no field'}")
    needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    if missing := [name for name in needed if name not in values and name not in fixed]:
        raise FuzzError(f"{place}: found no field {', '.join(missing)}, expected {', '.join(hints)}")
    made = {name: _value(hints[name], value, f"{place}.{name}") for name, value in values.items()}
    return kind(**made, **fixed)


def _value(kind: Any, value: Any, place: str) -> Any:
    """A value of a type hint from its JSON."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return _object(kind, value, place)
    if kind is bytes:
        try:
            return bytes.fromhex(value)
        except (TypeError, ValueError):
            raise FuzzError(f"{place}: found {_shown(value)}, expected bytes in hexadecimal") from None
    if origin is tuple:
        items = _list(value, place)
        if arguments[-1] is Ellipsis:
            return tuple(_value(arguments[0], item, f"{place}[{at}]") for at, item in enumerate(items))
        if len(items) != len(arguments):
            raise FuzzError(f"{place}: found {len(items)} values, expected {len(arguments)}")
        return tuple(_value(one, item, f"{place}[{at}]") for at, (one, item) in enumerate(zip(arguments, items, strict=True)))
    if origin is Literal:
        if value not in arguments:
            raise FuzzError(f"{place}: found {_shown(value)}, expected one of {', '.join(map(_shown, arguments))}")
        return value
    if origin in (Union, UnionType):
        if value is None and type(None) in arguments:
            return None
        (rest,) = (one for one in arguments if one is not type(None))
        return _value(rest, value, place)
    if kind is int and isinstance(value, _Number):
        raise FuzzError(f"{place}: found {value}, expected an integer of at most {_DIGITS} digits")
    if type(value) is not kind:
        raise FuzzError(f"{place}: found {_shown(value)}, expected {_NAMES.get(kind, kind.__name__)}")
    return value


def _shown(value: Any) -> str:
    """A value as the file has it."""
    if isinstance(value, _Number):
        return str(value)
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _shown_fields(event: Any) -> str:
    """The fields of an event as the file has them; long values are cut, so that each field is seen."""
    values = {name: json.dumps(value) for name, value in _plain(event).items()}
    cut = {name: text if len(text) <= _SHOWN_OF_A_FIELD else text[:_SHOWN_OF_A_FIELD] + "..." for name, text in values.items()}
    return "{" + ", ".join(f'"{name}": {text}' for name, text in cut.items()) + "}"


def _names(names: Iterable[str]) -> str:
    """Names of fields, on one line: those that are no names are quoted."""
    text = ", ".join(name if name.isidentifier() and name.isascii() else json.dumps(name) for name in names)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise FuzzError(f"{place}: found {_shown(value)}, expected a list")
    return value
