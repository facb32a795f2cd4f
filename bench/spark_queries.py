"""Tables of the report as one query each: the DataFrame of Spark over a log that was read, and the same in SQL for DuckDB.

DuckDB answers each query from the files. The report reads the files once, and makes every table from what it counted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from rocketmq_ha.analysis import clauses, coverage, estimates, fragmentation, outcomes, pairs
from rocketmq_ha.analysis.ingest import Log
from rocketmq_ha.analysis.schema import Possible

VIEWS: Final = """
    CREATE VIEW events AS SELECT * FROM '{log}/events/*.parquet';
    CREATE VIEW runs AS SELECT * FROM '{log}/runs/*.parquet';
    CREATE VIEW ranked AS SELECT run_id, profile, phase, row_number() OVER
        (PARTITION BY profile ORDER BY phase = 'replay', run_id) AS run_rank FROM runs;
    CREATE TABLE document AS SELECT * FROM read_text('{transitions}');
    CREATE TABLE possible AS SELECT actor, t->>0 AS from_state, t->>1 AS event, t->>2 AS to_state,
            unnest(from_json(t->3, '["VARCHAR"]')) AS profile
        FROM (SELECT actor, unnest(from_json(content->'machines'->actor->'transitions', '["JSON"]')) AS t
              FROM (SELECT content, unnest(json_keys(content->'machines')) AS actor FROM document));
    CREATE VIEW steps AS SELECT * FROM events JOIN ranked USING (run_id);
"""

Frame = Callable[[SparkSession, Log, Possible], DataFrame]


@dataclass(frozen=True)
class Query:
    """target_s: the most seconds from the files to the table, for 20 million rows on two processors, if there is a target."""

    name: str
    frame: Frame
    sql: str
    target_s: float | None = None


def _growth(spark: SparkSession, log: Log, possible: Possible) -> DataFrame:
    known = coverage.transitions_seen(log.counts).join(
        coverage.possible_transitions(spark, possible), on=list(coverage.TRANSITION), how="left_semi"
    )
    return estimates.growth(known, coverage.ranked_runs(log.counted))


def _estimates(spark: SparkSession, log: Log, possible: Possible) -> DataFrame:
    known = log.counts.join(coverage.possible_transitions(spark, possible), on=list(coverage.TRANSITION), how="left_semi")
    return estimates.estimates(known, log.counted)


QUERIES: Final = (
    Query(
        "transitions",
        lambda _spark, log, _possible: coverage.transitions_seen(log.counts),
        """
        SELECT profile, actor, from_state, event, to_state, count(*), count(DISTINCT run_id),
            arg_min(run_id, (run_rank, step)), min((run_rank, step))[2]
        FROM steps GROUP BY ALL
        """,
        2.5,
    ),
    Query(
        "growth",
        _growth,
        """
        WITH first AS (SELECT profile, min(run_rank) AS r FROM steps
                JOIN possible USING (profile, actor, from_state, event, to_state)
                GROUP BY profile, actor, from_state, event, to_state),
             points AS (SELECT profile, r FROM first UNION SELECT profile, max(run_rank) FROM ranked GROUP BY 1)
        SELECT profile, r, (SELECT count(*) FROM first WHERE first.profile = points.profile AND first.r <= points.r)
        FROM points
        """,
        3.5,
    ),
    Query(
        "estimates",
        _estimates,
        """
        WITH species AS (SELECT profile, count(DISTINCT run_id) AS k FROM steps
                JOIN possible USING (profile, actor, from_state, event, to_state)
                WHERE phase = 'generate' GROUP BY profile, actor, from_state, event, to_state)
        SELECT coalesce(s.profile, 'all') AS p,
            (SELECT count(*) FROM runs WHERE phase = 'generate' AND (s.profile IS NULL OR profile = s.profile)),
            count(*), count(*) FILTER (k = 1), count(*) FILTER (k = 2)
        FROM species AS s GROUP BY ROLLUP (s.profile)
        """,
    ),
    Query(
        "clauses",
        lambda spark, log, possible: clauses.clause_coverage(log.counts, clauses.possible_clauses(spark, possible)),
        """
        SELECT clause, count(*), count(DISTINCT run_id)
        FROM (SELECT run_id, unnest(clauses) AS clause FROM events) GROUP BY ALL
        """,
    ),
    Query(
        "fragmentation",
        lambda spark, log, _: fragmentation.fragmentation(log.counts, fragmentation.places(spark)),
        """
        SELECT actor, event, CASE WHEN event = 'reports' OR split_at <= 12 THEN split_at::VARCHAR
                WHEN split_at < 16 THEN 'body 1-3' WHEN split_at < 28 THEN 'body 4-15'
                WHEN split_at < 76 THEN 'body 16-63' WHEN split_at < 268 THEN 'body 64-255'
                ELSE 'body 256+' END AS bucket, count(*), count(DISTINCT run_id)
        FROM events WHERE fragment_len > 0 AND split_at > 0 GROUP BY ALL
        """,
    ),
    Query(
        "pairs",
        lambda _spark, log, _possible: pairs.pairs_seen(log.counts),
        """
        SELECT profile, actor, from_state, event, to_state, next_event, next_state, count(*), count(DISTINCT run_id)
        FROM (SELECT *, lead(event) OVER w AS next_event, lead(to_state) OVER w AS next_state,
                  lead(from_state) OVER w AS next_from
              FROM steps WINDOW w AS (PARTITION BY run_id, actor, instance ORDER BY step))
        WHERE next_from = to_state GROUP BY ALL
        """,
    ),
    Query(
        "faults",
        lambda _spark, log, _possible: outcomes.faults(log.counts),
        """
        WITH op AS (SELECT fault, run_id, op_index, count(*) AS n FROM events WHERE fault <> 'none' GROUP BY ALL)
        SELECT fault, count(*), count(DISTINCT run_id), sum(n) FROM op GROUP BY ALL
        """,
    ),
    Query(
        "integrity",
        lambda _spark, log, _possible: outcomes.integrity(log.counts, log.all_runs, log.missing),
        """
        WITH found AS (SELECT run_id, count(*) AS n FROM events GROUP BY ALL)
        SELECT sum(coalesce(n, 0)), count(runs.run_id), count(*) FILTER (runs.run_id IS NULL),
            count(*) FILTER (runs.run_id IS NOT NULL AND coalesce(n, 0) <> n_steps)
        FROM found FULL JOIN runs USING (run_id)
        """,
    ),
)


def duckdb_of(log: Path, transitions: Path, threads: int) -> "Callable[[str], list[tuple[object, ...]]]":
    """A function that answers a query over the log."""
    import duckdb

    db = duckdb.connect()
    db.execute(f"SET threads = {threads}")
    db.execute(VIEWS.format(log=log, transitions=transitions))
    return lambda sql: db.sql(sql).fetchall()
