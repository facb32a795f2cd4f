"""Each option of each command has its own place in the value that the command gets.

The values come from the command line, from a TOML file, and from the defaults.
"""

from pathlib import Path

import click
import pytest

from kit.option_tables import COMMANDS, arguments, received, toml
from rocketmq_ha.impl.cli import main


def test_the_tables_hold_every_option() -> None:
    for name, (_, words, *_) in COMMANDS.items():
        command = main.get_command(click.Context(main), name)
        assert command is not None
        options = {option for each in command.params for option in each.opts}
        assert options - {"--config", "--log-level", "--log-format"} == set(words), name


def test_no_two_numbers_of_a_table_are_equal() -> None:
    for name, (_, words, *_) in COMMANDS.items():
        numbers = [value for value in words.values() if type(value) in (int, float)]
        assert len(set(numbers)) == len(numbers), name


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_has_its_place_in_the_value(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, words, value, *_ = COMMANDS[command]
    assert received(monkeypatch, command, *arguments(words)) == value


@pytest.mark.parametrize("command", COMMANDS)
def test_each_default_has_its_place_in_the_value(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, needed, value = COMMANDS[command]
    assert received(monkeypatch, command, *arguments(needed)) == value


@pytest.mark.parametrize("command", ["master", "slave"])
def test_each_key_of_a_file_has_its_place_in_the_value(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, words, value, *_ = COMMANDS[command]
    file = tmp_path / "ha.toml"
    file.write_text(f"[{command}]\n{toml(words)}")
    assert received(monkeypatch, command, "--config", file) == value


@pytest.mark.parametrize("command", ["master", "slave"])
def test_the_command_line_wins_over_each_key_of_a_file(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has other values for all options."""
    _, words, value, *_ = COMMANDS[command]
    file = tmp_path / "ha.toml"
    other = dict[str, object]()
    for name, word in words.items():
        match word:
            case bool():
                other[name] = not word
            case int() | float():
                other[name] = word * 2
            case list():
                other[name] = ["192.168.0.0/16"]
    other |= {"--profile": "hardened", "--metrics": "x:1", "--delete-when": "05", "--store": "x"}
    other |= {"--role": "SYNC_MASTER", "--flush": "async", "--listen": "x:2"} if command == "master" else {}
    other |= {"--ack": "appended", "--bind": "127.0.0.9", "--master": "x:3"} if command == "slave" else {}
    file.write_text(f"[{command}]\n{toml(other)}")
    assert received(monkeypatch, command, "--config", file, *arguments(words)) == value
