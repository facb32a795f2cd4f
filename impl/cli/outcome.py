"""What `verify`, `recover` and `resync` have found: a line of key=value, or one JSON object with the same names.

docs/outcomes.md lists the fields. The object has all of them, whatever the outcome is; null is what does not apply.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rocketmq_ha.impl.errors import RocketmqHaError, StoreCorrupt

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object instead (docs/outcomes.md).")


def line_of(fields: Mapping[str, object]) -> str:
    """The fields as key=value; a path as a shell takes it, None as none."""
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items())


def _word(value: object) -> object:
    if isinstance(value, Path):
        return shlex.quote(str(value))
    return "none" if value is None else value


@contextmanager
def outcome(names: Sequence[str], *, as_json: bool) -> Iterator[dict[str, Any]]:
    """Give a place for fields, and print it as one JSON object at the end, if that is wanted.

    An error that a user can cause is an outcome, too: it is printed with the verdict REFUSED, and goes on its way.
    """
    fields: dict[str, Any] = dict.fromkeys((*names, "verdict", "error"))
    try:
        yield fields
    except (RocketmqHaError, OSError) as error:
        fields |= {"verdict": "REFUSED", "error": _error_fields(error)}
        raise
    finally:
        if as_json and fields["verdict"] is not None:
            click.echo(json.dumps(fields, default=str))


def _error_fields(error: RocketmqHaError | OSError) -> dict[str, object]:
    """What kind of error it is, its message, and its file; of damage also where it is, what was found and what expected."""
    told: dict[str, object] = {"kind": type(error).__name__, "message": " ".join(str(error).split())}
    file = getattr(error, "filename", None)
    told |= {"file": None if file is None else str(file), "offset": None, "found": None, "expected": None}
    if isinstance(error, StoreCorrupt):
        told |= {"file": str(error.file), "offset": error.offset, "found": str(error.found), "expected": str(error.expected)}
    return told
