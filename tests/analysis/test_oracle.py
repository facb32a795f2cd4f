"""DuckDB as an independent oracle: it computes the same tables in SQL from the same files, two synthetic logs of 50,000 rows.

One log is of version 2 and has two worlds; the other is of version 1, and repeats seeds of the first. Spark is used because it
can read many logs on many machines. On one small machine DuckDB is faster. The two share the file format, but no code.
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

N_RUNS, N_RUNS_BEFORE = 430, 110
MEAN_STEPS = 100

Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("oracle")
    events, runs = event_logs.random_rows(12, N_RUNS, MEAN_STEPS, failing=True, worlds=event_logs.WORLDS)
    newer = event_logs.write_log(directory / "newer", events, runs, files=5)
    events, runs = event_logs.random_rows(12, N_RUNS_BEFORE, MEAN_STEPS, failing=True)
    return newer, event_logs.write_log(directory / "old", events, runs, files=2, version=1)


@pytest.fixture(scope="module")
def computed(spark: SparkSession, logs: tuple[Path, Path], transitions_file: Path) -> dict[str, pa.Table]:
    possible = load_possible(transitions_file)
    return tables.compute(spark, read_logs(spark, logs, worlds=possible.worlds), possible)


@pytest.fixture(scope="module")
def query(logs: tuple[Path, Path], transitions_file: Path) -> Query:
    """Run SQL over the views events, runs, ranked, steps, possible, pairs, clauses."""
    newer, old = logs
    db = duckdb.connect()
    db.execute(f"""
        CREATE VIEW all_runs AS SELECT 0 AS log, * FROM '{newer}/runs/*.parquet' UNION ALL BY NAME
            SELECT 1 AS log, *, 'link' AS world, 0::BIGINT AS digest, '' AS recipe, -1::BIGINT AS elapsed_us
            FROM '{old}/runs/*.parquet';
        CREATE TABLE runs AS SELECT * FROM all_runs AS a WHERE NOT EXISTS (SELECT 1 FROM all_runs AS b
            WHERE a.phase IN ('generate', 'guided') AND b.phase = a.phase AND b.log <> a.log
                AND (b.verdict = 'ok', b.log) < (a.verdict = 'ok', a.log)
                AND b.world = a.world AND b.run_id = a.run_id AND (a.phase = 'generate' OR b.digest = a.digest));
        CREATE TABLE events AS SELECT * FROM (SELECT 0 AS log, * FROM '{newer}/events/*.parquet' UNION ALL BY NAME
            SELECT 1 AS log, *, 'link' AS world FROM '{old}/events/*.parquet') SEMI JOIN runs USING (log, run_id);
        CREATE TABLE ranked AS SELECT log, run_id, profile, world, phase,
            row_number() OVER (PARTITION BY profile ORDER BY late, log, place, run_id) AS run_rank,
            row_number() OVER (PARTITION BY profile, world ORDER BY late, log, place, run_id) AS world_rank
            FROM (SELECT *, phase NOT IN ('generate', 'guided') AS late,
                  CASE WHEN run_id < 0 THEN -run_id - 1 ELSE run_id END AS place FROM runs);
        CREATE TABLE document AS SELECT * FROM read_text('{transitions_file}');
        CREATE TABLE machines AS SELECT actor, content->'machines'->actor AS machine
            FROM (SELECT content, unnest(json_keys(content->'machines')) AS actor FROM document);
        CREATE TABLE possible AS SELECT actor, t->>0 AS from_state, t->>1 AS event, t->>2 AS to_state,
                unnest(from_json(t->3, '["VARCHAR"]')) AS profile
            FROM (SELECT actor, unnest(from_json(machine->'transitions', '["JSON"]')) AS t FROM machines);
        CREATE TABLE actor_worlds AS SELECT actor, unnest(from_json(machine->'worlds', '["VARCHAR"]')) AS world FROM machines;
        CREATE TABLE states AS SELECT actor, unnest(from_json(machine->'states', '["VARCHAR"]')) AS state FROM machines;
        CREATE TABLE clauses AS SELECT clause, content->'clauses'->clause->>'sentence' AS sentence,
                from_json(content->'clauses'->clause->'worlds', '["VARCHAR"]') AS worlds
            FROM (SELECT content, unnest(json_keys(content->'clauses')) AS clause FROM document);
        CREATE TABLE steps AS SELECT events.*, run_rank, world_rank, profile, phase
            FROM events JOIN ranked USING (log, run_id);
        CREATE TABLE pairs AS SELECT * FROM (SELECT log, run_id, profile, actor, from_state, event, to_state,
                lead(event) OVER w AS next_event, lead(to_state) OVER w AS next_state, lead(from_state) OVER w AS next_from
                FROM steps WINDOW w AS (PARTITION BY log, run_id, actor, instance ORDER BY step))
            WHERE next_from = to_state;
    """)
    return lambda sql: db.sql(sql).fetchall()


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_logs_are_large_enough_and_share_runs(query: Query) -> None:
    (n, actors), *_ = query("SELECT count(*), count(DISTINCT actor) FROM events")
    assert n > 45_000
    assert actors == 4
    (counted, repeated, collisions), *_ = query("""
        SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM all_runs) - (SELECT count(*) FROM runs),
            (SELECT count(*) FROM runs AS a JOIN runs AS b ON a.run_id = b.run_id AND a.log < b.log)
    """)
    assert counted + repeated == N_RUNS + N_RUNS_BEFORE
    assert repeated > 50
    assert collisions > 30  # of numbers that are not seeds, and of seeds in other worlds


def test_transitions_seen_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        SELECT profile, actor, from_state, event, to_state, count(*), count(DISTINCT (log, run_id)),
            arg_min(run_id, (run_rank, step)), min((run_rank, step))[2], arg_min(log, (run_rank, step))
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


def test_starved_transitions_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        WITH taken AS (SELECT profile, actor, from_state, event, to_state, count(*) AS n,
                count(DISTINCT (log, run_id)) AS n_runs
                FROM steps SEMI JOIN possible USING (profile, actor, from_state, event, to_state)
                WHERE phase = 'generate' GROUP BY ALL),
             sample AS (SELECT profile, actor, count(*) AS m FROM runs JOIN actor_worlds USING (world)
                WHERE phase = 'generate' GROUP BY ALL)
        SELECT profile, actor, from_state, event, to_state, n, n_runs, m, pow(1 - n_runs / m, m),
            ceil(ln(0.01) / ln(1 - n_runs / m))::BIGINT
        FROM taken JOIN sample USING (profile, actor) WHERE n_runs < 5
        ORDER BY n_runs, actor, from_state, event, to_state, profile
    """)
    found = as_rows(computed["starved"])
    assert found
    assert [row[:8] + row[9:] for row in found] == [row[:8] + row[9:] for row in expected]
    assert [row[8] for row in found] == pytest.approx([row[8] for row in expected])


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


