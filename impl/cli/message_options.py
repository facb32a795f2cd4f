"""The options of the messages that `put` and `send` take: their fields, and where their bodies come from."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from rocketmq_ha.impl.app.put_lines import MessageFields
from rocketmq_ha.impl.cli.option_group import Command, option_group
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.spec.constants import MAX_MESSAGE_SIZE


def _fields(
    topic: str | None,
    tags: str | None,
    keys: str | None,
    properties: tuple[str, ...],
    queue_id: int | None,
    no_wait: bool,
) -> MessageFields:
    pairs = tuple(_pair(text) for text in properties) + ((("WAIT", "false"),) if no_wait else ())
    return MessageFields(topic, tags, keys, queue_id, pairs)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise ConfigInvalid(f"--property {text!r}: expected NAME=VALUE, neither of them empty")
    return name, value


def field_options(queue_default: str) -> Callable[[Command], Command]:
    """The options that give every message a field. queue_default: what the help says of a message without a queue."""
    return option_group(
        "fields",
        _fields,
        click.option("--topic", metavar="TOPIC", help="The topic; needed unless the messages name theirs."),
        click.option("--tags", metavar="TAGS", help="The property TAGS, by which consumers choose."),
        click.option(
            "--keys", metavar="KEYS", help="The property KEYS, by which `query` finds them; several, with blanks between."
        ),
        click.option(
            "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Another property; may be repeated."
        ),
        click.option(
            "--queue-id",
            type=click.IntRange(0, (1 << 31) - 1),
            metavar="N",
            help=f"The queue in the topic. [default: {queue_default}]",
        ),
        click.option(
            "--no-wait", is_flag=True, help="Set the property WAIT=false: the message waits for no slave and no disk."
        ),
    )


@dataclass(frozen=True, slots=True)
class Source:
    """The source of the messages. body: that of the only message; None: standard input holds one message a line."""

    body: bytes | None
    is_json: bool


def _source(body: str | None, body_file: Path | None, lines: str) -> Source:
    if body is not None and body_file is not None:
        raise ConfigInvalid("--body and --file: expected one of them")
    if body is not None:
        return Source(os.fsencode(body), is_json=False)
    if body_file is not None:
        return Source(_body_of(body_file), is_json=False)
    return Source(None, is_json=lines == "json")


def _body_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        data = opened.read(MAX_MESSAGE_SIZE + 1)
    if len(data) > MAX_MESSAGE_SIZE:
        raise ConfigInvalid(f"{file}: found more than {MAX_MESSAGE_SIZE} bytes, expected a body of at most so many")
    return data


source_options = option_group(
    "source",
    _source,
    click.option("--body", metavar="TEXT", help="One message with this body."),
    click.option(
        "--file",
        "body_file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="One message whose body is the bytes of this file.",
    ),
    click.option(
        "--lines",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="The lines of standard input, which is read without --body and --file. text: each is a body; json: each is a"
        " message, as `tail` prints them.",
    ),
)
