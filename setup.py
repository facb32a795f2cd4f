"""The long description of the distribution: README.md, whose links lead into the tree, without them.

A package index shows the text beside no tree, and there is no public address that the links could lead to. So each becomes its
text, with the path behind it where that says more. Everything else stands in pyproject.toml.
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