def test_pairs_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        SELECT profile, actor, from_state, event, to_state, next_event, next_state, count(*), count(DISTINCT (log, run_id))
        FROM pairs GROUP BY ALL ORDER BY actor, from_state, event, to_state, next_event, next_state, profile
    """)
    assert len(expected) > 200
    assert as_rows(computed["pairs"]) == expected
    by_machine = query("""
        WITH p AS (SELECT a.profile, a.actor, a.from_state, a.event, a.to_state, b.event AS next_event, b.to_state AS next_state
                FROM possible AS a JOIN possible AS b ON a.profile = b.profile AND a.actor = b.actor
                    AND a.to_state = b.from_state),
             s AS (SELECT DISTINCT profile, actor, from_state, event, to_state, next_event, next_state FROM pairs)
        SELECT coalesce(p.profile, s.profile), coalesce(p.actor, s.actor), count(p.actor),
            count(*) FILTER (p.actor IS NOT NULL AND s.actor IS NOT NULL), count(*) FILTER (s.actor IS NULL),
            count(*) FILTER (p.actor IS NULL)
        FROM p FULL JOIN s ON (p.profile, p.actor, p.from_state, p.event, p.to_state, p.next_event, p.next_state)
            = (s.profile, s.actor, s.from_state, s.event, s.to_state, s.next_event, s.next_state)
        GROUP BY 1, 2 ORDER BY 2, 1
    """)
    assert as_rows(computed["pairs_by_machine"]) == by_machine


def test_clauses_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        SELECT clause, count(*), count(DISTINCT (log, run_id))
        FROM (SELECT log, run_id, unnest(clauses) AS clause FROM events) GROUP BY ALL ORDER BY 1
    """)
    found = as_rows(computed["clauses"])
    assert [(clause, n, n_runs) for clause, _, n, n_runs in found if n] == expected
    assert {clause for clause, _, n, _ in found if n == 0} == set(event_logs.NEVER_EXERCISED)


