"""Every link of every document leads somewhere, and every path in backquotes exists."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kit.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:(?: {4}|\t)[^\n]*(?:\n|\Z)|\n(?= {4}))+")
# Files that exist only at run time or in a store; spec/ may also name files of RocketMQ's source.
MADE = ("build/", ".venv/", "commitlog/", "consumequeue/", "config/", "index/")
# Documents about the past, or about generated files.
NO_PATHS = ("CHANGELOG.md",)


def documents() -> list[Path]:
    """Every tracked *.md; in a source distribution, which has no .git, every *.md."""
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.split("\n")
        return [ROOT / name for name in listed if name and (ROOT / name).exists()]
    return [path for path in sorted(ROOT.rglob("*.md")) if not {".venv", "build"} & set(path.relative_to(ROOT).parts)]


def without_code(text: str) -> str:
    """The text without its blocks of code."""
    return INDENTED.sub("\n", FENCE.sub("", text))


def anchors(document: Path) -> set[str]:
    """The anchors of a document: one for each heading, and those written as HTML."""
    text = document.read_text("utf-8")
    found: set[str] = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", FENCE.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", lambda link: link[1] or "", heading)
        base = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        count = sum(anchor == base or re.fullmatch(rf"{re.escape(base)}-\d+", anchor) is not None for anchor in found)
        found.add(f"{base}-{count}" if count else base)
    return found


def broken_links(document: Path) -> Iterator[str]:
    """Yield what is wrong with each link that leads nowhere."""
    text = CODE.sub("", without_code(document.read_text("utf-8")))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (document.parent / name).resolve() if name else document
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{target}: no such heading"


@cache
def file_names() -> frozenset[str]:
    """The names of all files of the tree, without their folders."""
    folders = [ROOT / path.name for path in ROOT.iterdir() if path.is_dir() and path.name + "/" not in MADE]
    return frozenset(
        path.name for folder in (ROOT, *folders) for path in (folder.rglob if folder != ROOT else folder.glob)("*")
    )


def missing_paths(document: Path) -> Iterator[str]:
    """Yield each path in backquotes that begins with a folder of the tree, and each name of a source, that does not exist."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    for word in " ".join(CODE.findall(without_code(document.read_text("utf-8")))).split():
        path = re.fullmatch(r"((?:\.?[\w*.{},-]+/)+[\w*.-]*)(?::[\w.]+)?[,;]?", word)
        if path is not None and not path[1].startswith(MADE) and path[1].partition("/")[0] in folders:
            if not any(ROOT.glob(path[1].rstrip("/"))):
                yield path[1]
        elif re.fullmatch(r"[\w-]+\.(?:md|py|tla|toml)", word) and word not in file_names():
            yield word


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_link_leads_nowhere(document: Path) -> None:
    assert list(broken_links(document)) == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_path_in_backquotes_exists(document: Path) -> None:
    if document.name not in NO_PATHS:
        assert list(missing_paths(document)) == []


def test_the_readme_shows_a_row_of_the_citations_as_it_is() -> None:
    """A test that moves, or a function that is renamed, changes the row."""
    shown = re.findall(r"^    (HA-[A-Z]+-\d+ .*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    command = [sys.executable, "-m", "rocketmq_ha.spec.citations"]
    rows = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    assert len(shown) == 1
    assert shown[0] in [" ".join(row.split()) for row in rows.splitlines()]


# --- The checker finds what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](b.md)", ["b.md: no such file"]),
        ("[a](page.md#two-words)", []),
        ("[a](#two-words)", []),
        ("[a](page.md#three)", ["page.md#three: no such heading"]),
        ("![a](b.svg)", ["b.svg: no such file"]),
        ("[a](https://example.org/)", []),
        ("`[a](b.md)`\n\n    [a](b.md)\n\n```\n[a](b.md)\n```\n", []),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, text: str, wrong: list[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Two words\n\n{text}\n", encoding="utf-8")
    assert list(broken_links(page)) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`impl/ha/master.py`", []),
        ("`impl/ha/mistress.py`", ["impl/ha/mistress.py"]),
        ("`spec/*.md`, `spec/vectors/`, `impl/ha/master.py:MasterConnection`", []),
        ("`master.py`, `mistress.py`", ["mistress.py"]),
        ("`spec/*.nothing`", ["spec/*.nothing"]),
        ("`build/report.html`, `rocketmq-ha put`, `and/or`, `commitlog/`", []),
    ],
)
def test_a_missing_path_is_found(tmp_path: Path, text: str, wrong: list[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert list(missing_paths(page)) == wrong


def test_equal_headings_get_numbered_anchors(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`-c, d\n\n## E\n\n## E\n", encoding="utf-8")
    assert anchors(page) == {"a-b-c-d", "e", "e-1"}
