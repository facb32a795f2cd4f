"""The limit of a whole test, for what hangs where no wait has a limit of its own, as in a loop."""

from typing import Final

import pytest

# The folders whose tests take seconds; a machine may be ten times slower. Elsewhere the limit of pyproject.toml holds.
QUICK: Final = {"cli", "ha", "net", "store"}
QUICK_S: Final = 240


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.parent.name in QUICK and item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(QUICK_S))
