"""What a source says to people: its comments and docstrings, at the positions at which they stand.

`prose(text, suffix)` is as long as the text. Comments and docstrings stay; what opens, leads or closes them becomes spaces, so
that a sentence which is wrapped over lines is a sentence still; code becomes NUL, which no sentence can cross.

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
    """The text of a `.py`, `.tla` or `.txt` (scenario) file with all but its comments and docstrings blotted out."""
    parts: list[str] = []
    end, last_code = 0, ""  # the last character of code, by which a docstring is told from another string
    for token in _LEXERS[suffix].finditer(text):
        code = text[end : token.start()]
        parts.append(_blot(code))
        last_code = code.rstrip()[-1:] or last_code
        found, end = token.group(), token.end()
        starts_line = not text[text.rfind("\n", 0, token.start()) + 1 : token.start()].strip()
        if token.lastgroup == "comment":
            parts.append(_LEADERS.sub(lambda leader: " " * len(leader.group()), found))
        elif token.lastgroup == "triple" and starts_line and last_code in ("", ":"):
            parts.append(f"   {found[3:-3]}   ")
        else:
            parts.append(_blot(found))
            last_code = found[-1]
    parts.append(_blot(text[end:]))
    return "".join(parts)


def _blot(code: str) -> str:
    return re.sub(r"\S", "\0", code)


def name_at(text: str, suffix: str, position: int) -> str:
    """The function or class around a position of a Python source, or the TLA+ operator that a comment stands before; or "".

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
    """The names of the definitions around the line that begins at a position, from the inside out."""
    line, *before = reversed(text[: text.find("\n", start) % (len(text) + 1)].splitlines())
    indent = len(line) - len(line.lstrip())
    for line in before:
        here = len(line) - len(line.lstrip())
        if line.strip() and here < indent and not line.lstrip().startswith((")", "]", "}")):  # those end what opens above
            indent = here
            if found := _PYTHON_NAME.match(line):
                yield found[1]
