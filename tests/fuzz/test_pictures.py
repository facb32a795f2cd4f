"""Pictures of a page, taken by a browser of the test: a script in its place."""

import os
from pathlib import Path

import pytest

from rocketmq_ha.fuzz import pictures

# Writes its arguments, and a picture unless its name is in $FAILS.
BROWSER = """#!/bin/sh
for argument; do
  echo "$argument" >> "$SAID"
  case "$argument" in
    --screenshot=*) picture="${argument#--screenshot=}" ;;
    --user-data-dir=*) test -d "${argument#--user-data-dir=}" || exit 3 ;;
  esac
done
case "$picture" in *"${FAILS:-nothing}"*) exit 1 ;; esac
echo picture > "$picture"
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setattr(pictures, "BROWSERS", ("no-such-browser", "the-browser"))
    (tmp_path / "out").mkdir()
    return tmp_path / "said"


def install(tmp_path: Path) -> None:
    browser = tmp_path / "bin" / "the-browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)


def test_each_screen_has_a_picture_of_its_size(said: Path, tmp_path: Path) -> None:
    install(tmp_path)
    page, out = tmp_path / "a page.html", tmp_path / "out"
    assert pictures.take(page, out) == [out / "phone.png", out / "desktop.png"]
    lines = said.read_text().splitlines()
    assert [line for line in lines if line.startswith("--screen-info=")] == [
        "--screen-info={780x1688 devicePixelRatio=2}",
        "--screen-info={1280x900 devicePixelRatio=1}",
    ]
    assert [line for line in lines if line.startswith("--screenshot=")] == [
        f"--screenshot={out}/phone.png",
        f"--screenshot={out}/desktop.png",
    ]
    assert lines.count(page.as_uri()) == 2
    profiles = {line for line in lines if line.startswith("--user-data-dir=")}
    assert len(profiles) == 2
    assert not any(Path(line.removeprefix("--user-data-dir=")).exists() for line in profiles)


@pytest.mark.parametrize(("fails", "left"), [("phone", ["desktop.png"]), ("desktop", ["phone.png"]), ("png", [])])
@pytest.mark.usefixtures("said")
def test_a_picture_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, left: list[str]) -> None:
    install(tmp_path)
    monkeypatch.setenv("FAILS", fails)
    assert [file.name for file in pictures.take(tmp_path / "page.html", tmp_path / "out")] == left


@pytest.mark.usefixtures("said")
def test_a_browser_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "bin" / "the-browser"
    browser.write_text("#!/bin/sh\nexec sleep 60\n")
    browser.chmod(0o755)
    monkeypatch.setattr(pictures, "TIMEOUT_S", 0.05)
    assert pictures.take(tmp_path / "page.html", tmp_path / "out") == []


@pytest.mark.usefixtures("said")
def test_without_a_browser_there_is_no_picture(tmp_path: Path) -> None:
    assert pictures.take(tmp_path / "page.html", tmp_path / "out") == []
    assert pictures.TIMEOUT_S == 30
