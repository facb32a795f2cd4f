"""Which files of an event log the second verdict reads, and in which units.

The runs of a unit are whole: a partition of a campaign, which is published with both of its files; or all files of a log of
version 1, whose partitions nothing names.
"""

from dataclasses import dataclass

from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.published import Part, published
from rocketmq_ha.analysis.schema import WITHOUT_MANIFESTS, check_log
from rocketmq_ha.fuzz.errors import FuzzError

Unit = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """The parts of one log."""

    place: str  # as an executor opens it
    shown: str  # as the user has named it
    parts: tuple[Part, ...]

    @property
    def is_old(self) -> bool:
        return any(part.version == WITHOUT_MANIFESTS for part in self.parts)

    @property
    def units(self) -> list[Unit]:
        """Sets of parts whose runs are whole."""
        return [self.parts] if self.is_old else [(part,) for part in self.parts]


def find(path: str, number: int = 0) -> Log:
    """The files of the log in a directory or under a URI, which is the `number`-th of those that are judged.

    Raises: LogInvalid, for a place that is no log; FuzzError, for a manifest of which nothing can be read.
    """
    campaign = check_log(path)
    files = LogFiles.at(path)
    found = published(files, number, campaign["schema_version"])
    if found.damages:
        first = found.damages[0]
        named = f" ({first.example})" if first.example else ""
        raise FuzzError(f"{first.source}: found {first.reason}{named}, expected a manifest of files that are there")
    return Log(files.place, files.given.rstrip("/"), tuple(found.parts))


def weight_of(unit: Unit) -> int:
    return sum(part.weight for part in unit)
