"""Write the outcome of a tour's step as a line of JSON: only what another endpoint can see, and only what the step changed.

A line is made from two observations (fuzz/observe.py), so that model and implementation give the same lines.
"""

import json
import zlib
from typing import Any

from rocketmq_ha.fuzz.observe import Observation, ObservedLink
from rocketmq_ha.reference import wire
from rocketmq_ha.reference.events import DeliverFrames, DeliverReports, Event, ForgeHeader, ForgeReport
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE


class Stream:
    """The bytes that a master sends on one connection: headers in hexadecimal, bodies as [from, to] of its log."""

    def __init__(self) -> None:
        self._header, self._offset, self._left = (
            b"",
            0,
            0,
        )  # of the current frame; the log offset of its next body byte; body bytes left

    def take(self, data: bytes) -> list[Any]:
        items: list[Any] = []
        while data:
            if self._left:
                taken = min(self._left, len(data))
                items.append([self._offset, self._offset + taken])
                self._offset, self._left = self._offset + taken, self._left - taken
            else:
                taken = min(TRANSFER_HEADER_SIZE - len(self._header), len(data))
                self._header += data[:taken]
                items.append(data[:taken].hex())
                if len(self._header) == TRANSFER_HEADER_SIZE:
                    self._offset, self._left = wire.unpack_header(self._header)
                    self._header = b""
            data = data[taken:]
        return items


class Teller:
    """Writes the lines of one walk, step by step."""

    def __init__(self) -> None:
        self._before: Observation | None = None
        self._streams: dict[int, Stream] = {}

    def tell(self, event: Event | None, now: Observation) -> dict[str, Any]:
        """The line of one event. Args: event: None for the beginning of the walk."""
        before, self._before = self._before, now
        told: dict[str, Any] = {}
        log = before.log if before else b""
        if now.log != log:
            told["log"] = [now.min_offset, now.max_offset, zlib.crc32(now.log)]
        links_before = {link.link_id: link for link in before.links} if before else {}
        for link in now.links:
            if found := self._of_link(event, links_before.pop(link.link_id, None), link):
                told[f"link {link.link_id}"] = found
        told |= {f"link {link_id}": {"gone": True} for link_id in links_before}
        for index, slave in enumerate(now.slaves):
            old = before.slaves[index] if before else None
            changed: dict[str, Any] = {}
            if (slave.log, slave.min_offset) != ((old.log, old.min_offset) if old else (b"", 0)):
                changed["log"] = [slave.min_offset, slave.max_offset, zlib.crc32(slave.log)]
            if slave.connected != (old.connected if old else False):
                changed |= {"connected": True} if slave.connected else {"closed": slave.close_reason}
            if changed:
                told[f"slave {index}"] = changed
        if now.push2_slave_max_offset != (before.push2_slave_max_offset if before else 0):
            told["push2"] = now.push2_slave_max_offset
        if now.done:
            told["done"] = [list(done) for done in now.done]
        return told

    def _of_link(self, event: Event | None, old: ObservedLink | None, link: ObservedLink) -> dict[str, Any]:
        told: dict[str, Any] = {} if old else {"slave": link.slave}
        is_own = link.slave_open and event is not None and getattr(event, "slave", None) == link.slave
        at_slave = event.nbytes if is_own and isinstance(event, DeliverFrames) else 0
        at_master = event.nbytes if is_own and isinstance(event, DeliverReports) else 0
        to_slave = _new(old.to_slave if old else b"", link.to_slave, at_slave)
        to_master = _new(old.to_master if old else b"", link.to_master, at_master)
        if is_own and old is not None:  # bytes that were injected are no output of this end
            to_slave = to_slave[TRANSFER_HEADER_SIZE if isinstance(event, ForgeHeader) else 0 :]
            to_master = to_master[REPORT_SIZE if isinstance(event, ForgeReport) else 0 :]
        if to_slave:
            told["to_slave"] = self._streams.setdefault(link.link_id, Stream()).take(to_slave)
        if to_master:
            told["to_master"] = to_master.hex()
        if link.master_close_reason and not (old and old.master_close_reason):
            told["closed_by_master"] = link.master_close_reason
        if not link.slave_open and (old is None or old.slave_open):
            told["closed_by_slave"] = True
        return told


def _new(before: bytes, after: bytes, delivered: int) -> bytes:
    """The part of the bytes in flight that was sent in this step."""
    rest = before[len(before[:delivered]) :]
    return after[len(rest) :] if after.startswith(rest) else after


def line(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
