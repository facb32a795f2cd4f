"""The status of a running master or slave: over the status socket of its store, and with --metrics over HTTP."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rocketmq_ha.impl.net.figures import Figures
from rocketmq_ha.impl.net.status_socket import StatusSocket

if TYPE_CHECKING:
    from rocketmq_ha.impl.app.metrics import Metrics


class StatusPublisher:
    """Answers the status socket and publishes metrics, between two turns of the loop.

    Ten times a second a call does that; all other calls read the clock and return.
    """

    def __init__(self, figures: Figures, status: StatusSocket, metrics: "Metrics | None") -> None:
        self._figures, self._status, self._metrics = figures, status, metrics

    def turn(self) -> None:
        if not self._figures.sample():
            return
        self._status.poll()
        if self._metrics is not None:
            self._metrics.turned()
        if self._metrics is not None and self._metrics.is_due():
            self._metrics.publish(self._figures.snapshot())


@contextmanager
def serving_metrics(address: str | None) -> Iterator["Metrics | None"]:
    """Run the HTTP server of the metrics until the context ends; None without an address. Raises: ConfigInvalid."""
    if address is None:
        yield None
        return
    from rocketmq_ha.impl.app.metrics import Metrics  # with a library that is loaded only for --metrics

    metrics = Metrics(address)
    try:
        yield metrics
    finally:
        metrics.close()


@contextmanager
def publishing_status(store_dir: Path, figures: Figures, metrics: "Metrics | None") -> Iterator[StatusPublisher]:
    """Serve the store's status until the context ends. The caller has the store's lock."""
    with ExitStack() as stack:
        status = StatusSocket(store_dir, figures.snapshot)
        stack.callback(status.close)
        yield StatusPublisher(figures, status, metrics)
