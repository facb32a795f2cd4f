"""The start of Spark's JVM, and its end if Python is told to end meanwhile.

PySpark's child ignores SIGINT, and watches its end of a pipe to Python only when it has started. Ended in between, Python would
delete the folder in which the JVM leaves its port; the JVM would print a trace about that, and stay for ever.
"""

import contextlib
import logging
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from pyspark import SparkContext, java_gateway

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
END_S: Final = 10.0  # of a process that was killed: the kernel frees its memory


@contextmanager
def ending_with_python() -> Iterator[None]:
    """Within, a JVM that PySpark starts is ended before SIGINT or SIGTERM does what it does in this process.

    PySpark hands out its child process only when the JVM has started. So the class that PySpark makes the child of is replaced
    meanwhile. The JVM cannot be ended where the exception arrives: PySpark has deleted the folder by then.
    """
    started: list[subprocess.Popen[bytes]] = []
    raised: list[BaseException] = []

    class Noted(subprocess.Popen[bytes]):
        """A child that is known from before it runs."""

        def __init__(self, *arguments: Any, **settings: Any) -> None:
            started.append(self)
            super().__init__(*arguments, **settings)

    before = {number: signal.getsignal(number) for number in SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        _end(started)
        action = before[signal.Signals(number)]
        assert callable(action)
        try:
            action(number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    replaced = vars(java_gateway)["Popen"]
    vars(java_gateway)["Popen"] = Noted
    if threading.current_thread() is threading.main_thread():
        for number in (number for number in SIGNALS if callable(before[number])):
            signal.signal(number, on_signal)
    try:
        yield
    except BaseException as error:
        if raised or not isinstance(error, Exception):
            _end(started)
        if raised and error is not raised[0]:  # PySpark meets the end of the JVM, too
            raise raised[0] from None
        raise
    finally:
        vars(java_gateway)["Popen"] = replaced
        # PySpark has set a handler of its own, which calls the JVM in the middle of another call. It goes, too.
        if threading.current_thread() is threading.main_thread():
            for number in (number for number in SIGNALS if before[number] is not None):
                signal.signal(number, before[number])


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    while started:
        child = started.pop()
        if getattr(child, "pid", None) is None:  # it does not run yet
            continue
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.kill()
            child.wait(END_S)
        SparkContext._gateway = SparkContext._jvm = None  # another start has a JVM of its own
        logging.getLogger("py4j.clientserver").addFilter(_is_of_a_call)


def _is_of_a_call(record: logging.LogRecord) -> bool:
    """Py4J tells the JVM of each connection that it closes, and logs a traceback if the JVM is gone."""
    return record.funcName != "shutdown_socket"
