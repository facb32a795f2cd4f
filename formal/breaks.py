"""`make formal-breaks`: plant one wrong edit of each kind, and show which check notices it.

A check that has never failed proves nothing. Each edit is made in a temporary copy of the tree, and the expected check runs on
that copy. First all checks must pass on an unedited copy. Exit status 1 if a check fails there, or if an edit goes unnoticed.

    python -m formal.breaks
    python -m formal.breaks clause hash      only the edits whose kind contains these words

Checks that need Java or Maven are skipped if these are missing; with CI=true in the environment that is a failure.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from formal import tlc
from formal.graph import say
from formal.tree_copy import ROOT, copy_tree, environment

TIMEOUT_S: Final = 300
WIDTH: Final = 110  # characters shown of a check's output line


@dataclass(frozen=True, slots=True)
class Check:
    """A command that passes on the unedited tree and fails on an edited copy.

    fires: its exit status on the edited copy. passes: its exit status on the unedited tree.
    telling: the beginning of the output line that names what it found.
    """

    name: str
    command: tuple[str, ...]
    telling: str
    passes: int = 0
    fires: int = 1
    needs_tlc: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the only match of `pattern` in `file` by `replacement`."""

    kind: str
    file: str
    pattern: str
    replacement: str
    description: str
    check: Check


def run_formal(*scopes: str) -> Check:
    command = (sys.executable, "-m", "formal.run_formal", *scopes)
    return Check(f"TLC ({', '.join(scopes)})", command, "SURPRISE: ", needs_tlc=True)


GRAPHS: Final = Check("Python's graph", (sys.executable, "-m", "formal.graph", "delete-hardened"), "delete-hardened ")
CLAUSES: Final = Check("citations", (sys.executable, "-m", "rocketmq_ha.spec.citations", "--check"), "spec/")
LOCKSTEP: Final = Check(
    "lock-step hunt",
    (sys.executable, "-m", "rocketmq_ha.fuzz", "hunt", "--world", "link", "--seconds", "10"),
    "divergence ",
    passes=1,
    fires=0,
)


