"""Mutation testing of the reference model: which wrong copies of it do the checks notice?

A mutant changes one decision expression of the model: a comparison, a boolean operator, a constant or sum in one, or one arm of
a condition. A seed draws the mutants, half from the abstract levels and half from the byte level; the mutants in PICKED are
written by hand. Each runs in its own process, which imports the changed module in place of the real one (no file changes), and
stops at the first difference:

    abstract levels  graph: an edge that only one of mutant and unchanged model has, in a scope of scopes.toml; the hash of the
                     unchanged model's graph is checked in, and equals TLC's
    byte level       lock-step: the implementation differs on fixed seeds, or an invariant of the cluster fails; then the same
                     with hostile peers, which schedules do not contain
                     refinement: a step of a schedule cannot be mapped to steps of the protocol level
                     scenarios: a file of tests/stateful/scenarios/ has another outcome
                     table: the transitions differ from spec/transitions.json
                     snapshot, trace: an outcome in spec/snapshots/ or a trace of spec/violations.md differs

    python -m formal.mutants                     the drawn mutants and PICKED; exit status 1 if fewer than 95 % are noticed
    python -m formal.mutants --count 80 --seed 7
    python -m formal.mutants --list              list the mutants that can be drawn
    python -m formal.mutants --only master.py    every mutant of one file
"""

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Final

from formal.changes import slots, variants
from formal.tree_copy import ROOT