def test_clauses_of_each_world_and_what_holds_them_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    seen = "(SELECT log, run_id, world, unnest(clauses) AS clause FROM events)"
    assert as_rows(computed["clauses_by_world"]) == query(f"""
        WITH e AS (SELECT clause, unnest(worlds) AS world FROM clauses),
             s AS (SELECT clause, world, count(*) AS n, count(DISTINCT (log, run_id)) AS n_runs FROM {seen} GROUP BY ALL)
        SELECT clause, world, coalesce(n, 0), coalesce(n_runs, 0), e.clause IS NOT NULL
        FROM e FULL JOIN s USING (clause, world) ORDER BY 1, 2
    """)
    held = {row["clause"]: row for row in computed["clauses_held"].to_pylist()}
    by_schedule = query(f"""
        SELECT clause, CASE WHEN n > 0 THEN 'schedule' ELSE 'schedule, never' END, coalesce(n, 0) FROM clauses
        LEFT JOIN (SELECT clause, count(*) AS n FROM {seen} GROUP BY 1) USING (clause) ORDER BY 1
    """)
    assert [(c, held[c]["held"], held[c]["n"]) for c in sorted(event_logs.CLAUSES)] == by_schedule
    assert {c: (row["held"], row["tests"], row["reason"]) for c, row in held.items() if c not in event_logs.CLAUSES} == {
        "HA-X-1": ("tests", ["tests/net/test_x.py"], ""),
        "HA-X-2": ("reason", [], "it is a wish"),
    }


def test_fragmentation_agrees_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    expected = query("""
        SELECT actor, event, CASE WHEN event = 'reports' OR split_at <= 12 THEN split_at::VARCHAR
                WHEN split_at < 16 THEN 'body 1-3' WHEN split_at < 28 THEN 'body 4-15'
                WHEN split_at < 76 THEN 'body 16-63' WHEN split_at < 268 THEN 'body 64-255'
                ELSE 'body 256+' END AS bucket,
            count(*), count(DISTINCT (log, run_id))
        FROM events WHERE fragment_len > 0 AND split_at > 0 GROUP BY ALL
    """)
    found = computed["fragmentation"].to_pylist()
    hit = [(row["actor"], row["event"], row["bucket"], row["n"], row["n_runs"]) for row in found if row["n"]]
    assert sorted(hit) == sorted(expected)
    frames = [row["never"] for row in computed["never_split"].to_pylist() if row["unit"] == "frame"]
    assert frames == [list(event_logs.NEVER_SPLIT_AT)] * 2


@pytest.mark.parametrize(
    ("table", "keys", "rank"), [("growth", "profile", "run_rank"), ("growth_by_world", "world, profile", "world_rank")]
)
def test_growth_agrees_with_duckdb(computed: dict[str, pa.Table], query: Query, table: str, keys: str, rank: str) -> None:
    world = "AND first.world = points.world" if "world" in keys else ""
    expected = query(f"""
        WITH first AS (SELECT {keys}, min({rank}) AS r FROM steps
                JOIN possible USING (profile, actor, from_state, event, to_state)
                GROUP BY {keys}, actor, from_state, event, to_state),
             points AS (SELECT {keys}, r FROM first UNION SELECT {keys}, max({rank}) FROM ranked GROUP BY {keys})
        SELECT {keys}, r, (SELECT count(*) FROM first
            WHERE first.profile = points.profile {world} AND first.r <= points.r)
        FROM points ORDER BY ALL
    """)
    assert as_rows(computed[table]) == expected


@pytest.mark.parametrize(("table", "world"), [("estimates", ""), ("estimates_by_world", "world, ")])
def test_estimates_agree_with_duckdb(computed: dict[str, pa.Table], query: Query, table: str, world: str) -> None:
    same = "AND runs.world = s.world" if world else ""
    expected = query(f"""
        WITH species AS (SELECT {world}profile, count(DISTINCT (log, run_id)) AS k FROM steps
                JOIN possible USING (profile, actor, from_state, event, to_state)
                WHERE phase = 'generate' GROUP BY {world}profile, actor, from_state, event, to_state)
        SELECT {world}coalesce(s.profile, 'all') AS p,
            (SELECT count(*) FROM runs WHERE phase = 'generate' {same} AND (s.profile IS NULL OR profile = s.profile)),
            count(*), count(*) FILTER (k = 1), count(*) FILTER (k = 2)
        FROM species AS s GROUP BY {world}ROLLUP (s.profile) ORDER BY ALL
    """)
    found = as_rows(computed[table])
    assert [row[:-2] for row in found] == expected
    for *_, m, seen, q1, q2, unseen, chao2 in found:
        assert unseen == q1 / m
        assert chao2 == pytest.approx(seen + (m - 1) / m * (q1**2 / (2 * q2) if q2 else q1 * (q1 - 1) / 2))


