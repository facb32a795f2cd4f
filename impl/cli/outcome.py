"""The outcome of `verify`, `recover` and `resync`: a line of key=value, or one JSON object with the same names.

docs/outcomes.md lists the fields. The object always has all of them; a field that does not apply is null.
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
    """Format fields as key=value. A path is quoted for a shell, and None is written as none."""
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items())


def _word(value: object) -> object:
    if isinstance(value, Path):
        return shlex.quote(str(value))
    return "none" if value is None else value


@contextmanager
def outcome(names: Sequence[str], *, as_json: bool) -> Iterator[dict[str, Any]]:
    """Yield a dict for the fields, and with as_json print it as one JSON object at the end.

    An error that a user can cause is an outcome, too: it is printed with the verdict REFUSED, and then raised.
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
    """Return an error's kind, message and file; for damage also its offset, what was found and what was expected."""
    fields: dict[str, object] = {"kind": type(error).__name__, "message": " ".join(str(error).split())}
    file = getattr(error, "filename", None)
    fields |= {"file": None if file is None else str(file), "offset": None, "found": None, "expected": None}
    if isinstance(error, StoreCorrupt):
        fields |= {"file": str(error.file), "offset": error.offset, "found": str(error.found), "expected": str(error.expected)}
    return fields
