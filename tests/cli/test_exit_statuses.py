"""Every way in which a command can end: its exit status, and its one line on standard error."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from types import ModuleType

import click
import pytest
from click.testing import Result

from kit.command_line import invoke
from rocketmq_ha.impl.cli import commands, main
from rocketmq_ha.impl.errors import ConfigInvalid, StoreFull

# Errors of the system that a user, a disk or a network causes.
USERS = (
    *("EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "EROFS", "ENAMETOOLONG", "ELOOP", "EXDEV", "EFBIG", "EIO"),
    *("EMFILE", "ENFILE", "ENOMEM", "ENODEV", "ESTALE", "EADDRINUSE", "EADDRNOTAVAIL", "ECONNREFUSED", "EHOSTUNREACH"),
    *("ENETUNREACH", "ETIMEDOUT"),
)
NO_ROOM = ("ENOSPC", "EDQUOT")
OURS = ("EBADF", "EINVAL", "EPIPE", "ENOTSOCK", "EFAULT")


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], Result]:
    """Run a command that ends with an error, or returns a value."""

    def run(end: object) -> Result:
        def action() -> object:
            if isinstance(end, BaseException):
                raise end
            return end

        module = ModuleType("made_up_command")
        module.made_up = click.command("made-up")(action)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "made_up_command", module)
        point = EntryPoint("made-up", "made_up_command:made_up", commands.ENTRY_POINT_GROUP)
        monkeypatch.setattr(commands, "entry_points", lambda **_: [point])
        return invoke("made-up")

    return run


@pytest.mark.parametrize(
    ("name", "status"), [*((name, 2) for name in USERS), *((name, 75) for name in NO_ROOM), *((name, 1) for name in OURS)]
)
def test_an_error_of_the_system(name: str, status: int, ending: Callable[[object], Result]) -> None:
    number = getattr(errno, name)
    result = ending(OSError(number, os.strerror(number), "/f"))
    if name == "EPIPE":  # an OSError with this number is a BrokenPipeError: the reader of our output has gone
        assert (result.exit_code, result.stderr) == (141, "")
        return
    assert result.exit_code == status
    assert isinstance(result.exception, OSError if status == 1 else SystemExit)
    assert result.stderr == ("" if status == 1 else f"rocketmq-ha: /f: {os.strerror(number)}\n")


@pytest.mark.parametrize(
    ("end", "status", "line"),
    [
        pytest.param(None, 0, "", id="nothing"),
        pytest.param(3, 3, "", id="a status"),
        pytest.param(True, 0, "", id="no status"),
        pytest.param("text", 0, "", id="text"),
        pytest.param(SystemExit(4), 4, "", id="exit"),
        pytest.param(click.exceptions.Exit(5), 5, "", id="click's exit"),
        pytest.param(KeyboardInterrupt(), 130, "", id="interrupt"),
        pytest.param(click.Abort(), 130, "", id="abort"),
        pytest.param(OSError(errno.EACCES, "denied"), 2, "rocketmq-ha: denied\n", id="an error without a file"),
        pytest.param(OSError(errno.EACCES, ""), 2, "rocketmq-ha: [Errno 13]\n", id="an error without a text"),
        pytest.param(ConfigInvalid("a\n  b   c"), 2, "rocketmq-ha: a b c\n", id="a mistake"),
        pytest.param(
            StoreFull("f", 1, 2), 75, "rocketmq-ha: f: No space left on device: found 1, expected 2\n", id="a full disk"
        ),
        pytest.param(click.ClickException("no"), 2, "rocketmq-ha: no\n", id="click's error"),
        pytest.param(click.UsageError("no"), 2, "rocketmq-ha: no (see rocketmq-ha --help)\n", id="usage"),
        pytest.param(
            ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql"),
            2,
            "rocketmq-ha: the package pyspark is not installed; pip install 'rocketmq-ha[fuzz]'\n",
            id="a package",
        ),
    ],
)
def test_an_end(end: object, status: int, line: str, ending: Callable[[object], Result]) -> None:
    result = ending(end)
    assert result.exit_code == status
    if line == "rocketmq-ha: no (see rocketmq-ha --help)\n":  # click adds the command's context
        line = "rocketmq-ha made-up: no (see rocketmq-ha made-up --help)\n"
    assert result.stderr.lstrip("\n") == line  # click ends the line of an interrupted prompt


@pytest.mark.parametrize(
    "bug",
    [ModuleNotFoundError("m", name="rocketmq_ha.impl.x"), ModuleNotFoundError("m"), AssertionError("a"), ValueError("v")],
    ids=repr,
)
def test_a_bug_keeps_its_traceback(bug: Exception, ending: Callable[[object], Result]) -> None:
    result = ending(bug)
    assert result.exception is bug
    assert result.stderr == ""


def test_the_handler_of_sigterm_is_put_back(ending: Callable[[object], Result]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    ending(ConfigInvalid("x"))
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_ends_with_143(ending: Callable[[object], Result], monkeypatch: pytest.MonkeyPatch) -> None:
    del ending

    def end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    module = ModuleType("made_up_command")
    module.made_up = click.command("made-up")(end)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up_command", module)
    point = EntryPoint("made-up", "made_up_command:made_up", commands.ENTRY_POINT_GROUP)
    monkeypatch.setattr(commands, "entry_points", lambda **_: [point])
    assert invoke("made-up").exit_code == 143


# --- The program itself --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("statis",), "rocketmq-ha: No such command 'statis'. Did you mean 'status' or 'tail'? (see rocketmq-ha --help)\n"),
        (("xyzzy",), "rocketmq-ha: No such command 'xyzzy'. (see rocketmq-ha --help)\n"),
        (("verify",), "rocketmq-ha verify: Missing argument 'DIR'. (see rocketmq-ha verify --help)\n"),
        (("slave", "--store", "s"), "rocketmq-ha slave: Missing option '--master'. (see rocketmq-ha slave --help)\n"),
        (
            ("--log-level", "loud", "status"),
            "rocketmq-ha: Invalid value for '--log-level': 'loud' is not one of 'debug', 'info', 'warning', 'error'. "
            "(see rocketmq-ha --help)\n",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_that_names_the_help(words: tuple[str, ...], line: str) -> None:
    result = invoke(*words)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


def test_the_version_is_that_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"rocketmq-ha {version('rocketmq-ha')}\n")

    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(commands, "version", missing)
    assert invoke("--version").stdout == "rocketmq-ha (not installed)\n"


def test_our_own_commands_come_first_and_win(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, f"x:{name}", commands.ENTRY_POINT_GROUP) for name in ("zzz", "status", "aaa")]
    monkeypatch.setattr(commands, "entry_points", lambda **_: points)
    found = main.targets()  # type: ignore[attr-defined]
    assert [*found][-2:] == ["aaa", "zzz"]
    assert (found["status"], found["aaa"]) == ("rocketmq_ha.impl.cli.status:status", "x:aaa")


def test_a_command_that_cannot_be_loaded_is_named_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, f"{name}_nowhere:x", commands.ENTRY_POINT_GROUP) for name in ("made", "rocketmq_ha.made")]
    monkeypatch.setattr(commands, "entry_points", lambda **_: points)
    told = [invoke(point.name).stderr for point in points]
    begin = [f"rocketmq-ha: the command {point.name} cannot be loaded: No module named" for point in points]
    assert all(text.startswith(words) for text, words in zip(told, begin, strict=True))
    assert [text.endswith("; pip install 'rocketmq-ha[fuzz]'\n") for text in told] == [True, False]
    help_text = invoke("--help").stdout
    assert help_text.count("(not to be found in this installation)") == 2


@pytest.mark.parametrize("name", sorted(main._own))  # type: ignore[attr-defined]
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name: str) -> None:
    target = main.targets()[name]  # type: ignore[attr-defined]
    command = main.get_command(click.Context(main), name)
    assert command is not None and command.help is not None
    assert commands.summary(target) == command.help.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("statis", ["status", "slave"], " Did you mean 'status'?"),
        ("tial", ["tail", "trial", "x"], " Did you mean 'trial' or 'tail'?"),
        ("aaaa", ["aaab", "aaac", "aaad", "aaae"], " Did you mean 'aaae' or 'aaad' or 'aaac'?"),
        ("zzz", ["status"], ""),
    ],
)
def test_similar_names_are_suggested(name: str, known: list[str], expected: str) -> None:
    assert commands.did_you_mean(name, known) == expected
