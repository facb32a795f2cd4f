"""A click group that imports a command only when it is called, and that prints an error as one line.

A command is named by "module:function". More commands come from the entry-point group `rocketmq_ha.commands`, because impl may
not import them. `--help` imports no command: it reads the first help line from the function's source. So a command that is slow
to import, is broken, or lacks its extras does not disturb `--help`.
"""

# ruff: noqa: ARG002  (click passes arguments that these methods do not need)

import ast
import difflib
import errno
import importlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

from rocketmq_ha.impl.cli.log_options import with_log_options
from rocketmq_ha.impl.errors import NO_ROOM, RocketmqHaError

ENTRY_POINT_GROUP: Final = "rocketmq_ha.commands"
EXIT_BAD_INPUT: Final = 2
EXIT_NO_ROOM: Final = 75  # sysexits' EX_TEMPFAIL: another start may do better
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
EXIT_TERMINATED: Final = 128 + signal.SIGTERM
EXIT_BROKEN_PIPE: Final = 128 + signal.SIGPIPE

_EXTRA: Final = "; pip install 'rocketmq-ha[fuzz]'"

# Errors that users, disks or networks can cause. Any other OSError, a bad descriptor for one, is our bug and has a traceback.
_USERS_ERRORS: Final = frozenset(
    (
        *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EROFS),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.EXDEV, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENODEV, errno.ESTALE, errno.EADDRINUSE, errno.EADDRNOTAVAIL),
        *(errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT),
    )
)


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and that turns every error into a line and an exit status."""

    def __init__(self, *args: Any, commands_by_target: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._own = dict(commands_by_target or {})

    def targets(self) -> dict[str, str]:
        """Return every command by name: "module:function". Our own come first, and win over entry points of the same name."""
        joined = {point.name: point.value for point in sorted(entry_points(group=ENTRY_POINT_GROUP))}
        return self._own | {name: value for name, value in joined.items() if name not in self._own}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.targets())

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. For an unknown name suggest similar ones; click itself knows only commands that are loaded."""
        if args[0] not in self.targets() and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], self.targets())}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._own.get(cmd_name) or self.targets().get(cmd_name)
        return with_log_options(_load(cmd_name, target)) if target is not None else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(target)) for name, target in self.targets().items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # a call without arguments asks for help, and is not a mistake
            click.echo(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:  # the reader, `head` say, has what it wanted
            _give_up_stdout()
            ctx.exit(EXIT_BROKEN_PIPE)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and raise SystemExit with a status. Without standalone_mode return and raise as click does."""
        name = prog_name or self.name or "rocketmq-ha"
        if not standalone_mode:
            return super().main(args, name, complete_var, standalone_mode=False, **extra)
        in_main_thread = threading.current_thread() is threading.main_thread()
        previous = signal.signal(signal.SIGTERM, _terminate) if in_main_thread else None
        try:
            status = super().main(args, name, complete_var, standalone_mode=False, **extra)
            sys.exit(status if type(status) is int else 0)
        except (click.Abort, KeyboardInterrupt):  # KeyboardInterrupt comes before or after the part in which click catches it
            sys.exit(EXIT_INTERRUPTED)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx is not None else name
            _fail(f"{path}: {error.format_message()} (see {path} --help)")
        except click.ClickException as error:
            _fail(f"{name}: {error.format_message()}")
        except RocketmqHaError as error:
            _fail(f"{name}: {error}", _status_of(error))
        except OSError as error:
            if error.errno not in _USERS_ERRORS:
                raise
            where = f"{error.filename}: " if error.filename is not None else ""
            _fail(f"{name}: {where}{error.strerror or error}", _status_of(error))
        except ModuleNotFoundError as error:  # a command imports a large package only when it is called
            if (missing := (error.name or "rocketmq_ha").partition(".")[0]) == "rocketmq_ha":
                raise
            _fail(f"{name}: the package {missing} is not installed{_EXTRA}")
        finally:
            if in_main_thread:
                signal.signal(signal.SIGTERM, previous)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the known names most similar to a name; "" if none is similar.

    >>> did_you_mean("statis", ["status", "slave"])
    " Did you mean 'status'?"
    """
    near = difflib.get_close_matches(name, known, 3)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print the distribution's version and exit, if --version is given."""
    if wanted and not ctx.resilient_parsing:
        try:
            number = version("rocketmq-ha")
        except PackageNotFoundError:  # run from the tree, by PYTHONPATH
            number = "(not installed)"
        click.echo(f"rocketmq-ha {number}")
        ctx.exit(0)


def summary(target: str) -> str:
    """Return the first line of a command's docstring. It is read from the source, without an import."""
    module, _, function = target.partition(":")
    try:
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_bytes())
    except (ImportError, OSError, SyntaxError, ValueError, AssertionError):
        return "(not to be found in this installation)"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _load(name: str, target: str) -> click.Command:
    module, _, function = target.partition(":")
    try:
        command = getattr(importlib.import_module(module), function)
    except ImportError as error:
        missing = error.name or module
        extra = _EXTRA if not missing.startswith("rocketmq_ha") else ""
        raise click.ClickException(f"the command {name} cannot be loaded: {error}{extra}") from error
    assert isinstance(command, click.Command), target
    return command


def _status_of(error: BaseException) -> int:
    """Return the exit status of an error. A full disk has its own, because a later start may succeed."""
    return EXIT_NO_ROOM if isinstance(error, OSError) and error.errno in NO_ROOM else EXIT_BAD_INPUT


def _fail(message: str, status: int = EXIT_BAD_INPUT) -> NoReturn:
    click.echo(" ".join(message.split()), err=True)
    sys.exit(status)


def _terminate(_signal_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(EXIT_TERMINATED)


def _give_up_stdout() -> None:
    """Redirect stdout to /dev/null, because the interpreter's last flush would fail on the closed pipe."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
