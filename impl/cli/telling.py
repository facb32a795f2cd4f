"""What `master` and `slave` tell of themselves while they run: the status socket of their store, and metrics if asked."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketmq_ha.impl.net.figures import Figures
from rocketmq_ha.impl.net.status_socket import StatusSocket

if TYPE_CHECKING:
    from rocketmq_ha.impl.cli.metrics import Metrics

metrics_option = click.option(
    "--metrics",
    "metrics_address",
    metavar="HOST:PORT",
    help="Serve Prometheus metrics there, under /metrics; and /healthz, /readyz, /status (JSON).",
)


class Teller:
    """Answers between two turns of the loop. A call costs a look at the clock, but ten times a second."""

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
def listening_metrics(address: str | None) -> Iterator["Metrics | None"]:
    """The metrics' HTTP server, before any store is touched, if there is to be one. Raises: ConfigInvalid."""
    if address is None:
        yield None
        return
    from rocketmq_ha.impl.cli.metrics import Metrics  # the library is loaded by those who ask for it

    metrics = Metrics(address)
    try:
        yield metrics
    finally:
        metrics.close()


@contextmanager
def telling(store_dir: Path, figures: Figures, metrics: "Metrics | None") -> Iterator[Teller]:
    """Serve the store's status as long as this lasts. The caller has the store's lock."""
    with ExitStack() as stack:
        status = StatusSocket(store_dir, figures.snapshot)
        stack.callback(status.close)
        yield Teller(figures, status, metrics)
