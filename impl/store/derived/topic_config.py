"""Read and write `config/topics.json`: the topics of a store with their numbers of queues. A broker reads it at its start.

A broker serves only topics that this file names; without it no consumer can read the store's messages. So every program that
appends to a store adds the topics of its queues. Existing settings stay, unless a topic has more queues now.

Source: 4.9.8 TopicConfigManager, TopicConfigSerializeWrapper and MixAll.string2File; facts on code 21, chapter 6.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.log.creation import replace_file

CONFIG_DIR: Final = "config"
TOPICS_FILE: Final = "topics.json"
_PERM_READ_WRITE: Final = 6


def read_topics(store_dir: Path) -> dict[str, int]:
    """The topics in the file, with their numbers of read queues; none if there is no file.

    Raises: ConfigInvalid for a file that is no such JSON; OSError.
    """
    table = _read(store_dir / CONFIG_DIR / TOPICS_FILE)["topicConfigTable"]
    return {name: int(config.get("readQueueNums", 0)) for name, config in table.items()}


def write_topics(store_dir: Path, queue_nums: Mapping[str, int], now_ms: int | None = None) -> bool:
    """Add these topics to the file, with at least the given numbers of queues. The file is replaced atomically.

    HA-ST-52 "the entries that the file has already MUST stay".

    Returns: True if the file changed; the change is then on the disk.
    Raises: ConfigInvalid, if the file is no such JSON (it then stays unchanged); OSError with a path.
    """
    path = store_dir / CONFIG_DIR / TOPICS_FILE
    content = _read(path)
    table = content["topicConfigTable"]
    changed = False
    for name, queue_num in sorted(queue_nums.items()):
        config = table.setdefault(name, _new_config(name))
        for field in ("readQueueNums", "writeQueueNums"):
            if config.get(field, 0) < queue_num:
                config[field] = queue_num
                changed = True
    if not changed:
        return False
    version = content.setdefault("dataVersion", {})
    version["counter"] = int(version.get("counter", 0)) + 1
    version["timestamp"] = wall_clock_ms() if now_ms is None else now_ms
    text = json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":"))
    replace_file(path, text.encode("utf-8"))
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"dataVersion": {}, "topicConfigTable": {}}
    except ValueError as error:
        raise ConfigInvalid(f"{path}: {error}, expected JSON with a topicConfigTable") from None
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    if not isinstance(table, dict) or not all(isinstance(config, dict) for config in table.values()):
        raise ConfigInvalid(f"{path}: no topicConfigTable in it, expected one")
    found: dict[str, Any] = content
    return found


def _new_config(name: str) -> dict[str, object]:
    """The settings of a topic that a broker creates automatically."""
    return {
        "order": False,
        "perm": _PERM_READ_WRITE,
        "readQueueNums": 0,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": 0,
    }
