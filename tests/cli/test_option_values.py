"""Each option of each command has its own place in the value that the command gets.

The values come from the command line, from a TOML file, and from the defaults.
"""

from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from kit.broker_option_tables import OF_BROKERS
from kit.option_tables import COMMANDS, arguments, received, toml
from rocketmq_ha.impl.cli import main

ALL = COMMANDS | OF_BROKERS


@pytest.fixture(autouse=True)
def stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    """`consume` writes to a descriptor, which the output of these tests has not."""
    shown = SimpleNamespace(flush=lambda: None, fileno=lambda: 1)
    monkeypatch.setattr("rocketmq_ha.impl.cli.consume.sys", SimpleNamespace(stdout=shown))


def test_the_tables_hold_every_option() -> None:
    """A flag that is on by default stands there with --no-."""
    for name, (_, words, *_) in ALL.items():
        command = main.get_command(click.Context(main), name)
        assert command is not None
        options = {option: each.name for each in command.params for option in (*each.opts, *each.secondary_opts)}
        assert {options[word] for word in words} == set(options.values()) - {"config", "log_level", "log_format"}, name


def test_no_two_numbers_of_a_table_are_equal() -> None:
    for name, (_, words, *_) in ALL.items():
        numbers = [value for value in words.values() if type(value) in (int, float)]
        assert len(set(numbers)) == len(numbers), name


@pytest.mark.parametrize("command", ALL)
def test_each_option_has_its_place_in_the_value(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, words, value, *_ = ALL[command]
    assert received(monkeypatch, command, *arguments(words)) == value


@pytest.mark.parametrize("command", ALL)
def test_each_default_has_its_place_in_the_value(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, needed, value = ALL[command]
    assert received(monkeypatch, command, *arguments(needed)) == value


@pytest.mark.parametrize("command", ["master", "slave", "broker"])
def test_each_key_of_a_file_has_its_place_in_the_value(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, words, value, *_ = ALL[command]
    file = tmp_path / "ha.toml"
    keys = {word.replace("--no-", "--"): not word.startswith("--no-") if on is True else on for word, on in words.items()}
    file.write_text(f"[{command}]\n{toml(keys)}")
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
