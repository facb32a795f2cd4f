"""Rate-limited logging for lines that a peer can provoke: the first lines of a window are written, the others counted."""

import logging
from typing import Final

LINES: Final = 30  # written in one window
WINDOW_MS: Final = 10_000


class PeerLog:
    """A logger that a peer cannot flood. HA-M-57 "MUST NOT write more than 30 log lines about its peers"."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._begun_ms: int | None = None  # start of the window; None between windows
        self._written = self._left_out = 0

    def write(self, now_ms: int, level: int, text: str, *arguments: object, **fields: object) -> None:
        """Write a line, or count it as left out. fields: peer, offset and reason, which the JSON log format shows."""
        if not self._log.isEnabledFor(level):
            return
        self.end_window(now_ms)
        if self._begun_ms is None:
            self._begun_ms = now_ms
        if self._written == LINES:
            self._left_out += 1
            return
        self._written += 1
        self._log.log(level, text, *arguments, extra=fields)

    def end_window(self, now_ms: int) -> None:
        """End the window if its time is over. HA-M-57 "it MUST log how many lines it left out"."""
        if self._begun_ms is None or now_ms - self._begun_ms < WINDOW_MS:
            return
        if self._left_out:
            seconds = (now_ms - self._begun_ms) / 1000
            self._log.warning("%d more lines about peers in %.0f s were left out", self._left_out, seconds)
        self._begun_ms = None
        self._written = self._left_out = 0
