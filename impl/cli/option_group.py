"""A group of options that a command receives as one value.

producer_options = option_group("producer", ProducerSettings, click.option("--size", ...), click.option("--seed", ...))

@click.command()
@producer_options
def master(producer: ProducerSettings) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


def option_group(
    keyword: str, make: Callable[..., object], *options: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, and that passes one value to the command instead of theirs.

    Args:  keyword: the command's parameter for the value. make: builds the value. Its parameters are named after the options;
           a parameter that has a default needs no option. Without options, it takes the values that the decorators above
           this one produce.
    """
    names = tuple(inspect.signature(make).parameters)

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def with_value(*arguments: Any, **values: Any) -> Any:
            own = {name: values.pop(name) for name in names if name in values}
            return command(*arguments, **values, **{keyword: make(**own)})

        decorated: Command = with_value
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add
