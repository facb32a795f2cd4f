"""Each claim quotes what it holds, and a clause that is changed in a number or a negation is noticed."""

from pathlib import Path

import pytest
import words
from all_claims import CLAIMS
from registry import read_lists

from rocketmq_ha.spec import citations, clauses
from rocketmq_ha.spec.citations import Citation

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cited() -> list[Citation]:
    return citations.read_citations(ROOT)


def test_every_quote_and_every_number_of_a_claimed_clause_is_held(cited: list[Citation]) -> None:
    assert list(words.errors(CLAIMS, clauses.load(), cited, read_lists().words)) == []


@pytest.mark.parametrize(
    ("clause_id", "words_now", "planted", "error"),
    [
        ("HA-MD-18", "does not count itself", "counts itself", "HA-MD-18 (a_frame_is_a_length_a_type_a_header_and_a_body): "),
        ("HA-W-5", "32 KiB", "64 KiB", "HA-W-5 (a_batch_is_32_kib_by_default): "),
        ("HA-ST-34", "0x04 or 0x0C", "0x04 or 0x08", "HA-ST-34 (a_message_of_an_open_transaction_is_in_no_queue): "),
        ("HA-R-18", "code 104", "code 104 and not 105", 'HA-R-18: no claim and no citation quotes "not" in '),
        ("HA-R-30", "27 or 28", "27 or 29", 'not_held.toml: HA-R-30 "for filter data, 27 or 28" is not in the clause'),
    ],
)
def test_a_planted_edit_is_noticed(cited: list[Citation], clause_id: str, words_now: str, planted: str, error: str) -> None:
    sentences = dict(clauses.load())
    assert words_now in sentences[clause_id]
    sentences[clause_id] = sentences[clause_id].replace(words_now, planted)
    told = list(words.errors(CLAIMS, sentences, cited, read_lists().words))
    assert any(each.startswith(error) for each in told), told


def test_a_list_of_words_that_is_wrong_is_told(cited: list[Citation]) -> None:
    listed = {**read_lists().words, "HA-R-18": {"code 104": "held"}, "HA-W-8": {"a word": "no claim"}}
    told = list(words.errors(CLAIMS, clauses.load(), cited, listed))
    assert told == [
        'not_held.toml: HA-R-18 "code 104" has no number or negation that is not held already',
        "not_held.toml: HA-W-8 has words that no claim holds, but no claim",
    ]