def test_outcomes_agree_with_duckdb(computed: dict[str, pa.Table], query: Query, logs: tuple[Path, Path]) -> None:
    assert as_rows(computed["summary"]) == query("""
        SELECT profile, phase, verdict, count(*), sum(n_steps)::BIGINT, sum(nbytes)::BIGINT, sum(n_messages)::BIGINT
        FROM runs GROUP BY ALL ORDER BY 1, 2, 3
    """)
    assert as_rows(computed["run_sizes"]) == query("SELECT count(*), median(n_steps), median(n_ops), max(n_steps) FROM runs")
    expected = query("""
        WITH r AS (SELECT *, row_number() OVER w AS nth, count(*) OVER (PARTITION BY verdict, signature) AS n
                FROM runs WHERE verdict <> 'ok' WINDOW w AS (PARTITION BY verdict, signature ORDER BY n_ops, log, run_id))
        SELECT verdict, signature, n, run_id, n_ops, failing_op, profile, detail, world, phase, log, digest
        FROM r WHERE nth = 1 ORDER BY 1, 2
    """)
    found = computed["divergences"].to_pylist()
    assert [tuple(value for name, value in row.items() if name != "replay") for row in found] == expected
    for row in found:
        number = row["smallest_run"]
        again = f"{number} --world {row['world']}" if row["phase"] == "generate" else f"{logs[row['log']]}:{number}"
        assert row["replay"] == f"rocketmq-ha fuzz replay {again}"
    (events, runs), *_ = query("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM runs)")
    assert as_rows(computed["integrity"]) == [(events, runs, 0, 0, 0, 0)]
    assert as_rows(computed["quarantine"]) == []


def test_durations_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    quantiles = "[0, 0.25, 0.5, 0.75, 0.95, 0.99, 1]"
    expected = query(f"""
        WITH long AS (UNPIVOT (SELECT world, n_steps AS s, elapsed_us, n_steps::BIGINT AS n_steps, n_ops::BIGINT AS n_ops
                FROM runs) ON elapsed_us, n_steps, n_ops INTO NAME measure VALUE value)
        SELECT world, measure, count(*), quantile_cont(value, {quantiles}), sum(value)::BIGINT,
            sum(CASE measure WHEN 'elapsed_us' THEN s ELSE 0 END)::BIGINT
        FROM long WHERE value >= 0 GROUP BY ALL ORDER BY 1, 2
    """)
    found = as_rows(computed["run_durations"])
    assert [(*row[:3], *row[10:]) for row in found] == [(*row[:3], *row[4:]) for row in expected]
    assert [row[3:10] for row in found] == [pytest.approx(tuple(row[3])) for row in expected]
    slowest = [(row["world"], row["place"], row["log"], row["run_id"]) for row in computed["slowest_runs"].to_pylist()]
    assert slowest == query("""
        SELECT world, row_number() OVER w AS place, log, run_id FROM runs WHERE elapsed_us >= 0
        WINDOW w AS (PARTITION BY world ORDER BY elapsed_us DESC, log, run_id) QUALIFY place <= 10 ORDER BY 1, 2
    """)


def test_faults_agree_with_duckdb(computed: dict[str, pa.Table], query: Query) -> None:
    assert as_rows(computed["faults"]) == query("""
        SELECT fault, count(DISTINCT (log, run_id, op_index)), count(DISTINCT (log, run_id)), count(*) FROM events
        WHERE fault <> 'none' GROUP BY ALL ORDER BY 1
    """)
    assert as_rows(computed["state_faults"]) == query("""
        WITH injected AS (SELECT DISTINCT world, fault FROM events WHERE fault <> 'none'),
             grid AS (SELECT DISTINCT actor, state, fault
                FROM states JOIN actor_worlds USING (actor) JOIN injected USING (world)),
             met AS (SELECT actor, from_state AS state, fault, count(*) AS n, count(DISTINCT (log, run_id)) AS n_runs
                FROM events WHERE fault <> 'none' GROUP BY ALL)
        SELECT actor, state, fault, coalesce(n, 0), coalesce(n_runs, 0) FROM grid FULL JOIN met USING (actor, state, fault)
        ORDER BY 1, 2, 3
    """)