PACKAGE: Final = "rocketmq_ha.reference"
ABSTRACT: Final = {"protocol.py": "protocol", "reading.py": "reading"}  # the level of each file
BYTE_FILES: Final = ("master.py", "slave.py", "store.py", "group_transfer.py", "five_waits.py", "cluster.py")
COMPARED: Final = {"link", "replicas"}  # the worlds of which a mutant of them is compared with spec/transitions.json
TARGET: Final = 0.95
GRAPH_STATES: Final = 100_000  # in total, over the scopes of a level and profile in which a mutant is compared
LOCKSTEP_SEEDS: Final = range(1, 161)
HOSTILE_SEEDS: Final = range(1, 121)
REFINEMENT_SEEDS: Final = range(1, 41)
SECONDS_PER_CHECK: Final = 20  # a check that takes longer is taken to hang; it usually takes 20 ms on a quiet machine
# These checks take up to ten seconds. The abstract levels have no loop that a mutant could make endless.
SECONDS: Final = {"table": 120, "snapshot": 120, "trace": 120, "graph": 300}
PATIENCE: Final = 40  # so many times longer a check may take by the clock, on a busy machine
MEMORY_BYTES: Final = 3 << 30
AS_IT_IS: Final = "_as_it_is"  # behind the name of the unchanged module
NO_MUTANT: Final = 3  # exit status of a process that could not make its mutant


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the `variant`-th one in the `site`-th slot of a file. By hand: a text and its replacement (site -1)."""

    file: str
    line: int
    before: str
    after: str
    site: int = -1
    variant: int = -1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before}  ->  {self.after}"


PICKED: Final = (
    Mutant("protocol.py", 0, "max((0, *(acked(one, scope)", "min((0, *(acked(one, scope)"),
    Mutant(
        "protocol.py",
        0,
        "max((0, *(acked(one, scope) for one in slots if one is not None))) for slots in conn)",
        "max(0, acked(one, scope)) for slots in conn for one in slots if one is not None)",
    ),
    Mutant("group_transfer.py", 0, "greatest[replica] = max(ack", "greatest[len(greatest)] = max(ack"),
    Mutant(
        "protocol.py",
        0,
        "replace(conn, frames=(), stale=True)",
        "replace(conn, stale=True)",
    ),
    Mutant(
        "protocol.py",
        0,
        "replace(conn, frames=(), stale=True)",
        "replace(conn, frames=(), reports=(), stale=True)",
    ),
    Mutant("protocol.py", 0, "node.base + kept < node.flushed", "node.base + kept < 0"),
    Mutant("protocol.py", 0, "not 0 < lags < scope.fall_behind_max", "not 0 < lags <= scope.fall_behind_max"),
    Mutant("protocol.py", 0, "frames = () if conn.stale else (*conn.frames,", "frames = (*conn.frames,"),
    Mutant("protocol.py", 0, "        conn=initial(scope).conn,\n", ""),
    Mutant("protocol.py", 0, 'Frame(n, b"")', 'Frame(state.min, b"")'),
    Mutant(
        "master.py", 0, "buffer[pos - REPORT_SIZE : pos]", "buffer[conn.process_position : conn.process_position + REPORT_SIZE]"
    ),
    Mutant(
        "master.py",
        0,
        "start = store.max_offset(log) - store.max_offset(log) % settings.mapped_file_size",
        "start = store.min_offset(log)",
    ),
    Mutant("slave.py", 0, "byte_buffer_read=byte_buffer_backup, dispatch_position=0", "byte_buffer_read=byte_buffer_backup"),
    Mutant("store.py", 0, "base = offset - offset % log.file_size if offset >= 0", "base = offset if offset >= 0"),
    Mutant("cluster.py", 0, "self.paused, self.push2_slave_max_offset = (), 0", "self.paused = ()"),
)


# Survivors that change no behaviour, each with the reason. Keyed by the text of the change, since line numbers move.
EQUIVALENT: Final = {
    "offset < 0  ->  offset < -1": "-1 begins no file (HA-S-11), so the last line of check_frame refuses it all the same",
    "offset >= 0  ->  offset >= 1": "0 is divided to 0 by either rule",
    "conn.req == -1  ->  conn.req == -2": (
        "of begin: a transfer that starts at -1, where no report has come, is the state as it is, and no edge"
    ),
    "r <= state.push2  ->  r < state.push2": "who waited for what is acknowledged was released before",
    "node.base + kept < node.flushed  ->  node.base + kept <= node.flushed": (
        "with one frame in flight a slave that flushes before it reports holds nothing that it has not flushed"
    ),
    "max_offset(node) == 0  ->  max_offset(node) == -1": (
        "the first frame to an empty slave begins a file (HA-M-4), so none is unaligned at this level; the byte level has"
        " frames of any offset"
    ),
    "offset - offset % log.file_size + log.file_size > I64_MAX"
    "  ->  offset - offset % log.file_size + log.file_size >= I64_MAX": (
        "a file ends at 2^63 - 1 only where its size divides that number, which no power of two does"
    ),
    "not link.conn.close_reason and (not link.severed)  ->  not link.conn.close_reason": (
        "a cut tells an end: a severed link whose slave's end is open was closed at the master by the cut itself"
    ),
    "not both_run(state) or len(slave.log) >= len(log)  ->  not both_run(state)": (
        "a slave that has all of its master's log gets nothing, which is no edge; none has more while both run"
    ),
    "len(slave.log) >= len(log)  ->  len(slave.log) > len(log)": "the same",
    "len(of(state, b).log) + 1  ->  len(of(state, b).log) + 2": "no log is longer than itself: that loss is not possible",
}


# --- The mutants --------------------------------------------------------------------------------------------------------------


def all_mutants(file: str) -> list[Mutant]:
    tree = ast.parse((ROOT / "reference" / file).read_text(encoding="utf-8"))
    return [
        Mutant(file, slot.node.lineno, ast.unparse(slot.node), ast.unparse(node), site, variant)
        for site, slot in enumerate(slots(tree))
        for variant, node in enumerate(variants(slot))
    ]


def draw(count: int, seed: int) -> list[Mutant]:
    """Draw mutants, half from the abstract levels and half from the byte level."""
    rng = random.Random(seed)
    found = []
    for files in (ABSTRACT, BYTE_FILES):
        candidates = [mutant for file in files for mutant in all_mutants(file)]
        found += rng.sample(candidates, min(len(candidates), count // 2))
    return found


def compiled(mutant: Mutant) -> CodeType:
    """The code of a module with the change in it."""
    file = ROOT / "reference" / mutant.file
    text = file.read_text(encoding="utf-8")
    if mutant.site == -1:
        assert text.count(mutant.before) == 1, f"stands {text.count(mutant.before)} times in {mutant.file}: {mutant.before}"
        return compile(text.replace(mutant.before, mutant.after), str(file), "exec")
    tree = ast.parse(text)
    slot = list(slots(tree))[mutant.site]
    node = variants(slot)[mutant.variant]
    assert (ast.unparse(slot.node), ast.unparse(node)) == (mutant.before, mutant.after), f"{mutant.file} has changed meanwhile"
    slot.put(node)
    return compile(ast.fix_missing_locations(tree), str(file), "exec")


# --- In the process of one mutant: the imports above must not load any module of rocketmq_ha --------------------------------


class _Substitute(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import finder and loader for the changed module."""

    def __init__(self, name: str, code: CodeType) -> None:
        self._name, self._code = name, code

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return ModuleSpec(name, self) if name == self._name else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def module_from(name: str, path: Path) -> ModuleType:
    """Load a file as a module under another name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def bounded(check: Callable[[], str], seconds: int) -> str:
    """Run a check. Returns: its difference. An exception counts as a difference, and so does a check that does not end."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, ring)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(PATIENCE * seconds)
    try:
        return check()
    except TimeoutError:
        return f"hangs for {seconds} s of processor time"
    except (Exception, RecursionError) as error:
        return f"raises {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def graph_differs(scope: object, start: object, name: str, as_it_is: ModuleType) -> str:
    """The edge nearest to the initial state that only one of mutant and unchanged model has."""
    changed = importlib.import_module(f"{PACKAGE}.{as_it_is.__name__.removesuffix(AS_IT_IS)}")
    seen, queue = {start}, [start]
    for number, state in enumerate(queue):  # the list grows during the loop: it is the queue
        edges = list(as_it_is.edges(state, scope))
        mutated = list(changed.edges(state, scope))
        if mutated != edges and set(mutated) != set(edges):
            label = min(label for label, _ in set(mutated) ^ set(edges))
            return f"{name}, state {number}: {label}"
        for _, after in edges:
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return ""


