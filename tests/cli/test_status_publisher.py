"""What a turn of the loop does for the status socket and for the metrics, and what is closed at the end."""

import socket
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.app.status_publisher import StatusPublisher, publishing_status, serving_metrics
from rocketmq_ha.impl.net.status_socket import SOCKET_NAME


class Parts:
    """The figures, the status socket and the metrics of a process. They note their calls."""

    def __init__(self, *, is_sampled: bool, is_due: bool) -> None:
        self.calls: list[object] = []
        self._is_sampled, self._is_due = is_sampled, is_due

    def sample(self) -> bool:
        self.calls.append("sample")
        return self._is_sampled

    def snapshot(self) -> dict[str, Any]:
        return {"role": "test"}

    def poll(self) -> None:
        self.calls.append("poll")

    def turned(self) -> None:
        self.calls.append("turned")

    def is_due(self) -> bool:
        return self._is_due

    def publish(self, snapshot: dict[str, Any]) -> None:
        self.calls.append(("publish", snapshot))


@pytest.mark.parametrize(
    ("is_sampled", "has_metrics", "is_due", "calls"),
    [
        (False, True, True, ["sample"]),
        (True, False, False, ["sample", "poll"]),
        (True, True, False, ["sample", "poll", "turned"]),
        (True, True, True, ["sample", "poll", "turned", ("publish", {"role": "test"})]),
    ],
    ids=["between two samples", "without --metrics", "not due", "due"],
)
def test_a_turn_answers_and_publishes_what_is_due(
    is_sampled: bool, has_metrics: bool, is_due: bool, calls: list[object]
) -> None:
    parts: Any = Parts(is_sampled=is_sampled, is_due=is_due)
    StatusPublisher(parts, parts, parts if has_metrics else None).turn()
    assert parts.calls == calls


def test_the_sockets_are_gone_at_the_end(tmp_path: Path) -> None:
    parts: Any = Parts(is_sampled=True, is_due=False)
    (tmp_path / "s").mkdir()
    with serving_metrics("127.0.0.1:0") as metrics, publishing_status(tmp_path / "s", parts, metrics):
        assert metrics is not None
        assert (tmp_path / "s" / SOCKET_NAME).is_socket()
        host, _, port = str(metrics.address).removeprefix("http://").partition("/")[0].rpartition(":")
        socket.create_connection((host, int(port)), 10).close()
    assert not (tmp_path / "s" / SOCKET_NAME).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 10)


def test_without_an_address_no_metrics_are_served() -> None:
    with serving_metrics(None) as metrics:
        assert metrics is None
