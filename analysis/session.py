"""The one place where a Spark session is made.

Everything runs the same session: the campaign, the report, their tests; so does a cluster, with its URL as `master`.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from rocketmq_ha.analysis.java import java_environment

LOOPBACK: Final = "127.0.0.1"

# For short sessions: the JVM's slow, optimising compiler never pays for itself in a few seconds.
FAST_START_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def is_on_this_machine(master: str) -> bool:
    """True where driver and executors all run here, so that loopback reaches everyone.

    >>> is_on_this_machine("local[*]"), is_on_this_machine("spark://127.0.0.1:7077"), is_on_this_machine("spark://hub:7077")
    (True, True, False)
    """
    return master.startswith(("local", "spark://127.", "spark://localhost:"))


def spark_session(
    app_name: str,
    *,
    master: str = "local[*]",
    shuffle_partitions: int = 4,
    fast_start: bool = False,
    driver_memory: str | None = None,
    config: dict[str, str] | None = None,
) -> SparkSession:
    """Make the session, or return the one that this process has already.

    It says nothing on the terminal but errors, and leaves nothing in the working directory. What decides results is
    fixed: UTC, and this very Python for the workers. `config` is laid over everything else.

    Args:  shuffle_partitions: Spark's 200 cost more than the work they share out, on logs of this size.
           fast_start: JVM options for sessions of seconds (tests).
           driver_memory: as Spark writes it, "2g"; None is Spark's own choice.
    Raises: JavaNotFound.
    """
    # Read when the JVM starts, before there is a session whose configuration could say them.
    os.environ.update(java_environment())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark_conf"))

    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Hive would make metastore_db in the working directory; the warehouse is never written.
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
    return builder.getOrCreate()
