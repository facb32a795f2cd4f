"""scopes.toml as data, and a scope as the configuration file that TLC reads."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
TLA: Final = ROOT / "spec" / "tla"
SCOPES_FILE: Final = Path(__file__).with_name("scopes.toml")

# The constants of spec/protocol.md, as scopes.toml and as the TLA+ modules name them.
NUMBERS: Final = {
    "max_puts": "MaxPuts",
    "max_drops": "MaxDrops",
    "max_master_crashes": "MaxMasterCrashes",
    "max_slave_crashes": "MaxSlaveCrashes",
    "max_deletes": "MaxDeletes",
    "max_forgeries": "MaxForgeries",
    "file_size": "FileSize",
    "batch": "Batch",
    "frame_window": "FrameWindow",
    "report_window": "ReportWindow",
    "replicas": "Replicas",
    "fall_behind_max": "FallBehindMax",
}
# What a scope has that does not say: 1, but no bound.
UNSAID: Final = dict.fromkeys(NUMBERS, 1) | {"fall_behind_max": 99}
BOOLEANS: Final = {"sync_puts": "SyncPuts", "acks_flushed": "AcksFlushed"}  # FALSE in a scope that does not say
ALIKE: Final = (
    "file_size",
    "batch",
    "replicas",
    "fall_behind_max",
    "acks_flushed",
)  # of scopes of which one includes the other
SWITCHES: Final = ("Checks", "Forgets", "AtOnce", "IgnoresHeartbeats", "Coalesces", "Overlaps")
QUIRKS: Final = {"1", "2", "3", "7", "8", "9", "17"}  # of spec/violations.md: those that show without bytes
IS_ON: Final = {"classic": False, "hardened": True}


@dataclass(frozen=True, slots=True)
class Properties:
    """What HAProperties.tla defines: of states, of steps, and of runs."""

    invariants: tuple[str, ...]
    steps: tuple[str, ...]
    liveness: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """A table [scope.NAME]; scopes.toml says what each key means."""

    name: str
    story: str
    profile: str
    constants: dict[str, int | bool]
    graph: bool = False
    fair: bool = False
    excused: tuple[str, ...] = ()
    max_steps: int | None = None
    max_used: int | None = None
    min_edges: int | None = None
    rare: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    states: int | None = None
    edges: int | None = None
    hash: str | None = None

    def labels(self) -> list[str]:
        """Every label that the scope has parameters for."""
        slaves = range(1, int(self.constants["slaves"]) + 1)
        puts = range(1, int(self.constants["max_puts"]) + 1)
        of_slave = ("Connect", "Report", "Forge", "RecvFrame", "Drop", "DropUnseen", "SlaveCrash")
        of_slot = ("RecvReport", "Begin", "Send", "Heartbeat", "Reap")
        return [
            *("Put", "PutSync", "Flush", "Delete", "MasterCrash"),
            *(f"Timeout({offset})" for offset in puts),
            *(f"{action}({slave})" for action in of_slave for slave in slaves),
            *(f"{action}({slave},{slot})" for action in of_slot for slave in slaves for slot in (1, 2)),
        ]


@dataclass(frozen=True, slots=True)
class Violation:
    """A table [[violation]]."""

    property: str
    scope: str
    quirk: str = ""
    length: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    properties: Properties
    scopes: dict[str, Scope]
    violations: tuple[Violation, ...] = field(default=())


def load(file: Path = SCOPES_FILE) -> Catalogue:
    """Read scopes.toml, and refuse one in which a property could fail, or cease to fail, unseen."""
    tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    properties = Properties(**{kind: tuple(names) for kind, names in tables["properties"].items()})
    scopes = {
        name: Scope(name=name, **table | {key: tuple(table.get(key, ())) for key in ("excused", "rare", "never")})
        for name, table in tables["scope"].items()
    }
    violations = tuple(Violation(**table) for table in tables["violation"])
    catalogue = Catalogue(properties, scopes, violations)
    known = {*properties.invariants, *properties.steps, *properties.liveness}
    found = {(scopes[violation.scope].profile, violation.property) for violation in violations}
    for scope in scopes.values():
        for name in scope.excused:
            assert name in known, f"{scope.name} excuses {name}, which is no property"
            assert (scope.profile, name) in found, f"{scope.name} excuses {name}, and no [[violation]] of its profile shows why"
        for label in scope.rare:
            often = [other for other in scopes.values() if other.profile == scope.profile and other.min_edges]
            kept = any(label in other.labels() and label not in other.rare for other in often)
            assert kept, f"{label} is rare in {scope.name}, and no scope of its profile must have it often, or never"
    shown = {violation.quirk for violation in violations if violation.quirk and scopes[violation.scope].profile == "classic"}
    assert shown == QUIRKS, f"classic shows quirks {sorted(shown)}, not {sorted(QUIRKS)}"
    for violation in violations:
        name, scope = violation.property, scopes[violation.scope]
        assert name in scope.excused, f"{scope.name} claims {name}, and a [[violation]] says that it fails there"
        assert (name in properties.liveness) == scope.fair, f"{name} cannot be checked in {scope.name}"
        assert scope.profile == "classic" or violation.reason, f"{name} in {scope.name} has no reason"
        mended = any(includes(other, scope) and name not in other.excused for other in scopes.values())
        assert mended or ("hardened", name) in found, f"no hardened scope shows what becomes of {name} in {scope.name}"
    return catalogue


def constant(scope: Scope, key: str) -> int | bool:
    """A constant of a scope, which need not say it."""
    return scope.constants.get(key, UNSAID.get(key, False))


def includes(other: Scope, scope: Scope) -> bool:
    """Whether `other` is a hardened scope that has every run which `scope` has, as far as hardened goes along."""
    if other.profile != "hardened" or other.fair != scope.fair or other.max_steps or other.max_used:
        return False
    alike = all(constant(other, key) == constant(scope, key) for key in ALIKE)
    return alike and all(constant(other, key) >= constant(scope, key) for key in ("slaves", "sync_puts", *NUMBERS))


def claimed(scope: Scope, properties: Properties) -> list[str]:
    """The properties that must hold in a scope."""
    names = properties.liveness if scope.fair else properties.invariants + properties.steps
    return [name for name in names if name not in scope.excused]


def configuration(scope: Scope, names: Sequence[str], properties: Properties) -> str:
    """TLC's configuration file for a scope and the properties to check."""
    slaves = ", ".join(str(slave + 1) for slave in range(int(scope.constants["slaves"])))
    constants = [f"Slaves = {{{slaves}}}"]
    constants += [f"{tla} = {constant(scope, key)}" for key, tla in NUMBERS.items()]
    constants += [f"{tla} = {_tla(bool(constant(scope, key)))}" for key, tla in BOOLEANS.items()]
    constants += [f"{switch} = {_tla(IS_ON[scope.profile])}" for switch in SWITCHES]
    constants += ["NONE = NONE"]
    lines = [
        f"\\* {scope.name}: {scope.story}.",
        "\\* Written by tests/formal/run_formal.py --write from tests/formal/scopes.toml.",
        f"SPECIFICATION {'FairSpec' if scope.fair else 'Spec'}",
        "CONSTANTS",
        *(f"  {constant}" for constant in constants),
        "CHECK_DEADLOCK FALSE",
    ]
    bounds = {"StepsAtMost": scope.max_steps, "UsedAtMost": scope.max_used}
    lines += [f"CONSTRAINT {name}_{most}" for name, most in bounds.items() if most is not None]
    lines += [f"INVARIANT {name}" for name in names if name in properties.invariants]
    lines += [f"PROPERTY {name}" for name in names if name not in properties.invariants]
    return "\n".join(lines) + "\n"


def _tla(value: bool) -> str:
    return "TRUE" if value else "FALSE"
