"""The results of all cells, as JSON: each cell has its rounds, and the reasons of those that were not measured."""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cell import Round
from figures import Figures
from mode_faults import FAULTS
from promises import Promise, Verdict, verdicts

from rocketmq_ha.impl.app.cluster.plan import FLUSHES, MODES

FORMAT: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A way to deploy, a flush, and a fault."""

    mode: str
    flush: str
    fault: str

    def __str__(self) -> str:
        return f"{self.mode}/{self.flush}/{self.fault}"


def all_cells() -> list[Cell]:
    """Each fault on each way to deploy that has what it hits."""
    return [
        Cell(mode, flush, name)
        for mode, what in MODES.items()
        for name, fault in FAULTS.items()
        if what.has_slaves or not fault.needs_slave
        for flush in FLUSHES
    ]


@dataclass(slots=True)
class Measured:
    """What is known of one cell. rounds: as Round.to_json has them."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    not_measured: list[str] = field(default_factory=list)

    @property
    def figures(self) -> list[Figures]:
        return [Figures.from_json(each) for each in self.rounds]


@dataclass(slots=True)
class Results:
    """All cells of one product on one machine. rate: sends a second."""

    product: str
    rate: int
    machine: str
    cells: dict[Cell, Measured]

    @classmethod
    def new(cls, product: str, rate: int, jobs: int) -> "Results":
        """jobs: rounds side by side."""
        machine = f"{os.cpu_count()} processors, {platform.system()} {platform.release().split('-')[0]}"
        beside = "" if jobs == 1 else f", {jobs} rounds side by side"
        return cls(product, rate, f"{machine}, Python {platform.python_version()}{beside}", {})

    @classmethod
    def read(cls, file: Path) -> "Results":
        """Raises: OSError, ValueError, KeyError."""
        found = json.loads(file.read_text("utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(f"{file}: format {found['format']}, expected {FORMAT}")
        cells = {
            Cell(each["mode"], each["flush"], each["fault"]): Measured(each["rounds"], each["not_measured"])
            for each in found["cells"]
        }
        return cls(found["product"], found["rate"], found["machine"], cells)

    def add(self, cell: Cell, result: Round | str) -> None:
        """Add a round, or the reason why there is none."""
        measured = self.cells.setdefault(cell, Measured())
        if isinstance(result, Round):
            measured.rounds.append(result.to_json())
        else:
            measured.not_measured.append(result)

    def in_order(self) -> Iterator[tuple[Cell, Measured]]:
        """The cells that were looked at, in the order of all."""
        yield from ((cell, self.cells[cell]) for cell in all_cells() if cell in self.cells)

    def verdicts(self, promises: Sequence[Promise], cell: Cell) -> list[Verdict]:
        return verdicts(promises, cell.mode, cell.flush, cell.fault, self.cells[cell].figures)

    def write(self, file: Path, promises: Sequence[Promise]) -> None:
        """Replace the file as a whole; the verdicts are in it, too."""
        cells = [
            {
                "mode": cell.mode,
                "flush": cell.flush,
                "fault": cell.fault,
                "rounds": measured.rounds,
                "not_measured": measured.not_measured,
                "promises": [
                    {"id": verdict.promise.id, "is_kept": verdict.is_kept, "found": list(verdict.found)}
                    for verdict in self.verdicts(promises, cell)
                    if measured.rounds
                ],
            }
            for cell, measured in self.in_order()
        ]
        state = {"format": FORMAT, "product": self.product, "rate": self.rate, "machine": self.machine, "cells": cells}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(state, indent=1) + "\n", "utf-8")
        new.replace(file)
