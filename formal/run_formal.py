"""`make formal`: TLC checks every scope of scopes.toml and finds every violation there, and its graphs must equal Python's.

It fails on a surprise in either direction: a property that should hold is violated, or holds without a case; a violation is not
found, or has a trace of another length; everything still holds without a part of the fairness; a state graph differs from the
Python model's or from the checked-in one; a label is too rare; a .cfg file is out of date.

    python -m formal.run_formal                   check everything
    python -m formal.run_formal pair 'roll*'      only scopes whose names begin like this, with their violations
    python -m formal.run_formal --traces          show the steps of each violation too
    python -m formal.run_formal --excuses         only show that every excused property is violated
    python -m formal.run_formal --write           only write spec/tla/*.cfg
    python -m formal.run_formal --write-hashes    check, and write the results of equal graphs into scopes.toml

Maven fetches TLC once into build/formal; its checksum is pinned. Without Java or Maven, TLC is not run: with CI=true in the
environment that is a failure; otherwise Python's graphs are compared with the checked-in hashes.
"""

import argparse
import os
import resource
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from typing import Final

from formal import checks, equality, scopes, tlc
from formal.checks import Outcome
from formal.graph import say
from formal.scopes import Catalogue, Scope, Unfair, Violation

# Approximate cost of a job in seconds of one core. The longest jobs start first, and the costs give the time left.
SECONDS_PER_RUN: Final = 1.0
SECONDS_OF_LIVENESS: Final = 4.0
EDGES_PER_SECOND: Final = 9000
WIDTH: Final = 120  # of the tables
CORES: Final = 2  # the summary gives the time of a whole run on this many cores


Job = Scope | Violation | Unfair


def run(jobs: Sequence[Job], catalogue: Catalogue, workers: int, python_only: bool = False) -> list[Outcome]:
    """Run the jobs, the longest first, and print a line as each ends."""
    ordered = sorted(jobs, key=cost, reverse=True)
    outcomes, began, total, done = [], time.monotonic(), sum(map(cost, jobs)), 0.0
    with ProcessPoolExecutor(workers) as pool:
        running = []
        for job in ordered:
            if isinstance(job, Violation):
                running.append(pool.submit(checks.find_violation, job, catalogue.scopes[job.scope], catalogue.properties))
            elif isinstance(job, Unfair):
                running.append(pool.submit(checks.find_unfair, job, catalogue.scopes[job.scope], catalogue.properties))
            elif python_only:
                running.append(pool.submit(checks.check_python, job, catalogue.properties))
            else:
                running.append(pool.submit(checks.check_scope, job, catalogue.properties))
        for number, future in enumerate(as_completed(running), start=1):
            outcome = future.result()
            outcomes.append(outcome)
            done += cost(outcome.job)
            left = (time.monotonic() - began) * (total - done) / done
            mark = "SURPRISE" if outcome.surprise else "ok"
            told = f"{title(outcome.job):44} {outcome.seconds:5.1f} s  {mark:8}"
            say(f"[{number:2}/{len(jobs)}] {told}  about {left:3.0f} s left")
    return outcomes


def cost(job: Job) -> float:
    """Approximate seconds of a job."""
    if not isinstance(job, Scope):
        return SECONDS_PER_RUN
    return SECONDS_PER_RUN + (job.edges or 0) / EDGES_PER_SECOND + SECONDS_OF_LIVENESS * (job.fair or job.patient)


def title(job: Job) -> str:
    if isinstance(job, Unfair):
        return f"{job.property} in {job.scope} without {job.without}"
    return job.name if isinstance(job, Scope) else f"{job.property} in {job.scope}"


def tell(outcomes: Sequence[Outcome], traces: bool) -> None:
    """Print the three tables, in the order of scopes.toml."""
    if any(isinstance(outcome.job, Scope) for outcome in outcomes):
        say(f"\n{'scope':26}{'states':>8}{'transitions':>13}{'seconds':>9}  verdict")
        say(f"{'':4}its description; then the properties that it is for: how often each premise was reached (after a fault)")
    for outcome in outcomes:
        if isinstance(outcome.job, Scope):
            tell_scope(outcome, outcome.job)
    if any(isinstance(outcome.job, Violation) for outcome in outcomes):
        say(f"\n{'quirk':7}{'violated':26}{'scope':26}{'seconds':>9}  verdict")
    for outcome in outcomes:
        if isinstance(outcome.job, Violation):
            say(f"{outcome.job.quirk or '-':7}{title_row(outcome)}")
            tell_below(f"stands: {outcome.job.reason}" if outcome.job.reason else "")
            tell_below(" ".join(outcome.trace) if traces else "")
    if any(isinstance(outcome.job, Unfair) for outcome in outcomes):
        say(f"\n{'without':16}{'violated':26}{'scope':26}{'seconds':>9}  verdict")
    for outcome in outcomes:
        if isinstance(outcome.job, Unfair):
            say(f"{outcome.job.without:16}{title_row(outcome)}")
            tell_below(outcome.job.reason)


