"""A name server without sockets."""

from pathlib import Path

import pytest

from kit.name_server import NameServer


@pytest.fixture
def name_server(tmp_path: Path) -> NameServer:
    return NameServer(tmp_path / "namesrv" / "kvConfig.json")
