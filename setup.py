"""Give the distribution its long description: README.md without links into the tree.

A package index shows the text without the tree, and the project has no public address for the links. So each link becomes its
text, followed by the path if that differs. pyproject.toml has everything else.
"""

import re
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)")


def without_links(text: str) -> str:
    return LINK.sub(lambda found: found[1] if found[1] == found[2] else f"{found[1]} ({found[2]})", text)


setup(
    long_description=without_links((Path(__file__).parent / "README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
