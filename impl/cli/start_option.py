"""`--from`: where a log is begun, by a word or by an offset; what the command line and configuration files share."""

from collections.abc import Callable

import click


def start_at(*words: str) -> Callable[[str], str | int]:
    """A type of option: one of the words, or a commit-log offset, which comes as an int."""

    def where(text: str) -> str | int:
        text = str(text)  # a number in TOML
        if text in words:
            return text
        if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
            raise click.BadParameter(f"{text!r}: expected {', '.join(words)} or a commit-log offset")
        return int(text)

    return where
