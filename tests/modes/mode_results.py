"""The results of all cells, as JSON: each cell has its rounds, and the reasons of those that were not measured."""

import json
import os
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cell import Round
from figures import Figures
from mode_faults import FAULTS
from products import OURS, PRODUCTS
from promises import Promise, Verdict, verdicts

from rocketmq_ha.impl.app.cluster.plan import FLUSHES, MODES

FORMAT: Final = 2
OF_OURS_ALONE: Final = 1  # the format before other products could be measured


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A way to deploy, a flush, a fault, and whose cluster it is."""

    mode: str
    flush: str
    fault: str
    product: str = OURS

    @property
    def name(self) -> str:
        """The same for all products."""
        return f"{self.mode}/{self.flush}/{self.fault}"

    def __str__(self) -> str:
        return self.name if self.product == OURS else f"{self.product}/{self.name}"


def all_cells(products: Collection[str] = (OURS,)) -> list[Cell]:
    """Each fault on each way to deploy that has what it hits; the products stand beside each other."""
    return [
        Cell(mode, flush, name, product)
        for mode, what in MODES.items()
        for name, fault in FAULTS.items()
        if what.has_slaves or not fault.needs_slave
        for flush in FLUSHES
        for product in PRODUCTS
        if product in products
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
    """All cells on one machine. products: their names and versions, by what cells call them. rate: sends a second."""

    products: dict[str, str]
    rate: int
    machine: str
    cells: dict[Cell, Measured]

    @classmethod
    def new(cls, products: Mapping[str, str], rate: int, jobs: int) -> "Results":
        """jobs: rounds side by side."""
        machine = f"{os.cpu_count()} processors, {platform.system()} {platform.release().split('-')[0]}"
        beside = "" if jobs == 1 else f", {jobs} rounds side by side"
        return cls(dict(products), rate, f"{machine}, Python {platform.python_version()}{beside}", {})

    @classmethod
    def read(cls, file: Path) -> "Results":
        """Raises: OSError, ValueError, KeyError."""
        found = json.loads(file.read_text("utf-8"))
        if found["format"] not in (OF_OURS_ALONE, FORMAT):
            raise ValueError(f"{file}: format {found['format']}, expected {OF_OURS_ALONE} or {FORMAT}")
        products = {OURS: found["product"]} if found["format"] == OF_OURS_ALONE else found["products"]
        cells = {
            Cell(each["mode"], each["flush"], each["fault"], each.get("product", OURS)): Measured(
                each["rounds"], each["not_measured"]
            )
            for each in found["cells"]
        }
        return cls(products, found["rate"], found["machine"], cells)

    def add(self, cell: Cell, result: Round | str) -> None:
        """Add a round, or the reason why there is none."""
        measured = self.cells.setdefault(cell, Measured())
        if isinstance(result, Round):
            measured.rounds.append(result.to_json())
        else:
            measured.not_measured.append(result)

    def in_order(self) -> Iterator[tuple[Cell, Measured]]:
        """The cells that were looked at, in the order of all."""
        yield from ((cell, self.cells[cell]) for cell in all_cells(PRODUCTS) if cell in self.cells)

    def in_use(self) -> dict[str, str]:
        """The names and versions of the products that were looked at, in the order of all."""
        found = {cell.product for cell in self.cells}
        return {product: self.products[product] for product in PRODUCTS if product in found}

    def verdicts(self, promises: Sequence[Promise], cell: Cell) -> list[Verdict]:
        return verdicts(promises, cell.mode, cell.flush, cell.fault, self.cells[cell].figures)

    def write(self, file: Path, promises: Sequence[Promise]) -> None:
        """Replace the file as a whole; the verdicts are in it, too."""
        cells = [
            {
                "mode": cell.mode,
                "flush": cell.flush,
                "fault": cell.fault,
                "product": cell.product,
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
        state = {"format": FORMAT, "products": self.products, "rate": self.rate, "machine": self.machine, "cells": cells}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(state, indent=1) + "\n", "utf-8")
        new.replace(file)
