"""Make docs/command-line.md from the commands themselves, so that the page cannot differ from `--help`.

python docs/command_line.py           print the page
python docs/command_line.py --check   exit status 1 if docs/command-line.md differs
python docs/command_line.py --write   write docs/command-line.md
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from rocketmq_ha.impl.cli import main as rocketmq_ha

PAGE = Path(__file__).with_name("command-line.md")
IN_EVERY_COMMAND = {"--log-format", "--log-level", "--help"}

HEAD = """\
# The command line

`python docs/command_line.py --write` makes this page from the commands; do not edit it. In a checkout the program
is `.venv/bin/rocketmq-ha`. Every command also takes `--help`, `--log-format` and `--log-level`; the last two may also stand
before its name.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | the answer is no: two stores differ, no message has the key, a put or a send did not end well, `doctor` has findings |
| 2 | a mistake in the input or an error of the environment; one line on standard error names it |
| 70 | a server met a bug of this program in one of its threads; its last log line has the traceback, \
and the next start recovers the store |
| 75 | the disk was full at the start; another start may succeed |
| 130, 143 | SIGINT, SIGTERM came before its end; what is to go on until it is stopped ends with 0 then: the servers, \
`tail` and `consume` without `--limit` and `--stop-at-end` |
| 141 | the reader of standard output went away |
"""


def page() -> str:
    context = click.Context(rocketmq_ha, info_name="rocketmq-ha")
    commands = list(commands_of(context, rocketmq_ha))
    index = [f"| [{path}](#{path.replace(' ', '-')}) | {summary(command)} |" for path, _, command in commands]
    parts = [HEAD, "\n".join(["| command | what it does |", "|---|---|", *index]), section("rocketmq-ha", context, rocketmq_ha)]
    parts += [section(path, below, command) for path, below, command in commands]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def commands_of(context: click.Context, group: click.Group) -> Iterator[tuple[str, click.Context, click.Command]]:
    """Yield each command below a group: its name behind `rocketmq-ha`, its context, and the command."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        below = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from commands_of(below, command)
        else:
            yield below.command_path.partition(" ")[2], below, command


def summary(command: click.Command) -> str:
    """The first paragraph of a command's help, on one line."""
    return cell(inspect.cleandoc(command.help or "").partition("\n\n")[0])


def section(path: str, context: click.Context, command: click.Command) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    texts = [f"## {path}", f"    {usage}", *paragraphs(command.help or "")]
    records = [
        parameter.get_help_record(context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and (command is rocketmq_ha or not IN_EVERY_COMMAND & set(parameter.opts))
    ]
    rows = [f"| `{cell(names)}` | {cell(text)} |" for names, text in filter(None, records)]
    if rows:
        texts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(texts)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; one that click leaves as it is (it begins with \\b) becomes a block of code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        yield "\n".join(["```text", rest, "```"]) if first == "\b" else paragraph


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    text = page()
    if arguments == ["--write"]:
        PAGE.write_text(text, encoding="utf-8")
    elif arguments == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.stderr.write("docs/command-line.md differs from the commands: run python docs/command_line.py --write\n")
            return 1
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
