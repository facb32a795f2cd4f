"""The lowest and the highest number that each option of each command takes: the number beside it is a usage error."""

from typing import Final, NamedTuple

import click
import pytest

from rocketmq_ha.fuzz import cli as fuzz
from rocketmq_ha.impl.cli import main

I32: Final = 2**31 - 1


class Bounds(NamedTuple):
    """What an option takes, and the numbers beside it that it refuses. None: there is no upper bound."""

    refused: float
    lowest: float
    highest: float | None = None
    beyond: float | None = None


FROM_0, FROM_1 = Bounds(-1, 0), Bounds(0, 1)
NOT_0 = Bounds(0, 5e-324)
FROM_0_0 = Bounds(-5e-324, 0)
TENTH = Bounds(0.0999, 0.1)
INTERVAL = Bounds(0, 1, I32, I32 + 1)

# Option -> its bounds; "command --option" where commands differ.
BOUNDS: Final = {
    "--access-message-in-memory-max-ratio": Bounds(-1, 0, 100, 101),
    "--await-replicas": FROM_0,
    "--await-slaves": FROM_0,
    "--batch": FROM_1,
    "--broker-id": FROM_0,
    "--broker-permission": Bounds(-1, 0, 7, 8),
    "--clean-resource-interval": INTERVAL,
    "--default-topic-queue-nums": Bounds(0, 1, 1024, 1025),
    "--disk-max-used-space-ratio": Bounds(0, 1, 100, 101),
    "--every": TENTH,
    "--file-reserved-time": Bounds(-1, 0, I32, I32 + 1),
    "--file-size": FROM_1,
    "--flush-commit-log-least-pages": FROM_0,
    "--flush-commit-log-thorough-interval": INTERVAL,
    "--flush-interval-commit-log": INTERVAL,
    "--frame-deadline": NOT_0,
    "--ha-housekeeping-interval": FROM_1,
    "--ha-send-heartbeat-interval": FROM_1,
    "--ha-slave-fallbehind-max": FROM_1,
    "--ha-transfer-batch-size": FROM_1,
    "--heartbeat": FROM_1,
    "--in-flight": FROM_1,
    "consume --queue-id": FROM_0,
    "inspect --from": FROM_0,
    "--limit": FROM_1,
    "--max-brokers": FROM_1,
    "--max-client-connections": FROM_1,
    "--max-client-connections-per-address": FROM_1,
    "--max-connections": FROM_1,
    "--max-connections-per-address": FROM_1,
    "--max-hash-slot-num": FROM_1,
    "--max-index-num": Bounds(1, 2),
    "--max-log-size": FROM_1,
    "--max-message-size": Bounds(0, 1, 4 << 20, (4 << 20) + 1),
    "--max-topics": FROM_1,
    "--max-transfer-rate": Bounds(1023, 1024),
    "--more": FROM_0,
    "--messages": Bounds(999, 1000),
    "--min-free-space": FROM_0,
    "--patience": TENTH,
    "--partition-runs": FROM_1,
    "--port": Bounds(0, 1, 65_535, 65_536),
    "--put": FROM_0,
    "--queue-file-size": Bounds(19, 20),
    "--queue-id": Bounds(-1, 0, I32, I32 + 1),
    "--register-name-server-period": FROM_1,
    "--replicas": FROM_1,
    "--report-deadline": NOT_0,
    "--run-memory": Bounds((1 << 20) - 1, 1 << 20, 1 << 46, (1 << 46) + 1),
    "--run-seconds": Bounds(0.09999999999999999, 0.1, 86_400, 86_400.00000000001),
    "--runs": FROM_1,
    "cluster-demo --runs": Bounds(39, 40),
    "--seed": FROM_0,
    "fuzz --seed": Bounds(-1, 0, 1 << 62, (1 << 62) + 1),
    "hunt --seconds": FROM_0_0,
    "--settle": FROM_0_0,
    "--share": Bounds(-5e-324, 0, 1, 1.0000000000000002),
    "--size": FROM_1,
    "--sync": Bounds(-5e-324, 0, 1, 1.0000000000000002),
    "--sync-flush-timeout": FROM_1,
    "--timeout": FROM_1,
    "--tls-master-port": Bounds(0, 1, 65_535, 65_536),
    "--transaction-check-interval": INTERVAL,
    "--transaction-check-max": INTERVAL,
    "--transaction-time-out": Bounds(-1, 0, I32, I32 + 1),
    "--write-stall-deadline": NOT_0,
}


def numbers() -> list[tuple[str, click.Parameter]]:
    """The options with bounds, of all commands, under their names in the table."""
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    commands |= {"fuzz": fuzz.run, "replay": fuzz.replay_command, "hunt": fuzz.hunt_command}
    return [
        (f"{name} {option.opts[0]}", option)
        for name, command in commands.items()
        for option in (command.params if command is not None else [])
        if isinstance(option.type, click.IntRange | click.FloatRange)
    ]


def row(key: str) -> str:
    return key if key in BOUNDS else key.partition(" ")[2]


NUMBERS: Final = numbers()
CONTEXT: Final = click.Context(click.Command("any"))
each_option = pytest.mark.parametrize(
    ("option", "bounds"), [pytest.param(option, BOUNDS.get(row(key)), id=key) for key, option in NUMBERS]
)


def cast(option: click.Parameter, text: str) -> object:
    """What the command gets for one value of an option."""
    value = option.type_cast_value(CONTEXT, [text] if option.multiple else text)
    return value[0] if option.multiple else value


def test_each_option_with_bounds_has_a_row_and_each_row_an_option() -> None:
    assert {row(key) for key, _ in NUMBERS} == set(BOUNDS)


@each_option
def test_an_option_takes_its_bounds_and_nothing_beyond(option: click.Parameter, bounds: Bounds) -> None:
    """A usage error ends the command with status 2."""
    for taken in (bounds.lowest, 2.0**62 if bounds.highest is None else bounds.highest):
        text = str(int(taken)) if taken == int(taken) else str(taken)
        assert cast(option, text) == taken
    for refused in (bounds.refused, bounds.beyond):
        if refused is not None:
            with pytest.raises(click.BadParameter, match="is not in the range") as error:
                cast(option, str(refused))
            assert error.value.exit_code == 2


FLOATS: Final = [pytest.param(option, id=key) for key, option in NUMBERS if isinstance(option.type, click.FloatRange)]


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-inf"])
@pytest.mark.parametrize("option", FLOATS)
def test_nan_is_in_no_range(option: click.Parameter, text: str) -> None:
    """With --share nan, the executors had failed in the middle of the work."""
    with pytest.raises(click.BadParameter, match="is not in the range") as error:
        cast(option, text)
    assert error.value.exit_code == 2


@each_option
def test_a_number_has_a_fraction_only_where_its_unit_has_one(option: click.Parameter, bounds: Bounds) -> None:
    """Seconds and shares have one; bytes, counts and milliseconds have none."""
    text = "0.9" if bounds.highest == 1 else "1.5"
    if {option.opts[0]} & {"--sync", "--share", "--settle", "--frame-deadline", "--run-seconds", "--seconds"} or bounds in (
        NOT_0,
        TENTH,
    ):
        assert cast(option, text) == float(text)
    else:
        with pytest.raises(click.BadParameter, match="is not a valid integer"):
            cast(option, text)
