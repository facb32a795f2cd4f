"""The one option of the stateful tests, and that they leave the log as they found it."""

import logging
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what happens in tests/stateful/scenarios/*.txt anew; look at the diff",
    )


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A campaign silences the implementation's log, which tests that run later look at."""
    logger = logging.getLogger("rocketmq_ha.impl")
    level = logger.level
    yield
    logger.setLevel(level)
