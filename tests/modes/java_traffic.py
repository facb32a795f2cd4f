"""The traffic of Java clients of a release: the same record of sends and deliveries as that of ours (traffic.py).

The program is tests/interop/golden/src/main/java/interop/Steady.java. The clock of a JVM on Linux is that of `time.monotonic`.
"""

import subprocess
import threading
import time
from contextlib import suppress
from typing import Final

import jars
from traffic import BODY_SIZE, CATCH_UP, GROUP, TOPIC, Delivered, Sent

PROGRAM: Final = "interop.Steady"
JVM: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_POLL_S: Final = 0.02
_END_S: Final = 30.0


class JavaTraffic:
    """The two clients, in a JVM of their own. As Traffic; stop_sending asserts that each send has its outcome."""

    def __init__(self, name_server: str, rate: int, *, release: str) -> None:
        """Raises: OSError, if there is no JDK or no Maven; subprocess.CalledProcessError, if the program cannot be made."""
        self.sent: Final[list[Sent]] = []
        self.delivered: Final[list[Delivered]] = []
        self.begun = 0
        self.error: BaseException | None = None
        self._is_paused, self._is_stopped, self._is_closed = False, False, False
        arguments = [name_server, TOPIC, GROUP, str(rate), str(CATCH_UP), str(BODY_SIZE)]
        self.process = subprocess.Popen(
            ["java", *JVM, "-cp", jars.classpath_of(release), PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="java-traffic", daemon=True)
        self._reader.start()

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @is_paused.setter
    def is_paused(self, value: bool) -> None:
        self._is_paused = value
        self._say("pause" if value else "resume")

    @property
    def in_flight(self) -> int:
        return self.begun - len(self.sent)

    def stop_sending(self, within_s: float) -> None:
        self._say("stop")
        until = time.monotonic() + within_s
        while not (self._is_stopped and self.in_flight == 0):
            assert self.error is None, self.error
            assert time.monotonic() < until, f"{self.in_flight} sends have no outcome"
            time.sleep(_POLL_S)

    def close(self) -> None:
        self._is_closed = True
        self.process.kill()
        self.process.wait(_END_S)
        self._reader.join(_END_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # `error` tells that it has ended
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self._note(line.split())
            if not self._is_closed:
                raise EOFError(f"the Java clients have ended with status {self.process.wait(_END_S)}")
        except BaseException as error:
            self.error = error

    def _note(self, words: list[str]) -> None:
        match words:
            case ["BEGUN", _]:
                self.begun += 1
            case ["SENT", number, begun, ended, status, *where]:
                group, queue_id, queue_offset = (where[0], int(where[1]), int(where[2])) if where else ("", -1, -1)
                self.sent.append(Sent(int(number), int(begun) / 1e9, int(ended) / 1e9, status, group, queue_id, queue_offset))
            case ["GOT", at, number, group, queue_id, queue_offset]:
                self.delivered.append(Delivered(int(at) / 1e9, int(number), group, int(queue_id), int(queue_offset)))
            case ["STOPPED"]:
                self._is_stopped = True
            case _:
                raise ValueError(f"the Java clients said {words}")
