"""`rocketmq-ha import-runs SOURCES... --out LOG`: recorded links and test cases of Hypothesis as an event log of version 2.

Sources: captures of an HA port (pcap, pcapng), transcripts of links (transcript.py), and Hypothesis's observability lines. A
folder stands for all such files in it. A line that is damaged ends the import: nothing is written then.
"""

import base64
import hashlib
import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_ha.fuzz import capture, observed, recorder, transcript
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.fingerprint import NOBODY_LOOKED
from rocketmq_ha.fuzz.link_rows import Chunk, LinkRows, Recording, rows_of
from rocketmq_ha.fuzz.transcript import Piece, Restarted
from rocketmq_ha.fuzz.worlds.link import LINK
from rocketmq_ha.spec.event_log import (
    CAMPAIGN_FILE,
    EVENTS_DIR,
    MANIFEST_DIR,
    NO_FAULT,
    PHASE_HYPOTHESIS,
    PHASE_RECORDED,
    RUNS_DIR,
    SCHEMA_VERSION,
    VERDICT_DIVERGENCE,
    VERDICT_ERROR,
    VERDICT_OK,
    WORLD_HYPOTHESIS,
)
from rocketmq_ha.spec.profile import PROFILES, Settings

STEP_NS: Final = 1_000_000  # a transcript has no times: one millisecond for each piece
SUFFIXES: Final = (".jsonl", ".xz", ".pcap", ".pcapng", ".cap")
NAME: Final = "imported"
FILE_SIZE: Final = Settings().mapped_file_size


@click.command(name="import-runs")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Directory of the event log; it must be new."
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="The master's HA port in captures.  [default: whoever was connected to]"
)
@click.option(
    "--profile",
    type=click.Choice(tuple(PROFILES)),
    default="classic",
    show_default=True,
    help="Of both ends: RocketMQ is classic, this program hardened.",
)
@click.option("--file-size", type=click.IntRange(min=1), default=FILE_SIZE, show_default=True, help="Of the master's files.")
def import_runs(sources: tuple[Path, ...], out: Path, port: int | None, profile: str, file_size: int) -> None:
    """Write SOURCES as an event log, for `rocketmq-ha report`.

    A source is a packet capture of an HA port, a transcript of a link, a file of Hypothesis's observability lines, or a folder
    of these. Each connection becomes a run of the phase "recorded": the steps of the model's master and slave on its bytes. It
    fails where the model would have sent something else. Each test case becomes a run of the phase "hypothesis".

    The last line on stdout is: log=DIR runs=N steps=N failed=N. Exit status 1 if a run failed.
    """
    found = Imported(Settings(mapped_file_size=file_size), profile)
    for file in _files(sources):
        found.add_file(file, port)
    if not found.runs:
        raise FuzzError(f"{', '.join(map(str, sources))}: found no connection and no test case, expected at least one")
    write(found, out)
    failed = [row for row in found.runs if row["verdict"] != VERDICT_OK]
    for row in failed[:5]:
        click.echo(f"{row['verdict']}: run {row['run_id']}: {row['signature']}: {row['detail']}", err=True)
    for note in found.notes:
        click.echo(note, err=True)
    click.echo(f"log={out} runs={len(found.runs)} steps={len(found.columns[0])} failed={len(failed)}")
    click.get_current_context().exit(1 if failed else 0)


def _files(sources: tuple[Path, ...]) -> Iterator[Path]:
    for source in sources:
        if source.is_dir():
            inside = sorted(file for file in source.rglob("*") if file.suffix in SUFFIXES)
            if not inside:
                raise FuzzError(f"{source}: found no file in it, expected {', '.join(f'*{suffix}' for suffix in SUFFIXES)}")
            yield from inside
        elif source.is_file():
            yield source
        else:
            raise FuzzError(f"{source}: found nothing, expected a capture, a transcript or lines of Hypothesis")