def pytest(name: str, file: str) -> Check:
    return Check(name, (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", file), "E  ")


SCENARIOS: Final = pytest("scenarios", "tests/stateful/test_scenarios.py")
VECTORS: Final = pytest("golden store", "tests/store/test_golden_store.py")

EDITS: Final = (
    Edit(
        "a TLA+ action",
        "spec/tla/HAActions.tla",
        re.escape("    /\\ min + FileSize < mmax\n"),
        "",
        "Delete takes the last file too",
        run_formal("delete-hardened"),
    ),
    Edit(
        "a TLA+ action of reading",
        "spec/tla/HAReading.tla",
        re.escape("own' = (own \\/ (TellsMaster /\\ b = slave))"),
        "own' = own",
        "a slave notes no commit, and so tells its master of none",
        run_formal("reading-return-hardened"),
    ),
    Edit(
        "a TLA+ property",
        "spec/tla/HAProperties.tla",
        r"(?m)^Push2WithinLog == .*$",
        "Push2WithinLog == push2 >= 0",
        "push2 may be any offset: quirk 1 is no violation any more",
        run_formal("forge-classic"),
    ),
    Edit(
        "a TLA+ fairness",
        "spec/tla/HAProperties.tla",
        re.escape("SF_vars(TransferLive(s))"),
        "WF_vars(TransferLive(s))",
        "heartbeats may take the place of every frame with data",
        run_formal("fair-roll-hardened"),
    ),
    Edit(
        "a scope's purpose",
        "formal/scopes.toml",
        r'(?s)(\[scope\.once-hardened\](?:(?!\[scope\.).)*?\nfor = \[")OnlyReplicasAreWaitedFor',
        r"\g<1>PutOkIsHeld",
        "once-hardened is there for puts that end with PUT_OK, and there none can wait",
        run_formal("once-hardened"),
    ),
    Edit(
        "a protocol function",
        "reference/protocol.py",
        re.escape("after > start_of_file(mmax, scope)"),
        "after >= start_of_file(mmax, scope)",
        "delete: never the file before the last one",
        GRAPHS,
    ),
    Edit(
        "a byte-level function",
        "reference/master.py",
        re.escape("now_ms - conn.last_write_timestamp > settings.ha_send_heartbeat_interval_ms"),
        "now_ms - conn.last_write_timestamp >= settings.ha_send_heartbeat_interval_ms",
        "the heartbeat goes out at the interval, not beyond it",
        LOCKSTEP,
    ),
    Edit(
        "a clause's text",
        "spec/2-master.md",
        r"take the last complete report",
        "take the first complete report",
        "HA-M-2 says the opposite",
        CLAUSES,
    ),
    Edit(
        "an exception removed",
        "spec/exceptions.toml",
        r'\[\[exception\]\]\nclause = "HA-M-18"\n(?:(?!\[).*\n)*',
        "",
        "nothing cites HA-M-18, and nothing says why",
        CLAUSES,
    ),
    Edit(
        "a hash",
        "formal/scopes.toml",
        r'(?s)(\[scope\.delete-hardened\](?:(?!\[scope\.).)*?\nhash = ")[0-9a-f]{8}',
        r"\g<1>00000000",
        "the graph of delete-hardened is said to be another",
        GRAPHS,
    ),
    Edit(
        "a scenario's line",
        "tests/stateful/scenarios/heartbeat-after-the-interval.txt",
        r"(?m)^tick 5000\n    nothing happens$",
        "tick 5001\n    nothing happens",
        "no heartbeat is told of at 5001 ms",
        SCENARIOS,
    ),
    Edit(
        "a vector's line",
        "spec/vectors/rocketmq-4.9.8/manifest.json",
        r'("commit_log_max_offset": )\d+',
        r"\g<1>5000000",
        "the golden store is said to end elsewhere",
        VECTORS,
    ),
)


def copy(directory: Path) -> Path:
    """Copy the tree, with TLC's jar if it has been fetched."""
    root = copy_tree(directory)
    if tlc.JAR.exists():
        build = root / tlc.BUILD.relative_to(ROOT)
        build.mkdir(parents=True)
        (build / tlc.JAR.name).symlink_to(tlc.JAR)
    return root


def apply(edit: Edit, root: Path) -> None:
    file = root / edit.file
    text, times = re.subn(edit.pattern, edit.replacement, file.read_text(encoding="utf-8"))
    if times != 1:
        sys.exit(f"breaks: {edit.kind}: its text stands {times} times in {edit.file}, not once")
    file.write_text(text, encoding="utf-8")


def run(check: Check, root: Path) -> tuple[int, str]:
    """Run a check on a copy, whose folders replace the installed packages. Returns: exit status and output."""
    env = environment(root) | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(check.command, cwd=root, env=env, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    return done.returncode, done.stdout + done.stderr


def told(check: Check, output: str) -> str:
    """The output line in which a check names what it found, or ""."""
    lines = (line.strip() for line in output.splitlines())
    return next((" ".join(line.split()) for line in lines if line.startswith(check.telling)), "")


def passes(check: Check) -> str:
    """Run a check on an unedited copy. Returns: why it does not pass there; "" if it passes."""
    with tempfile.TemporaryDirectory(prefix="formal-breaks-") as directory:
        status, output = run(check, copy(Path(directory)))
    last = (output.strip().splitlines() or ["no word"])[-1]
    return "" if status == check.passes else f"{check.name} fires over a copy without an edit: {told(check, output) or last}"


def notice(edit: Edit) -> tuple[bool, str, float]:
    """Run the check on an edited copy. Returns: whether it fails, its message, and its time in seconds."""
    with tempfile.TemporaryDirectory(prefix="formal-breaks-") as directory:
        root = copy(Path(directory))
        apply(edit, root)
        began = time.monotonic()
        status, output = run(edit.check, root)
        seconds = time.monotonic() - began
    line = told(edit.check, output)
    return status == edit.check.fires and bool(line), line or f"exit status {status}", seconds


def tell(edits: Sequence[Edit], results: Iterable[tuple[bool, str, float]]) -> int:
    """Print the table, one line as each edit ends. Returns: the number of unnoticed edits."""
    unnoticed = 0
    say(f"\n{'edit':24}{'check that fired':26}{'seconds':>8}  what it says")
    for edit, (fired, line, seconds) in zip(edits, results, strict=True):
        unnoticed += not fired
        name = edit.check.name if fired else "NONE"
        shown = line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..."
        say(f"{edit.kind:24}{name:26}{seconds:>8.1f}  {shown}\n{'':24}{edit.description} ({edit.file})")
    return unnoticed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*", help="of the kinds to be made; else all are")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: %(default)s)")
    options = parser.parse_args(arguments)
    edits = [edit for edit in EDITS if not options.word or any(word in edit.kind for word in options.word)]
    if lacking := tlc.missing():
        say(f"formal-breaks: {lacking} is missing, so the edits of TLA+ are left out")
        if os.environ.get("CI") == "true":
            return 1
        edits = [edit for edit in edits if not edit.check.needs_tlc]
    elif any(edit.check.needs_tlc for edit in edits):
        tlc.fetch()
    if not edits:
        parser.error(f"no such edit; there are: {', '.join(edit.kind for edit in EDITS)}")
    began = time.monotonic()
    checks = list(dict.fromkeys(edit.check for edit in edits))
    with ThreadPoolExecutor(options.jobs) as pool:
        wrong = [what for what in pool.map(passes, checks) if what]
        say("\n".join(wrong) if wrong else f"formal-breaks: without an edit {len(checks)} checks pass")
        if wrong:
            return 1
        unnoticed = tell(edits, pool.map(notice, edits))
    say(f"\nformal-breaks: {len(edits)} edits, {unnoticed} unnoticed, {time.monotonic() - began:.0f} s")
    return bool(unnoticed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
