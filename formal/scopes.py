"""Read scopes.toml, and write a scope as TLC's configuration file."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from formal.level import Level
from formal.level_protocol import PROTOCOL
from formal.level_reading import READING
from formal.levels import LEVELS
from formal.premises import PREMISES, UNCONDITIONAL
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

ROOT: Final = Path(__file__).resolve().parents[1]
TLA: Final = ROOT / "spec" / "tla"
SCOPES_FILE: Final = Path(__file__).with_name("scopes.toml")


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of HAProperties.tla: on states, on steps, on runs, and on runs in which no put times out.

    durable: the properties of HADurable.tla, on states. reading_invariants, reading_steps: those of HAReading.tla.
    """

    invariants: tuple[str, ...]
    steps: tuple[str, ...]
    liveness: tuple[str, ...]
    patient: tuple[str, ...]
    durable: tuple[str, ...]
    reading_invariants: tuple[str, ...]
    reading_steps: tuple[str, ...]

    def of(self, scope: "Scope") -> tuple[str, ...]:
        """The properties that can be checked in a scope."""
        if scope.level == READING.name:
            return self.reading_invariants + self.reading_steps
        if scope.durable:
            return self.durable
        if scope.patient:
            return self.patient
        return self.liveness if scope.fair else self.invariants + self.steps


@dataclass(frozen=True, slots=True)
class Scope:
    """A table [scope.NAME]; scopes.toml describes each key."""

    name: str
    description: str
    profile: str
    constants: dict[str, int | bool]
    purpose: tuple[str, ...]
    least: dict[str, int]
    level: str = PROTOCOL.name
    graph: bool = False
    fair: bool = False
    patient: bool = False
    durable: bool = False
    warm: bool = False
    excused: tuple[str, ...] = ()
    max_steps: int | None = None
    max_used: int | None = None
    min_edges: int | None = None
    rare: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    states: int | None = None
    edges: int | None = None
    hash: str | None = None

    @property
    def specification(self) -> str:
        """The name of its specification in the TLA+ module."""
        if self.patient:
            return "PatientSpec"
        return f"{'Warm' if self.warm else ''}{'Durable' if self.durable else 'Fair' if self.fair else ''}Spec"

    @property
    def model(self) -> Level:
        """Its level."""
        return LEVELS[self.level]

    @property
    def module(self) -> str:
        return "HADurable" if self.durable else self.model.module

    def constant(self, key: str) -> int | bool:
        """The value of a constant, or its default."""
        return self.model.constants.value(self.constants, key)

    def labels(self) -> list[str]:
        """All labels that exist with the scope's parameters."""
        return self.model.labels(self.constants)


@dataclass(frozen=True, slots=True)
class Violation:
    """A table [[violation]]."""

    property: str
    scope: str
    quirk: str = ""
    length: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unfair:
    """A table [[fairness]]: a property that fails without one part of the fairness."""

    without: str
    property: str
    scope: str
    reason: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    properties: Properties
    scopes: dict[str, Scope]
    violations: tuple[Violation, ...] = field(default=())
    unfair: tuple[Unfair, ...] = field(default=())


def load(file: Path = SCOPES_FILE) -> Catalogue:
    """Read scopes.toml. Refuse a file in which a property could fail, or stop failing, without anyone noticing."""
    tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    properties = Properties(**{kind: tuple(names) for kind, names in tables["properties"].items()})
    usual = tables["premises"]["least"]
    scopes = {name: _scope(name, table, usual) for name, table in tables["scope"].items()}
    violations = tuple(Violation(**table) for table in tables["violation"])
    catalogue = Catalogue(properties, scopes, violations, tuple(Unfair(**table) for table in tables["fairness"]))
    known = {name for names in asdict(properties).values() for name in names}
    found = {(scopes[violation.scope].profile, violation.property) for violation in violations}
    for scope in scopes.values():
        for name in scope.excused:
            assert name in known, f"{scope.name} excuses {name}, which is no property"
            assert (scope.profile, name) in found, f"{scope.name} excuses {name}, and no [[violation]] of its profile shows why"
        for label in scope.rare:
            often = [other for other in scopes.values() if other.profile == scope.profile and other.min_edges]
            kept = any(label in other.labels() and label not in other.rare for other in often)
            assert kept, f"{label} is rare in {scope.name}, and no scope of its profile must have it often, or never"
    shown = {violation.quirk for violation in violations if violation.quirk and scopes[violation.scope].profile == CLASSIC.name}
    wanted = frozenset().union(*(level.quirks for level in LEVELS.values()))
    assert shown == wanted, f"classic shows quirks {sorted(shown)}, not {sorted(wanted)}"
    for violation in violations:
        name, scope = violation.property, scopes[violation.scope]
        assert name in scope.excused, f"{scope.name} claims {name}, and a [[violation]] says that it fails there"
        assert name in properties.of(scope), f"{name} cannot be checked in {scope.name}"
        assert scope.profile == CLASSIC.name or violation.reason, f"{name} in {scope.name} has no reason"
        mended = any(includes(other, scope) and name not in other.excused for other in scopes.values())
        assert mended or (HARDENED.name, name) in found, f"no hardened scope shows what becomes of {name} in {scope.name}"
    refuse_what_nobody_is_for(catalogue)
    refuse_unshown_fairness(catalogue)
    return catalogue