@dataclass(slots=True)
class Imported:
    """Runs and their rows, in the columns of the event log."""

    settings: Settings
    profile: str
    runs: list[dict[str, Any]] = field(default_factory=list)
    columns: list[list[Any]] = field(default_factory=lambda: [[] for _ in recorder.EVENT_SCHEMA])
    notes: list[str] = field(default_factory=list)

    def add_file(self, file: Path, port: int | None = None) -> None:
        """Add the runs of a file. Raises: FuzzError, if it is none of those that are known."""
        try:
            if capture.is_capture(file):
                for recording in capture.connections(file, port):
                    self.add_recording(recording)
                return
            first = next(_lines(file), (0, {}))[1]
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise FuzzError(f"{file}: found {error}, expected a file that can be read") from error
        except UnicodeDecodeError as error:
            raise FuzzError(f"{file}: found no text, expected a capture, a transcript or lines of Hypothesis") from error
        if observed.is_observed(first):
            for case in observed.cases_of(file, _lines(file)):
                self.add_case(case)
        elif "link" in first or "restarted" in first:
            for recording in recordings(file):
                self.add_recording(recording)
        elif "connection" in first:
            for recording in golden_recordings(file, _lines(file)):
                self.add_recording(recording)
        else:
            raise FuzzError(f"{file}: found another kind of file, expected a capture, a transcript or lines of Hypothesis")

    def add_recording(self, recording: Recording) -> None:
        """Add a connection as a run of the model's two ends."""
        found = rows_of(recording, self.settings, PROFILES[self.profile])
        if not found.has_place:
            self.notes.append(f"{recording.name}: begins in the middle; left out, as no frame or no report is found in it")
            return
        if found.skipped:
            self.notes.append(f"{recording.name}: begins in the middle; the first {found.skipped} bytes are left out")
        verdict = VERDICT_DIVERGENCE if found.signature else VERDICT_OK
        steps = len(found.rows)
        run_id = -len(self.runs) - 1
        for step, row in enumerate(found.rows):
            t = row.transition
            last = verdict if step == steps - 1 else VERDICT_OK
            self._row(run_id, LINK.name, step, row.op_index, t.actor, t.instance, t.event, t.from_state, t.to_state, t.offset,
                      t.nbytes, t.fragment_len, t.split_at, NO_FAULT, list(t.clauses), row.ts_ns, last)  # fmt: skip
        self.runs.append(self._run(run_id, recording, found, verdict))

    def _run(self, run_id: int, recording: Recording, found: LinkRows, verdict: str) -> dict[str, Any]:
        text = b"".join(b"%s %d " % (c.source.encode(), len(c.data)) + c.data for c in recording.chunks)
        return {
            "run_id": run_id,
            "world": LINK.name,
            "phase": PHASE_RECORDED,
            "profile": self.profile,
            "n_ops": found.n_ops,
            "n_steps": len(found.rows),
            "nbytes": found.nbytes,
            "n_messages": 0,
            "verdict": verdict,
            "failing_op": -1 if verdict == VERDICT_OK else found.n_ops - 1,
            "signature": found.signature,
            "detail": f"{recording.name}: {found.detail}" if found.signature else "",
            "digest": _digest(text),
            "recipe": "",
            "observed": NOBODY_LOOKED,
            "elapsed_us": -1,  # nobody ran it
        }

    def add_case(self, case: observed.TestCase) -> None:
        """Add a test case of Hypothesis: a row for each rule and each feature, and one for the case."""
        run_id = -len(self.runs) - 1
        verdict = VERDICT_ERROR if case.status == "failed" else VERDICT_OK
        for step, (kind, name) in enumerate(case.steps):
            last = verdict if kind == observed.CASE else VERDICT_OK
            self._row(
                run_id, WORLD_HYPOTHESIS, step, step, case.property, 0, name, kind, kind, -1, 0, -1, 0, NO_FAULT, [], 0, last
            )
        self.runs.append(
            {
                "run_id": run_id,
                "world": WORLD_HYPOTHESIS,
                "phase": PHASE_HYPOTHESIS,
                "profile": "",
                "n_ops": len(case.steps),
                "n_steps": len(case.steps),
                "nbytes": 0,
                "n_messages": 0,
                "verdict": verdict,
                "failing_op": -1 if verdict == VERDICT_OK else len(case.steps) - 1,
                "signature": "" if verdict == VERDICT_OK else case.property,
                "detail": "" if verdict == VERDICT_OK else case.detail.partition("\n")[0],
                "digest": _digest(f"{case.property} {case.text}".encode()),
                "recipe": "",
                "observed": NOBODY_LOOKED,
                "elapsed_us": case.elapsed_us,
            }
        )

    def _row(self, *values: Any) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)


