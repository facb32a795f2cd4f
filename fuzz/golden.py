"""The golden store: a commit log that Apache RocketMQ itself wrote."""

import tarfile
from pathlib import Path
from typing import Final

import rocketmq_ha.spec
from rocketmq_ha.fuzz.errors import FuzzError

ARCHIVE: Final = Path("vectors") / "rocketmq-4.9.8" / "store.tar.xz"


def unpack(directory: Path) -> None:
    """Unpack the golden store so that `directory` is its root. Raises: FuzzError where this installation has no vectors."""
    archive = Path(rocketmq_ha.spec.__file__).parent / ARCHIVE
    if not archive.is_file():
        raise FuzzError(f"{archive}: not found, expected the golden store, which the distribution holds")
    directory.mkdir(parents=True)
    extract(archive, directory)


def extract(archive: Path, directory: Path) -> None:
    """Unpack a tar archive of this project into a directory."""
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later have one
        tar.extractall(directory)
