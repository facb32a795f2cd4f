"""What a slave makes of its master's answers: of whole tables, and of their changes.

    changes: deleted topics -> topics -> groups -> consumer offsets; each as far as it can be taken
    whole:   topics (21) | consumer offsets (43) | delay offsets (45) | groups (201)

Spec: HA-MD-10 to HA-MD-16, HA-MD-28 to HA-MD-36.  Source: 4.9.8 SlaveSynchronize; this project.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from rocketmq_ha.impl.broker.config_file import KeptFile
from rocketmq_ha.impl.broker.config_table import ConfigTable
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager, read_offsets, read_table
from rocketmq_ha.impl.broker.data_version import read_data_version
from rocketmq_ha.impl.broker.deleted_topics import DeletedTopics
from rocketmq_ha.impl.broker.groups import SubscriptionGroupManager
from rocketmq_ha.impl.broker.master_offsets import MasterOffsets
from rocketmq_ha.impl.broker.slave_delays import SlaveDelays
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.spec.profile import Profile

_TABLES: Final = ("deleted", "topics", "groups", "offsets")


class _Part(msgspec.Struct):
    """What an answer has of one table. begin: the number that it goes on from, 0 for a whole table."""

    at: int
    begun: int
    is_end: bool = msgspec.field(name="isEnd")
    changed: dict[str, Any]
    gone: list[str]
    begin: int = msgspec.field(name="from")
    data_version: Any = msgspec.field(name="dataVersion", default=None)


class _Answer(msgspec.Struct):
    life: str
    max_offset: int = msgspec.field(name="maxOffset")
    delay_offset: dict[str, Any] = msgspec.field(name="delayOffset")
    deleted: _Part
    topics: _Part
    groups: _Part
    offsets: _Part


class SlaveTables:
    """The tables of one slave. All methods are for the loop's thread.

    Args:  delay_offset: config/delayOffset.json. max_offset: of this slave's log. now_ms: by a clock that does not step.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        deleted: DeletedTopics,
        delay_offset: KeptFile,
        max_offset: Callable[[], int],
        profile: Profile,
        now_ms: int,
    ) -> None:
        self._topics, self._groups, self._offsets, self._deleted = topics.table, groups.table, offsets, deleted
        self._delay_offset = delay_offset
        self.profile: Final = profile
        self.offsets: Final = MasterOffsets(offsets, keeps=profile.keeps_offsets)
        self.delays: Final = SlaveDelays(delay_offset, max_offset, now_ms)
        # HA-MD-1 "MUST ask its master for four tables, in this order"
        self.whole: Final[tuple[tuple[RequestCode, Callable[[bytes, object], object]], ...]] = (
            (RequestCode.GET_ALL_TOPIC_CONFIG, self._take_topics),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, self._take_offsets),
            (RequestCode.GET_ALL_DELAY_OFFSET, self._take_delay_offsets),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, lambda body, _: self._groups.replace(body)),
        )
        self._life = ""  # of the master that tells changes
        self._at = dict.fromkeys(_TABLES, 0)
        self._begun = dict.fromkeys(_TABLES, 0)  # the master's last number when the table was told from its begin
        self._seen: dict[str, set[str]] = {}  # of a table that is being told from its begin, the names so far
        self._known: tuple[object, frozenset[str]] | None = None  # the connection and the topics of the last answer to 21

    # --- Whole tables -------------------------------------------------------------------------------------------------

    def _take_topics(self, body: bytes, link: object) -> None:
        """Raises: ConfigInvalid. HA-MD-10 "MUST replace all topics of the slave"."""
        told = link, self._topics.replace_all(body)
        if self.profile.asks_changes and told != self._known:
            before = self._known[1] if self._known is not None and self._known[0] == link else None
            self._deleted.on_topics(before, told[1])
            self._known = told

    def _take_offsets(self, body: bytes, link: object) -> None:
        """Raises: ConfigInvalid. HA-MD-32, or where nothing is kept HA-MD-13."""
        if not self.profile.keeps_offsets:
            self._offsets.merge(body)
            return
        table = read_table(body)
        self.offsets.on_life(link)
        self.offsets.take_all(table)

    def _take_delay_offsets(self, body: bytes, _link: object) -> None:
        """HA-MD-14 "MUST be written to `delayOffset.json` in the form in which they came".

        Raises: RequestInvalid, ConfigInvalid.
        """
        found = body_json.read(body)
        if not isinstance(found, dict) or not isinstance(found.get("offsetTable"), dict):
            raise ConfigInvalid("no offsetTable in the answer, expected one")
        self.delays.on_whole()
        self._delay_offset.persist(body)

    # --- Changes ------------------------------------------------------------------------------------------------------

    def question(self) -> bytes:
        """The body of GET_METADATA_CHANGES (30043)."""
        return body_json.write({"life": self._life, "at": self._at, "begun": self._begun, "committed": self.offsets.named()})

    def take_changes(self, body: bytes) -> tuple[bool, str]:
        """Take what the master tells of its changes.

        Returns: whether there is more that can be asked for at once, and why a table was not taken, "" if all were.
        Raises: RequestInvalid for what is no answer; then nothing has changed.
        """
        answer: _Answer = body_json.read_as(body, _Answer)
        if answer.life != self._life:  # the numbers of another life mean nothing
            self._begin_life(answer.life)
            self.delays.on_life()
        self.offsets.on_life(answer.life)
        is_more, error = False, ""
        for name in _TABLES:
            part: _Part = getattr(answer, name)
            try:
                is_more |= self._take_part(name, part)
            except ConfigInvalid as invalid:
                error = error or f"{name}: {invalid}"
        try:
            self.delays.told(answer.delay_offset, answer.max_offset)
        except ConfigInvalid as invalid:
            error = error or f"delayOffset: {invalid}"
        return is_more, error

    def on_not_supported(self) -> None:
        """The master tells no changes: the whole tables that it tells are of no life, and no numbers are theirs (HA-MD-30).

        Else a former master that is followed again would tell what is new since its own numbers, and leave the other's entries.
        """
        self._begin_life("")

    def _begin_life(self, life: str) -> None:
        self._life, self._seen = life, {}
        self._at, self._begun = dict.fromkeys(_TABLES, 0), dict.fromkeys(_TABLES, 0)

    def _take_part(self, name: str, part: _Part) -> bool:
        """Returns: whether the slave was brought on, and there is more. Raises: ConfigInvalid; then the table is as it was."""
        if part.begin not in (0, self._at[name]):  # HA-MD-31 "goes on from a number that the slave has not named"
            raise ConfigInvalid(f"found a part from {part.begin}, expected 0 or {self._at[name]}")
        seen = set() if part.begin == 0 else self._seen.get(name)
        gone = set(part.gone)
        if seen is not None:
            seen = (seen - gone).union(part.changed)
            if part.is_end:
                gone |= self._names_of_master(name) - seen
        gone -= part.changed.keys()
        if name == "offsets":
            self.offsets.take({key: read_offsets(key, found) for key, found in part.changed.items()}, gone)
        else:
            self._take_entries(name, part, gone)
        is_brought_on = part.at != self._at[name]
        self._at[name], self._begun[name] = part.at, part.begun
        if seen is None or part.is_end:
            self._seen.pop(name, None)
        else:
            self._seen[name] = seen
        return is_brought_on and not part.is_end

    def _names_of_master(self, name: str) -> set[str]:
        """The names that a whole table has to have, or they are gone. Offsets that the master has not told stay."""
        tables: dict[str, Mapping[str, object]] = {
            "deleted": self._deleted.table.entries,
            "topics": self._topics.entries,
            "groups": self._groups.entries,
            "offsets": self.offsets.told,
        }
        return set(tables[name])

    def _take_entries(self, name: str, part: _Part, gone: set[str]) -> None:
        tables: dict[str, ConfigTable[Any]] = {
            "deleted": self._deleted.table,
            "topics": self._topics,
            "groups": self._groups,
        }
        table = tables[name]
        version = read_data_version(part.data_version, table.data_version)
        if name == "deleted":
            self._deleted.take(part.changed, gone)
        else:
            table.take(part.changed, gone)
        if part.is_end:
            table.settle(version)

    # --- Time ---------------------------------------------------------------------------------------------------------

    def on_turn(self, now_ms: int) -> None:
        """Use the progress of the delay levels that the log has reached by now."""
        self.delays.on_turn(now_ms)

    def finish(self) -> None:
        """Write what is not written yet. The process ends."""
        self.delays.persist()
