"""`--from`, the start of a log or of reading, as a word or an offset; and a slave's other options for a new log."""

from collections.abc import Callable

import click

from rocketmq_ha.impl.app.fresh_store import StartSettings
from rocketmq_ha.impl.cli.master_options import settle_option
from rocketmq_ha.impl.cli.option_group import option_group


def start_at(*words: str) -> Callable[[str], str | int]:
    """Return an option type that takes one of the words, or a commit-log offset, which becomes an int."""

    def where(text: str) -> str | int:
        text = str(text)  # TOML gives a number
        if text in words:
            return text
        if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
            raise click.BadParameter(f"{text!r}: expected {', '.join(words)} or a commit-log offset")
        return int(text)

    return where


def _start(start: str | int | None, settle: float, file_size: int | None) -> StartSettings:
    return StartSettings(start, settle, file_size)


start_options = option_group(
    "start",
    _start,
    click.option(
        "--from",
        "start",
        type=start_at("last", "min"),
        metavar="last|min|OFFSET",
        help="Where a store without a log begins: at the start of the master's last file, as in RocketMQ (last); of its first"
        " file (min); or of the file that holds an offset. A store that has a log goes on where its log ends. [default: last]",
    ),
    settle_option,
    click.option(
        "--file-size",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="The size of the master's commit-log files (mappedFileSizeCommitLog), for the slave to check. Without this option"
        " the slave learns the size from the master, and a store that has a log keeps its own.",
    ),
)
