"""The JSON object and the JUnit XML of a report, from tables written by hand."""

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kit.report_tables import POSSIBLE, Rows, arrow, more_tables, tables
from rocketmq_ha.analysis import exports, requirements, view
from rocketmq_ha.analysis.view import View


def build(*required: str, **changes: Rows) -> View:
    made = arrow(tables())
    for name, rows in changes.items():
        made[name] = arrow({name: rows})[name] if rows else made[name].slice(0, 0)
    return view.build(made, POSSIBLE, [], [requirements.parse(text) for text in required])


def test_the_json_object_has_the_verdict_and_all_behind_it() -> None:
    text = exports.to_json(build("transitions>=99%", "runs>=71"))
    assert text.endswith("}\n")
    document = json.loads(text)
    assert list(document) == [
        *("version", "verdict", "reasons", "requirements", "worlds", "figures", "failures", "impossible", "comparison"),
        "never_seen",
    ]
    assert document["worlds"] is None  # no table of them
    assert (document["version"], document["verdict"]) == (1, "FAIL")
    assert document["reasons"] == [
        "transitions>=99% is not met: found 3 of 7, 42.85 %",
        "4 of 71 runs failed, with 3 signatures",
        "1 impossible transition was seen",
    ]
    assert document["requirements"][:3] == [
        {"requirement": "transitions>=99%", "name": "transitions", "is_given": True, "is_met": False, "found": 3, "of": 7},
        {"requirement": "runs>=71", "name": "runs", "is_given": True, "is_met": True, "found": 71},
        {"requirement": "inconsistent=0", "name": "inconsistent", "is_given": False, "is_met": True, "found": 0, "of": 71},
    ]
    assert document["figures"] == {
        "transitions": {"found": 3, "of": 7},
        "never_seen": {"found": 4, "of": 7},
        "impossible": {"found": 1},
        "clauses": {"found": 3, "of": 4},
        "divergences": {"found": 4, "of": 71},
        "signatures": {"found": 3},
        "inconsistent": {"found": 0, "of": 71},
        "runs": {"found": 71},
        "steps": {"found": 7001},
        "messages": {"found": 108},
        "bytes": {"found": 114_097},
    }
    assert document["failures"] == [{key: row[key] for key in exports.FAILURE_KEYS} for row in tables()["divergences"]]
    assert document["comparison"] is None
    step = {"machine": "store", "from_state": "open", "event": "put", "to_state": "open", "profiles": ["hardened", "third"]}
    assert document["never_seen"]["transitions"][1] == step
    assert len(document["never_seen"]["transitions"]) == 3
    assert document["never_seen"]["clauses"] == [{"clause": "HA-G-1", "sentence": "*One*."}]
    assert document["impossible"] == [
        {"machine": "store", "from_state": "empty", "event": "recover", "to_state": "gone", "profiles": ["hardened"]}
    ]


def test_the_json_object_sums_up_a_comparison() -> None:
    document = json.loads(exports.to_json(build(**more_tables())))
    assert document["comparison"] == {
        "lost": 2,
        "lost_or_too_few_runs": 3,
        "new_failures": [{"verdict": "error", "signature": "c/x/y"}, {"verdict": "divergence", "signature": "zz/x/y"}],
        "new_coverage": {"transition": 1, "clause": 1, "pair": 1},
        "rates": more_tables()["rates"],
    }
    assert document["figures"]["pairs"] == {"found": 15, "of": 30}
    assert document["figures"]["lost"] == {"found": 2}


