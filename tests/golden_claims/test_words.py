"""Each claim quotes what it holds, and a clause that is changed in a number or a negation is noticed."""

from pathlib import Path

import pytest
import table  # noqa: F401  (with it, every claim)
import words
from registry import CLAIMS, read_lists

from rocketmq_ha.spec import citations, clauses
from rocketmq_ha.spec.citations import Citation

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cited() -> list[Citation]:
    return citations.read_citations(ROOT)


def test_every_quote_and_every_number_of_a_claimed_clause_is_held(cited: list[Citation]) -> None:
    assert list(words.errors(CLAIMS, clauses.load(), cited, read_lists().words)) == []
