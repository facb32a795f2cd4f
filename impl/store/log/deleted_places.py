"""Where the log ended when topics were deleted: no such place may stay beyond the end of the log.

A broker hides the messages of a deleted topic that lie before its place (impl/broker/deleted_topics.py, which writes the file).
A log that has lost its end grows again over that place, and not only in a broker. So whoever opens the log for writing first
takes the places back to its end.

Spec: HA-BT-80.
"""

import json
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.store.log.creation import replace_file

FILES: Final = ("deletedTopics.json", "deletedTopics.json.bak")


def take_back(store_dir: Path, end: int) -> None:
    """HA-BT-80 "What the log has lost in a crash MUST NOT hide what is stored in its place".

    A file that cannot be read as JSON of this form is left as it is: a broker refuses it (HA-BT-77).

    Args:  end: of the log, as recovery has found it. Raises: OSError with a path.
    """
    folder = store_dir / "config"
    for path in (folder / name for name in FILES) if folder.is_dir() else ():
        if not path.is_file():
            continue
        try:
            found = json.loads(path.read_bytes())
            places = list(found["deletedTopicTable"].values())
            late = [place for place in places if place["logOffset"] > end]
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if late:
            for place in late:
                place["logOffset"] = end
            _write(path, found)


def _write(path: Path, content: Any) -> None:
    replace_file(path, json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":")).encode("utf-8"))