# What the JUnit schema of Jenkins' xunit plugin (junit-10.xsd) allows, as far as a report uses it: element -> (the attributes
# that it must have, those that it may have, its children).
SUITE = ("group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url")
ALLOWED: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, set(SUITE), {"testsuite", "properties", "testcase", "system-out"}),
    "testcase": ({"name"}, {"time", "classname", "group"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
}


def check_junit(text: str) -> ET.Element:
    """Check the document by ALLOWED, and the counts, which the schema leaves open. Returns: its root."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional, children = ALLOWED[element.tag]
        assert required <= set(element.keys()) <= required | optional, element.tag
        assert {child.tag for child in element} <= children
        if element.tag in ("testsuite", "testsuites"):
            for name, path in (("tests", ".//testcase"), ("failures", ".//failure"), ("errors", ".//error")):
                assert element.get(name) == str(len(element.findall(path)))
            assert not (element.text or "").strip()
    return root


def cases(suite: ET.Element) -> list[tuple[Any, ...]]:
    """(class name, name, tag of what is wrong, its type, its message) of each test case."""
    found = []
    for case in suite:
        told = [(one.tag, one.get("type"), one.get("message")) for one in case] or [(None, None, None)]
        assert len(told) == 1
        found.append((case.get("classname"), case.get("name"), *told[0]))
    return found


def test_junit_has_a_case_for_each_requirement_and_each_signature() -> None:
    root = check_junit(exports.to_junit(build("transitions>=99%")))
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root] == [
        ("requirements", "5", "3", "0"),
        ("failures", "3", "2", "1"),
    ]
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["8", "5", "1"]
    requirement, failure = "requirements", "failure"
    assert cases(root[0]) == [
        (requirement, "transitions>=99%", failure, "requirement", "found 3 of 7, 42.85 %, required transitions>=99%"),
        (requirement, "runs>=1", None, None, None),
        (requirement, "inconsistent=0", None, None, None),
        (requirement, "divergences=0", failure, "requirement", "found 4 of 71, 5.63 %, required divergences=0"),
        (requirement, "impossible=0", failure, "requirement", "found 1, required impossible=0"),
    ]
    assert cases(root[1]) == [
        ("failures.divergence", "b/x/y", "failure", "divergence", "divergence in 2 of 71 runs: replay 55"),
        ("failures.divergence", "a/x/y", "failure", "divergence", "divergence in 1 of 71 runs: replay 56"),
        ("failures.error", "c/x/y", "error", "error", "error in 1 of 71 runs: replay 57"),
    ]
    assert root[1][0][0].text == "two of it\nsmallest: run 55, classic, 17 operations, fails at operation 16\nreplay 55"


@pytest.mark.parametrize(
    ("verdict", "tag"),
    [
        *(("divergence", "failure"), ("invariant", "failure"), ("error", "error"), ("timeout", "error"), ("memory", "error")),
        ("crash", "error"),
    ],
)
def test_what_kept_a_run_from_its_end_is_an_error(verdict: str, tag: str) -> None:
    root = check_junit(exports.to_junit(build(divergences=[dict(tables()["divergences"][0], verdict=verdict)])))
    assert [one.tag for one in root[1][0]] == [tag]


def test_a_campaign_without_failures_has_an_empty_suite() -> None:
    root = check_junit(exports.to_junit(build(divergences=[])))
    assert (root[1].get("name"), root[1].get("tests")) == ("failures", "0")


def test_text_that_no_xml_can_hold_is_replaced_in_both() -> None:
    evil = "<a>&\"'\x00\x1b\ufffe]]>\n"
    failure = dict(tables()["divergences"][0], signature=evil, detail=evil, replay=evil, verdict=evil, profile=evil)
    page = build(divergences=[failure])
    root = check_junit(exports.to_junit(page))
    shown = "<a>&\"'\ufffd\ufffd\ufffd]]>"
    assert root[1][0].get("name") == shown + "\n"
    assert (root[1][0][0].text or "").startswith(shown)
    assert json.loads(exports.to_json(page))["failures"][0]["signature"].startswith("<a>&\"'")


def test_the_same_tables_give_the_same_bytes() -> None:
    assert exports.to_json(build("runs>=1")) == exports.to_json(build("runs>=1"))
    assert exports.to_junit(build("runs>=1")) == exports.to_junit(build("runs>=1"))
