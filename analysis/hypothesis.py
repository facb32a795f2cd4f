"""The table of what test cases of Hypothesis did, as far as its lines tell (fuzz/observed.py)."""

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from rocketmq_ha.analysis.count_rows import CASE


def hypothesis_cases(counts: DataFrame) -> DataFrame:
    """The rules, the features and the outcomes of each property. Columns: property, kind, name, n, n_runs.

    kind: "rule" of a state machine, "feature", or "case" with the status as its name. n: how often; a feature at most once in
    a case. n_runs: in how many test cases.
    """
    return (
        counts.where(sf.col("kind") == CASE)
        .groupBy(sf.col("actor").alias("property"), sf.col("from_state").alias("case_kind"), sf.col("event").alias("name"))
        .agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"))
        .select("property", sf.col("case_kind").alias("kind"), "name", "n", "n_runs")
    )
