"""What a campaign that goes on must find in its campaign.json: the file may have been edited or damaged.

Each field that is used is checked, with the range of the option that it comes from. The numbers of the plan are held against
the manifests as well: they alone say which seeds a partition has, so under other numbers the log would get seeds twice, or lack
some, without a word.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.limits import LEAST_MEMORY, LEAST_SECONDS, MOST_MEMORY, MOST_SECONDS
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.spec.event_log import CAMPAIGN_FILE, MANIFEST_DIR, SCHEMA_VERSION

MOST_SEED: Final = 1 << 62  # so that the last run's number is one of 64 bits, too
_SHOWN: Final = 60  # characters of a wrong value
_COUNTS: Final = ("partition", "n_runs", "n_steps", "n_failed", "seed")  # of a manifest
_MISSING: Final = object()


def manifest_name(number: int) -> str:
    return f"{MANIFEST_DIR}/part-{number:08d}.json"


def check_settings(place: str, settings: Mapping[str, Any]) -> None:
    """Check the fields of the campaign.json of a log. Raises: FuzzError, with the first that is wrong."""
    fields = _Fields(f"{place}/{CAMPAIGN_FILE}", settings)
    version = fields.value("schema_version", str(SCHEMA_VERSION))
    if type(version) is not int or version != SCHEMA_VERSION:
        raise fields.wrong("schema_version", version, str(SCHEMA_VERSION))
    name = fields.value("campaign", "the name of a campaign")
    if not isinstance(name, str) or not name:
        raise fields.wrong("campaign", name, "the name of a campaign")
    found = fields.value("plan", "the plan of a campaign that was begun")
    if not isinstance(found, dict):
        raise fields.wrong("plan", found, "the plan of a campaign that was begun")
    plan = _Fields(fields.file, found, "plan.")
    plan.integer("seed", 0, MOST_SEED)
    plan.integer("runs", 1, or_null=True)
    plan.integer("runs_per_partition", 1)
    worlds, told = plan.value("worlds", "a list of worlds"), f"a list of {', '.join(registry.WORLDS)}"
    if not isinstance(worlds, list) or not all(isinstance(world, str) and world in registry.WORLDS for world in worlds):
        raise plan.wrong("worlds", worlds, told)
    if not isinstance(guided := plan.value("guided", "true or false"), bool):
        raise plan.wrong("guided", guided, "true or false")
    seconds, told = plan.value("run_seconds", "a number"), f"a number from {LEAST_SECONDS:g} to {MOST_SECONDS:g}"
    if type(seconds) not in (int, float) or not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise plan.wrong("run_seconds", seconds, told)
    plan.integer("run_memory", LEAST_MEMORY, MOST_MEMORY)
    for name in ("seed", "runs"):  # which the report reads
        if (beside := fields.value(name, f"plan.{name}")) != found[name] or type(beside) is not type(found[name]):
            raise fields.wrong(name, beside, f"{_shown(found[name])}, as plan.{name} has it")


def check_manifests(place: str, plan: Mapping[str, Any], manifests: Mapping[str, Mapping[str, Any]]) -> int:
    """See that the published partitions of a log are those of the plan in its campaign.json.

    Args: plan: after check_settings. manifests: by the name of the file.
    Returns: the end of the runs that the log has, counted from 0. Raises: FuzzError.
    """
    end = 0
    for name, manifest in manifests.items():
        fields = _Fields(f"{place}/{name}", manifest)
        for count in _COUNTS:
            fields.integer(count, 0)
        if not isinstance(runs := fields.value("runs", "the name of a file"), str):
            raise fields.wrong("runs", runs, "the name of a file")
        number = manifest["partition"]
        if name != manifest_name(number):
            raise fields.wrong("partition", number, "the number in the name of the file")
        first = number * plan["runs_per_partition"]
        last = first + plan["runs_per_partition"]
        n_runs = max(0, (last if plan["runs"] is None else min(last, plan["runs"])) - first)
        if (plan["seed"] + first, n_runs) != (manifest["seed"], manifest["n_runs"]):
            given = ", ".join(f"{key} {_shown(plan[key])}" for key in ("seed", "runs", "runs_per_partition"))
            raise FuzzError(
                f"{place}/{CAMPAIGN_FILE}: plan: found {given}, of which partition {number} gets "
                f"{_seeds(plan['seed'] + first, n_runs)}; "
                f"expected numbers that give it {_seeds(manifest['seed'], manifest['n_runs'])}, as {name} says"
            )
        end = max(end, first + n_runs)
    return end


def _seeds(first: int, n_runs: int) -> str:
    return f"{n_runs} runs from seed {first} on" if n_runs else "no runs"


def _shown(value: Any) -> str:
    """A value as the file has it."""
    text = "nothing" if value is _MISSING else json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


class _Fields:
    """The fields of an object in a file."""

    def __init__(self, file: str, values: Mapping[str, Any], prefix: str = "") -> None:
        self.file = file
        self._values = values
        self._prefix = prefix

    def value(self, name: str, expected: str) -> Any:
        """Raises: FuzzError, if it is missing."""
        if name not in self._values:
            raise self.wrong(name, _MISSING, expected)
        return self._values[name]

    def integer(self, name: str, least: int, most: int | None = None, *, or_null: bool = False) -> None:
        expected = f"an integer of {least} or more" if most is None else f"an integer from {least} to {most}"
        expected += ", or null" if or_null else ""
        value = self.value(name, expected)
        if value is None and or_null:
            return
        if type(value) is not int or value < least or (most is not None and value > most):
            raise self.wrong(name, value, expected)

    def wrong(self, name: str, found: Any, expected: str) -> FuzzError:
        return FuzzError(f"{self.file}: {self._prefix}{name}: found {_shown(found)}, expected {expected}")