def _scope(name: str, table: dict[str, Any], usual: int) -> Scope:
    """Build a Scope. `for`: the properties that it is for. `least`: its own counts for some of them."""
    rest = {key: value for key, value in table.items() if key != "for"}
    purpose = tuple(table.get("for", ()))
    least = dict.fromkeys(purpose, usual) | rest.pop("least", {})
    assert set(least) == set(purpose), f"{name} has `least` for what is not in its `for`: {sorted(set(least) - set(purpose))}"
    lists = {key: tuple(table.get(key, ())) for key in ("excused", "rare", "never")}
    return Scope(name=name, purpose=purpose, least=least, **rest | lists)


def refuse_what_nobody_is_for(catalogue: Catalogue) -> None:
    """Check that each scope is for a property, and each property claimed by a profile has such a scope, or a violation."""
    wanted = {(scope.profile, name) for scope in catalogue.scopes.values() for name in scope.purpose}
    wanted |= {(catalogue.scopes[violation.scope].profile, violation.property) for violation in catalogue.violations}
    for scope in catalogue.scopes.values():
        names = claimed(scope, catalogue.properties)
        shown = {violation.property for violation in catalogue.violations if violation.scope == scope.name}
        assert scope.purpose or shown, f"{scope.name} is there for nothing: it has no `for`, and no [[violation]]"
        for name in scope.purpose:
            assert name in names, f"{scope.name} is for {name}, and does not claim it"
        for name in set(names) - set(UNCONDITIONAL):
            assert name in PREMISES, f"{name} has no premise in premises.py"
            assert (scope.profile, name) in wanted, f"{scope.name} claims {name}, and no {scope.profile} scope is for it"


def refuse_unshown_fairness(catalogue: Catalogue) -> None:
    """Check that each part of the fairness has a [[fairness]] table that shows which property fails without it."""
    text = (TLA / "HAProperties.tla").read_text(encoding="ascii")
    defined = text[text.index("FairnessBut(one) ==") : text.index("Fairness == FairnessBut")]
    parts = set(re.findall(r'"(\w+)"', defined))
    shown = [unfair.without for unfair in catalogue.unfair]
    assert sorted(parts) == sorted(shown), f"the parts of the fairness are {sorted(parts)}; [[fairness]] shows {sorted(shown)}"
    for unfair in catalogue.unfair:
        scope = catalogue.scopes[unfair.scope]
        assert scope.fair and not scope.warm, f"{scope.name} has no fairness without {unfair.without}"
        assert unfair.property in claimed(scope, catalogue.properties), f"{scope.name} does not claim {unfair.property}"


def includes(other: Scope, scope: Scope) -> bool:
    """Return True if `other` is a hardened scope with at least the bounds of `scope`, so that it covers the same runs."""
    if other.level != scope.level:
        return False
    if other.profile != "hardened" or other.specification != scope.specification or other.max_steps or other.max_used:
        return False
    constants = scope.model.constants
    alike = all(other.constant(key) == scope.constant(key) for key in constants.alike)
    return alike and all(other.constant(key) >= scope.constant(key) for key in (*constants.bounds, *constants.numbers))


def claimed(scope: Scope, properties: Properties) -> list[str]:
    """The properties that must hold in a scope."""
    return [name for name in properties.of(scope) if name not in scope.excused]


def configuration(scope: Scope, names: Sequence[str], properties: Properties, specification: str = "") -> str:
    """The text of TLC's configuration file for a scope and the properties to check.

    Args: specification: a specification other than the scope's own.
    """
    lines = [
        f"\\* {scope.name}: {scope.description}.",
        "\\* Written by python -m formal.run_formal --write from formal/scopes.toml.",
        f"SPECIFICATION {specification or scope.specification}",
        "CONSTANTS",
        *(f"  {constant}" for constant in scope.model.constants.lines(scope.constants, scope.profile)),
        "CHECK_DEADLOCK FALSE",
    ]
    bounds = {"StepsAtMost": scope.max_steps, "UsedAtMost": scope.max_used}
    lines += [f"CONSTRAINT {name}_{most}" for name, most in bounds.items() if most is not None]
    of_states = properties.invariants + properties.durable + properties.reading_invariants
    lines += [f"INVARIANT {name}" for name in names if name in of_states]
    lines += [f"PROPERTY {name}" for name in names if name not in of_states]
    return "\n".join(lines) + "\n"
