"""Take pictures of a page in phone and desktop size by a headless Chromium, if one is installed."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
SCREENS: Final = {"phone": "780x1688 devicePixelRatio=2", "desktop": "1280x900 devicePixelRatio=1"}  # physical pixels
TIMEOUT_S: Final = 30


def take(page: Path, directory: Path) -> list[Path]:
    """Write phone.png and desktop.png. Returns: the files written; none without a browser, or if it fails."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return []
    made = []
    for name, screen in SCREENS.items():
        picture = directory / f"{name}.png"
        with tempfile.TemporaryDirectory(prefix="rocketmq-ha-") as profile:
            command = [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                "--kiosk",
                f"--user-data-dir={profile}",
                f"--screen-info={{{screen}}}",
                f"--screenshot={picture.resolve()}",
                page.resolve().as_uri(),
            ]
            try:
                subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired:
                continue
        if picture.is_file():
            made.append(picture)
    return made
