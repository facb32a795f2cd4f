"""Extract the comments and docstrings of a source file, at their positions.

The result of `prose(text, suffix)` has the length of the text. It keeps comments and docstrings. Their delimiters (quotes, `#`
at the start of each line) become spaces, so that a sentence may be wrapped over lines. Code becomes NUL, so that no match of a
sentence can include code.

>>> prose('x = 1  # not "one",\\n       # but two\\ny = "#"\\n', ".py").replace("\\0", "_")
'_ _ _    not "one",\\n         but two\\n_ _ ___\\n'
>>> prose("A == B  \\\\* set once\\n(* by the\\n   first *)", ".tla").replace("\\0", "_")
'_ __ _     set once\\n   by the\\n   first   '
"""

import re
from collections.abc import Iterator
from typing import Final

_PYTHON: Final = re.compile(
    r'(?P<triple>"""(?:\\.|.)*?"""|\'\'\'(?:\\.|.)*?\'\'\')'
    r'|(?P<string>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<comment>#[^\n]*)",
    re.DOTALL,
)
_TLA: Final = re.compile(r'(?P<string>"[^"\n]*")|(?P<comment>\\\*[^\n]*|\(\*.*?\*\))', re.DOTALL)
_SCENARIO: Final = re.compile(r"^(?P<comment>#[^\n]*)", re.MULTILINE)
_LEXERS: Final = {".py": _PYTHON, ".tla": _TLA, ".txt": _SCENARIO}
SUFFIXES: Final = tuple(_LEXERS)

_LEADERS: Final = re.compile(r"^\\\*|^\(\*|\*\)$|^#+:?")
_PYTHON_NAME: Final = re.compile(r" *(?:async )?(?:def|class) (\w+)")
_TLA_NAME: Final = re.compile(r"^(\w+)(?:\([^)]*\))? *==", re.MULTILINE)


def prose(text: str, suffix: str) -> str:
    """Return the text of a `.py`, `.tla` or `.txt` (scenario) file with everything but comments and docstrings blanked out."""
    parts: list[str] = []
    end, last_code = 0, ""  # the last character of code distinguishes a docstring from other strings
    for token in _LEXERS[suffix].finditer(text):
        code = text[end : token.start()]
        parts.append(_blank(code))
        last_code = code.rstrip()[-1:] or last_code
        found, end = token.group(), token.end()
        starts_line = not text[text.rfind("\n", 0, token.start()) + 1 : token.start()].strip()
        if token.lastgroup == "comment":
            parts.append(_LEADERS.sub(lambda leader: " " * len(leader.group()), found))
        elif token.lastgroup == "triple" and starts_line and last_code in ("", ":"):
            parts.append(f"   {found[3:-3]}   ")
        else:
            parts.append(_blank(found))
            last_code = found[-1]
    parts.append(_blank(text[end:]))
    return "".join(parts)


def _blank(code: str) -> str:
    return re.sub(r"\S", "\0", code)


def name_at(text: str, suffix: str, position: int) -> str:
    """Return the function or class around a position in Python, or the TLA+ operator at it or after its comment; else "".

    >>> source = "class A:\\n    def f(\\n        self\\n    ):\\n        def g(): ...\\n        # here\\n# there\\n"
    >>> name_at(source, ".py", source.index("here")), name_at(source, ".py", source.index("there"))
    ('A.f', '')
    """
    start = text.rfind("\n", 0, position) + 1
    if suffix == ".tla":
        found = _TLA_NAME.search(text, start) if text.startswith(("\\*", "(*"), start) else _TLA_NAME.match(text, start)
        return found[1] if found else ""
    return ".".join(reversed(list(_around(text, start)))) if suffix == ".py" else ""


def _around(text: str, start: int) -> Iterator[str]:
    """Yield the names of the definitions around the line that begins at a position, innermost first."""
    line, *before = reversed(text[: text.find("\n", start) % (len(text) + 1)].splitlines())
    indent = len(line) - len(line.lstrip())
    for line in before:
        here = len(line) - len(line.lstrip())
        if line.strip() and here < indent and not line.lstrip().startswith((")", "]", "}")):  # not the end of a signature
            indent = here
            if found := _PYTHON_NAME.match(line):
                yield found[1]
