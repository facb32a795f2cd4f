"""Processor time of this process and of all that it has started: Spark's JVM, and the Python workers of that."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def of_tree() -> float:
    """Seconds of user and system time, of the living and of those whose parent has waited for them. Linux only."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    total, todo = 0.0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += seconds.get(pid, 0.0)
        todo += children.get(pid, [])
    return total
