"""What the claims quote of their clauses, compared with the clauses as they stand.

A quote is checked as a citation is (`rocketmq_ha.spec.citations`): its words must be in the clause. Each number, each number
word and each negation of a clause that has a claim must stand in a quote of a claim or of a citation, or in not_held.toml.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from registry import LISTS, Claim

from rocketmq_ha.spec.citations import Citation, plain, spans

# Also numbers within a word, as in i64; the ids of other clauses are no such words.
_TOKEN: Final = re.compile(
    r"HA-[A-Z]+-\d+|\b(?:\w*\d(?:[\w,.]*\w)?|two|three|four|five|ten|twice|not|neither|never|without)\b", re.IGNORECASE
)


def errors(
    claims: Iterable[Claim],
    sentences: Mapping[str, str],
    citations: Iterable[Citation],
    listed: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """What is wrong with the quotes, and each word of a clause that must be held and is not."""
    held: dict[str, set[tuple[int, int]]] = defaultdict(set)
    claimed: set[str] = set()
    for each in claims:
        for clause_id, quotes in each.quotes.items():
            sentence = plain(sentences.get(clause_id, ""))
            claimed.add(clause_id)
            if not quotes:
                yield f"{clause_id} ({each.name}): the claim quotes no words of the clause"
            for quote in quotes:
                found = spans(plain(quote), sentence)
                held[clause_id].update(found)
                if not found:
                    yield f'{clause_id} ({each.name}): "{quote}" is not in the clause, which is: {sentence}'
    for citation in citations:
        if citation.clause_id in claimed:
            held[citation.clause_id].update(spans(citation.quote, plain(sentences.get(citation.clause_id, ""))))
    for clause_id in sorted(claimed & set(sentences)):
        yield from _unheld(clause_id, plain(sentences[clause_id]), held[clause_id], listed.get(clause_id, {}))
    for clause_id in sorted(set(listed) - claimed):
        yield f"{LISTS.name}: {clause_id} has words that no claim holds, but no claim"


def _unheld(clause_id: str, sentence: str, held: set[tuple[int, int]], listed: Mapping[str, str]) -> Iterator[str]:
    tokens = [found for found in _TOKEN.finditer(sentence) if not found[0].startswith("HA-")]
    unheld = [found for found in tokens if not _is_in(found, held)]
    excused: set[tuple[int, int]] = set()
    for words, reason in listed.items():
        found_spans = spans(plain(words), sentence)
        if not found_spans:
            yield f'{LISTS.name}: {clause_id} "{words}" is not in the clause, which is: {sentence}'
        elif not any(_is_in(found, found_spans) for found in unheld):
            yield f'{LISTS.name}: {clause_id} "{words}" has no number or negation that is not held already'
        if not reason.strip():
            yield f'{LISTS.name}: {clause_id} "{words}" has no reason'
        excused.update(found_spans)
    for found in unheld:
        if not _is_in(found, excused):
            near = sentence[max(0, found.start() - 30) : found.end() + 20]
            yield f'{clause_id}: no claim and no citation quotes "{found[0]}" in "{near}"'


def _is_in(token: re.Match[str], quoted: Iterable[tuple[int, int]]) -> bool:
    return any(start <= token.start() and token.end() <= end for start, end in quoted)
