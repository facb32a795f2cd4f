"""The one option of the stateful tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what happens in tests/stateful/scenarios/*.txt anew; look at the diff",
    )
