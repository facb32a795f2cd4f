"""Types of options that several commands of fuzz have."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within bounds that is one: no nan, which no bound refuses, and not inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found
