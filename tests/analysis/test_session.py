"""The settings of the Spark session, as its builder gets them; no session is started."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.analysis import session
from rocketmq_ha.analysis.session import is_on_this_machine, spark_session

FAST = "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Builder:
    """Stands where Spark's builder does, and keeps what it is told."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> "Builder":  # noqa: N802
        return self.config("app", name)

    def master(self, url: str) -> "Builder":
        return self.config("master", url)

    def config(self, key: str, value: str) -> "Builder":
        self.settings[key] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802
        return self.settings


@pytest.fixture(autouse=True)
def settings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SparkSession", type("Session", (), {"builder": property(lambda _: Builder())})())
    monkeypatch.setattr(session, "java_environment", lambda: {"JAVA_HOME": "/the/java"})
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)


def settings(**arguments: Any) -> dict[str, str]:
    found: Any = spark_session("a name", **arguments)
    return dict(found)


def test_the_defaults() -> None:
    found = settings()
    assert found.pop("spark.sql.warehouse.dir").endswith("/rocketmq-ha-warehouse")
    assert found == {
        "app": "a name",
        "master": "local[*]",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def test_the_environment_is_that_of_the_java_that_was_found_and_of_this_python() -> None:
    settings()
    assert os.environ["JAVA_HOME"] == "/the/java"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert Path(os.environ["SPARK_CONF_DIR"]) == Path(session.__file__).parent / "spark_conf"
    assert (Path(os.environ["SPARK_CONF_DIR"]) / "log4j2.properties").is_file()


def test_the_python_of_other_machines_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    settings(master="yarn")
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == ("./env/bin/python", sys.executable)
    settings(master="local[2]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    settings(master="yarn")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_callers_configuration_folder_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/the/callers")
    settings()
    assert os.environ["SPARK_CONF_DIR"] == "/the/callers"


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ({"shuffle_partitions": 9}, "spark.sql.shuffle.partitions", "9"),
        ({"fast_start": True}, "spark.driver.extraJavaOptions", FAST),
        ({"driver_memory": "2g"}, "spark.driver.memory", "2g"),
        ({"config": {"spark.ui.enabled": "true"}}, "spark.ui.enabled", "true"),
        ({"config": {"spark.driver.memory": "3g"}, "driver_memory": "2g"}, "spark.driver.memory", "3g"),
        ({"master": "local[2]"}, "master", "local[2]"),
    ],
    ids=str,
)
def test_an_argument_changes_its_setting_alone(arguments: dict[str, Any], key: str, value: str) -> None:
    before, after = settings(), settings(**arguments)
    assert after[key] == value
    assert {name for name in after if after[name] != before.get(name)} == {key}


def test_a_cluster_elsewhere_is_not_bound_to_loopback() -> None:
    found = settings(master="spark://hub:7077")
    assert "spark.driver.host" not in found
    assert "spark.driver.bindAddress" not in found
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.parametrize(
    ("master", "here"),
    [
        *(("local", True), ("local[4]", True), ("spark://127.0.0.2:7077", True), ("spark://localhost:7077", True)),
        *(("spark://localhost.example:7077", False), ("spark://12.7.0.1:7077", False), ("yarn", False), ("k8s://local", False)),
    ],
)
def test_loopback_is_for_this_machine_alone(master: str, here: bool) -> None:
    assert is_on_this_machine(master) is here
