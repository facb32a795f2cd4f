"""The one option of the stateful tests, and the profile of Hypothesis with which their machines run long."""

import hypothesis
import pytest

from kit.examples import LONG

hypothesis.settings.register_profile("long", max_examples=LONG)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what happens in tests/stateful/scenarios/*.txt anew; look at the diff",
    )
