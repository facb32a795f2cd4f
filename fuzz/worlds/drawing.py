"""How schedules are drawn: by weights that each draws for itself, so that some events are more frequent in it than others."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
Weighted = tuple[int, bool, T]  # weight, whether a schedule may omit it, and what it makes

_AT_ONCE: Final = 16  # choices of one call, which costs as much as a few of them


def draw_weights(rng: random.Random, draws: Sequence[Weighted[T]]) -> list[int]:
    """The weights of a schedule: what it may omit has the given one, three times as much, or none."""
    return [weight * rng.choice((0, 1, 1, 1, 3)) if optional else weight for weight, optional, _ in draws]


def draw_events(
    rng: random.Random,
    draws: Sequence[Weighted[Callable[[], Iterable[T]]]],
    weights: Sequence[int],
    begin: Iterable[T],
    size: int,
) -> tuple[T, ...]:
    """`size` events: those it begins with, and then what the draws make."""
    makes = [make for _, _, make in draws]
    drawn = list(begin)
    while len(drawn) < size:
        for make in rng.choices(makes, weights, k=_AT_ONCE):
            drawn += make()
    return tuple(drawn[:size])
