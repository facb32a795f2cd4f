"""The requests of one round of the dispatch, gathered by columns: a queue wants its entries, the index the messages with keys.

A request for each message costs more than what is done with it: most messages have no keys, and share their properties with
others, so that their tags code is known. Such a one becomes four numbers of its queue; a batch of them becomes four ranges.
Whoever wants the requests themselves has them: a round is a sequence of them, made when it is first asked for one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias, overload

from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, RequestMaker
from rocketmq_ha.impl.wire.batch import Handed, HandedBatch, HandedFields
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, UNQUEUED_TYPES

QueueKey = tuple[bytes, int]  # topic, queue id
Entries = dict[QueueKey, list[int]]  # queue offset, commit-log offset, size and tags code, of one message after the other


# One message that a put has handed over or that was read from the log, or a batch of them.
AnyHanded: TypeAlias = HandedFields | HandedBatch


class DispatchRound(Sequence[DispatchRequest]):
    """Requests in the order of the log. One thread's own.

    entries: what the consume queues take; they use it up. keyed: the requests that have keys. last_store_timestamp: that of
    the last one. An empty round has none of them.
    """

    def __init__(self, make: RequestMaker) -> None:
        self.entries: Entries = {}
        self.keyed: list[DispatchRequest] = []
        self.last_store_timestamp = 0
        self._make = make
        self._parts: list[list[AnyHanded]] = []  # what was handed over, or read from the log
        self._requests: list[DispatchRequest] | None = None

    def add_handed(self, handed: list[AnyHanded]) -> None:
        """Take what puts have handed over or the log was read for: of single messages, and of batches; see wire/batch.py."""
        if handed:
            self._parts.append(handed)
            for kind, group in groupby(handed, type):
                if kind is HandedBatch:
                    for batch in group:
                        self._add_batch(*batch)
                else:
                    self._add_singles(list(group))
            self.last_store_timestamp = Handed._make(handed[-1][: len(Handed._fields)]).store_timestamp

    def _add_singles(self, handed: list[Any]) -> None:
        topics, queue_ids, offsets, sizes, properties, _, queue_offsets, flags, _ = zip(*handed, strict=True)
        make = self._make
        tags_codes = list(map(make.tags_code_without_keys, properties))
        if None in tags_codes:
            for index, known in enumerate(tags_codes):
                if known is None:
                    request = make(*handed[index])
                    tags_codes[index] = request[4]
                    if request[7] or request[8]:
                        self.keyed.append(request)
        rows = zip(topics, queue_ids, queue_offsets, offsets, sizes, tags_codes, strict=True)
        unqueued = [flag for flag in set(flags) if flag & TRANSACTION_MASK in UNQUEUED_TYPES]
        _extend(
            self.entries, (row for row, flag in zip(rows, flags, strict=True) if flag not in unqueued) if unqueued else rows
        )

    def _add_batch(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        total: int,
        properties: bytes,
        timestamp: int,
        queue_offset: int,
        sys_flag: int,
        prepared: int,
        count: int,
    ) -> None:
        size = total // count
        offsets, queue_offsets = range(offset, offset + total, size), range(queue_offset, queue_offset + count)
        tags_code = self._make.tags_code_without_keys(properties)
        if tags_code is None:
            request = self._make(topic, queue_id, offset, size, properties, timestamp, queue_offset, sys_flag, prepared)
            tags_code = request.tags_code
            if request.keys or request.uniq_key:
                pairs = zip(offsets, queue_offsets, strict=True)
                self.keyed += [request._replace(commit_log_offset=at, queue_offset=number) for at, number in pairs]
        fields = [0] * (4 * count)  # a batch has no part in a transaction
        fields[::4], fields[1::4], fields[2::4], fields[3::4] = queue_offsets, offsets, [size] * count, [tags_code] * count
        known = self.entries.setdefault((topic, queue_id), fields)
        if known is not fields:
            known += fields

    def before(self, offset: int) -> "DispatchRound":
        """The part of the round that is before an offset of the log. Its entries, which the queues may use up, are new ones."""
        found = DispatchRound(self._make)
        found._requests = [request for request in self._all() if request.commit_log_offset < offset]
        add_entries(found.entries, found._requests)
        found.keyed = [request for request in self.keyed if request.commit_log_offset < offset]
        found.last_store_timestamp = found._requests[-1].store_timestamp if found._requests else 0
        return found

    # --- As a sequence -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[DispatchRequest]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> DispatchRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[DispatchRequest]: ...
    def __getitem__(self, index: int | slice) -> DispatchRequest | list[DispatchRequest]:
        return self._all()[index]

    def _all(self) -> list[DispatchRequest]:
        if self._requests is None:
            self._requests = []
            for part in self._parts:
                self._requests += [self._make(*each) for handed in part for each in _each(handed)]
        return self._requests


def _each(handed: AnyHanded) -> Iterable[HandedFields]:
    return handed.each() if isinstance(handed, HandedBatch) else (handed,)


def add_entries(entries: Entries, requests: Sequence[DispatchRequest]) -> None:
    """Sort what the consume queues take of requests by queue."""
    _extend(
        entries,
        (
            (topic, queue_id, queue_offset, offset, size, tags_code)
            for topic, queue_id, offset, size, tags_code, _, queue_offset, _, _, sys_flag, _ in requests
            if sys_flag & TRANSACTION_MASK not in UNQUEUED_TYPES
        ),
    )


def _extend(entries: Entries, rows: "Iterator[tuple[Any, ...]]") -> None:
    find = entries.get
    for topic, queue_id, queue_offset, offset, size, tags_code in rows:
        fields = find((topic, queue_id))
        if fields is None:
            entries[topic, queue_id] = [queue_offset, offset, size, tags_code]
        else:
            fields += (queue_offset, offset, size, tags_code)
