"""The type of options whose value is a number with a fraction."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A finite number within bounds. FloatRange alone takes nan, since no comparison with a bound refuses it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found
