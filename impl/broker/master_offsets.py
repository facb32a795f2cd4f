"""A slave's consumer offsets: what its master tells, what consumers commit to it, and which of the two stays.

    the master's answers:   10 ... 12 ... 7          12 to 7: it has gone back by itself, so the slave takes 7
    the slave's:            10 ... 15 ... 7          15 stays beside 12: a consumer has committed it here

Spec: HA-MD-32, HA-MD-33.  Source: this project.
"""

from collections.abc import Collection, Mapping
from itertools import islice

from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.metadata_changes import MOST_COMMITTED

Offsets = dict[int, int]  # queue id to offset


class MasterOffsets:
    """What the master has told, and where it is behind this slave. All methods are for the loop's thread.

    Args:  keeps: False for a slave that takes whatever its master says (HA-MD-13).
    """

    def __init__(self, offsets: ConsumerOffsetManager, *, keeps: bool) -> None:
        self._offsets, self._keeps = offsets, keeps
        self._life: object = None  # of which process of a master `_told` is
        # topic@group: as the answers of this life say. A dict may be the one of the table, until a consumer commits here.
        self._told: dict[str, Offsets] = {}
        self._committed: dict[str, set[int]] = {}  # topic@group: the queues where a consumer's offset is ahead of the master's
        if keeps:
            offsets.on_commit = self._on_commit

    def on_life(self, life: object) -> None:
        """Another process of a master, or what may be one, has answered: what was told before does not count."""
        if life != self._life:
            self._life, self._told = life, {}

    @property
    def told(self) -> Mapping[str, Mapping[int, int]]:
        """What the master has told in this life."""
        return self._told

    def take(self, changed: Mapping[str, Offsets], gone: Collection[str] = ()) -> None:
        """Take what the master tells of some keys, topic@group. gone: those that it does not have any more.

        Raises: ConfigInvalid for more than the table may have; then nothing has changed.
        Spec: HA-MD-32 "MUST NOT make a consumer's offset less than it is".
        """
        names = {*changed, *gone}
        merged = {key: self._merged(key, changed.get(key)) for key in names}
        self._offsets.set_offsets({key: offsets for key, offsets in merged.items() if offsets},
                                  [key for key, offsets in merged.items() if not offsets])  # fmt: skip
        for key in names:
            if key in changed:
                self._told[key] = changed[key]
            else:
                self._told.pop(key, None)
            self._forget_reached(key)

    def take_all(self, table: Mapping[str, Offsets]) -> None:
        """Take a whole table. A key that the master had in its last answer, and has not in this, is gone. Raises: as `take`."""
        self.take(table, self._told.keys() - table.keys())

    def _merged(self, key: str, theirs: Offsets | None) -> Offsets:
        mine, told = self._offsets.offset_table.get(key), self._told.get(key)
        if not self._keeps:
            return theirs or {}
        if not mine or mine is told or mine == told:
            return theirs or {}
        merged = {} if theirs is None else dict(theirs)
        for queue_id, offset in mine.items():
            before = None if told is None else told.get(queue_id)
            now = merged.get(queue_id)
            if now is None:
                if before is None:
                    merged[queue_id] = offset
            elif before is None or now >= before:  # else "the master itself has gone back"
                merged[queue_id] = max(now, offset)
        return merged

    # --- What consumers commit to this slave --------------------------------------------------------------------------

    def _on_commit(self, key: str, queue_id: int) -> None:
        """A consumer commits, and the table's dict is about to change."""
        told = self._told.get(key)
        if told is not None and told is self._offsets.offset_table.get(key):
            self._told[key] = dict(told)
        self._committed.setdefault(key, set()).add(queue_id)

    def _forget_reached(self, key: str) -> None:
        """The master has what was committed here, or has gone back: there is nothing to tell it."""
        if key in self._committed:
            self._committed[key].intersection_update(self._ahead(key))
            if not self._committed[key]:
                del self._committed[key]

    def _ahead(self, key: str) -> dict[int, tuple[int, int]]:
        """Queue id to [the master's offset, or -1; the slave's], where the slave's is greater."""
        mine, told = self._offsets.offset_table.get(key, {}), self._told.get(key, {})
        queues = self._committed[key]
        return {each: (told.get(each, -1), mine[each]) for each in queues if mine.get(each, -1) > told.get(each, -1)}

    def named(self) -> dict[str, dict[int, tuple[int, int]]]:
        """For a question: HA-MD-33 "the offsets that consumers have committed to it and that are greater than the master's"."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        left = MOST_COMMITTED
        for key in self._committed:
            if left == 0:
                break
            if ahead := dict(islice(self._ahead(key).items(), left)):
                found[key] = ahead
                left -= len(ahead)
        return found
