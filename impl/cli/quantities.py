"""Numbers as people read them: with thousands apart, sizes in KiB, times in the unit that fits. None is a dash."""

import math


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Format bytes for people: 0 B, 4.0 KiB, 1.5 GiB."""
    if value is None:
        return "-"
    if value < 1024:
        return f"{value:.0f} B"
    power = min(4, int(math.log(value, 1024)))
    return f"{value / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def rate(value: float | None) -> str:
    return "-" if value is None else f"{size(value)}/s"


def duration(value_ms: float | None) -> str:
    if value_ms is None:
        return "-"
    if value_ms < 1000:
        return f"{value_ms:.0f} ms"
    seconds = value_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def ago(value_ms: float | None) -> str:
    return "-" if value_ms is None else f"{duration(value_ms)} ago"
