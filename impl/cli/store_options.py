"""The parts that the commands for stores and messages share: the type of a store's directory, `--body`, and a line."""

from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.app.message_json import BODIES

STORE: Final = click.Path(path_type=Path)
body_option: Final = click.option(
    "--body",
    type=click.Choice(BODIES),
    default="text",
    show_default=True,
    help="The body in a JSON line. text: as UTF-8, else base64; json: as a JSON value if it is one, else as text; "
    "base64: always; raw: base64 of the stored bytes, not decompressed; none: only its size and CRC.",
)


def tail_line(store: Path, size: int, offset: int) -> str:
    """The line about an incomplete record at the end of a log."""
    return f"{store}: tail of {size} bytes at offset {offset}, an incomplete record; no error"
