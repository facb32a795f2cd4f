"""Tables of pairs: two transitions that one instance of a machine took one after the other in a run.

A pair is (profile, actor, from_state, event, to_state, next_event, next_state); the second transition begins in to_state.
"""

from typing import Final

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from rocketmq_ha.analysis.count_rows import PAIR as PAIR_ROW
from rocketmq_ha.analysis.coverage import TRANSITION

PAIR: Final = (*TRANSITION, "next_event", "next_state")


def possible_pairs(possible: DataFrame) -> DataFrame:
    """The pairs of possible transitions of which the second begins where the first ends. Columns: PAIR.

    Not every one of them can happen: what a machine does next may depend on more than its discrete state.

    Args: possible: columns of coverage.possible_transitions.
    """
    following = possible.select(
        "profile",
        "actor",
        sf.col("from_state").alias("to_state"),
        sf.col("event").alias("next_event"),
        sf.col("to_state").alias("next_state"),
    )
    return possible.join(following, on=["profile", "actor", "to_state"], how="inner").select(*PAIR)


def pairs_seen(counts: DataFrame) -> DataFrame:
    """The pairs that some run took. Columns: PAIR, n, n_runs."""
    return (
        counts.where(sf.col("kind") == PAIR_ROW)
        .groupBy(*PAIR)
        .agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"))
        .select(*PAIR, "n", "n_runs")
    )


def pairs_by_machine(seen: DataFrame, possible: DataFrame) -> DataFrame:
    """How many pairs of each machine were seen. Columns: profile, actor, n_possible, n_seen, n_never, n_impossible.

    n_seen: of the possible ones. n_impossible: pairs that were seen and are not possible, because one of their transitions is
    not.

    Args: possible: columns of possible_pairs, of the profiles that were run.
    """
    listed = possible.withColumn("is_possible", sf.lit(True))
    both = listed.join(seen.select(*PAIR, "n"), on=list(PAIR), how="full_outer")
    is_possible, is_seen = sf.coalesce("is_possible", sf.lit(False)), sf.col("n").isNotNull()
    return (
        both.groupBy("profile", "actor")
        .agg(
            sf.count_if(is_possible).alias("n_possible"),
            sf.count_if(is_possible & is_seen).alias("n_seen"),
            sf.count_if(is_possible & ~is_seen).alias("n_never"),
            sf.count_if(~is_possible).alias("n_impossible"),
        )
        .select("profile", "actor", "n_possible", "n_seen", "n_never", "n_impossible")
    )
