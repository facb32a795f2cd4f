"""What a command shows on a terminal."""

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import termios

from kit.children import Child
from kit.waiting import PATIENCE_S


def terminal(width: int, *command: object) -> str:
    """The output of a process on a terminal of that width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    with Child(list(map(str, command)), stdout=theirs, stderr=subprocess.PIPE, env=environment | {"TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO means the end of the output
            while data := os.read(ours, 1 << 16):
                shown += data
        os.close(ours)
        assert process.stderr is not None
        assert (process.wait(PATIENCE_S), process.stderr.read()) == (0, b"")
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "")
