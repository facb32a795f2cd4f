"""What msgspec's errors say, in this program's words: what was found, and what was expected.

"Expected `int`, got `str` - at `$.code`"    ->  ("text at code", "a number")
"Object missing required field `opaque`"     ->  ("nothing at opaque", "a value")
"JSON is malformed: invalid character (byte 7)"  ->  ("no JSON at byte 7", the caller's word)
"""

import re
from typing import Final

import msgspec

_TYPE: Final = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<found>[^`]+)`(?: - at `(?P<path>[^`]+)`)?")
_RANGE: Final = re.compile(r"Expected `int` (?P<bound>[<>]=) (?P<limit>-?\d+)(?: - at `(?P<path>[^`]+)`)?")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`(?: - at `(?P<path>[^`]+)`)?")
_MALFORMED: Final = re.compile(r"JSON is malformed: .*\(byte (?P<at>\d+)\)")
_LARGE: Final = re.compile(r"Number out of range(?: - at `(?P<path>[^`]+)`)?")
_CUT: Final = "Input data was truncated"

_WORDS: Final = {
    "int": "a number",
    "float": "a fraction",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_BOUNDS: Final = {">=": "at least", "<=": "at most"}


def found_and_expected(error: msgspec.DecodeError, whole: str) -> tuple[str, str]:
    """Say what was found, and what was expected. Args:  whole: what the parsed bytes should be, where they are no JSON.

    >>> found_and_expected(msgspec.ValidationError("Expected `int | null`, got `str` - at `$.a.perm`"), "JSON")
    ('text at a.perm', 'a number or null')
    """
    said = str(error)
    if match := _TYPE.fullmatch(said):
        found, expected = (" or ".join(_WORDS.get(kind, kind) for kind in match[side].split(" | ")) for side in (2, 1))
        return _at(found, match["path"]), expected
    if match := _RANGE.fullmatch(said):
        return _at("a number out of its range", match["path"]), f"{_BOUNDS[match['bound']]} {match['limit']}"
    if match := _MISSING.fullmatch(said):
        return _at("nothing", f"{match['path'] or '$'}.{match['name']}"), "a value"
    if match := _LARGE.fullmatch(said):
        return _at("a number out of its range", match["path"]), whole
    if match := _MALFORMED.fullmatch(said):
        return f"no JSON at byte {match['at']}", whole
    return ("an end before that of the JSON" if said == _CUT else "no JSON"), whole


def _at(found: str, path: str | None) -> str:
    """`$.code` is the parser's name for the field code, and `$` for the whole."""
    place = (path or "").removeprefix("$").removeprefix(".")
    return f"{found} at {place}" if place else found
