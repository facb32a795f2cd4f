"""Make the Spark session. No other module makes one.

The campaign, the report and their tests all use this session, locally or, with its URL as `master`, on a cluster.
"""

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketmq_ha.analysis.errors import SparkUnavailable
from rocketmq_ha.analysis.java import JavaNotFound, java_environment
from rocketmq_ha.analysis.jvm_start import ending_with_python

LOOPBACK: Final = "127.0.0.1"
_MASTER: Final = re.compile(r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|spark://.+|yarn|k8s://.+|local-cluster\[.+\]")

# For sessions of a few seconds, in which the JVM's optimising compiler costs more time than it saves.
FAST_START_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def is_on_this_machine(master: str) -> bool:
    """Return True if the driver and all executors run on this machine, so that loopback connects them.

    >>> is_on_this_machine("local[*]"), is_on_this_machine("spark://127.0.0.1:7077"), is_on_this_machine("spark://hub:7077")
    (True, True, False)
    """
    return master.startswith(("local", "spark://127.", "spark://localhost:"))


def check_master(master: str) -> None:
    """Raises: SparkUnavailable for what is no master of Spark.

    >>> check_master("local[0]")
    Traceback (most recent call last):
    rocketmq_ha.analysis.errors.SparkUnavailable: --master local[0]: found no master of Spark, expected local[*] or spark://HOST:PORT
    """
    if not _MASTER.fullmatch(master):
        raise SparkUnavailable(f"--master {master}: found no master of Spark, expected local[*] or spark://HOST:PORT")


@contextmanager
def starting(master: str) -> Iterator[None]:
    """Raise SparkUnavailable for whatever ends the start of a session: no Java, or a master that does not answer."""
    check_master(master)
    try:
        yield
    except JavaNotFound as error:
        raise SparkUnavailable(str(error)) from error
    except Exception as error:
        if not isinstance(error, PySparkException) and not type(error).__module__.startswith("py4j."):  # those of the JVM
            raise
        told = str(error).strip().partition("\n")[0]
        raise SparkUnavailable(f"Spark did not start with the master {master}: {told}") from error


def spark_environment() -> dict[str, str]:
    """The environment variables of a process of Spark on this machine. Raises: JavaNotFound."""
    return java_environment() | {"SPARK_CONF_DIR": str(Path(__file__).parent / "spark_conf"), "SPARK_LOCAL_IP": LOOPBACK}


def spark_session(
    app_name: str,
    *,
    master: str = "local[*]",
    shuffle_partitions: int = 4,
    fast_start: bool = False,
    driver_memory: str | None = None,
    config: dict[str, str] | None = None,
) -> SparkSession:
    """Make a session, or return the one that this process already has.

    The session prints only errors on the terminal, and writes nothing into the working directory. The settings that
    affect results are fixed: the time zone is UTC, and the workers on this machine run the Python of this process. Elsewhere
    PYSPARK_PYTHON may name theirs.

    Args:  shuffle_partitions: Spark's default of 200 costs more than it gains on logs of this size.
           fast_start: use JVM options for sessions of a few seconds (tests, short reports).
           driver_memory: in Spark's notation, such as "2g"; None for Spark's default.
           config: settings that override all others.
    Raises: JavaNotFound.
    """
    # The JVM reads these when it starts, before there is a session that could be configured.
    os.environ.update(java_environment())
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_on_this_machine(master) or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark_conf"))

    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Else PySpark tells the JVM the place in the Python code of each column: nearly half of all calls to the JVM.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Hive would make metastore_db in the working directory. Nothing is ever written to the warehouse.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "rocketmq-ha-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC {FAST_START_OPTIONS if fast_start else ''}".strip(),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    }
    if is_on_this_machine(master):
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = LOOPBACK
    if driver_memory is not None:
        settings["spark.driver.memory"] = driver_memory
    settings |= config or {}

    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    logging.getLogger().addFilter(_is_no_repetition)
    with ending_with_python():
        return builder.getOrCreate()


def _is_no_repetition(record: logging.LogRecord) -> bool:
    """Py4J logs an exception with its traceback, and raises it as well."""
    return (record.module, record.funcName) != ("java_gateway", "send_command")