def tell_scope(outcome: Outcome, scope: Scope) -> None:
    counts = f"{outcome.states:>8}{outcome.transitions:>13}{outcome.seconds:>9.1f}"
    say(f"{scope.name:26}{counts}  {outcome.verdict}")
    tell_below(scope.description)
    if outcome.counts is not None:
        tell_below(", ".join(f"{name} {' + '.join(map(str, outcome.counts[name]))}" for name in scope.purpose))


def title_row(outcome: Outcome) -> str:
    assert not isinstance(outcome.job, Scope)
    return f"{outcome.job.property:26}{outcome.job.scope:26}{outcome.seconds:>9.1f}  {outcome.verdict}"


def tell_below(text: str) -> None:
    """Print further lines below a row, if there are any."""
    if text:
        say(textwrap.fill(text, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 6, break_on_hyphens=False))


def conclude(outcomes: Sequence[Outcome], seconds: float) -> int:
    """Print the surprises and a summary. Returns: the exit status."""
    surprises = [outcome for outcome in outcomes if outcome.surprise]
    for outcome in surprises:
        say(f"\nSURPRISE: {title(outcome.job)}: {outcome.surprise}")
    of_scopes = [outcome for outcome in outcomes if isinstance(outcome.job, Scope)]
    graphs = sum(outcome.results is not None for outcome in of_scopes)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in used)
    violations = sum(isinstance(outcome.job, Violation) for outcome in outcomes)
    unfair = len(outcomes) - len(of_scopes) - violations
    told = f"{len(of_scopes)} scopes, {graphs} graphs, {violations} violations, {unfair} parts of the fairness,"
    told += f" {len(surprises)} surprises"
    say(f"\nformal: {told}; {seconds:.0f} s, {cpu:.0f} s of processors, which is {cpu / CORES:.0f} s of {CORES} idle ones")
    return bool(surprises)


def excuses(catalogue: Catalogue, chosen: Sequence[Scope]) -> list[Violation]:
    """The properties that scopes excuse, as violations to find; without those that are in the catalogue already."""
    known = {(violation.scope, violation.property) for violation in catalogue.violations}
    wanted = [Violation(name, scope.name) for scope in chosen for name in scope.excused]
    return [violation for violation in wanted if (violation.scope, violation.property) not in known]


def stale_configurations(catalogue: Catalogue, write: bool) -> list[str]:
    """The .cfg files that differ from scopes.toml; none after writing."""
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


def write_hashes(outcomes: Sequence[Outcome]) -> None:
    """Write the results of graphs on which TLC and Python agree into scopes.toml."""
    text = scopes.SCOPES_FILE.read_text(encoding="utf-8")
    for outcome in outcomes:
        if isinstance(outcome.job, Scope) and outcome.results:
            text = equality.with_results(text, outcome.job.name, *outcome.results)
    scopes.SCOPES_FILE.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scope", nargs="*", help="only the scopes whose names begin like this")
    parser.add_argument("--traces", action="store_true", help="show the steps of each violation")
    parser.add_argument("--excuses", action="store_true", help="find what the scopes excuse, and nothing else")
    parser.add_argument("--write", action="store_true", help="write spec/tla/*.cfg and stop")
    parser.add_argument("--write-hashes", action="store_true", help="put equal graphs into scopes.toml")
    parser.add_argument("--workers", type=int, default=min(CORES, os.cpu_count() or 1), help="runs at a time")
    options = parser.parse_args(arguments)
    catalogue = scopes.load()
    stale = stale_configurations(catalogue, options.write)
    if stale:
        say(f"formal: out of date, write anew with --write: {', '.join(stale)}")
    if options.write or stale:
        return bool(stale)
    patterns = [f"{pattern}*" for pattern in options.scope] or ["*"]
    chosen = [scope for name, scope in catalogue.scopes.items() if any(fnmatch(name, pattern) for pattern in patterns)]
    if not chosen:
        parser.error(f"no scope begins like that; there are: {', '.join(catalogue.scopes)}")
    began = time.monotonic()
    jobs: list[Job]
    if lacking := tlc.missing():
        if os.environ.get("CI") == "true":
            say(f"formal: {lacking} is missing, so TLC cannot run")
            return 1
        say("formal: no Java/Maven: TLC not run; the Python side is held against the checked-in hashes")
        jobs = [scope for scope in chosen if scope.graph]
    else:
        tlc.alone()
        tlc.fetch()
        shown: tuple[Violation | Unfair, ...] = (*catalogue.violations, *catalogue.unfair)
        more = [job for job in shown if catalogue.scopes[job.scope] in chosen]
        claiming = [scope for scope in chosen if scopes.claimed(scope, catalogue.properties)]
        jobs = [*excuses(catalogue, chosen)] if options.excuses else [*claiming, *more]
    outcomes = run(jobs, catalogue, options.workers, python_only=bool(lacking))
    outcomes.sort(key=lambda outcome: jobs.index(outcome.job))
    tell(outcomes, options.traces)
    if options.write_hashes and not lacking:
        write_hashes(outcomes)
    return conclude(outcomes, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
