"""What the claims are held against: every golden vector, read once."""

import pytest
from all_claims import CLAIMS
from registry import Held, hold
from specimens import Golden, read_all


@pytest.fixture(scope="session")
def goldens() -> list[Golden]:
    return read_all()


@pytest.fixture(scope="session")
def held(goldens: list[Golden]) -> Held:
    return hold(goldens, CLAIMS)
