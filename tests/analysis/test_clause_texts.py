"""The text of each clause of this specification on the page."""

import re

from kit.html_pages import Page
from rocketmq_ha.analysis import clause_texts, report
from rocketmq_ha.analysis.schema import load_possible
from rocketmq_ha.spec import clauses


def test_every_clause_of_the_specification_has_its_text_its_file_and_what_holds_it() -> None:
    texts = clause_texts.build(load_possible(), ["HA-X-1"])
    assert [one.clause for one in texts] == [*clauses.load(), "HA-X-1"]
    for one in texts[:-1]:
        assert one.sentence == clauses.load()[one.clause]
        assert re.fullmatch(r"spec/\d+-[a-z-]+\.md", one.file), one
        assert one.worlds or one.tests or one.reason, one.clause
    assert (texts[-1].sentence, texts[-1].file) == ("", "")


def test_every_sentence_is_sound_html_without_marks() -> None:
    for one in clause_texts.build(load_possible(), []):
        for text in (one.sentence, one.reason):
            html = str(report.prose(text))
            Page(f"<!doctype html><p>{html}</p>")
            assert not re.search(r"[*`]|\]\(", re.sub(r"<code>.*?</code>", "", html)), one.clause
