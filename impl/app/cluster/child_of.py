"""Run as a program, it becomes another one that cannot outlive its parent: `python child_of.py PARENT_PID COMMAND...`.

On Linux the system sends the command SIGTERM when the thread that started it has ended, however that came about. On other
systems the command goes on, and `cluster down` ends it. A program of its own, since Python's `preexec_fn` is not safe beside
threads; it imports nothing of ours, so that it starts in no time.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it had ended before this line
        sys.exit(128 + signal.SIGTERM)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
