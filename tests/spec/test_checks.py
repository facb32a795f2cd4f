"""Each `--check` of `make check` fails with a line where its generated file is missing, empty or changed; `--write` mends it.

Each program works on a copy of its files.
"""

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from formal import snapshots, tours
from rocketmq_ha.reference import diagram, transitions
from rocketmq_ha.spec import clause_form, pairing, release_texts
from rocketmq_ha.spec.profile import PROFILES

ROOT: Final = Path(__file__).parents[2]
SPEC: Final = ROOT / "spec"


@dataclass(frozen=True)
class Generator:
    """A program that runs on a copy.

    file: the one that is damaged; its directory stands for that of the program. marks: it has text of a person around what is
    generated, so `--write` cannot mend it where the markers are gone.
    """

    main: Callable[[list[str]], int]
    file: Path
    marks: bool = False


def document(name: str) -> ModuleType:
    """A program of docs/, which is no package."""
    found = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def of_transitions(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    text = (SPEC / "transitions.json").read_text(encoding="utf-8")
    patch.setattr(transitions.resources, "files", lambda _: to / "spec")
    patch.setattr(transitions, "generate", lambda *_: text)
    return Generator(transitions.main, to / "spec" / "transitions.json")


def of_diagram(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    patch.setattr(diagram.resources, "files", lambda _: to / "spec")
    return Generator(diagram.main, to / "spec" / "3-slave.md", marks=True)


def of_snapshots(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    texts = {file.name: file.read_text(encoding="utf-8") for file in (SPEC / "snapshots").glob("*.txt")}
    patch.setattr(snapshots, "DIRECTORY", to / "spec" / "snapshots")
    patch.setattr(snapshots, "texts", lambda: texts)
    return Generator(snapshots.main, to / "spec" / "snapshots" / max(texts))


def of_tours(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    class Graph:
        states = triples = ()

    def generate(name: str, profile: object) -> tuple[str, type[Graph], list[list[str]]]:
        (found,) = (each for each in PROFILES.values() if each == profile)
        return (SPEC / "vectors" / "tours" / f"{name}-{found.name}.jsonl").read_text(encoding="utf-8"), Graph, []

    patch.setattr(tours, "DIRECTORY", to / "spec" / "vectors" / "tours")
    patch.setattr(tours, "generate", generate)
    return Generator(tours.main, max((to / "spec" / "vectors" / "tours").glob("*.jsonl")))


def of_clause_form(_: pytest.MonkeyPatch, to: Path) -> Generator:
    return Generator(lambda words: clause_form.main([*words, "--root", str(to)]), to / "spec" / "3-slave.md", marks=True)


def of_release_texts(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    whole = release_texts.texts
    patch.setattr(release_texts, "texts", lambda: whole(to / "spec"))
    return Generator(release_texts.main, to / "spec" / "versions.md")


def of_pairing(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    patch.setattr(pairing, "ROOT", to)
    return Generator(pairing.main, to / "ARCHITECTURE.md", marks=True)


def of_command_line(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    module = document("command_line")
    text = module.PAGE.read_text(encoding="utf-8")
    patch.setattr(module, "PAGE", to / "docs" / "command-line.md")
    patch.setattr(module, "page", lambda: text)
    return Generator(module.main, module.PAGE)


def of_pictures(patch: pytest.MonkeyPatch, to: Path) -> Generator:
    module = document("pictures")
    patch.setattr(module, "HERE", to / "docs")
    texts = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in module.PICTURES}
    patch.setattr(module, "PICTURES", {name: lambda text=text: text for name, text in texts.items()})
    return Generator(module.main, to / "docs" / max(texts))


GENERATORS: Final = {
    "transitions": of_transitions,
    "diagram": of_diagram,
    "snapshots": of_snapshots,
    "tours": of_tours,
    "clause_form": of_clause_form,
    "release_texts": of_release_texts,
    "pairing": of_pairing,
    "command_line": of_command_line,
    "pictures": of_pictures,
}


def test_make_check_runs_the_programs_of_the_table() -> None:
    """Citations and the ledger write nothing, and have tests of their own. Tours take minutes, so `make formal` checks them; of
    the transitions, which take one, only the texts are checked.
    """
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    checked = [line.split()[1:] for line in lines if line.endswith(" --check") and "$(BIN)/python" in line]
    names = [words[words.index("--check") - 1].removesuffix(".py").rpartition("/")[2].rpartition(".")[2] for words in checked]
    assert any(line.endswith("reference.transitions --check-texts") for line in lines)
    assert {*names, "tours", "transitions"} == {*GENERATORS, "citations", "ledger"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    left_out = shutil.ignore_patterns("*.py", "tla", "__pycache__", "store-*")
    shutil.copytree(SPEC, tmp_path / "spec", ignore=left_out)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=left_out)
    shutil.copy(ROOT / "ARCHITECTURE.md", tmp_path)
    return tmp_path


def change(text: str, name: str) -> str:
    """A text as long, with another letter in a generated line."""
    old = {
        "diagram": "    connected --> ",
        "clause_form": "](#",
        "pairing": "`on_accept` | `__init__`",
    }
    word = old.get(name, "")
    assert word in text, name
    return text.replace(word, f"{word[:-1]}x", 1) if word else f"{text[:-1]}x"


@pytest.mark.parametrize("name", GENERATORS)
def test_a_file_that_is_not_what_is_generated_fails_the_check(
    name: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = GENERATORS[name](monkeypatch, copy)
    assert program.main(["--check"]) == 0
    good = program.file.read_text(encoding="utf-8")
    for damaged in (None, "", change(good, name)):
        if name == "clause_form" and not damaged:  # a chapter without clauses has the form, and another program counts them
            continue
        if damaged is None:
            program.file.unlink()
        else:
            program.file.write_text(damaged, encoding="utf-8")
        capsys.readouterr()
        assert program.main(["--check"]) == 1, damaged and damaged[:10]
        told = "".join(capsys.readouterr())
        assert program.file.name in told, damaged and damaged[:10]
        if damaged or not program.marks:
            assert program.main(["--write"]) == 0
            assert program.file.read_text(encoding="utf-8") == good
            assert program.main(["--check"]) == 0
        program.file.write_text(good, encoding="utf-8")
