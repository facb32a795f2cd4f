"""The report command without Spark: where it writes, how large a session it asks for, what it shows on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketmq_ha.analysis import cli, session
from rocketmq_ha.analysis.errors import LogInvalid, OutputInvalid, SparkUnavailable
from rocketmq_ha.analysis.java import JavaNotFound
from rocketmq_ha.analysis.output import Output

MIB = 1024 * 1024


class Asked:
    """Stands where spark_session does: keeps its arguments, and gives a session that counts its ends."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.told: list[str] = []
        self.session: Any = SimpleNamespace(
            sparkContext=SimpleNamespace(setLogLevel=self.told.append),
            stop=lambda: self.told.append("stop"),
        )

    def __call__(self, name: str, **arguments: Any) -> Any:
        self.arguments = {"name": name} | arguments
        return self.session


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(session, "spark_session", found)
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    return found


@pytest.mark.parametrize(
    ("size", "partitions", "fast"),
    [
        (0, 4, True),
        (64 * MIB - 1, 4, True),
        (64 * MIB, 4, False),
        (160 * MIB - 1, 4, False),
        (160 * MIB, 5, False),
        (320 * MIB, 10, False),
    ],
)
def test_a_session_is_as_large_as_the_logs(asked: Asked, size: int, partitions: int, fast: bool) -> None:
    stages: list[str] = []
    with cli._spark("local[3]", size, stages.append) as spark:
        assert spark is asked.session
    assert asked.arguments == {
        "name": "rocketmq-ha report",
        "master": "local[3]",
        "shuffle_partitions": partitions,
        "fast_start": fast,
    }
    assert stages == ["Spark started"]
    assert asked.told == ["OFF", "stop"]


def test_a_session_stops_after_an_error_and_one_that_was_there_stays(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError), cli._spark("local", 0, print):
        raise KeyError
    assert asked.told == ["OFF", "stop"]
    asked.told.clear()
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: asked.session))
    with cli._spark("local", 0, print):
        pass
    assert asked.told == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (JavaNotFound("no Java at all"), "no Java at all"),
        (PySparkException("first line\nsecond"), "Spark did not start with the master local[9]: first line"),
    ],
    ids=["no Java", "no Spark"],
)
def test_a_session_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(session, "spark_session", fails)
    with pytest.raises(SparkUnavailable) as caught, cli._spark("local[9]", 0, print):
        pytest.fail("it has started")
    assert caught.value.message == told


def test_the_size_of_logs_is_that_of_their_events(tmp_path: Path) -> None:
    for log, sizes in (("a", (3, 50)), ("b", (700,))):
        (tmp_path / log / "events").mkdir(parents=True)
        (tmp_path / log / "runs").mkdir()
        (tmp_path / log / "runs" / "r.parquet").write_bytes(bytes(9000))
        for at, size in enumerate(sizes):
            (tmp_path / log / "events" / f"{at}.parquet").write_bytes(bytes(size))
    assert cli._size([tmp_path / "a", tmp_path / "b"]) == 753


@pytest.mark.parametrize("master", ["local", "local[*]", "spark://a:1", "yarn", "k8s://a"])
def test_each_kind_of_master_goes_on_to_the_next_check(tmp_path: Path, master: str) -> None:
    with pytest.raises(OutputInvalid, match="found a directory"):
        cli.make_report([tmp_path], Output(tmp_path), master=master)


@pytest.mark.parametrize("master", ["", "LOCAL", "mesos://a", "http://a"])
def test_another_master_is_refused_first(tmp_path: Path, master: str) -> None:
    with pytest.raises(SparkUnavailable) as caught:
        cli.make_report([tmp_path], Output(tmp_path), master=master)
    assert caught.value.message == f"--master {master}: found no master of Spark, expected local[*] or spark://HOST:PORT"


@contextmanager
def reading(error: Exception) -> Iterator[None]:
    with cli._reading():
        raise error
    yield


def test_an_error_of_a_page_names_the_file_and_another_goes_on() -> None:
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a/b/part-0.parquet. SQLSTATE: KD001 at org"
    with pytest.raises(LogInvalid) as caught, reading(RuntimeError(text)):
        pass
    assert caught.value.message == "/a/b/part-0.parquet: found pages that cannot be read, expected a sound Parquet file"
    with pytest.raises(RuntimeError, match="another"), reading(RuntimeError("another")):
        pass


def test_stages_are_numbered_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with cli._progress(3) as show_stage:
        show_stage("one [of them]")
        show_stage("two")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "report: starting Spark, which takes a few seconds",
        "report: 1/3 one [of them]",
        "report: 2/3 two",
    ]
