"""A server ends when one of its threads has ended by a bug of this program.

It must not go on without the thread: producers would get PUT_OK, and nothing would flush their messages, or consumers would
wait for messages that nobody dispatches. It ends at once, as by `kill -9`, since an orderly end would wait for that thread, and
would write down that the store is whole. The next start recovers the store.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXIT_BUG: Final = 70  # sysexits' EX_SOFTWARE

_log: Final = logging.getLogger(__name__)


@contextmanager
def ending_with_threads() -> Iterator[None]:
    """An exception that ends a thread ends the process with EXIT_BUG, and a log line has its traceback."""
    before, threading.excepthook = threading.excepthook, _end
    try:
        yield
    finally:
        threading.excepthook = before


def _end(fault: threading.ExceptHookArgs) -> None:
    if fault.exc_type is SystemExit:
        return
    trace = None if fault.exc_value is None else (fault.exc_type, fault.exc_value, fault.exc_traceback)
    name = "a thread" if fault.thread is None else fault.thread.name
    _log.critical("%s has ended by a bug of this program, which ends, too; a start recovers the store", name, exc_info=trace)
    os._exit(EXIT_BUG)
