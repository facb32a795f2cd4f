"""The model and the implementation in lock-step."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from kit.worlds import MakeWorlds, Worlds
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.lockstep import Lockstep
from rocketmq_ha.spec.profile import Profile, Settings

FILE_SIZE = 1000


@pytest.fixture
def worlds() -> Iterator[MakeWorlds]:
    """Makes a cluster of empty stores with files of 1000 bytes."""
    with ExitStack() as resources:

        def make(profile: Profile, slaves: int = 1, **settings: int) -> Worlds:
            directory = resources.enter_context(lockstep.scratch_directory())
            both = Lockstep(slaves, replace(Settings(mapped_file_size=FILE_SIZE), **settings), profile, directory)
            resources.callback(both.close)
            return Worlds(both)

        yield make
