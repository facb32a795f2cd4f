"""Schedules as JSON: what a corpus, a folder of failures and a replay of a file hold.

    {"world": "link", "seed": 42, "profile": "hardened", "setup": {...}, "events": [["Put", {...}], ...]}

`setup` has the other fields of the world's schedule class. An event is the name of its class with its fields; fields with
their default value may be missing. Bytes are written in hexadecimal. The format needs no version: a field that a class does
not have, or a value that it cannot have, is an error that names it.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule
from rocketmq_ha.spec.profile import PROFILES

_OF_EVERY_SCHEDULE: Final = ("seed", "profile", "events")


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
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FuzzError(f"{place}: found no JSON ({error}), expected a schedule") from error
    if not isinstance(document, dict) or {*document} != {"world", *_OF_EVERY_SCHEDULE, "setup"}:
        found = ", ".join(document) if isinstance(document, dict) else type(document).__name__
        raise FuzzError(f"{place}: found {found or 'nothing'}, expected world, seed, profile, setup and events")
    try:
        (world,) = registry.find([str(document["world"])])
    except FuzzError as error:
        raise FuzzError(f"{place}: {error.message}") from error
    if document["profile"] not in PROFILES:
        raise FuzzError(f"{place}: profile {document['profile']!r}: expected one of {', '.join(PROFILES)}")
    kinds = {kind.__name__: kind for kind in world.event_types}
    events = []
    for index, entry in enumerate(_list(document["events"], f"{place}: events")):
        name, values = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if name not in kinds:
            raise FuzzError(f"{place}: event {index}: found {name!r}, expected one of {', '.join(kinds)}")
        events.append(_object(kinds[name], values, f"{place}: event {index}, {name}"))
    if not events:
        raise FuzzError(f"{place}: events: found none, expected at least one")
    _check_sizes(document["setup"], f"{place}: setup")
    fixed = {"seed": _value(int, document["seed"], f"{place}: seed"), "profile": PROFILES[document["profile"]]}
    schedule: Schedule = _object(world.schedule_type, document["setup"], f"{place}: setup", **fixed, events=tuple(events))
    return schedule


def read(file: Path) -> Schedule:
    """The schedule in a file. Raises: FuzzError."""
    try:
        return from_json(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise FuzzError(f"{file}: found {told}, expected a schedule as JSON") from error


def _check_sizes(value: Any, place: str) -> None:
    """Raises: FuzzError for a negative number: those of a setup are sizes, times and counts."""
    if type(value) is int and value < 0:
        raise FuzzError(f"{place}: found {value}, expected 0 or more")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        _check_sizes(item, f"{place}.{name}" if isinstance(value, dict) else f"{place}[{name}]")


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
        raise FuzzError(f"{place}: found {type(values).__name__}, expected an object of fields")
    hints = {field.name: _hints(kind)[field.name] for field in fields(kind) if field.name not in fixed}
    if unknown := [name for name in values if name not in hints]:
        raise FuzzError(f"{place}: found field {', '.join(unknown)}, expected {', '.join(hints) or 'none'}")
    made = {name: _value(hints[name], value, f"{place}.{name}") for name, value in values.items()}
    try:
        return kind(**made, **fixed)
    except TypeError as error:
        raise FuzzError(f"{place}: {error}") from error


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
            raise FuzzError(f"{place}: found {value!r}, expected bytes in hexadecimal") from None
    if origin is tuple:
        items = _list(value, place)
        if arguments[-1] is Ellipsis:
            return tuple(_value(arguments[0], item, f"{place}[{at}]") for at, item in enumerate(items))
        if len(items) != len(arguments):
            raise FuzzError(f"{place}: found {len(items)} values, expected {len(arguments)}")
        return tuple(_value(one, item, f"{place}[{at}]") for at, (one, item) in enumerate(zip(arguments, items, strict=True)))
    if origin is Literal:
        if value not in arguments:
            raise FuzzError(f"{place}: found {value!r}, expected one of {', '.join(map(repr, arguments))}")
        return value
    if origin in (Union, UnionType):
        if value is None and type(None) in arguments:
            return None
        (rest,) = (one for one in arguments if one is not type(None))
        return _value(rest, value, place)
    if type(value) is not kind:
        raise FuzzError(f"{place}: found {value!r}, expected {kind.__name__}")
    return value


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise FuzzError(f"{place}: found {type(value).__name__}, expected a list")
    return value
