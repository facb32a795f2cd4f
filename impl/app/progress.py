"""Types of functions that show progress. The command line passes one, because nothing in this folder draws."""

from collections.abc import Callable
from contextlib import AbstractContextManager

# Called with the total. The context that it returns yields a function, which is called with the part that is done.
ShowPuts = Callable[[int], AbstractContextManager[Callable[[int], None]]]
# The same for bytes; called with the name of the work and the total.
ShowBytes = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
