"""The texts and lists of a schedule file: all are in the tables, what they allow agrees, and the rest is refused."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest

from rocketmq_ha.fuzz import lockstep, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.mutate import MOST_EVENTS
from rocketmq_ha.fuzz.schedule_numbers import NUMBERS, leaves
from rocketmq_ha.fuzz.schedule_texts import EVENTS, LENGTHS, TEXTS
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule, World
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import Profile

SEEDS: Final = 60
WORLDS: Final = pytest.mark.parametrize("world", registry.WORLDS.values(), ids=lambda world: world.name)
# Behind two harmless texts: no name, no UTF-8, a path, a separator of a key, and sizes about a bound of the wire.
HARMFUL: Final = (
    *("T", "host-1:10911"),
    *(
        "",
        "\ud800",
        "\0",
        "\x7f",
        "\u00fc",
        "\U0001f600",
        "a\nb",
        "/",
        "..",
        "../x",
        "\1",
        "\2",
        "\1x\2\1",
        "K\1v",
        '"',
        "a\\b",
    ),
    *("||", "|", "%RETRY%g", "@", "$", "TBW102", "9" * 30, "x" * 100, "x" * 127, "x" * 128, "x" * 300, "x" * 1_000),
    *("x" * 2_000, "x" * 40_000, "x" * 70_000),
)


def names_of(kind: Any, name: str, wanted: type) -> Iterator[str]:
    """The names that values of a type hint need, in depth: of texts, or of lists of any length."""
    if kind is wanted:
        yield name
    elif is_dataclass(kind) and kind is not Profile:
        assert isinstance(kind, type)
        for field in fields(kind):
            yield from names_of(get_type_hints(kind)[field.name], f"{kind.__name__}.{field.name}", wanted)
    elif get_origin(kind) in (tuple, Union, UnionType):
        if wanted is tuple and get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
            yield name
        for argument in get_args(kind):
            yield from names_of(argument, name, wanted)


@WORLDS
@pytest.mark.parametrize(("table", "wanted"), [(TEXTS, str), (LENGTHS, tuple)], ids=["texts", "lists"])
def test_the_tables_have_every_text_and_list_of_a_world_and_no_other(world: World[Any], table: Any, wanted: type) -> None:
    hints = get_type_hints(world.schedule_type)
    setup = {one for field, kind in hints.items() if field not in ("seed", "events") for one in names_of(kind, field, wanted)}
    events = {name for kind in world.event_types for name in names_of(kind, "", wanted)}
    assert table[world.name].keys() == setup | events


def changed(value: Any, name: str, wanted: str, new: Any) -> Any:
    """The value with `new` in place of each value of the wanted name and of its type."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            f.name: changed(getattr(value, f.name), f"{type(value).__name__}.{f.name}", wanted, new) for f in fields(value)
        }
        return replace(value, **parts)
    if name == wanted and isinstance(value, type(new)):
        return new
    return tuple(changed(one, name, wanted, new) for one in value) if isinstance(value, tuple) else value


@cache
def drawn_of(world: World[Any]) -> tuple[Schedule, ...]:
    return tuple(world.draw(seed) for seed in range(SEEDS))


def having(world: World[Any], name: str, kind: type) -> Schedule:
    """A drawn schedule that has a value of a name."""
    for drawn in drawn_of(world):
        for field in fields(drawn):  # type: ignore[arg-type]
            if field.name in ("seed", "profile"):
                continue
            value = getattr(drawn, field.name)
            if any(found == name and isinstance(leaf, kind) and leaf for found, leaf, _ in leaves(field.name, value)):
                return drawn
    pytest.fail(f"no schedule has {name}")


def with_value(drawn: Schedule, name: str, new: Any) -> Schedule:
    parts = [field.name for field in fields(drawn) if field.name not in ("seed", "profile")]  # type: ignore[arg-type]
    return replace(drawn, **{part: changed(getattr(drawn, part), part, name, new) for part in parts})  # type: ignore[type-var]


def refused(schedule: Schedule, file: Path) -> str:
    """What a user is told of the file of a schedule; nothing if it is read."""
    file.write_text(schedule_file.to_json(schedule))
    try:
        read = schedule_file.read(file)
    except FuzzError as error:
        assert error.message.startswith(f"{file}: ")
        assert error.message.isprintable()
        assert len(error.message) < len(str(file)) + 300
        return error.message
    assert read == schedule
    return ""


@WORLDS
def test_drawn_schedules_are_allowed(world: World[Any]) -> None:
    for drawn in drawn_of(world):
        schedule_file.check(drawn, "drawn")


ROWS = [(world, name) for world in registry.WORLDS.values() for name in TEXTS[world.name]]


@pytest.mark.parametrize(("world", "name"), ROWS, ids=lambda value: getattr(value, "name", value))
def test_a_harmful_text_is_refused_in_one_line_or_both_sides_agree(world: World[Any], name: str, tmp_path: Path) -> None:
    drawn, told = having(world, name, str), []
    for text in HARMFUL:
        schedule = with_value(drawn, name, text)
        told.append(refused(schedule, tmp_path / "s.json"))
        if not told[-1]:
            outcome = lockstep.run(schedule)
            assert outcome.verdict == VERDICT_OK, (text, outcome.last.op_index, outcome.last.detail)
    assert any(told)
    assert not all(told)


@pytest.mark.parametrize(
    ("world", "name"),
    [(world, name) for world in registry.WORLDS.values() for name in LENGTHS[world.name]],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_list_of_its_bounds_agrees_and_beyond_them_it_is_refused(world: World[Any], name: str, tmp_path: Path) -> None:
    drawn = having(world, name, tuple)
    value = next(
        leaf
        for field in fields(drawn)  # type: ignore[arg-type]
        for found, leaf, _ in leaves(field.name, getattr(drawn, field.name))
        if found == name and leaf
    )
    least, most = LENGTHS[world.name][name]
    for length in (least - 1, least, most, most + 1):
        if length < 0:
            continue
        schedule = with_value(drawn, name, tuple(value[at % len(value)] for at in range(length)))
        told = refused(schedule, tmp_path / "s.json")
        if not least <= length <= most:
            assert f": found {length} values, expected {least} to {most}" in told
        elif not told:
            outcome = lockstep.run(schedule)
            assert outcome.verdict == VERDICT_OK, (outcome.last.op_index, outcome.last.detail)
        else:
            assert any(told.endswith(f", expected {world.fitting(event)}") for event in schedule.events)


def test_a_schedule_has_no_more_events_than_anybody_reads(tmp_path: Path) -> None:
    drawn = registry.WORLDS["remoting"].draw(1)
    for count, is_refused in ((EVENTS[1], False), (EVENTS[1] + 1, True)):
        told = refused(replace(drawn, events=(drawn.events[0],) * count), tmp_path / "s.json")
        assert bool(told) is is_refused


def test_the_largest_schedule_that_is_read_stands_for_no_more_bytes_than_a_machine_has() -> None:
    """A client that sends, and whose server never reads, keeps each byte on the way: some of a file stand for 4,096."""
    body_size, frames = NUMBERS["remoting"]["Frame.body_size"][1], LENGTHS["remoting"]["Send.frames"][1]
    assert EVENTS[1] * frames * body_size < 200_000_000
    assert EVENTS[1] >= MOST_EVENTS * 10
