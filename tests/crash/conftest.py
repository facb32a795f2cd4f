"""The programs beside these tests are in no package, so that each can be run by itself: they import each other by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
