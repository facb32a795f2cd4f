"""Tables of the clauses: which the runs exercised, in which worlds, and what holds the others."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from rocketmq_ha.analysis.count_rows import CLAUSE
from rocketmq_ha.analysis.schema import Possible

# Where a clause is held.
SCHEDULE_SEEN: Final = "schedule"  # a run exercised it
SCHEDULE_NEVER: Final = "schedule, never"  # a schedule could, and none did
OTHER_WORLD: Final = "schedule, other world"  # a schedule of a world that is not measured could
TESTS: Final = "tests"  # no schedule can; tests quote it
REASON: Final = "reason"  # neither; the specification says why
UNKNOWN: Final = "unknown"  # the runs name it, the specification does not

_TEXT: Final = pa.string()


def possible_clauses(spark: SparkSession, possible: Possible) -> DataFrame:
    """The clauses that the model exercises. Columns: clause, sentence."""
    return _frame(spark, {"clause": _TEXT, "sentence": _TEXT}, list(possible.clauses.items()))


def possible_clause_worlds(spark: SparkSession, possible: Possible) -> DataFrame:
    """The worlds whose schedules exercise a clause. Columns: clause, world."""
    pairs = [(clause, world) for clause, worlds in possible.worlds_of.items() for world in worlds]
    return _frame(spark, {"clause": _TEXT, "world": _TEXT}, pairs)


def clauses_elsewhere(spark: SparkSession, possible: Possible) -> DataFrame:
    """The clauses that no schedule exercises. Columns: clause, sentence, tests, reason."""
    rows = [(clause, found.sentence, list(found.tests), found.reason) for clause, found in possible.elsewhere.items()]
    return _frame(spark, {"clause": _TEXT, "sentence": _TEXT, "tests": pa.list_(_TEXT), "reason": _TEXT}, rows)


def _frame(spark: SparkSession, columns: dict[str, pa.DataType], rows: Sequence[tuple[object, ...]]) -> DataFrame:
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])
    values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    return spark.createDataFrame(pa.table(values, schema))


def clause_coverage(counts: DataFrame, clauses: DataFrame) -> DataFrame:
    """The clauses with the number of steps that exercised each. Columns: clause, sentence, n, n_runs.

    n is 0 if no run exercised the clause. sentence is empty if the model does not list the clause.
    """
    exercised = _exercised(counts, "clause")
    return clauses.join(exercised, on="clause", how="full_outer").select(
        "clause",
        sf.coalesce("sentence", sf.lit("")).alias("sentence"),
        sf.coalesce("n", sf.lit(0)).alias("n"),
        sf.coalesce("n_runs", sf.lit(0)).alias("n_runs"),
    )


def in_worlds_measured(clauses: DataFrame, measured: DataFrame) -> DataFrame:
    """The clauses that the runs exercised or could have exercised. Columns: those of clause_coverage.

    Args: clauses: columns of clause_coverage. measured: columns of possible_clauses, of the worlds measured.
    """
    could = measured.select("clause", sf.lit(True).alias("could"))
    both = clauses.join(could, on="clause", how="left").where((sf.col("n") > 0) | sf.col("could"))
    return both.select("clause", "sentence", "n", "n_runs")


def clauses_by_world(counts: DataFrame, clause_worlds: DataFrame, worlds: DataFrame) -> DataFrame:
    """Clause by world, for the worlds measured. Columns: clause, world, n, n_runs, is_expected.

    is_expected: schedules of the world can exercise the clause, as the specification has it. n is 0 where they can and no run
    did. A row with n > 0 and without is_expected means that the table of the specification is stale.

    Args: worlds: columns of coverage.worlds_measured.
    """
    expected = clause_worlds.join(worlds, on="world", how="left_semi").withColumn("is_expected", sf.lit(True))
    both = expected.join(_exercised(counts, "clause", "world"), on=["clause", "world"], how="full_outer")
    return both.select(
        "clause",
        "world",
        sf.coalesce("n", sf.lit(0)).alias("n"),
        sf.coalesce("n_runs", sf.lit(0)).alias("n_runs"),
        sf.coalesce("is_expected", sf.lit(False)).alias("is_expected"),
    )


def clauses_held(clauses: DataFrame, elsewhere: DataFrame, measured: DataFrame) -> DataFrame:
    """Every clause of the specification, and what holds it. Columns: clause, sentence, held, n, n_runs, tests, reason.

    held: SCHEDULE_SEEN, SCHEDULE_NEVER, OTHER_WORLD, TESTS, REASON or UNKNOWN. tests: files that quote it, for those held by
    TESTS.

    Args: clauses: columns of clause_coverage. measured: columns of possible_clauses, of the worlds measured.
    """
    could = measured.select("clause", sf.lit(True).alias("could"))
    unseen = sf.when(sf.col("could"), SCHEDULE_NEVER).otherwise(OTHER_WORLD)
    scheduled = clauses.join(could, on="clause", how="left").select(
        "clause",
        "sentence",
        sf.when(sf.col("sentence") == "", UNKNOWN).when(sf.col("n") > 0, SCHEDULE_SEEN).otherwise(unseen).alias("held"),
        "n",
        "n_runs",
        sf.array().cast("array<string>").alias("tests"),
        sf.lit("").alias("reason"),
    )
    # A run may exercise a clause that the specification holds elsewhere. Then its row says both.
    both = scheduled.alias("s").join(elsewhere.alias("e"), on="clause", how="full_outer")
    by_others = sf.when(sf.size("e.tests") > 0, TESTS).otherwise(REASON)
    is_exercised = sf.coalesce(sf.col("s.n"), sf.lit(0)) > 0
    held = sf.when(sf.col("e.sentence").isNull(), sf.col("s.held")).when(is_exercised, SCHEDULE_SEEN).otherwise(by_others)
    return both.select(
        "clause",
        sf.coalesce("e.sentence", "s.sentence").alias("sentence"),
        held.alias("held"),
        sf.coalesce("s.n", sf.lit(0)).alias("n"),
        sf.coalesce("s.n_runs", sf.lit(0)).alias("n_runs"),
        sf.coalesce("e.tests", "s.tests").alias("tests"),
        sf.coalesce("e.reason", "s.reason").alias("reason"),
    )


def _exercised(counts: DataFrame, *keys: str) -> DataFrame:
    of_clauses = counts.where(sf.col("kind") == CLAUSE)
    return of_clauses.groupBy(*keys).agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"))
