"""DuckDB as an independent oracle: it computes the same tables in SQL from the same files, a synthetic log of 50,000 rows.

Spark is used because it can read many logs on many machines. On one small machine DuckDB is faster. The two share the file
format, but no code.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kit import event_logs
from rocketmq_ha.analysis import tables
from rocketmq_ha.analysis.ingest import read_logs
from rocketmq_ha.analysis.schema import load_possible

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

N_RUNS = 500
MEAN_STEPS = 100

Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    events, runs = event_logs.random_rows(11, N_RUNS, MEAN_STEPS, failing=True)
    return event_logs.write_log(tmp_path_factory.mktemp("oracle") / "log", events, runs, files=5)


@pytest.fixture(scope="module")
def computed(spark: SparkSession, log: Path, transitions_file: Path) -> dict[str, pa.Table]:
    return tables.compute(spark, read_logs(spark, [log]), load_possible(transitions_file))


@pytest.fixture(scope="module")
def query(log: Path, transitions_file: Path) -> Query:
    """Run SQL over the views events, runs, ranked, seen, possible."""
    db = duckdb.connect()
    db.execute(f"""
        CREATE VIEW events AS SELECT * FROM '{log}/events/*.parquet';
        CREATE VIEW runs AS SELECT * FROM '{log}/runs/*.parquet';
        CREATE VIEW ranked AS SELECT run_id, profile, phase, row_number() OVER
            (PARTITION BY profile ORDER BY phase = 'replay', run_id) AS run_rank FROM runs;
        CREATE TABLE document AS SELECT * FROM read_text('{transitions_file}');
        CREATE VIEW possible AS SELECT actor, t->>0 AS from_state, t->>1 AS event, t->>2 AS to_state,
                unnest(from_json(t->3, '["VARCHAR"]')) AS profile
            FROM (SELECT actor, unnest(from_json(content->'machines'->actor->'transitions', '["JSON"]')) AS t
                  FROM (SELECT content, unnest(json_keys(content->'machines')) AS actor FROM document));
        CREATE VIEW steps AS SELECT * FROM events JOIN ranked USING (run_id);
    """)
    return lambda sql: db.sql(sql).fetchall()


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_log_is_large_enough(query: Query) -> None:
    (n, actors), *_ = query("SELECT count(*), count(DISTINCT actor) FROM events")
    assert n > 45_000
    assert actors == 4


def test_transitions_seen_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        SELECT profile, actor, from_state, event, to_state, count(*), count(DISTINCT run_id),
            arg_min(run_id, (run_rank, step)), min((run_rank, step))[2]
        FROM steps GROUP BY ALL ORDER BY actor, from_state, event, to_state, profile
    """)
    assert as_rows(computed["transitions_seen"]) == expected


def test_transitions_never_seen_and_impossible_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    columns = "profile, actor, from_state, event, to_state"
    order = "ORDER BY actor, from_state, event, to_state, profile"
    seen = f"SELECT DISTINCT {columns} FROM steps"
    never = query(f"SELECT {columns} FROM possible EXCEPT ({seen}) {order}")
    impossible = query(f"({seen}) EXCEPT SELECT {columns} FROM possible {order}")
    assert never
    assert len(impossible) == 1
    assert as_rows(computed["transitions_never_seen"]) == never
    assert [row[:5] for row in as_rows(computed["transitions_impossible"])] == impossible


def test_matrix_agrees_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        WITH seen AS (SELECT profile, actor, from_state, event, to_state, count(*) AS n FROM steps GROUP BY ALL),
             p AS (SELECT *, true AS possible FROM possible)
        SELECT actor, from_state, event, coalesce(sum(n), 0)::BIGINT, count(*) FILTER (possible AND n > 0),
            count(*) FILTER (possible)
        FROM p FULL JOIN seen USING (profile, actor, from_state, event, to_state) GROUP BY ALL ORDER BY 1, 2, 3
    """)
    cells = as_rows(computed["matrix"])
    assert [cell[:6] for cell in cells] == expected
    assert {cell[6] for cell in cells} == {"seen", "partly", "never", "impossible"}


def test_clauses_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        SELECT clause, count(*), count(DISTINCT run_id)
        FROM (SELECT run_id, unnest(clauses) AS clause FROM events) GROUP BY ALL ORDER BY 1
    """)
    found = as_rows(computed["clauses"])
    assert [(clause, n, n_runs) for clause, _, n, n_runs in found if n] == expected
    assert {clause for clause, _, n, _ in found if n == 0} == set(event_logs.NEVER_EXERCISED)


