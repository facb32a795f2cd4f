"""Fixtures of the tests of analysis: the Spark session, and the transitions of the synthetic logs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kit import event_logs

if TYPE_CHECKING:  # pyspark is slow to import, and some of the tests here do not need it
    from pyspark.sql import SparkSession


# To compile a query costs more than to interpret it over a few rows: a third of the processor time of these tests.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def transitions_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file transitions.json of the synthetic machines."""
    file = tmp_path_factory.mktemp("spec") / "transitions.json"
    file.write_text(json.dumps(event_logs.transitions_document()), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The Spark session that all tests share, because each start takes seconds."""
    from rocketmq_ha.analysis.session import spark_session

    session = spark_session("rocketmq-ha tests", master="local[2]", shuffle_partitions=2, fast_start=True, config=INTERPRETED)
    yield session
    session.stop()
