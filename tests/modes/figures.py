"""What a round has shown: pure functions of what the clients saw, what a reader finds at the end, and what the stores hold."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, Final

from traffic import OK
from under_test import Delivered, Sent


@dataclass(frozen=True, slots=True)
class Times:
    """When things happened, in s of one clock. broken: the fault is complete. mending: the administrator begins."""

    began: float
    broken: float
    mending: float
    ended: float


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds until something came. in_fault: from the fault, before anything was mended. after_mend: from the mending on.

    None: it did not come in that time.
    """

    in_fault: float | None
    after_mend: float | None


SPANS: Final = ("writable_hit", "writable_any", "stored_hit", "readable_hit")


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one round.

    writable_*: until the next SEND_OK, of the group that was hit and of any; of sends that began after the fault. stored_hit:
    until the next message of any status. readable_hit: until the next message of that group came to the consumer. sends,
    failed: sends that began in the fault, and those of them that did not end with SEND_OK, by status. acknowledged: messages
    that ended with SEND_OK in the whole round. lost: those of them that no store has at the end. unreadable: those that a new
    reader does not get at the end. unconsumed: those that the consumer never got. twice: messages that the consumer got more
    than once. stored_twice: messages that a new reader gets more than once. out_of_order: messages that came to the consumer
    behind one that was sent to its queue later. send_ms: the median time of a send before the fault, ms.
    """

    writable_hit: Span
    writable_any: Span
    stored_hit: Span
    readable_hit: Span
    sends: int
    failed: dict[str, int]
    acknowledged: int
    acknowledged_hit_per_s: float
    lost: int
    unreadable: int
    unconsumed: int
    twice: int
    stored_twice: int
    out_of_order: int
    send_ms: float

    @property
    def failed_sends(self) -> int:
        return sum(self.failed.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Figures":
        """Read what `to_json` gave; other names are left alone."""
        values = {field.name: found[field.name] for field in fields(cls)}
        return cls(**{name: Span(**value) if name in SPANS else value for name, value in values.items()})


def figures_of(
    times: Times,
    hit: str,
    sent: Sequence[Sent],
    delivered: Sequence[Delivered],
    readable: Sequence[Delivered],
    stored: Collection[int],
) -> Figures:
    """Reduce a round.

    Args:  hit: the group. readable: what a new reader got at the end. stored: the numbers of the messages in all stores.
    """
    acknowledged = {each.number for each in sent if each.status == OK}
    before = [each for each in sent if times.began <= each.begun < times.broken and each.status == OK]
    amid = [each for each in sent if times.broken <= each.begun < times.mending]
    got = Counter(each.number for each in delivered)
    found = Counter(each.number for each in readable)
    of_hit = [each for each in before if each.group == hit]
    return Figures(
        writable_hit=_span(times, _ends(sent, times, lambda each: each.status == OK and each.group == hit)),
        writable_any=_span(times, _ends(sent, times, lambda each: each.status == OK)),
        stored_hit=_span(times, _ends(sent, times, lambda each: each.group == hit)),
        readable_hit=_span(times, [each.at for each in delivered if each.group == hit]),
        sends=len(amid),
        failed=dict(sorted(Counter(each.status for each in amid if each.status != OK).items())),
        acknowledged=len(acknowledged),
        acknowledged_hit_per_s=len(of_hit) / max(times.broken - times.began, 0.001),
        lost=len(acknowledged.difference(stored)),
        unreadable=len(acknowledged - found.keys()),
        unconsumed=len(acknowledged - got.keys()),
        twice=sum(count > 1 for count in got.values()),
        stored_twice=sum(count > 1 for count in found.values()),
        out_of_order=out_of_order(delivered),
        send_ms=1000 * median([each.ended - each.begun for each in before]) if before else 0.0,
    )


def _ends(sent: Iterable[Sent], times: Times, is_it: Any) -> list[float]:
    """When the sends ended that began after the fault, and are it."""
    return [each.ended for each in sent if each.begun >= times.broken and is_it(each)]


def _span(times: Times, moments: Iterable[float]) -> Span:
    moments = sorted(moments)
    amid = next((at - times.broken for at in moments if times.broken <= at < times.mending), None)
    after = next((at - times.mending for at in moments if at >= times.mending), None)
    return Span(amid, after)


def out_of_order(delivered: Iterable[Delivered]) -> int:
    """Count the messages that came the first time behind one of a greater number of their queue."""
    seen: set[int] = set()
    greatest: dict[tuple[str, int], int] = {}
    count = 0
    for each in delivered:
        if each.number in seen:
            continue
        seen.add(each.number)
        queue = each.group, each.queue_id
        count += each.number < greatest.get(queue, -1)
        greatest[queue] = max(each.number, greatest.get(queue, -1))
    return count
