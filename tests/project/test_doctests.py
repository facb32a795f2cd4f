"""Every example in a docstring is true."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("spec", "reference", "impl", "fuzz", "analysis")
PACKAGES = (*(f"rocketmq_ha.{folder}" for folder in FOLDERS), "formal")


def modules() -> list[str]:
    """Every module of the project, found from the packages: rocketmq_ha is a namespace package, which cannot be listed."""
    found = []
    for name in PACKAGES:
        package = importlib.import_module(name)
        walked = pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=None)
        found += [package.__name__, *(module.name for module in walked)]
    return [name for name in found if is_importable(name)]


def is_importable(name: str) -> bool:
    """formal.contracts loads CrossHair, which patches the interpreter."""
    return not name.endswith(".__main__") and name != "formal.contracts"


@pytest.mark.parametrize("name", modules())
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_walk_finds_every_file() -> None:
    dotted = {
        ".".join((*package.split(".")[:-1], *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for package in PACKAGES
        for file in (ROOT / package.rpartition(".")[2]).rglob("*.py")
    }
    assert set(filter(is_importable, dotted)) == set(modules())


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = (test for name in modules() for test in finder.find(importlib.import_module(name)))
    assert sum(len(test.examples) for test in found) > 0


@pytest.mark.parametrize("chapter", sorted((ROOT / "spec").glob("*.md")), ids=lambda path: path.name)
def test_examples_of_the_chapter(chapter: Path) -> None:
    assert doctest.testfile(str(chapter), module_relative=False).failed == 0
