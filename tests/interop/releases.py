"""Which releases of Apache RocketMQ the tests run: those of each test, or the one that `make interop RELEASE=` names."""

import os
from typing import Final

from rocketmq_ha.spec import release_table

CHOSEN: Final = os.environ.get("RELEASE", "")


def run_on(*releases: str) -> tuple[str, ...]:
    """The releases that a test is for, where none is chosen; else the chosen one."""
    return (CHOSEN,) if CHOSEN else releases


RELEASES: Final = run_on("4.9.8", "5.3.3")
# A store of ours is handed over to one release of each way in which a broker looks at it (HA-ST-50, its table).
PROMOTED: Final = run_on("4.4.0", "4.9.8", "5.1.4", "5.3.3")


def refusal() -> str:
    """What is wrong with the choice, as one line; or the empty string."""
    if not CHOSEN or CHOSEN in release_table.RELEASES:
        return ""
    return f"RELEASE={CHOSEN} is not a release that the tests know; they know {', '.join(release_table.RELEASES)}"
