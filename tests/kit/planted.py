"""Plant a mistake in a module of the harness, in this process, and run the tests of a file on it.

Only the tests without fixtures are run: milliseconds, where a process of its own takes seconds.
"""

import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from kit import schedules


def planted(module: ModuleType, old: str, new: str) -> ModuleType:
    """A copy of a module in which the only occurrence of `old` is `new`. The module itself stays as it is."""
    count = source_of(module).count(old)
    assert count == 1, f"{module.__name__} has {old!r} {count} times"
    return copy_of(module, old, new)


def copy_of(module: ModuleType, old: str = "", new: str = "") -> ModuleType:
    """The module, made anew from its source with an edit, or without one."""
    return loaded(module.__name__, str(module.__file__), source_of(module).replace(old, new) if old else source_of(module))


def source_of(module: ModuleType) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8")


def loaded(name: str, file: str, source: str) -> ModuleType:
    copy = ModuleType(name)
    copy.__file__ = file
    exec(compile(source, file, "exec"), copy.__dict__)
    return copy


def first_failure(file: Path, module: ModuleType) -> str:
    """The name of the first test of a file that fails with `module` in place of the module of its name; "" if none does."""
    package, _, attribute = module.__name__.rpartition(".")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(sys.modules[package], attribute, module)
        patch.setitem(sys.modules, schedules.__name__, copy_of(schedules))  # it draws and runs too: it must see the copy
        tests = loaded(f"planted_{file.stem}", str(file), file.read_text(encoding="utf-8"))
        ran = 0
        for name, test in vars(tests).items():
            if not name.startswith("test_") or not isinstance(test, FunctionType):
                continue
            for arguments in cases(test):
                ran += 1
                try:
                    test(**arguments)
                except (Exception, pytest.fail.Exception):  # a test may fail in any way
                    return name
    assert ran > 1, f"{file.name} has hardly a test without fixtures"
    return ""


def cases(test: FunctionType) -> Iterator[Mapping[str, Any]]:
    """The arguments of each case of a test; none if it needs a fixture."""
    columns: list[list[dict[str, Any]]] = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0] if isinstance(mark.args[0], (tuple, list)) else [mark.args[0]]
            columns.append([dict(zip(names, row if len(names) > 1 else [row], strict=True)) for row in mark.args[1]])
    for chosen in itertools.product(*columns):
        arguments = {name: value for part in chosen for name, value in part.items()}
        if set(inspect.signature(test).parameters) == set(arguments):
            yield arguments
