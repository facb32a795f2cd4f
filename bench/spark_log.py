"""A large event log: the rows of a campaign of a few hundred runs, repeated under new run_ids until there are enough.

Each run is a real one, so the second verdict finds nothing in it, as in a campaign. To the tables the repetition makes a
difference in one way: only the first copies show transitions that are new.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import rocketmq_ha.spec
from rocketmq_ha.spec.event_log import CAMPAIGN_FILE, EVENTS_DIR, MANIFEST_DIR, RUNS_DIR, SCHEMA_VERSION

SEED_RUNS: Final = 800
APART: Final = 1_000_000  # run_ids from one copy of a run to the next
ROWS_PER_FILE: Final = 700_000
SECONDS: Final = 3600


def of_this_code(out: Path) -> Path:
    """The directory of the logs that this code has made: the second verdict would find mistakes in those of another one."""
    root = Path(rocketmq_ha.spec.__path__[0]).parent
    digest = hashlib.blake2b(digest_size=4)
    for file in sorted(file for part in ("fuzz", "reference", "spec") for file in (root / part).rglob("*.py")):
        digest.update(file.read_bytes())
    return out / digest.hexdigest()


def make(out: Path, rows: int) -> Path:
    """Write a log of at least `rows` rows, unless it is there. Returns: its directory."""
    log = out / f"log-{rows}"
    if (log / CAMPAIGN_FILE).is_file():
        return log
    seed = out / "seed"
    if not (seed / CAMPAIGN_FILE).is_file():
        command = [str(Path(sys.executable).with_name("rocketmq-ha")), "fuzz", "run"]
        subprocess.run([*command, "--runs", str(SEED_RUNS), "--out", str(seed)], check=True, timeout=SECONDS)
    events, runs = (pq.read_table(seed / part).sort_by("run_id") for part in (EVENTS_DIR, RUNS_DIR))
    for part in (EVENTS_DIR, RUNS_DIR, MANIFEST_DIR):
        (log / part).mkdir(parents=True, exist_ok=True)
    copies = -(-rows // len(events))
    per_file = max(1, ROWS_PER_FILE // len(events))
    for first in range(0, copies, per_file):
        numbers = range(first, min(copies, first + per_file))
        name = f"part-{first:06}"
        for part, table in ((EVENTS_DIR, events), (RUNS_DIR, runs)):
            repeated = pa.concat_tables([_renumbered(table, number * APART) for number in numbers])
            pq.write_table(repeated, log / part / f"{name}.parquet", compression="zstd")
        manifest = {"partition": first, "events": f"{name}.parquet", "runs": f"{name}.parquet"}
        manifest |= {"n_runs": len(runs) * len(numbers), "n_steps": len(events) * len(numbers)}
        (log / MANIFEST_DIR / f"{name}.json").write_text(json.dumps(manifest), encoding="utf-8")
    (log / CAMPAIGN_FILE).write_text(json.dumps({"schema_version": SCHEMA_VERSION, "versions": {}}), encoding="utf-8")
    return log


def _renumbered(table: pa.Table, by: int) -> pa.Table:
    at = table.schema.get_field_index("run_id")
    return table.set_column(at, table.schema.field(at), pc.add(table.column(at), by))


def part_of(log: Path, rows: int, out: Path) -> Path:
    """The first files of a log with some `rows` rows, as links. Returns: their directory."""
    part = out / f"part-{rows}-of-{log.name}"
    found = 0
    for file in sorted((log / EVENTS_DIR).iterdir()):
        if found >= rows:
            break
        found += pq.read_metadata(file).num_rows
        for name in (f"{EVENTS_DIR}/{file.name}", f"{RUNS_DIR}/{file.name}", f"{MANIFEST_DIR}/{file.stem}.json", CAMPAIGN_FILE):
            link = part / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.hardlink_to(log / name)
    return part
