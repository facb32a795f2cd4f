"""The page for other programs: one JSON object, and JUnit XML, which build servers show. docs/reports.md describes both."""

import json
from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

from rocketmq_ha.analysis.report import printable
from rocketmq_ha.analysis.requirements import Result, found
from rocketmq_ha.analysis.view import NamedTransition, View
from rocketmq_ha.spec.event_log import VERDICT_DIVERGENCE, VERDICT_INVARIANT

JSON_VERSION: Final = 1  # raised when a key gets another meaning or goes; new keys do not raise it
FAILURE_KEYS: Final = (*("verdict", "signature", "n", "smallest_run", "n_ops", "failing_op", "profile", "detail", "replay"),)


def to_json(page: View) -> str:
    """Return the page's answer as one JSON object, indented, with a newline at the end."""
    document = {
        "version": JSON_VERSION,
        "verdict": page.verdict,
        "reasons": [reason.words for reason in page.reasons],
        "requirements": [_requirement(result) for result in page.requirements],
        "worlds": page.worlds_measured,
        "figures": {name: _without_none(found=measure.found, of=measure.whole) for name, measure in page.measures.items()},
        "failures": [{key: failure.row[key] for key in FAILURE_KEYS} for failure in page.failures],
        "impossible": [_transition(one) for one in page.impossible],
        "comparison": _comparison(page),
        "never_seen": {
            "transitions": [_transition(one) for _, group in page.never_seen for one in group],
            "clauses": [{"clause": row["clause"], "sentence": row["sentence"]} for row in page.clauses_never],
        },
    }
    return printable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _comparison(page: View) -> Mapping[str, Any] | None:
    new = page.comparison
    if new is None:
        return None
    return {
        "lost": new.lost.number,
        "lost_or_too_few_runs": new.lost.number + new.too_few.number,
        "new_failures": [{"verdict": row["verdict"], "signature": row["signature"]} for row in new.new_failures],
        "new_coverage": dict(new.gained_by_kind),
        "rates": [{key: row[key] for key in ("measure", "before", "now", "ratio")} for row in new.rates],
    }


def _requirement(result: Result) -> Mapping[str, Any]:
    requirement, measure = result.requirement, result.measure
    return _without_none(
        requirement=str(requirement),
        name=requirement.name,
        is_given=result.is_given,
        is_met=result.is_met,
        found=measure.found,
        of=measure.whole,
    )


def _transition(one: NamedTransition) -> Mapping[str, Any]:
    return {
        "machine": one.actor,
        "from_state": one.from_state,
        "event": one.event,
        "to_state": one.to_state,
        "profiles": list(one.profiles),
    }


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def to_junit(page: View) -> str:
    """Return JUnit XML with two suites: a test case for each requirement, and a failed one for each signature of a failure.

    A divergence and a broken invariant are a `failure`; what kept a run from its end is an `error`. There are no times and no
    dates: the same log gives the same bytes.
    """
    root = ET.Element("testsuites", name="rocketmq-ha report")
    required = ET.SubElement(root, "testsuite", name="requirements")
    for result in page.requirements:
        case = ET.SubElement(required, "testcase", classname="requirements", name=str(result.requirement))
        if not result.is_met:
            message = f"found {found(result.measure)}, required {result.requirement}"
            ET.SubElement(case, "failure", type="requirement", message=message).text = message
    failed = ET.SubElement(root, "testsuite", name="failures")
    for failure in page.failures:
        row = failure.row
        case = ET.SubElement(failed, "testcase", classname=f"failures.{row['verdict']}", name=row["signature"])
        kind = "failure" if row["verdict"] in (VERDICT_DIVERGENCE, VERDICT_INVARIANT) else "error"
        message = f"{row['verdict']} in {row['n']:,} of {page.figures.runs:,} runs: {row['replay']}"
        text = (
            f"{row['detail']}\nsmallest: run {row['smallest_run']}, {row['profile']}, {row['n_ops']} operations, "
            f"fails at operation {row['failing_op']}\n{row['replay']}"
        )
        ET.SubElement(case, kind, type=row["verdict"], message=message).text = text
    for suite in (required, failed, root):
        for name, path in (("tests", ".//testcase"), ("failures", ".//failure"), ("errors", ".//error")):
            suite.set(name, str(len(suite.findall(path))))
    ET.indent(root)
    return printable('<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n")
