"""The form of the page: sound HTML, links that lead somewhere, numbers that are defined, what keyboards and readers need."""

import re
from importlib import resources
from itertools import pairwise

import pytest

from kit.html_pages import Element, Page
from kit.report_tables import POSSIBLE, Rows, arrow, more_tables, tables
from rocketmq_ha.analysis import report, requirements
from rocketmq_ha.analysis.glossary import TERMS

EVIL = "<script>alert('x')</script>\x00\x1b"


def every() -> dict[str, Rows]:
    return tables() | more_tables()


@pytest.fixture(scope="module")
def text() -> str:
    asked = [requirements.parse("transitions>=99%")]
    return report.build(arrow(every()), POSSIBLE, [{"seed": 3}, {"seed": 4}], asked)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_ids_are_unique_and_every_link_has_its_target(page: Page, text: str) -> None:
    assert len(page.ids) == len(set(page.ids))
    links = [one.attributes["href"] for one in page.elements if "href" in one.attributes]
    assert all(link.startswith("#") for link in links)
    targets = {link[1:] for link in links} | {one.attributes.get("aria-labelledby", "main") for one in page.elements}
    targets |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(page.ids)


def test_the_page_loads_nothing_and_runs_nothing(page: Page, text: str) -> None:
    assert not {one.tag for one in page.elements} & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    names = {name for one in page.elements for name in one.attributes}
    assert not [name for name in names if name in ("src", "srcset", "action", "ping") or name.startswith("on")]
    assert not re.search(r"https?:|@import|javascript:", text)


def test_every_section_stands_in_the_list_of_sections(page: Page) -> None:
    (nav,) = page.of("nav")
    listed = [(one.attributes["href"], one.text) for one in nav.all("a")]
    found = []
    for heading in page.of("h2"):
        count = "".join(one.text for one in heading.all("small"))
        found.append((f"#{heading.attributes['id']}", heading.text.removesuffix(count).strip()))
    assert listed == found
    assert [one.attributes.get("aria-labelledby") for one in page.of("section")] == [link[1:] for link, _ in listed]


