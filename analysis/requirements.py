"""What a campaign must reach, such as `transitions>=99%` or `divergences=0`, and whether it did.

Four requirements stand for every campaign: at least one run, a consistent log, no failed run, no impossible transition. A
given requirement with the name of one of these takes its place. The verdict is PASS if all are met.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from rocketmq_ha.analysis.errors import RequirementInvalid
from rocketmq_ha.analysis.glossary import TERMS

PASS: Final = "PASS"
FAIL: Final = "FAIL"

NAMES: Final = tuple(term.name for term in TERMS.values() if term.is_required_by_name)

_OPERATORS: Final[Mapping[str, Callable[[Fraction, Fraction], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM: Final = re.compile(r"\s*([^\s<>=]*)\s*([<>=]*)\s*([^\s%]*)\s*(%?)\s*")
_ALL: Final = 100  # per cent
_VALUE: Final = re.compile(r"\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that was found. `whole` is what it is a part of, or None if it is no part."""

    found: int
    whole: int | None = None


@dataclass(frozen=True, slots=True)
class Requirement:
    """A bound of one measure. `bound` is a number, or a percentage of the whole if `is_share`."""

    name: str
    sign: str  # one of _OPERATORS
    bound: str  # as it was written, without the percent sign
    is_share: bool = False

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound}{'%' if self.is_share else ''}"

    def is_met(self, measure: Measure) -> bool:
        """Compare exactly, without rounding. A part of nothing is 0 %.

        >>> Requirement("transitions", ">=", "99.5", True).is_met(Measure(995, 1000))
        True
        """
        found = Fraction(measure.found)
        if self.is_share:
            assert measure.whole is not None, self.name  # `parse` refuses a percentage of what has no whole
            found = 100 * found / measure.whole if measure.whole else Fraction(0)
        return _OPERATORS[self.sign](found, Fraction(self.bound))


@dataclass(frozen=True, slots=True)
class Result:
    """A requirement, and what was found."""

    requirement: Requirement
    measure: Measure
    is_given: bool  # by the user; the others stand for every campaign

    @property
    def is_met(self) -> bool:
        return self.requirement.is_met(self.measure)


STANDING: Final = (
    Requirement("runs", ">=", "1"),
    Requirement("inconsistent", "=", "0"),
    Requirement("divergences", "=", "0"),
    Requirement("impossible", "=", "0"),
)


def parse(text: str) -> Requirement:
    """Read a requirement: a name, one of >= <= = > <, and a number or a percentage.

    >>> str(parse("transitions >= 99.5 %"))
    'transitions>=99.5%'

    Raises: RequirementInvalid.
    """
    form = _FORM.fullmatch(text)
    name, sign, bound, percent = form.groups() if form else ("", "", "", "")
    if name not in NAMES:
        raise RequirementInvalid(text, f"the name {name!r}" if name else "no name", f"one of {', '.join(NAMES)}")
    if sign not in _OPERATORS:
        rest = text.strip().removeprefix(name).strip()
        raise RequirementInvalid(text, repr(rest) if rest else "nothing", f"one of {' '.join(_OPERATORS)} behind {name}")
    if not _VALUE.fullmatch(bound) or ("." in bound and not percent):
        raise RequirementInvalid(
            text, repr(bound) if bound else "nothing", f"a number or a percentage behind {sign}, such as 99 or 99.5%"
        )
    if percent and not TERMS[name].whole:
        shares = ", ".join(term for term in NAMES if TERMS[term].whole)
        raise RequirementInvalid(text, f"a percentage of {name}", f"a number; only these are parts of a whole: {shares}")
    if percent and Fraction(bound) > _ALL:
        raise RequirementInvalid(text, f"{bound}%", f"at most {_ALL}%, which is all {name}")
    return Requirement(name, sign, bound, bool(percent))


def check(required: Sequence[Requirement], options: Collection[str]) -> None:
    """Check that each requirement is of something that will be measured.

    Args: options: those that are given, such as --compare.
    Raises: RequirementInvalid.
    """
    for requirement in required:
        needed = TERMS[requirement.name].needs
        if needed and needed not in options:
            raise RequirementInvalid(
                str(requirement), f"no {needed}", f"{needed} too, without which there is no {requirement.name}"
            )


def judge(given: Sequence[Requirement], measures: Mapping[str, Measure]) -> tuple[Result, ...]:
    """Return a result for each given requirement, and for each standing one whose name is not among theirs.

    Several of one name must all be met. One that is given twice counts once.

    Raises: RequirementInvalid for a name that these tables do not measure.
    """
    for one in given:
        if one.name not in measures:
            raise RequirementInvalid(str(one), f"no table {TERMS[one.name].table}", f"one of {', '.join(measures)}")
    given = tuple(dict.fromkeys(given))
    names = {requirement.name for requirement in given}
    standing = [Result(one, measures[one.name], is_given=False) for one in STANDING if one.name not in names]
    return (*(Result(one, measures[one.name], is_given=True) for one in given), *standing)


def verdict(results: Sequence[Result]) -> str:
    return PASS if all(result.is_met for result in results) else FAIL


def found(measure: Measure) -> str:
    """Say what was found; the percentage is rounded down, so that 100 % means all.

    >>> found(Measure(1999, 2000)), found(Measure(12345))
    ('1,999 of 2,000, 99.95 %', '12,345')
    """
    if measure.whole is None:
        return f"{measure.found:,}"
    hundredths = measure.found * 10_000 // measure.whole if measure.whole else 0
    return f"{measure.found:,} of {measure.whole:,}, {hundredths // 100}.{hundredths % 100:02} %"