def recordings(file: Path) -> Iterator[Recording]:
    """The connections of a transcript. Raises: FuzzError."""
    entries = transcript.load(file)
    links = [entry for entry in entries if isinstance(entry, Piece)]
    # The slave's process ended between its last piece and the next link.
    killed = {links[at - 1].link for at in _restarts(entries) if at}
    for link, pieces in groupby(links, key=lambda piece: piece.link):
        chunks = tuple(Chunk(p.source, p.data, n * STEP_NS, p.passed) for n, p in enumerate(pieces))
        yield Recording(f"{file.name}#{link}", chunks, True, "restart" if link in killed else "end_of_stream")


def golden_recordings(file: Path, lines: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[Recording]:
    """The connections of a link as spec/vectors has it, between two real brokers. Raises: FuzzError."""
    chunks: dict[int, list[Chunk]] = {}
    for number, line in lines:
        try:
            source, data = line["from"], base64.b64decode(line["bytes"], validate=True)
            if source not in ("master", "slave"):
                raise ValueError(f"from {source!r}")
            chunks.setdefault(line["connection"], []).append(Chunk(source, data, line["ms"] * STEP_NS))
        except (KeyError, TypeError, ValueError) as error:
            raise FuzzError(f"{file}:{number}: expected bytes of a connection, found {str(line)[:80]} ({error!r})") from error
    for connection, found in chunks.items():
        yield Recording(f"{file.name}#{connection}", tuple(found), True, "")


def _restarts(entries: transcript.Transcript) -> Iterator[int]:
    """For each restart the number of pieces before it."""
    pieces = 0
    for entry in entries:
        if isinstance(entry, Restarted):
            yield pieces
        else:
            pieces += 1


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8") as opened:
        for number, line in enumerate(opened, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise FuzzError(f"{file}:{number}: found no JSON ({error}), expected a JSON object on each line") from error
            if not isinstance(row, dict):
                raise FuzzError(f"{file}:{number}: found {type(row).__name__}, expected a JSON object on each line")
            yield number, row


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def write(found: Imported, out: Path) -> None:
    """Write a log of one partition. Raises: FuzzError, if something is there already."""
    if out.exists() and any(out.iterdir()):
        raise FuzzError(f"{out}: found files in it, expected a new directory for the log")
    for folder in (EVENTS_DIR, RUNS_DIR, MANIFEST_DIR):
        (out / folder).mkdir(parents=True, exist_ok=True)
    arrays = [pa.array(column, one.type) for column, one in zip(found.columns, recorder.EVENT_SCHEMA, strict=True)]
    events = pa.Table.from_arrays(arrays, schema=recorder.EVENT_SCHEMA)
    pq.write_table(events, out / EVENTS_DIR / f"{NAME}.parquet", compression="zstd")
    runs = pa.Table.from_pylist(found.runs, recorder.RUN_SCHEMA)
    pq.write_table(runs, out / RUNS_DIR / f"{NAME}.parquet", compression="zstd")
    settings = {
        "schema_version": SCHEMA_VERSION,
        "finished": True,
        "runs": len(found.runs),
        "phases": sorted({row["phase"] for row in found.runs}),
        "versions": {name: metadata.version(name) for name in ("rocketmq-ha", "pyarrow")},
    }
    (out / CAMPAIGN_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    n_failed = sum(row["verdict"] != VERDICT_OK for row in found.runs)
    manifest = {
        "partition": 0,
        "events": f"{NAME}.parquet",
        "runs": f"{NAME}.parquet",
        "n_runs": len(found.runs),
        "n_steps": events.num_rows,
        "n_failed": n_failed,
        "seed": -len(found.runs),
        "seconds": 0.0,
        "failures": [],
    }
    (out / MANIFEST_DIR / f"{NAME}.json").write_text(json.dumps(manifest) + "\n", encoding="utf-8")
