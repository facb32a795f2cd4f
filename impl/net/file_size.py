"""Learn the size of a master's commit-log files over the HA port, before the slave asks for bytes that it will keep.

Spec: HA-S-96 to HA-S-99. ha/size_search.py decides which offsets are asked for.
"""

import logging
import time
from typing import Final

from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.ha.size_search import Contradiction, OnlyLastFile, find_file_size
from rocketmq_ha.impl.net.feed import FeedEnded
from rocketmq_ha.impl.net.inquiry import Inquiry
from rocketmq_ha.spec.constants import MAPPED_FILE_SIZE_COMMIT_LOG

# If the master has deleted the file of an offset, the answer is its next heartbeat, after 7 s with RocketMQ's defaults.
MOST_S: Final = 120.0

log = logging.getLogger(__name__)


def learn_file_size(inquiry: Inquiry, last_file: int, is_fresh: bool, likely: int | None = None) -> int:
    """Ask until the size of the master's files is known. Returns: the size in bytes.

    Args:  last_file: offset at which the master's last file begins, greater than 0. is_fresh: whether a put may still wait for
           an offset before it. likely: the size to try first; RocketMQ's default, if none is given.
    Raises: CannotTell, if another try would end in the same way; FeedEnded, PeerViolation, Unreachable; Stopped.
    Spec: HA-S-96 "MUST learn the size of its master's files"; HA-S-97 "MUST NOT take longer than 120 s"; HA-S-85 "MUST NOT
    report an offset that a put of the master may still wait for".
    """
    if is_fresh:
        inquiry.settle(last_file)
    until = time.monotonic() + MOST_S

    def body_size_at(offset: int) -> int | None:
        if time.monotonic() > until:
            raise FeedEnded(f"{inquiry.peer}: {MOST_S:g} s have not told how large the master's files are")
        return inquiry.body_size_at(offset)

    likely = likely or MAPPED_FILE_SIZE_COMMIT_LOG
    try:
        try:
            size = find_file_size(last_file, body_size_at, likely)
        except OnlyLastFile:  # or the master is just starting and has no data at any offset: ask for 0, then try again
            inquiry.last_file()
            size = find_file_size(last_file, body_size_at, likely)
    except Contradiction as error:
        raise PeerViolation("HA-W-4", inquiry.peer, str(error), "frames that end where a file ends") from error
    log.debug("%s: files of %d bytes, by %d connections", inquiry.peer, size, inquiry.connections)
    return size
