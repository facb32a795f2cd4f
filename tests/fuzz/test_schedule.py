"""Whole schedules and their settings: a census of the draws of fixed seeds. Each value and each bound occurs."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Final

import pytest

from kit.schedules import drawn_schedules, frame_size, share
from rocketmq_ha.fuzz import schedule
from rocketmq_ha.reference.events import DeleteFile, DiskFull
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings

SWEPT: Final = ("mapped_file_size", "ha_transfer_batch_size", "ha_slave_fallbehind_max", "master_read_buffer_size")
FREE: Final = (*SWEPT, "slave_read_buffer_size", "slave_file_size", "adopts_file_size", "replicas")
# Replays name a schedule by its seed, so a seed must draw the same on every machine and in every version that can keep it so.
# A deliberate change of the drawing changes this; say so in CHANGELOG.md, since the seeds of older reports draw others then.
DIGEST_OF_100: Final = "f0ff2c66c8179a4b"


def test_a_seed_draws_the_schedule_that_it_has_always_drawn() -> None:
    digest = hashlib.blake2b(digest_size=8)
    for drawn in drawn_schedules()[:100]:
        settings = tuple(getattr(drawn.settings, name) for name in FREE)
        digest.update(repr((drawn.seed, drawn.profile.name, drawn.slaves, settings, drawn.events)).encode())
    assert digest.hexdigest() == DIGEST_OF_100


def test_the_same_seed_draws_the_same_and_another_seed_another() -> None:
    assert schedule.draw(5) == drawn_schedules()[5]
    assert [drawn.seed for drawn in drawn_schedules()] == list(range(800))
    assert len({drawn.events for drawn in drawn_schedules()}) == 800


def test_half_of_the_schedules_run_in_each_profile_and_a_third_with_two_slaves() -> None:
    profiles = Counter(drawn.profile.name for drawn in drawn_schedules())
    assert set(profiles) == {CLASSIC.name, HARDENED.name}
    assert 0.45 < share(profiles[CLASSIC.name], 800) < 0.55
    slaves = Counter(drawn.slaves for drawn in drawn_schedules())
    assert set(slaves) == {1, 2}
    assert 0.28 < share(slaves[2], 800) < 0.39


def test_a_schedule_has_100_to_220_events_and_both_bounds_occur() -> None:
    plain = [
        drawn
        for drawn in drawn_schedules()
        if drawn.profile.reports_on_connect  # nothing is added for a first report
        and drawn.settings.replicas == 1
        and not any(isinstance(e, DiskFull | DeleteFile) for e in drawn.events)
    ]
    sizes = {len(drawn.events) for drawn in plain}
    assert len(plain) > 200
    assert (min(sizes), max(sizes)) == (100, 220)
    assert len(sizes) > 90


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mapped_file_size", (256, 384, 512, 1000, 4096)),
        ("ha_transfer_batch_size", (1, 7, 16, 48, 100, 1000)),
        ("ha_slave_fallbehind_max", (300, 1 << 20, 1 << 28)),
        ("master_read_buffer_size", (8, 16, 24, 64, 4096)),
    ],
)
def test_each_size_is_drawn_about_as_often_as_the_others(name: str, expected: tuple[int, ...]) -> None:
    found = Counter(getattr(drawn.settings, name) for drawn in drawn_schedules())
    assert sorted(found) == sorted(expected)
    assert min(found.values()) > 0.6 * 800 / len(expected)


def test_a_read_buffer_of_a_slave_has_room_for_a_frame_and_some_more_or_sometimes_for_none() -> None:
    spare = Counter(drawn.settings.slave_read_buffer_size - frame_size(drawn) for drawn in drawn_schedules())
    with_room = {extra: n for extra, n in spare.items() if extra >= 0}
    assert set(with_room) == {0, 1, 12, 40, 400, 4000}
    assert min(with_room.values()) > 80
    tight = [drawn.settings for drawn in drawn_schedules() if drawn.settings.slave_read_buffer_size < frame_size(drawn)]
    assert 0.015 < share(len(tight), 800) < 0.06
    for settings in tight:
        assert settings.slave_read_buffer_size == 12 + settings.ha_transfer_batch_size // 2
    ones = [s.settings for s in drawn_schedules() if s.settings.ha_transfer_batch_size == 1]
    assert min(settings.slave_read_buffer_size for settings in ones) == 13  # never less than a byte of a body


def test_other_settings_are_those_of_rocketmq() -> None:
    for name in [field.name for field in fields(Settings) if field.name not in FREE]:
        assert {getattr(drawn.settings, name) for drawn in drawn_schedules()} == {getattr(Settings(), name)}, name


def test_two_replicas_are_needed_in_half_of_the_hardened_schedules_with_two_slaves() -> None:
    possible = [drawn for drawn in drawn_schedules() if drawn.slaves == 2 and drawn.profile is HARDENED]
    assert {drawn.settings.replicas for drawn in drawn_schedules() if drawn not in possible} == {1}
    assert 0.35 < share(sum(drawn.settings.replicas == 2 for drawn in possible), len(possible)) < 0.65
    assert {drawn.settings.replicas for drawn in possible} == {1, 2}


SLAVE_SIZES: Final[dict[str, Callable[[int], int]]] = {
    "the same": lambda size: size,
    "twice": lambda size: 2 * size,
    "three times": lambda size: 3 * size,
    "sixteen times": lambda size: 16 * size,
    "half": lambda size: size // 2,
    "a quarter": lambda size: size // 4,
    "100 more": lambda size: size + 100,
    "700": lambda _: 700,
}


def test_a_slave_mostly_has_the_masters_file_size_and_else_each_of_eight_others() -> None:
    own = [drawn.settings for drawn in drawn_schedules() if drawn.settings.slave_file_size]
    assert 0.10 < share(len(own), 800) < 0.20
    for name, size_of in SLAVE_SIZES.items():
        assert any(settings.slave_file_size == size_of(settings.mapped_file_size) for settings in own), name
    possible = {(settings.slave_file_size, settings.mapped_file_size) for settings in own}
    assert all(size in {size_of(files) for size_of in SLAVE_SIZES.values()} for size, files in possible)
    assert 0.45 < share(sum(settings.adopts_file_size for settings in own), len(own)) < 0.75
    assert not any(drawn.settings.adopts_file_size for drawn in drawn_schedules() if not drawn.settings.slave_file_size)