def test_headings_come_in_order_and_skip_no_level(page: Page) -> None:
    levels = [int(one.tag[1]) for one in page.elements if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_a_keyboard_gets_to_the_verdict_at_once_and_into_all_that_scrolls(page: Page) -> None:
    first = page.of("a")[0]
    assert (first.attributes["href"], first.attributes["class"]) == ("#main", "skip")
    assert page.by_id("main").tag == "main"
    scrolling = [one for one in page.elements if one.attributes.get("class") == "scroll"]
    assert scrolling
    assert {(one.attributes["tabindex"], one.attributes["role"]) for one in scrolling} == {("0", "region")}
    labels = [one.attributes["aria-label"] for one in scrolling]
    assert len(labels) == len(set(labels))


def test_every_table_scrolls_within_itself_and_has_a_caption_and_scopes(page: Page) -> None:
    assert len(page.of("table")) > 8
    for table in page.of("table"):
        assert table.parent is not None
        assert table.parent.attributes["class"] == "scroll"
        assert [one.tag for one in table.children] == ["caption", "thead", "tbody"]
        caption, head, body = table.children
        assert caption.text
        (row,) = head.children
        width = len(row.children)
        assert {one.attributes.get("scope") for one in row.all("th")} == {"col"}
        for line in body.children:
            assert len(line.children) == width, table.children[0].text
            assert line.children[0].attributes.get("scope") == "row"
            assert {one.tag for one in line.children[1:]} == {"td"}


def is_defined(element: Element) -> bool:
    """Tell whether the element links to a definition, stands within a link to one, or in a table whose caption has one."""
    if element.attributes.get("href", "").startswith("#def-"):
        return True
    return element.parent is not None and is_defined(element.parent)


def test_every_column_of_numbers_links_to_a_definition_by_its_head_its_row_or_its_caption(page: Page) -> None:
    """Those of a matrix are defined in the key above it."""
    for table in page.of("table"):
        caption, head, body = table.children
        by_caption = any(is_defined(link) for link in caption.all("a"))
        if by_caption or table.attributes.get("class") == "matrix":
            continue
        defined = [any(is_defined(link) for link in one.all("a")) for one in head.children[0].children]
        for line in body.children:
            by_row = any(is_defined(link) for link in line.children[0].all("a"))
            for at, one in enumerate(line.children[1:], start=1):
                is_number = "num" in one.attributes.get("class", "").split()
                assert not is_number or defined[at] or by_row, (caption.text, one.text)
    key = next(one for one in page.elements if one.attributes.get("class") == "key")
    assert [link.attributes["href"] for link in key.all("a")] == ["#def-cell"]


def test_every_number_of_a_heading_a_tile_and_the_verdict_links_to_its_definition(page: Page) -> None:
    verdict = next(one for one in page.elements if one.attributes.get("class", "").startswith("verdict"))
    for one in [*page.of("small"), verdict]:
        if one.within("h2") or one.within("h3") or one is verdict:
            linked = "".join(link.text for link in one.all("a") if is_defined(link))
            assert set(re.findall(r"\d+", one.text)) == set(re.findall(r"\d+", linked)), one.text
    tiles = next(one for one in page.elements if one.attributes.get("class") == "tiles")
    assert len(tiles.children) == 8
    assert all(is_defined(tile.children[0].all("a")[0]) for tile in tiles.children)


def test_every_definition_names_a_column_that_its_table_has(page: Page) -> None:
    made = arrow(every())
    shown = [name.removeprefix("def-") for name in page.ids if name.startswith("def-")]
    assert shown == list(TERMS)  # each table of the terms is there
    for term in TERMS.values():
        assert set(term.columns) <= set(made[term.table].column_names), term.name
        assert term.columns
        entry = page.by_id(f"def-{term.name}")
        assert entry.text.startswith(term.words)
        assert f"{term.table}.parquet: {', '.join(term.columns)}" in entry.text


def test_every_definition_is_used(page: Page) -> None:
    used = {one.attributes["href"].removeprefix("#def-") for one in page.of("a") if is_defined(one)}
    assert set(TERMS) - used == set()


def test_every_clause_links_to_its_text(page: Page) -> None:
    named = [one for one in page.of("code") if re.fullmatch(r"HA-[A-Z]+-\d+", one.text) and not one.within("dt")]
    named += [one for one in page.of("code") if one.within("dt") and one.within("a")]
    assert len(named) > 30
    for one in named:
        assert one.parent is not None
        assert one.parent.attributes.get("href") == f"#clause-{one.text}"
    texts = [one for one in page.elements if one.attributes.get("id", "").startswith("clause-")]
    assert [one.attributes["id"] for one in texts] == [
        *(
            "clause-HA-M-2",
            "clause-HA-S-4",
            "clause-HA-S-14",
            "clause-HA-G-1",
            "clause-HA-R-1",
            "clause-HA-R-2",
            "clause-HA-X-1",
        ),
    ]
    spec = resources.files("rocketmq_ha.spec")
    for one in texts[:-1]:
        (file,) = [code.text for code in one.all("code") if code.text.startswith("spec/")]
        clause = one.attributes["id"].removeprefix("clause-")
        assert f"**{clause}.**" in (spec / file.removeprefix("spec/")).read_text(encoding="utf-8")


def test_every_failure_has_its_replay_line_and_its_steps(page: Page) -> None:
    articles = page.of("article")
    assert [one.attributes["id"] for one in articles] == ["failure-1", "failure-2", "failure-3"]
    assert [[pre.text for pre in one.all("pre")] for one in articles] == [["replay 55"], ["replay 56"], ["replay 57"]]
    assert [len(one.all("details")) for one in articles] == [1, 0, 1]  # the table has no step of run 56
    bad = [one for one in articles[0].all("tr") if one.attributes.get("class") == "bad-row"]
    assert [one.children[0].text for one in bad] == ["31"]


def test_hostile_text_is_escaped_wherever_it_stands() -> None:
    made = every()
    for name, rows in made.items():
        for number, row in enumerate(rows):
            rows[number] = {
                key: EVIL if isinstance(value, str) and key not in ("status", "kind") else value for key, value in row.items()
            }
        if name == "failing_steps":
            rows[:] = [dict(row, clauses=[EVIL]) for row in rows]
    text = report.build(arrow(made), POSSIBLE, [{"seed": EVIL, EVIL: ["\ud800", EVIL]}])
    page = Page(text)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x00" not in text
    assert "\x1b" not in text
    assert text.encode()  # no half of a surrogate pair
    assert len(page.ids) == len(set(page.ids))


def test_the_same_tables_give_the_same_bytes(text: str) -> None:
    asked = [requirements.parse("transitions>=99%")]
    assert report.build(arrow(every()), POSSIBLE, [{"seed": 3}, {"seed": 4}], asked) == text


def test_the_style_has_both_themes_a_phone_and_paper(text: str) -> None:
    style = text[text.index("<style>") : text.index("</style>")]
    assert style.count("{") == style.count("}")
    for query in (
        "@media screen and (prefers-color-scheme: dark)",
        "@media (max-width: 40rem)",
        "@media print",
        ":focus-visible",
    ):
        assert query in style, query
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", text))
    declared = set(re.findall(r"(--[a-z0-9-]+):", style))
    assert used <= declared | {"--fade"}
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)")[:2]
    variables = set(re.findall(r"(--[a-z0-9-]+):", light))
    assert variables == set(re.findall(r"(--[a-z0-9-]+):", dark.split("* {")[0]))
