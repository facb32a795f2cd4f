"""Measure the report's tables and the second verdict on Spark, over a log of 20 million rows: `make bench-spark`.

Each table is made from the files, as DuckDB makes it beside it, by turns and with as many threads. The report reads the files
once for all tables: `reading` is this part alone. Each number of cores has a process of its own, since a process has one
session. Wall time says little on a busy machine, so the processor time of all processes stands beside it. The second verdict is
measured over a part of the log: it is linear in the rows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, Final

import processor_time
import spark_log
import spark_queries

CORES: Final = (1, 2, 4)
AT: Final = 2  # the number of cores of the targets
ROUNDS: Final = 3
ALL_TABLES_S, VERDICT_ROWS_S = 60.0, 200_000
SECONDS: Final = 7200
RESULTS: Final = Path(__file__).with_name("results") / "spark.json"

Timed = dict[str, float]


def timed(work: Callable[[], object]) -> Timed:
    started, processor = time.perf_counter(), processor_time.of_tree()
    work()
    return {"wall_s": time.perf_counter() - started, "processor_s": processor_time.of_tree() - processor}


def median(rounds: list[Timed]) -> Timed:
    return {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}


def measure(cores: int, log: Path, part: Path, rounds: int) -> dict[str, Any]:
    """All figures with a number of cores."""
    from rocketmq_ha.analysis import tables
    from rocketmq_ha.analysis.ingest import read_logs
    from rocketmq_ha.analysis.schema import load_possible
    from rocketmq_ha.analysis.session import spark_session
    from rocketmq_ha.fuzz.second_verdict import log_files
    from rocketmq_ha.fuzz.second_verdict import spark as second_verdict

    spark = spark_session("bench", master=f"local[{cores}]", shuffle_partitions=8, driver_memory="4g")
    possible = load_possible()
    transitions = Path(str(resources.files("rocketmq_ha.spec") / "transitions.json"))
    duckdb = spark_queries.duckdb_of(log, transitions, cores)
    found: dict[str, Any] = {"cores": cores, "tables": {}}
    wanted = spark_queries.QUERIES if cores == AT else [query for query in spark_queries.QUERIES if query.target_s]
    for query in wanted:

        def ours(query: spark_queries.Query = query) -> object:
            read = read_logs(spark, [log])
            try:
                return query.frame(spark, read, possible).toArrow()
            finally:
                read.close()

        def theirs(query: spark_queries.Query = query) -> object:
            return duckdb(query.sql)

        ours()  # the JVM compiles
        pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
        found["tables"][query.name] = {
            "spark": median([pair[0] for pair in pairs]),
            "duckdb": median([pair[1] for pair in pairs]),
        }
        say(f"local[{cores}] {query.name}: {found['tables'][query.name]}")
    if cores == AT:
        found["reading"] = median([timed(lambda: read_logs(spark, [log]).close()) for _ in range(rounds)])
        say(f"local[{cores}] reading alone: {found['reading']}")
        found["all_tables"] = median(
            [timed(lambda: tables.compute(spark, read_logs(spark, [log]), possible)) for _ in range(rounds)]
        )
        say(f"local[{cores}] all tables: {found['all_tables']}")
    files = log_files.find(str(part))
    results: list[Any] = []
    once = timed(lambda: results.append(second_verdict.judge(spark, [files])))
    (verdict,) = results
    assert verdict.wrong == 0, verdict.examples
    rates = {"rows_per_s": verdict.rows / once["wall_s"], "rows_per_processor_s": verdict.rows / once["processor_s"]}
    found["second_verdict"] = {"rows": verdict.rows} | {name: round(value, 1) for name, value in (once | rates).items()}
    say(f"local[{cores}] second verdict: {found['second_verdict']}")
    if cores == AT:
        seed = log_files.find(str(log.parent / "seed"))
        once = timed(lambda: results.append(second_verdict.judge(spark, [seed], share=0.25)))
        alone = timed(lambda: second_verdict.judge(spark, [seed]))
        processor_s = max(0.001, once["processor_s"] - alone["processor_s"])
        found["rerun"] = {"runs": results[-1].rerun, "processor_s": round(processor_s, 2)}
        found["rerun"]["runs_per_processor_s"] = round(results[-1].rerun / processor_s, 1)
        say(f"local[{cores}] re-run: {found['rerun']}")
    spark.stop()
    return found


def say(line: str) -> None:
    sys.stderr.write(f"bench-spark: {line}\n")
    sys.stderr.flush()


def summary(found: list[dict[str, Any]], rows: int) -> list[str]:
    """The table of results as Markdown: seconds, and as processor seconds divided by the cores."""
    at = next(one for one in found if one["cores"] == AT)
    targets = {query.name: query.target_s for query in spark_queries.QUERIES}
    lines = [
        f"| {rows / 1e6:.0f}M rows, {AT} cores | Spark, s | its processor s / {AT} | DuckDB, s | faster | target, s |",
        "|---|---|---|---|---|---|",
    ]
    for name, sides in at["tables"].items():
        ours, theirs = sides["spark"], sides["duckdb"]
        faster = "DuckDB" if theirs["processor_s"] < ours["processor_s"] else "Spark"
        ratio = max(ours["processor_s"], theirs["processor_s"]) / max(0.001, min(ours["processor_s"], theirs["processor_s"]))
        lines.append(
            f"| {name} | {ours['wall_s']:.1f} | {ours['processor_s'] / AT:.1f} | {theirs['wall_s']:.1f} | "
            f"{faster}, {ratio:.1f} times by processor time | {targets[name] or ''} |"
        )
    for name, target in (("reading", ""), ("all_tables", f"{ALL_TABLES_S:.0f}")):
        both = at[name]
        lines.append(f"| {name.replace('_', ' ')} | {both['wall_s']:.1f} | {both['processor_s'] / AT:.1f} | | | {target} |")
    lines += ["", f"| cores | {' | '.join(at['second_verdict'])} | transitions, s | growth, s |", "|---|" + "---|" * 7]
    for one in found:
        verdict, tables = one["second_verdict"], one["tables"]
        walls = " | ".join(f"{tables[name]['spark']['wall_s']:.1f}" for name in ("transitions", "growth"))
        lines.append(f"| {one['cores']} | {' | '.join(f'{value:,.0f}' for value in verdict.values())} | {walls} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--verdict-rows", type=int, default=2_000_000, help="of the second verdict")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cores", type=int, nargs="*", default=CORES)
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark"))
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    place = spark_log.of_this_code(options.out)
    if AT not in options.cores and not options.measure:
        parser.error(f"--cores: found {options.cores}, expected {AT} among them: the targets are for {AT} cores")
    log = spark_log.make(place, options.rows)
    part = spark_log.part_of(log, options.verdict_rows, place)
    if options.measure:
        sys.stdout.write(json.dumps(measure(options.measure, log, part, options.rounds)))
        return
    found, loads = [], [round(os.getloadavg()[0], 1)]
    for cores in options.cores:
        command = [sys.executable, __file__, *sys.argv[1:], "--measure", str(cores)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=SECONDS)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        loads.append(round(os.getloadavg()[0], 1))
    lines = summary(found, options.rows)
    sys.stdout.write("\n".join(lines) + "\n")
    document = {"rows": options.rows, "rounds": options.rounds, "processors": os.cpu_count(), "load": loads, "measured": found}
    text = json.dumps(document | {"table": lines}, indent=1) + "\n"
    target = RESULTS if options.rows >= 20_000_000 and tuple(options.cores) == CORES else options.out / "spark.json"
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
