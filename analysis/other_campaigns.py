"""The campaigns beside the one that is reported: the older one of `--compare`, and those of `--trend`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rocketmq_ha.analysis import ingest, schema, tables, trend
from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.output import Output
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import CAMPAIGN_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: str = ".html"


@dataclass(frozen=True, slots=True)
class Older:
    """The campaign to compare with: a log, or the tables of its report, for the log may be gone."""

    place: str
    campaign: Mapping[str, Any] | None  # of a log
    tables: Mapping[str, pa.Table] | None  # of a report

    @classmethod
    def at(cls, place: str) -> "Older":
        """Raises: LogInvalid, if the place is neither a log, nor a report, nor the folder of a report's tables."""
        if place.endswith(PAGE):
            return cls(place, None, tables.read(Output(Path(place)).tables))
        if LogFiles.at(place).kind(CAMPAIGN_FILE) or not any(Path(place).glob("*.parquet")):
            return cls(place, schema.check_log(place), None)
        return cls(place, None, tables.read(Path(place)))

    @property
    def n_stages(self) -> int:
        return len(tables.COMPARISON_TITLES) + (0 if self.tables is not None else len(tables.TITLES))

    def compare(
        self, spark: "SparkSession", newer: Mapping[str, pa.Table], possible: Possible, show_stage: Callable[[str], object]
    ) -> dict[str, pa.Table]:
        """Return the tables of the comparison."""
        older = self.tables
        if older is None:
            log = ingest.read_logs(spark, [self.place], [dict(self.campaign or {})], worlds=possible.worlds)
            older = tables.compute(spark, log, possible, lambda title: show_stage(f"older campaign: {title}"))
        return tables.compare(spark, older, newer, show_stage)


def logs_of_trend(directory: Path) -> Sequence[Path]:
    """Return the logs of a directory. Raises: LogInvalid, also for one that cannot be read."""
    logs = trend.campaigns_in(directory)
    for log in logs:
        schema.check_log(log)
    return logs