def test_fragmentation_agrees_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        SELECT actor, event, CASE WHEN event = 'reports' OR split_at <= 12 THEN split_at::VARCHAR
                WHEN split_at < 16 THEN 'body 1-3' WHEN split_at < 28 THEN 'body 4-15'
                WHEN split_at < 76 THEN 'body 16-63' WHEN split_at < 268 THEN 'body 64-255'
                ELSE 'body 256+' END AS bucket,
            count(*), count(DISTINCT run_id)
        FROM events WHERE fragment_len > 0 AND split_at > 0 GROUP BY ALL
    """)
    found = computed["fragmentation"].to_pylist()
    hit = [(row["actor"], row["event"], row["bucket"], row["n"], row["n_runs"]) for row in found if row["n"]]
    assert sorted(hit) == sorted(expected)
    frames = [row["never"] for row in computed["never_split"].to_pylist() if row["unit"] == "frame"]
    assert frames == [list(event_logs.NEVER_SPLIT_AT)] * 2


def test_growth_agrees_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        WITH first AS (SELECT profile, min(run_rank) AS r FROM steps
                JOIN possible USING (profile, actor, from_state, event, to_state)
                GROUP BY profile, actor, from_state, event, to_state),
             points AS (SELECT profile, r FROM first UNION SELECT profile, max(run_rank) FROM ranked GROUP BY 1)
        SELECT profile, r, (SELECT count(*) FROM first WHERE first.profile = points.profile AND first.r <= points.r)
        FROM points ORDER BY 1, 2
    """)
    assert as_rows(computed["growth"]) == expected


def test_estimates_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        WITH species AS (SELECT profile, count(DISTINCT run_id) AS k FROM steps
                JOIN possible USING (profile, actor, from_state, event, to_state)
                WHERE phase = 'generate' GROUP BY profile, actor, from_state, event, to_state)
        SELECT coalesce(s.profile, 'all') AS p,
            (SELECT count(*) FROM runs WHERE phase = 'generate' AND (s.profile IS NULL OR profile = s.profile)),
            count(*), count(*) FILTER (k = 1), count(*) FILTER (k = 2)
        FROM species AS s GROUP BY ROLLUP (s.profile) ORDER BY 1
    """)
    found = as_rows(computed["estimates"])
    assert [row[:5] for row in found] == expected
    for _, m, seen, q1, q2, unseen, chao2 in found:
        assert unseen == q1 / m
        assert chao2 == pytest.approx(seen + (m - 1) / m * (q1**2 / (2 * q2) if q2 else q1 * (q1 - 1) / 2))


def test_outcomes_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    assert as_rows(computed["summary"]) == query("""
        SELECT profile, phase, verdict, count(*), sum(n_steps)::BIGINT, sum(nbytes)::BIGINT, sum(n_messages)::BIGINT
        FROM runs GROUP BY ALL ORDER BY 1, 2, 3
    """)
    assert as_rows(computed["run_sizes"]) == query("SELECT count(*), median(n_steps), median(n_ops), max(n_steps) FROM runs")
    assert [row[:4] for row in as_rows(computed["divergences"])] == query("""
        SELECT verdict, signature, count(*), arg_min(run_id, (n_ops, run_id)) FROM runs
        WHERE verdict <> 'ok' GROUP BY ALL ORDER BY 1, 2
    """)
    assert as_rows(computed["faults"]) == query("""
        SELECT fault, count(DISTINCT (run_id, op_index)), count(DISTINCT run_id), count(*) FROM events
        WHERE fault <> 'none' GROUP BY ALL ORDER BY 1
    """)
    (events, runs), *_ = query("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM runs)")
    assert as_rows(computed["integrity"]) == [(events, runs, 0, 0, 0)]
