"""The version of a table: how often it has changed, and when last. Two versions are equal or not; they have no order.

Spec: HA-MD-12, HA-BT-2.  Source: 4.9.8 DataVersion.
"""

from dataclasses import dataclass

from rocketmq_ha.impl.broker.body_fields import shown
from rocketmq_ha.impl.errors import ConfigInvalid


@dataclass(frozen=True, slots=True)
class DataVersion:
    """HA-BT-1 "a DataVersion, a counter and a timestamp". HA-MD-12 "MUST count as equal if": as two dataclasses do.

    The part `stateVersion` of 5.x is neither read nor written: a reader takes a missing one for 0.
    """

    counter: int = 0
    timestamp: int = 0  # ms since 1970

    def next_version(self, now_ms: int) -> "DataVersion":
        """HA-BT-2 "MUST count its version on by one, and set the timestamp": the version after a change at a time."""
        return DataVersion(self.counter + 1, now_ms)

    def fields(self) -> dict[str, int]:
        """The fields of its JSON object."""
        return {"counter": self.counter, "timestamp": self.timestamp}


def read_data_version(content: object, missing: DataVersion) -> DataVersion:
    """A DataVersion from its JSON object; `missing` stands for None, and for fields that are not there.

    Raises: ConfigInvalid for what is no such object.
    """
    if content is None:
        return missing
    if not isinstance(content, dict):
        raise ConfigInvalid(f"dataVersion: found {shown(content)}, expected an object")
    parts = [content.get("counter", missing.counter), content.get("timestamp", missing.timestamp)]
    for part in parts:
        if type(part) is not int:
            raise ConfigInvalid(f"dataVersion: found {shown(part)}, expected whole numbers")
    return DataVersion(*parts)
