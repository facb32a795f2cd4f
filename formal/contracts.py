"""Run CrossHair on the contracts of the pure arithmetic: confirm them for all arguments, or search for counterexamples.

    python -m formal.contracts          a line a contract; exit status 1 for a counterexample, and where one that is
                                              listed in contracts.toml as confirmed is so no more
    python -m formal.contracts NAME...  these alone

"Not confirmed" is no pass: CrossHair found no counterexample in its time, but did not explore all paths. The tests of the codec
and the lock-step cover what remains.
"""

import inspect
import itertools
import os
import sys
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Final

from crosshair.core_and_libs import analyze_function, run_checkables
from crosshair.options import AnalysisKind, AnalysisOptionSet
from crosshair.statespace import AnalysisMessage, MessageType

from formal import contracts_ha, contracts_wire

MODULES: Final = (contracts_wire, contracts_ha)
SOME_NUMBERS: Final = (0, 1, 3, 8, 100, -1)
LIST: Final = Path(__file__).with_name("contracts.toml")

# CrossHair reads a package's options from its __init__.py; rocketmq_ha is a namespace package without one.
vars(sys.modules["rocketmq_ha"])["__package__"] = None

Contract = Callable[..., None]


class Verdict(Enum):
    CONFIRMED = "confirmed"
    COUNTEREXAMPLE = "counterexample"
    NOT_CONFIRMED = "not confirmed"


@dataclass(frozen=True, slots=True)
class Expected:
    """The contents of contracts.toml."""

    confirmed: frozenset[str]
    seconds: float  # CPU time for each contract in `confirmed`
    seconds_others: float  # CPU time for each other contract

    @classmethod
    def load(cls) -> "Expected":
        table = tomllib.loads(LIST.read_text(encoding="utf-8"))
        return cls(frozenset(table["confirmed"]), table["seconds"], table["seconds_others"])


def contracts(modules: tuple[ModuleType, ...] = MODULES) -> dict[str, Contract]:
    """All contracts of the modules, by name; functions that begin with _ are their helpers."""
    return {
        name: function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def is_met_by_something(contract: Contract) -> bool:
    """Return True if some small arguments meet the contract's preconditions, so that it runs to its end."""
    for arguments in itertools.product(SOME_NUMBERS, repeat=len(inspect.signature(contract).parameters)):
        try:
            contract(*arguments)
        except AssertionError:
            continue
        return True
    return False


def judge(contract: Contract, seconds: float) -> tuple[Verdict, str]:
    """Run CrossHair on one contract. Returns: the verdict, and the counterexample if there is one."""
    options = AnalysisOptionSet(analysis_kind=(AnalysisKind.asserts,), per_condition_timeout=seconds, report_all=True)
    messages: list[AnalysisMessage] = run_checkables(analyze_function(contract, options))
    assert messages, f"{contract.__name__} does not begin with what it supposes: CrossHair takes it for no contract"
    worst = max(messages, key=lambda message: message.state)
    match worst.state:
        case MessageType.CONFIRMED:
            if not is_met_by_something(contract):  # CrossHair confirms a contract whose preconditions no argument meets
                return Verdict.COUNTEREXAMPLE, "nothing meets what it supposes"
            return Verdict.CONFIRMED, ""
        case MessageType.CANNOT_CONFIRM:
            return Verdict.NOT_CONFIRMED, ""
        case _:
            return Verdict.COUNTEREXAMPLE, worst.message


def surprise(name: str, verdict: Verdict, expected: Expected) -> str:
    """Why the run fails, or ""."""
    if verdict is Verdict.COUNTEREXAMPLE:
        return "counterexample"
    return "listed as confirmed" if name in expected.confirmed and verdict is not Verdict.CONFIRMED else ""


def judged(name: str, seconds: float) -> tuple[str, Verdict, str, float]:
    """The contract's name, its verdict and the detail, and the seconds of CPU. It runs in one of several processes."""
    start = time.process_time()
    return name, *judge(contracts()[name], seconds), time.process_time() - start


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    expected, every = Expected.load(), contracts()
    if unknown := (set(arguments) | expected.confirmed) - every.keys():
        say(f"no such contract: {', '.join(sorted(unknown))}")
        return 1
    chosen = arguments or list(every)
    width = max(map(len, chosen))
    say(f"{'contract':<{width}}  {'verdict':<14} {'CPU s':>6}")
    found: dict[str, Verdict] = {}
    surprises = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        allowed = (expected.seconds if name in expected.confirmed else expected.seconds_others for name in chosen)
        for name, verdict, detail, seconds in pool.map(judged, chosen, allowed):
            found[name] = verdict
            say(f"{name:<{width}}  {verdict.value:<14} {seconds:>6.1f}  {detail}".rstrip())
            if what := surprise(name, verdict, expected):
                surprises.append(f"{name}: {verdict.value} ({what})")
            elif verdict is Verdict.CONFIRMED and name not in expected.confirmed:
                say(f"{'':<{width}}  confirmed now: list it in {LIST.name}")
    open_ones = [name for name, verdict in found.items() if verdict is Verdict.NOT_CONFIRMED]
    count = sum(verdict is Verdict.CONFIRMED for verdict in found.values())
    say(f"\n{count} of {len(found)} confirmed; not confirmed, and not passed: {', '.join(open_ones) or 'none'}")
    for what in surprises:
        say(f"SURPRISE {what}")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
