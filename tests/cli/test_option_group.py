"""A group of options reaches its command as one value, and no command takes many values."""

import inspect
from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from rocketmq_ha.impl.cli import main
from rocketmq_ha.impl.cli.option_group import option_group

MOST_VALUES = 8
COMMANDS = (
    *("broker", "master", "namesrv", "slave", "put", "inspect", "verify", "query", "recover", "resync", "tail", "doctor"),
    *("status", "send", "consume", "admin", "cluster"),
)


@dataclass(frozen=True)
class Size:
    """A value made of two options; the command may lack one of them."""

    width: int
    height: int = 3


@dataclass(frozen=True)
class Drawing:
    """A value made of a nested value and an option."""

    name: str
    size: Size


SIZE = option_group("size", Size, click.option("--width", type=int, default=1), click.option("--height", type=int, default=2))


@click.command()
@click.option("--name", default="none")
@SIZE
@click.option("--quiet", is_flag=True)
@option_group("drawing", Drawing)
@click.pass_context
def draw(ctx: click.Context, drawing: Drawing, quiet: bool) -> None:
    """Draw."""
    click.echo(f"{ctx.command.name} {drawing} {quiet}")


def test_a_command_receives_a_group_of_options_as_one_value() -> None:
    found = CliRunner().invoke(draw, ["--height", "7", "--name", "a", "--quiet"])
    assert found.output == f"draw {Drawing('a', Size(1, 7))} True\n"


def test_the_options_of_a_group_stand_in_the_help_where_its_decorator_stands() -> None:
    assert [option.name for option in draw.params] == ["name", "width", "height", "quiet"]


def test_a_value_without_its_option_keeps_its_default() -> None:
    @click.command()
    @option_group("size", Size, click.option("--width", type=int, default=1))
    def measure(size: Size) -> None:
        click.echo(str(size))

    assert CliRunner().invoke(measure, []).output == f"{Size(1)}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_takes_many_values(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.callback is not None
    values = inspect.signature(command.callback).parameters  # of the innermost function, without its decorators
    assert len(values) <= MOST_VALUES, list(values)


def test_the_list_of_commands_is_complete() -> None:
    assert set(COMMANDS) == set(main._own)  # type: ignore[attr-defined]
