"""The texts that a name server keeps by namespace and key, and the file that holds them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"  # the namespace of the topics whose messages are ordered


@dataclass(frozen=True, slots=True)
class KVConfig:
    """table: namespace -> key -> value. A namespace stays when its last key is forgotten."""

    table: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def put(config: KVConfig, namespace: str, key: str, value: str) -> KVConfig:
    """Code 100 of HA-R-52 "MUST keep texts by namespace and key, and answer the codes of the table as it says"."""
    return KVConfig({**config.table, namespace: {**config.table.get(namespace, {}), key: value}})


def get(config: KVConfig, namespace: str, key: str) -> str | None:
    """Code 101. Returns: None for QUERY_NOT_FOUND."""
    return config.table.get(namespace, {}).get(key)


def delete(config: KVConfig, namespace: str, key: str) -> KVConfig:
    """Code 102."""
    if namespace not in config.table:
        return config
    left = {name: value for name, value in config.table[namespace].items() if name != key}
    return KVConfig({**config.table, namespace: left})


def list_by_namespace(config: KVConfig, namespace: str) -> Mapping[str, str] | None:
    """Code 219, and HA-R-45 "SHOULD have the table of the namespace ORDER_TOPIC_CONFIG". Returns: None for QUERY_NOT_FOUND."""
    return config.table.get(namespace)


def of_file(text: str) -> KVConfig:
    """What a name server that starts has: HA-R-53 "MUST be in the file kvConfigPath, and synced, before it is answered".

    Raises: ValueError for a file that holds something else.
    """
    table = json.loads(text)["configTable"]
    return KVConfig(
        {str(namespace): {str(key): str(value) for key, value in texts.items()} for namespace, texts in table.items()}
    )


def to_file(config: KVConfig) -> str:
    """The text of the file."""
    return json.dumps({"configTable": config.table})


def file_size(config: KVConfig) -> int:
    """Bytes of the text without spaces, which HA-R-56 "or more texts than it was told to" bounds."""
    return len(json.dumps({"configTable": config.table}, ensure_ascii=False, separators=(",", ":")).encode())
