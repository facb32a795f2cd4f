"""The progress of the delay levels, as a slave's master tells it with its changes: it counts when the slave's log is as far.

A slave delivers nothing. A broker that starts as a master over its directory goes on from the file.

Spec: HA-MD-36.  Source: this project.
"""

from collections.abc import Callable, Mapping

from rocketmq_ha.impl.broker.body_fields import shown
from rocketmq_ha.impl.broker.config_file import KeptFile
from rocketmq_ha.impl.broker.config_table import I64
from rocketmq_ha.impl.broker.delayed import FLUSH_DELAY_OFFSET_INTERVAL
from rocketmq_ha.impl.broker.message_properties import number
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.remoting import body_json


class SlaveDelays:
    """Keeps `config/delayOffset.json` of a slave. It is written every 10 s, as by a master (HA-SE-59), and at the end.

    Args:  max_offset: of the slave's log. now_ms: by a clock that does not step.
    """

    def __init__(self, file: KeptFile, max_offset: Callable[[], int], now_ms: int) -> None:
        self._file, self._max_offset = file, max_offset
        self._persist_at = now_ms + FLUSH_DELAY_OFFSET_INTERVAL
        self.usable: Mapping[str, int] | None = None  # the log has reached it; None where nothing has been told
        self._waiting: tuple[int, Mapping[str, int]] | None = None  # the offset that the log has to reach first
        self._written: Mapping[str, int] | None = None

    def told(self, delay_offset: Mapping[str, object], max_offset: int) -> None:
        """The master tells its progress, and where its log ends. Raises: ConfigInvalid; then nothing has changed.

        A progress that waits is not replaced by a later one: under a steady load it would never be reached.
        """
        table = _read(delay_offset)
        if self._waiting is None:
            self._waiting = max_offset, table
        self._use()

    def on_life(self) -> None:
        """Another process of a master tells from now on. What the log has reached stays."""
        self._waiting = None

    def on_whole(self) -> None:
        """The file was written with what a master has told that does not say where its log ends (HA-MD-14)."""
        self._waiting = self.usable = self._written = None

    def on_turn(self, now_ms: int) -> None:
        """HA-MD-36 "MUST NOT use the progress of the delay levels before its log has reached the `maxOffset`"."""
        self._use()
        if now_ms >= self._persist_at:
            self._persist_at = now_ms + FLUSH_DELAY_OFFSET_INTERVAL
            self.persist()

    def persist(self) -> None:
        """Write the file if something is new; where the system refuses, the next call tries again."""
        is_new = self.usable is not None and (self.usable != self._written or self._file.is_unsaved)
        if is_new and self._file.persist(body_json.write({"offsetTable": self.usable})):
            self._written = self.usable

    def _use(self) -> None:
        if self._waiting is not None and self._waiting[0] <= self._max_offset():
            self.usable, self._waiting = self._waiting[1], None


def _read(delay_offset: Mapping[str, object]) -> Mapping[str, int]:
    """Delay level to queue offset. Raises: ConfigInvalid."""
    table = delay_offset.get("offsetTable")
    if not isinstance(table, dict):
        raise ConfigInvalid("no offsetTable in it, expected one")
    for level, offset in table.items():
        if number(level) is None or type(offset) is not int or offset not in I64:
            raise ConfigInvalid(f"found {shown(level)}: {shown(offset)}, expected a level and an offset")
    return table
