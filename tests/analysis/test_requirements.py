"""What `--require` takes, what it refuses in one line, and when a bound is met."""

from pathlib import Path

import pytest

from rocketmq_ha.analysis import requirements
from rocketmq_ha.analysis.errors import RequirementInvalid
from rocketmq_ha.analysis.glossary import TERMS
from rocketmq_ha.analysis.requirements import Measure, Requirement, found, judge, parse

MEASURES = {name: Measure(0) for name in requirements.NAMES} | {"runs": Measure(3)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("transitions>=99%", Requirement("transitions", ">=", "99", True)),
        (" transitions  >= 99.5 % ", Requirement("transitions", ">=", "99.5", True)),
        ("divergences=0", Requirement("divergences", "=", "0")),
        ("never_seen<10", Requirement("never_seen", "<", "10")),
        ("runs>0", Requirement("runs", ">", "0")),
        ("impossible<=007", Requirement("impossible", "<=", "007")),
    ],
)
def test_a_requirement_is_a_name_a_sign_and_a_number(text: str, expected: Requirement) -> None:
    assert parse(text) == expected


NAMES = (
    "transitions, never_seen, impossible, clauses, divergences, signatures, inconsistent, runs, steps, messages, bytes, "
    "pairs, starved, quarantine, lost, new_failures, new_coverage"
)
A_NUMBER = "a number or a percentage behind {}, such as 99 or 99.5%"


@pytest.mark.parametrize(
    ("text", "found_", "expected"),
    [
        ("", "no name", f"one of {NAMES}"),
        ("transitions>=101%", "101%", "at most 100%, which is all transitions"),
        ("clauses<100.01%", "100.01%", "at most 100%, which is all clauses"),
        (">=3", "no name", f"one of {NAMES}"),
        ("tranistions>=99%", "the name 'tranistions'", f"one of {NAMES}"),
        ("Runs>=1", "the name 'Runs'", f"one of {NAMES}"),
        ("runs 3>=3", "'3>=3'", "one of >= <= = > < behind runs"),
        ("runs", "nothing", "one of >= <= = > < behind runs"),
        ("runs=>3", "'=>3'", "one of >= <= = > < behind runs"),
        ("runs==3", "'==3'", "one of >= <= = > < behind runs"),
        ("runs>=", "nothing", A_NUMBER.format(">=")),
        ("runs>=-3", "'-3'", A_NUMBER.format(">=")),
        ("runs>=1e3", "'1e3'", A_NUMBER.format(">=")),
        ("runs>=1,000", "'1,000'", A_NUMBER.format(">=")),
        ("runs>=2.5", "'2.5'", A_NUMBER.format(">=")),
        ("transitions>=.5%", "'.5'", A_NUMBER.format(">=")),
        ("transitions>=%", "nothing", A_NUMBER.format(">=")),
        ("runs>=٣", "'٣'", A_NUMBER.format(">=")),
        (
            "runs>=99%",
            "a percentage of runs",
            "a number; only these are parts of a whole: transitions, never_seen, clauses, divergences, inconsistent, pairs",
        ),
    ],
)
def test_anything_else_is_refused_with_what_was_found_and_what_exists(text: str, found_: str, expected: str) -> None:
    with pytest.raises(RequirementInvalid) as caught:
        parse(text)
    assert caught.value.message == f"--require {text!r}: found {found_}, expected {expected}"


@pytest.mark.parametrize(
    ("text", "measure", "is_met"),
    [
        *(("runs>=3", Measure(n), n >= 3) for n in (2, 3, 4)),
        *(("runs<=3", Measure(n), n <= 3) for n in (2, 3, 4)),
        *(("runs=3", Measure(n), n == 3) for n in (2, 3, 4)),
        *(("runs>3", Measure(n), n > 3) for n in (2, 3, 4)),
        *(("runs<3", Measure(n), n < 3) for n in (2, 3, 4)),
        ("transitions>=99%", Measure(277, 280), False),  # 98.93 %
        ("transitions>=99%", Measure(278, 280), True),  # 99.29 %
        ("transitions>=99%", Measure(99, 100), True),
        ("transitions>=99.9%", Measure(9_989_999_999, 10_000_000_000), False),
        ("transitions=100%", Measure(280, 280), True),
        ("transitions>=1%", Measure(0, 0), False),  # a part of nothing is 0 %
        ("divergences<=0%", Measure(0, 0), True),
        ("transitions>=99", Measure(99, 280), True),
    ],
    ids=str,
)
def test_a_bound_is_met_exactly(text: str, measure: Measure, is_met: bool) -> None:
    assert parse(text).is_met(measure) is is_met


def test_four_requirements_stand_for_every_campaign() -> None:
    results = judge([], MEASURES)
    assert [(str(one.requirement), one.is_given, one.is_met) for one in results] == [
        ("runs>=1", False, True),
        ("inconsistent=0", False, True),
        ("divergences=0", False, True),
        ("impossible=0", False, True),
    ]
    assert requirements.verdict(results) == "PASS"
    for name, worse in (("runs", 0), ("inconsistent", 1), ("divergences", 1), ("impossible", 1)):
        assert requirements.verdict(judge([], MEASURES | {name: Measure(worse)})) == "FAIL"


def test_a_given_requirement_replaces_the_standing_ones_of_its_name_and_no_other() -> None:
    results = judge(
        [parse("divergences<=2"), parse("divergences>0"), parse("steps>=0")], MEASURES | {"divergences": Measure(1)}
    )
    assert [(str(one.requirement), one.is_given) for one in results] == [
        ("divergences<=2", True),
        ("divergences>0", True),
        ("steps>=0", True),
        ("runs>=1", False),
        ("inconsistent=0", False),
        ("impossible=0", False),
    ]
    assert requirements.verdict(results) == "PASS"
    assert (
        requirements.verdict(judge([parse("divergences<=2"), parse("divergences=0")], MEASURES | {"divergences": Measure(1)}))
        == "FAIL"
    )


def test_a_requirement_that_is_given_twice_counts_once() -> None:
    results = judge([parse("steps>=0"), parse("steps >= 0"), parse("steps>=1")], MEASURES)
    assert [str(one.requirement) for one in results if one.is_given] == ["steps>=0", "steps>=1"]


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        (Measure(1234), "1,234"),
        (Measure(1999, 2000), "1,999 of 2,000, 99.95 %"),
        (Measure(199_999, 200_000), "199,999 of 200,000, 99.99 %"),  # never rounded up to all
        (Measure(1, 1000), "1 of 1,000, 0.10 %"),
        (Measure(1, 2000), "1 of 2,000, 0.05 %"),
        (Measure(7, 7), "7 of 7, 100.00 %"),
        (Measure(0, 0), "0 of 0, 0.00 %"),
    ],
)
def test_what_was_found_is_a_number_or_a_part(measure: Measure, text: str) -> None:
    assert found(measure) == text


def test_the_documentation_lists_every_name_as_the_page_has_it() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    listed = text[text.index("<!-- names -->") : text.index("<!-- end of names -->")].splitlines()[3:]
    terms = [TERMS[name] for name in requirements.NAMES]
    needs = {term.name: f" (with `{term.needs}`)" if term.needs else "" for term in terms}
    assert listed == [f"| `{term.name}` | {term.words}{needs[term.name]} | {term.whole} |" for term in terms]