def graph_checks(file: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """All checks of an abstract level as (kind, function), the cheapest first."""
    from formal import graph

    as_it_is = module_from(file.removesuffix(".py") + AS_IT_IS, ROOT / "reference" / file)
    total: Counter[str] = Counter()
    of_level = [named for named in graph.load_scopes().values() if named.level.name == ABSTRACT[file]]
    checked_in = [named for named in of_level if named.hash and named.max_steps is None and not named.durable]
    for named in sorted(checked_in, key=lambda named: named.states or 0):
        total[named.profile] += named.states or 0
        if total[named.profile] > GRAPH_STATES:
            continue
        yield "graph", partial(graph_differs, named.scope, named.start(), named.name, as_it_is)


def lockstep_differs(seed: int, table: set[tuple[str, str, str, str, str]]) -> str:
    from rocketmq_ha.fuzz import lockstep, recorder, schedule
    from rocketmq_ha.fuzz.second_verdict import chunk, monitor
    from rocketmq_ha.spec.event_log import PHASE_GENERATE

    drawn = schedule.draw(seed)
    outcome = lockstep.run(drawn)
    if outcome.verdict != "ok":
        return f"seed {seed}, operation {outcome.last.op_index}: {outcome.verdict} {outcome.last.signature}"
    for step in outcome.steps:
        for row in step.transitions:
            if row.actor == "slave_client" and row.fragment_len != (row.nbytes if row.event == "frames" else -1):
                return f"seed {seed}: a row of the log: {row.event} of {row.nbytes} bytes in a fragment of {row.fragment_len}"
            if (row.actor, row.from_state, row.event, row.to_state, drawn.profile.name) not in table:
                return f"seed {seed}: no such transition: {row.actor} {row.from_state} -{row.event}-> {row.to_state}"
    # What the rows say of the run, which both worlds may agree about: the offsets in them, and rows that are missing.
    events = recorder.EventRecorder()
    run = recorder.run_row(outcome, PHASE_GENERATE, events.add(outcome))
    broken = monitor.judge(chunk.of_tables(events.table(), recorder.run_table([run]))).broken
    return f"seed {seed}: the second verdict: {', '.join(broken)}" if broken else ""


def hostile_differs(seed: int) -> str:
    """Run the lock-step of a seed with hostile peers, which schedules do not contain. The two worlds must agree there, too.

    Forged reports lie close to a connection's offsets, where the model cannot distinguish them from honest ones, so its
    invariants need not hold. Slaves receive frames that no master sends. In hardened they then never restart: the
    implementation refuses to recover from damage, which the model does not have. Every second master's log begins behind
    deleted files.
    """
    from rocketmq_ha.fuzz import differences, lockstep, schedule
    from rocketmq_ha.reference import store, wire
    from rocketmq_ha.reference.events import Event, ForgeReport, RestartSlave
    from rocketmq_ha.reference.message import Record
    from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE

    rng, drawn = random.Random(-seed), schedule.draw(seed)
    file_size = drawn.settings.mapped_file_size
    damaged = set()

    def forged(worlds: lockstep.LinkLockstep) -> Iterator[Event]:
        cluster = worlds.reference.cluster
        links = [link for link in cluster.links if link.slave_open]
        if not links or rng.random() > 0.15:
            return
        link = rng.choice(links)
        conn = link.conn
        near = (conn.slave_request_offset, conn.slave_ack_offset, conn.this_offset, conn.next_transfer_from_where)
        begins_and_ends = (store.min_offset(cluster.log), store.max_offset(cluster.log))
        for _ in range(rng.randint(1, 3)):
            yield ForgeReport(link.slave, min(rng.choice((*near, *begins_and_ends)) + rng.randint(-1, 1), (1 << 63) - 1))

    def send_frame(worlds: lockstep.LinkLockstep) -> None:
        """Put a frame of any offset and size behind the bytes in flight to a slave."""
        links = [link for link in worlds.reference.cluster.links if link.slave_open and not link.severed]
        if not links or rng.random() > 0.1:
            return
        link = rng.choice(links)
        at = store.max_offset(worlds.reference.cluster.slaves[link.slave].log)
        limits = (0, file_size - at % file_size, drawn.settings.slave_read_buffer_size - TRANSFER_HEADER_SIZE)
        size = rng.choice(limits) + rng.choice((-1, 0, 0, 1))
        last_file = (1 << 63) // file_size * file_size - file_size
        offset = rng.choice((at, at, at + rng.randint(-2, 2), file_size, -1, -5, -file_size, last_file, last_file + 3))
        log = worlds.reference.cluster.log
        body = rng.choice((b"", log.data[rng.choice((0, -size)) :])).ljust(
            size, b"\1"
        )  # bytes from elsewhere in the log, or none
        frame = wire.pack_header(offset, size) + body[: max(0, size)]
        others = (
            replace(link, to_slave=link.to_slave + frame) if each is link else each for each in worlds.reference.cluster.links
        )
        worlds.reference.cluster = replace(worlds.reference.cluster, links=tuple(others))
        connection = worlds.implementation._of(link.slave)
        assert connection is not None
        connection.channel.at_master.in_flight += frame
        damaged.add(link.slave)

    with lockstep.scratch_directory() as directory:
        log = store.Log(file_size)
        if seed % 2:
            log, _, _ = store.append_record(store.Log(file_size, 2 * file_size), Record(b"S", b"body"))
            folder = directory / "master" / "commitlog"
            folder.mkdir(parents=True)
            (folder / f"{2 * file_size:020}").write_bytes(log.data.ljust(file_size, b"\0"))
        worlds = lockstep.of_link(drawn.slaves, drawn.settings, drawn.profile, directory)
        worlds.reference.cluster = replace(worlds.reference.cluster, log=log)
        try:
            for index, event in enumerate(drawn.events):
                send_frame(worlds)
                if isinstance(event, RestartSlave) and event.slave in damaged and drawn.profile.clears_tail:
                    continue
                for each in (*forged(worlds), event):
                    worlds.reference.apply(each)
                    worlds.implementation.apply(each)
                    if found := differences.differences(worlds.reference.observe(), worlds.implementation.observe()):
                        return f"seed {seed} among hostile peers, operation {index}: {found[0].actor} {found[0].field}"
        finally:
            worlds.close()
    return ""


def refinement_differs(seed: int) -> str:
    """Run a schedule on the byte level alone: each step must map to zero or more steps of the protocol level."""
    from rocketmq_ha.fuzz import schedule
    from rocketmq_ha.fuzz.worlds.world import START_MS
    from rocketmq_ha.reference import cluster, refinement

    drawn = schedule.draw(seed)
    before = cluster.new_cluster(drawn.slaves, drawn.settings, drawn.profile, START_MS)
    for index, event in enumerate(drawn.events):
        after, _ = cluster.step(before, event, drawn.settings, drawn.profile)
        if told := refinement.refines(before, event, after, drawn.settings, drawn.profile):
            return f"seed {seed}, operation {index}: {told.splitlines()[0]}"
        before = after
    return ""


def scenario_differs(file: Path) -> str:
    from formal import scenarios

    told = file.read_text(encoding="utf-8")
    return "" if scenarios.play(told) == told else f"{file.stem} is told otherwise"


def table_differs(rows: Set[tuple[str, ...]], clauses: Set[str]) -> str:
    """Compare the machines of link and replicas. Those of other worlds take two minutes; few of their steps use BYTE_FILES."""
    from rocketmq_ha.reference import transitions

    machines = {actor: machine for actor, machine in transitions.MACHINES.items() if COMPARED & set(machine.worlds)}
    table = transitions.explored(machines.values())
    known = {row for row in rows if row[0] in machines}
    differs = [*sorted(" ".join(row) for row in table.rows ^ known), *sorted(table.clauses.keys() ^ clauses)]
    return f"{differs[0]}: only in spec/transitions.json, or only in the mutant" if differs else ""


def snapshot_differs() -> str:
    from formal import snapshots

    return next((f"{name} differs" for name, text in snapshots.texts().items() if snapshots.difference(name, text)), "")


def trace_differs() -> str:
    from formal import violations

    told = violations.DOCUMENT.read_text(encoding="utf-8")
    return "" if violations.render(told) == told else "a trace of spec/violations.md differs"


def byte_checks() -> Iterator[tuple[str, Callable[[], str]]]:
    possible = json.loads((ROOT / "spec" / "transitions.json").read_text(encoding="utf-8"))
    table = {
        (actor, before, event, after, profile)
        for actor, machine in possible["machines"].items()
        for before, event, after, profiles in machine["transitions"]
        for profile in profiles
    }
    exercised = {clause for clause, held in possible["clauses"].items() if COMPARED & set(held["worlds"])}
    for seed in LOCKSTEP_SEEDS:
        yield "lock-step", partial(lockstep_differs, seed, table)
    from formal import scenarios

    for file in scenarios.SCENARIOS:
        yield "scenario", partial(scenario_differs, file)
    for seed in REFINEMENT_SEEDS:
        yield "refinement", partial(refinement_differs, seed)
    for seed in HOSTILE_SEEDS:
        yield "lock-step", partial(hostile_differs, seed)
    yield "table", partial(table_differs, table, exercised)
    yield "snapshot", snapshot_differs
    yield "trace", trace_differs


def child(told: str) -> int:
    """Print which check noticed a mutant, as JSON [kind, difference]; ["", ""] if none did. An empty mutant changes nothing."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    fields = json.loads(told)
    mutant = Mutant(*fields)
    if mutant.before != mutant.after:
        name = f"{PACKAGE}.{mutant.file.removesuffix('.py')}"
        try:
            code = compiled(mutant)
        except AssertionError as error:
            sys.stderr.write(f"{error}\n")
            return NO_MUTANT
        sys.meta_path.insert(0, _Substitute(name, code))
    found = ("", "")
    for kind, check in graph_checks(mutant.file) if mutant.file in ABSTRACT else byte_checks():
        if what := bounded(check, SECONDS.get(kind, SECONDS_PER_CHECK)):
            found = (what.partition(" ")[0] if what.startswith(("raises ", "hangs ")) else kind, what)
            break
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


# --- The program -------------------------------------------------------------------------------------------------------------


def run(mutant: Mutant) -> tuple[str, str]:
    """Run a mutant in its own process. Returns: (kind of check, difference); ("", "") if it survives."""
    told = json.dumps([mutant.file, mutant.line, mutant.before, mutant.after, mutant.site, mutant.variant])
    command = [sys.executable, "-m", "formal.mutants", "--child", told]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode == NO_MUTANT:
        raise SystemExit(f"mutants: {done.stderr.strip()}")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return "raises", f"on import: {last}"
    kind, what = json.loads(done.stdout.splitlines()[-1])
    return kind, what


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="how many are drawn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print every mutant that could be drawn, and run none")
    parser.add_argument("--only", metavar="FILE", choices=(*ABSTRACT, *BYTE_FILES), help="run every mutant of one file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return child(options.child)
    everything = {file: all_mutants(file) for file in (*ABSTRACT, *BYTE_FILES)}
    if options.list:
        for mutants in everything.values():
            say("\n".join(map(str, mutants)))
        return 0
    os.nice(10)
    with ThreadPoolExecutor(options.jobs) as pool:
        unchanged = list(pool.map(run, [Mutant(file, 0, "", "") for file in (*ABSTRACT, "master.py")]))
    if any(kind for kind, _ in unchanged):
        say(f"the model as it is does not pass: {unchanged}")
        return 2
    mutants = everything[options.only] if options.only else [*draw(options.count, options.seed), *PICKED]
    return judge(mutants, options.jobs, sum(map(len, everything.values())))


def judge(mutants: Sequence[Mutant], jobs: int, possible: int) -> int:
    """Run all mutants and print a line as each ends. Returns: exit status 1 if the share noticed is below TARGET."""
    begin = time.monotonic()
    kinds: Counter[str] = Counter()
    survivors = []
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(run, mutant): mutant for mutant in mutants}
        for number, future in enumerate(as_completed(runs), 1):
            mutant, (kind, what) = runs[future], future.result()
            kinds[kind] += 1
            survivors += [] if kind else [mutant]
            say(f"{number:>3}/{len(mutants)} {time.monotonic() - begin:4.0f} s  {mutant}\n{'':15} {what or 'SURVIVES'}")
    killed = len(mutants) - len(survivors)
    by_kind = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common() if kind)
    say(f"\n{killed} of {len(mutants)} mutants killed, {killed / len(mutants):.1%} ({by_kind}); {possible} could be drawn")
    mistakes = len(mutants)
    for mutant in survivors:
        reason = EQUIVALENT.get(f"{mutant.before}  ->  {mutant.after}")
        mistakes -= reason is not None
        say(f"survives: {mutant}\n{'':10}{reason or 'not explained'}")
    say(f"{killed} of the {mistakes} that are mistakes, {killed / mistakes:.1%}; at least {TARGET:.0%} are asked for")
    return int(killed < TARGET * mistakes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
