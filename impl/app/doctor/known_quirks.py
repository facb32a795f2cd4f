"""Known behaviour of RocketMQ releases that can explain why a slave does not sync.

Source: spec/versions.toml (a test compares the releases), spec/violations.md.
"""

import re
from typing import Final

Version = tuple[int, int, int]

# (first release, first release without it, what it does). None: no bound.
_QUIRKS: Final[tuple[tuple[Version | None, Version | None, str], ...]] = (
    (None, None, "a slave without data gets the master's last file, not its history (quirk 8)"),
    (None, None, "a slave whose end the master has deleted, or that is ahead of it, is sent heartbeats for ever (quirks 7, 9)"),
    (None, (4, 5, 2), "a slave's reports can starve: its master closes the connection every 20 s (quirk 6)"),
    (None, (5, 0, 0), "a slave says nothing for 5 s after each connect, so nothing is sent before"),
    ((4, 5, 2), (5, 0, 0), "a slave never notices a master that is silent: restart the slave if its link hangs"),
    (None, (5, 0, 0), "each connection counts as a slave, probes too: sync puts then end FLUSH_SLAVE_TIMEOUT (quirk 3)"),
    ((4, 9, 3), (5, 0, 0), "a report beyond the master's end closes the connection, from the second one on"),
    ((5, 0, 0), (5, 3, 2), "connections that ended while they began stay listed, and count as acknowledgements (quirk 14)"),
    ((5, 0, 0), None, "with inSyncReplicas=1, the default, a SYNC_MASTER does not wait for a slave"),
    ((5, 0, 0), None, "flow control (haFlowControlEnable) counts headers alone, and strangles the link (quirk 15)"),
    ((5, 0, 0), None, "a slave may make nothing of haMasterAddress: it learns the address from the name server"),
)


def parse_version(text: str) -> Version | None:
    """Parse "V4_9_8" to (4, 9, 8). Returns: None for any other text."""
    found = re.fullmatch(r"V(\d+)_(\d+)_(\d+)(?:_\w+)?", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def quirks_of(version: Version) -> list[str]:
    """Return the lines that apply to a release, those of a range of releases first."""
    held = [
        (since is None and before is None, text)
        for since, before, text in _QUIRKS
        if (since is None or version >= since) and (before is None or version < before)
    ]
    return [text for _, text in sorted(held, key=lambda row: row[0])]
