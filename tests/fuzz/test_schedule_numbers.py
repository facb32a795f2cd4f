"""The numbers of a schedule file: all are in the table, each bound holds, and at each bound both sides agree."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from rocketmq_ha.fuzz import lockstep, schedule_file, schedule_numbers
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.schedule_numbers import NUMBERS
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule, World
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import Profile

SEEDS = 60  # schedules in which an event of each kind is looked for


def names_of(kind: Any, name: str) -> Iterator[str]:
    """The names of NUMBERS that values of a type hint need, in depth."""
    if kind is int:
        yield name
    elif is_dataclass(kind) and kind is not Profile:
        assert isinstance(kind, type)
        for field in fields(kind):
            yield from names_of(get_type_hints(kind)[field.name], f"{kind.__name__}.{field.name}")
    elif get_origin(kind) in (tuple, Union, UnionType):
        for argument in get_args(kind):
            yield from names_of(argument, name)


@pytest.mark.parametrize("world", registry.WORLDS.values(), ids=lambda world: world.name)
def test_the_table_has_every_number_of_a_world_and_no_other(world: World[Any]) -> None:
    hints = get_type_hints(world.schedule_type)
    setup = {name for field, kind in hints.items() if field not in ("seed", "events") for name in names_of(kind, field)}
    events = {name for kind in world.event_types for name in names_of(kind, "")}
    assert NUMBERS[world.name].keys() == setup | events


@pytest.mark.parametrize("world", registry.WORLDS.values(), ids=lambda world: world.name)
def test_what_is_drawn_and_what_a_mutation_changes_is_in_the_ranges(world: World[Any]) -> None:
    for seed in range(SEEDS):
        drawn = world.draw(seed)
        schedule_file.check(drawn, "drawn")
        for (kind, field), (least, greatest) in world.bounds(drawn).items():
            allowed = NUMBERS[world.name][f"{kind.__name__}.{field}"]
            assert allowed[0] <= least <= greatest <= allowed[1], (kind, field)


def changed(value: Any, name: str, wanted: str, number: int) -> Any:
    """The value with `number` in place of each number of the wanted name."""
    if type(value) is int:
        return number if name == wanted else value
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value,
            **{
                f.name: changed(getattr(value, f.name), f"{type(value).__name__}.{f.name}", wanted, number)
                for f in fields(value)
            },
        )
    return tuple(changed(one, name, wanted, number) for one in value) if isinstance(value, tuple) else value


@cache
def drawn_of(world: World[Any]) -> tuple[Schedule, ...]:
    return tuple(world.draw(seed) for seed in range(SEEDS))


def with_number(world: World[Any], name: str, number: int) -> Schedule | None:
    """A drawn schedule that has this number wherever the name stands in it; None if no schedule has the name."""
    for drawn in drawn_of(world):
        parts = {field.name: getattr(drawn, field.name) for field in fields(drawn) if field.name not in ("seed", "profile")}  # type: ignore[arg-type]
        after = {part: changed(value, part, name, number) for part, value in parts.items()}
        if any(found == name for part, value in parts.items() for found, _, _ in schedule_numbers.numbers(part, value)):
            return replace(drawn, **after)  # type: ignore[type-var]
    return None


def inside(least: int, greatest: int) -> set[int]:
    """Numbers in a range: beside its ends, in its middle, and a few that are no multiple of a unit."""
    middle = (least + greatest) // 2
    return {one for one in (least + 1, greatest - 1, middle, 1, 2, 3, 7, 9, 13, 100, 120) if least < one < greatest}


@pytest.mark.parametrize(
    ("world", "name"),
    [(world, name) for world in registry.WORLDS.values() for name in NUMBERS[world.name] if "Set" in name],
    ids=lambda value: getattr(value, "name", value),
)
def test_within_the_bounds_of_a_setup_both_sides_agree_or_it_is_refused(world: World[Any], name: str) -> None:
    agreed = 0
    for number in inside(*NUMBERS[world.name][name]):
        schedule = with_number(world, name, number)
        assert schedule is not None
        try:
            schedule_file.check(schedule, "file")
        except FuzzError as error:
            assert "\n" not in error.message
            continue
        outcome = lockstep.run(schedule)
        assert outcome.verdict == VERDICT_OK, (number, outcome.last.op_index, outcome.last.signature, outcome.last.detail)
        agreed += 1
    assert agreed


ROWS = [
    (world, name, number) for world in registry.WORLDS.values() for name, ends in NUMBERS[world.name].items() for number in ends
]


@pytest.mark.parametrize(("world", "name", "number"), ROWS, ids=lambda value: getattr(value, "name", str(value)))
def test_at_each_bound_both_sides_agree_or_the_event_does_not_fit(world: World[Any], name: str, number: int) -> None:
    schedule = with_number(world, name, number)
    assert schedule is not None
    try:
        schedule_file.check(schedule, "file")
    except FuzzError as error:
        told = {f", expected {world.fitting(event)}" for event in schedule.events}
        assert any(error.message.endswith(one) for one in told) or f"setup.settings.{name.partition('.')[2]}: " in error.message
        return
    outcome = lockstep.run(schedule)
    assert outcome.verdict == VERDICT_OK, (outcome.last.op_index, outcome.last.signature, outcome.last.detail)


@pytest.mark.parametrize(("world", "name", "number"), ROWS, ids=lambda value: getattr(value, "name", str(value)))
def test_beyond_each_bound_a_file_is_refused_in_one_line(tmp_path: Path, world: World[Any], name: str, number: int) -> None:
    least, greatest = NUMBERS[world.name][name]
    beyond = least - 1 if number == least else greatest + 1
    schedule = with_number(world, name, beyond)
    assert schedule is not None
    file = tmp_path / "schedule.json"
    file.write_text(schedule_file.to_json(schedule))
    with pytest.raises(FuzzError) as caught:
        schedule_file.read(file)
    assert f": found {beyond}, expected {least} to {greatest}" in caught.value.message
    assert caught.value.message.startswith(f"{file}: ")
    assert "\n" not in caught.value.message
