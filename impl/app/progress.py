"""How the work tells its progress: the caller passes a function that shows it, so that nothing here draws."""

from collections.abc import Callable
from contextlib import AbstractContextManager

# Called with the total; the context that it returns is told how much is done.
ShowPuts = Callable[[int], AbstractContextManager[Callable[[int], None]]]
# The same for bytes, called with the name of the work and the total.
ShowBytes = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
