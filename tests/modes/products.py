"""Whose clusters can be measured, and with whose clients: ours, and those of releases of Apache RocketMQ.

A product is one cluster with our clients, or, as `5.3.3+4.9.8`, that of the first with the Java clients of the second.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Final

from our_cluster import OurCluster
from traffic import Traffic
from under_test import ClusterUnderTest, TrafficUnderTest

OURS: Final = "ours"
RELEASES: Final = ("4.9.8", "5.3.3")
_WITH_JAVA: Final = tuple(f"{cluster}+{clients}" for cluster in (OURS, *RELEASES) for clients in RELEASES)
PRODUCTS: Final = (OURS, *RELEASES, *_WITH_JAVA)


def cluster_of(product: str) -> str:
    """OURS, or a release."""
    return product.partition("+")[0]


def clients_of(product: str) -> str:
    """OURS, or a release."""
    return product.partition("+")[2] or OURS


def title_of(product: str) -> str:
    """Its name and its version."""
    cluster, clients = cluster_of(product), clients_of(product)
    title = f"rocketmq-ha {version('rocketmq-ha')}" if cluster == OURS else f"Apache RocketMQ {cluster}"
    return title if clients == OURS else f"{title} with the Java clients of {clients}"


def make_cluster(product: str, mode: str, flush: str, directory: Path, library: Path) -> ClusterUnderTest:
    """A cluster in a new directory. library: of the power switch. Raises: ConfigInvalid, if there is no Java or no Maven."""
    owner = cluster_of(product)
    if owner == OURS:
        return OurCluster(mode, flush, directory, library)
    from java_cluster import JavaCluster  # what it needs is in tests/interop

    return JavaCluster(mode, flush, directory, library, release=owner)


def make_traffic(product: str, name_server: str, rate: int) -> TrafficUnderTest:
    """The clients, which begin at once. rate: sends a second. Raises: OSError, subprocess.CalledProcessError."""
    release = clients_of(product)
    if release == OURS:
        return Traffic(name_server, rate)
    from java_traffic import JavaTraffic

    return JavaTraffic(name_server, rate, release=release)
