"""Clauses of chapter 5 (the store) that no other test checks."""

from pathlib import Path

import pytest

from rocketmq_ha.impl.errors import StoreClosed
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions


def test_a_store_that_is_closed_refuses_replicated_bytes(tmp_path: Path) -> None:
    """HA-ST-22 "MUST refuse replicated bytes": the log that is opened next has none of them.

    An open store counts as started.
    """
    store = MessageStore.open(tmp_path / "store", StoreOptions(file_size=1 << 16))
    store.append_data(0, [b"abc"])
    store.close()
    with pytest.raises(StoreClosed):
        store.append_data(3, [b"defg"])
    with LogReader(tmp_path / "store") as reader:
        assert reader.data_at(0, 8) == b"abc" + bytes(5)
