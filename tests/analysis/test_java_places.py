"""Where a Java is looked for, where the wrapper is kept, and which arguments it drops: each border."""

import os
import sys
from pathlib import Path

import pytest

from rocketmq_ha.analysis import java
from rocketmq_ha.analysis.java import Java, cache_dir, candidates, probe, unwanted_arguments

INCUBATOR = "--add-modules=jdk.incubator.vector"
SECURITY_ACTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@pytest.mark.parametrize(("version", "dropped"), [(17, 1), (21, 1), (23, 1), (24, 2), (25, 2)])
def test_from_24_on_two_arguments_are_dropped(version: int, dropped: int) -> None:
    assert unwanted_arguments(version) == (INCUBATOR, SECURITY_ACTION)[:dropped]


def a_java(home: Path, version: str, home_line: str | None = None) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    lines = f"    java.home = {home_line or home}\\n    java.specification.version = {version}\\n"
    executable.write_text(f"#!/bin/sh\nprintf '{lines}' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("version", "number"), [("17", 17), ("1.17", 17), ("18", 18), ("25", 25), ("16", None), ("1.8", None), ("9", None)]
)
def test_a_java_is_new_enough_from_17_on(tmp_path: Path, version: str, number: int | None) -> None:
    executable = a_java(tmp_path / "home", version)
    found = probe(executable, "PATH")
    if number is None:
        assert found == f"PATH: {executable} is Java {version.removeprefix('1.')}"
    else:
        assert found == Java(tmp_path / "home", number, "PATH")
        assert str(found) == f"Java {number} from PATH ({tmp_path / 'home'})"


def test_a_version_that_is_no_number_is_no_java(tmp_path: Path) -> None:
    executable = a_java(tmp_path / "home", "17-ea")
    assert probe(executable, "PATH") == f"PATH: {executable} is not a working Java (exit status 0)"


def test_a_home_may_have_spaces(tmp_path: Path) -> None:
    found = probe(a_java(tmp_path / "home", "17", "/a b/c "), "JAVA_HOME")
    assert found == Java(Path("/a b/c"), 17, "JAVA_HOME")


def test_a_java_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert java.PROBE_TIMEOUT_S == 30
    monkeypatch.setattr(java, "PROBE_TIMEOUT_S", 0.05)
    executable = a_java(tmp_path / "home", "17")
    executable.write_text("#!/bin/sh\nexec sleep 60\n")
    assert probe(executable, "PATH") == f"PATH: {executable} does not run (TimeoutExpired)"


def test_an_empty_java_home_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_ha.analysis.java.importlib.util.find_spec", lambda _: None)
    executable = a_java(tmp_path / "home", "17")
    assert list(candidates({"JAVA_HOME": "", "PATH": str(executable.parent)})) == [("PATH", executable)]
    assert list(candidates({"JAVA_HOME": "/x"})) == [("JAVA_HOME", Path("/x/bin/java"))]
    assert list(candidates({})) == []


@pytest.mark.parametrize(
    ("in_venv", "writable", "xdg", "expected"),
    [
        (True, True, "/xdg", "{prefix}/share/rocketmq-ha"),
        (True, False, "/xdg", "/xdg/rocketmq-ha"),
        (False, True, "/xdg", "/xdg/rocketmq-ha"),
        (False, True, "", "{home}/.cache/rocketmq-ha"),
    ],
    ids=["a venv", "a venv that cannot be written", "no venv", "no cache is named"],
)
def test_the_wrapper_is_kept_in_the_venv_or_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_venv: bool, writable: bool, xdg: str, expected: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", "/base" if in_venv else str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) == (str(tmp_path), os.W_OK) and writable)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert cache_dir() == Path(expected.format(prefix=tmp_path, home=tmp_path / "user"))
