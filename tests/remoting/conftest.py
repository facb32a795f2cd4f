"""Fixtures of the remoting tests."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kit.remoting import Stand


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def stand(resources: ExitStack) -> Stand:
    """A server with the limits of a hardened one."""
    return Stand(resources)
