"""Fixtures of the broker tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.broker_tables import BrokerTables


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def tables(tmp_path: Path, resources: ExitStack) -> BrokerTables:
    """The tables of the broker `b` of the cluster `c`, and their handlers."""
    return BrokerTables(tmp_path / "store", resources)
