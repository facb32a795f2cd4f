"""Each command that reads a store ends with one line and status 2 where the system refuses one of its files.

A file is refused when it is opened; no other of its errors has a traceback either.
"""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kit.command_line import invoke
from kit.damaged import write_store

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "inspect": ("inspect",),
    "verify": ("verify",),
    "verify two": ("verify", "STORE"),
    "query": ("query", "--topic", "a", "--key", "k"),
    "query --scan": ("query", "--topic", "a", "--key", "k", "--scan"),
    "recover": ("recover",),
    "recover --write": ("recover", "--write"),
}
ERRORS: Final = (errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENOMEM, errno.ELOOP)
# What is refused -> the commands that do not open it.
PLACES: Final[dict[str, tuple[str, ...]]] = {
    "commitlog/00000000000000001024": (),
    "consumequeue/a/0/00000000000000000060": ("inspect", "query", "query --scan"),
    "index/": ("inspect", "query --scan"),
}


class Refusing:
    """A store, a file of which the system refuses to open, with an error that the test chooses."""

    def __init__(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.place, self.number = write_store(store), "", 0
        for module in (os, io):
            monkeypatch.setattr(module, "open", self._refusing(module.open))

    def _refusing(self, opens: Callable[..., Any]) -> Callable[..., Any]:
        def do(path: Any, *words: Any, **named: Any) -> Any:
            if self.number and isinstance(path, str | os.PathLike) and f"{self.store}/{self.place}" in os.fspath(path):
                raise OSError(self.number, os.strerror(self.number), os.fspath(path))
            return opens(path, *words, **named)

        return do


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusing:
    return Refusing(tmp_path / "s", monkeypatch)


CASES: Final = [
    pytest.param(words, place, id=f"{name} {place}")
    for place, without in PLACES.items()
    for name, words in COMMANDS.items()
    if name not in without
]


@pytest.mark.parametrize(("words", "place"), CASES)
def test_a_file_that_cannot_be_opened_is_named_in_one_line(refusing: Refusing, words: tuple[str, ...], place: str) -> None:
    store, refusing.place = refusing.store, place
    for number in ERRORS:
        refusing.number = number
        name, *more = (str(store) if word == "STORE" else word for word in words)
        result = invoke(name, store, *more)
        assert isinstance(result.exception, SystemExit), result.exception
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert result.stderr.startswith(f"rocketmq-ha: {store}/{place}"), result.stderr
        assert result.stderr.endswith(f": {os.strerror(number)}\n"), result.stderr
    refusing.number = 0
    assert invoke("verify", store).exit_code == 0  # nothing was changed that a store needs


@pytest.mark.parametrize("command", [("broker",), ("master",), ("slave", "--master", "127.0.0.1:1")])
def test_an_empty_name_is_no_store(command: tuple[str, ...]) -> None:
    """The text of a variable that is not set would be the current directory."""
    result = invoke(*command, "--store", "")
    assert result.exit_code == 2
    assert "'--store': found an empty name, expected a directory" in result.stderr


def test_a_group_with_a_wrong_name_is_refused_at_once() -> None:
    """A broker refuses its every request, and no further try would help."""
    result = invoke("consume", "--namesrv", "127.0.0.1:1", "--topic", "t", "--group", "a b")
    assert result.exit_code == 2
    assert "--group: found 'a b', expected 1 to 255 of the characters" in result.stderr
