"""The table below HA-R-26 has every outcome, and the codes that golden answers have or that the source has."""

import pull_outcomes
import pytest
from claims_routes import LOOKED_INTO_QUEUE
from specimens import Golden

pytestmark = pytest.mark.xdist_group("golden-claims")  # every golden vector is read once

# Outcomes of no golden answer, as PullMessageProcessor.processRequest of 4.9.8 has them; the last one as 5.3.3 has it, where
# composeResponseHeader has them all.
UNSEEN = {
    ("MESSAGE_WAS_REMOVING", True): 20,
    ("MESSAGE_WAS_REMOVING", False): 20,
    ("NO_MATCHED_LOGIC_QUEUE", True): 19,
    ("NO_MATCHED_LOGIC_QUEUE", False): 21,
    ("OFFSET_FOUND_NULL", True): 19,
    ("OFFSET_FOUND_NULL", False): 19,
    ("OFFSET_RESET", True): 21,
    ("OFFSET_RESET", False): 21,
}


@pytest.fixture(scope="module")
def seen(goldens: list[Golden]) -> dict[tuple[str, bool], int]:
    """What masters answered: the code by the outcome that the remark names, and whether offset 0 was asked for."""
    return {
        (exchange.answer.header["remark"], exchange.request.fields["queueOffset"] == "0"): exchange.answer.header["code"]
        for golden in goldens
        for exchange in golden.exchanges
        if exchange.asks(11, to="master") and exchange.answer and exchange.answer.header["code"] in LOOKED_INTO_QUEUE
    }


def test_the_table_has_the_codes_of_golden_answers_and_of_the_source(seen: dict[tuple[str, bool], int]) -> None:
    told = pull_outcomes.read()
    assert not set(seen) & set(UNSEEN)
    assert {key: told.get(key) for key in seen} == seen
    assert {key: told.get(key) for key in UNSEEN} == UNSEEN
    assert {name for name, _ in told} == {name for name, _ in [*seen, *UNSEEN]}


def test_a_code_that_moves_in_the_table_is_read() -> None:
    text = pull_outcomes.CHAPTER.read_text(encoding="utf-8")
    planted = text.replace(
        "| NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING | 20 |", "| NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING | 19 |"
    )
    told, now = pull_outcomes.in_text(planted), pull_outcomes.read()
    assert {name: told[name, at] for name, at in told if told[name, at] != now[name, at]} == {
        "NO_MATCHED_MESSAGE": 19,
        "MESSAGE_WAS_REMOVING": 19,
    }
