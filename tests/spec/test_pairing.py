"""The pairing table: what it says is so, and each kind of mistake is noticed."""

import shutil
from pathlib import Path

import pytest

from rocketmq_ha.spec import pairing


def test_every_function_stands_beside_its_twin_or_has_a_reason() -> None:
    found = pairing.pairs()
    assert sum(len(pair.model) for pair in found) > 60
    assert pairing.problems(found) == []


def test_the_table_of_architecture_is_that_of_the_code() -> None:
    text = (pairing.ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert pairing.inserted(text, pairing.table(pairing.pairs())) == text, "make transitions writes it anew"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("reference", "impl/ha"):
        shutil.copytree(pairing.ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "reference/master.py",
            "def on_tick(",
            "def on_second(",
            "impl.ha.master.MasterConnection.on_tick: no function reference.master.on_tick in the model",
        ),
        ("reference/master.py", "def on_tick(", "def on_second(", "reference.master.on_second: has no twin"),
        ("impl/ha/master.py", " Twin: reference.master.taken.", "", "impl.ha.master.MasterConnection.taken: names no twin"),
        ("impl/ha/master.py", " Twin: reference.master.taken.", "", "reference.master.taken: has no twin"),
        ("impl/ha/master.py", "def taken(", "def sent_bytes(", "reference.master.taken: its twin is sent_bytes"),
        ("impl/ha/master.py", "def needed_offset(", "def wanted_offset(", "needed_offset: its reason is needed no more"),
    ],
)
def test_a_mistake_is_noticed(tree: Path, file: str, old: str, new: str, problem: str) -> None:
    text = (tree / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tree / file).write_text(text.replace(old, new), encoding="utf-8")
    assert any(problem in line for line in pairing.problems(pairing.pairs(tree)))


def test_another_order_is_noticed(tree: Path) -> None:
    file = tree / "reference" / "master.py"
    text = file.read_text(encoding="utf-8")
    begin, end = text.index("def on_tick("), text.index("def on_end_of_stream(")
    file.write_text(f"{text[:begin]}{text[end:]}\n\n{text[begin:end].rstrip()}\n", encoding="utf-8")
    assert pairing.problems(pairing.pairs(tree)) == [
        "impl/ha/master.py: its functions stand in another order than reference/master.py"
    ]
