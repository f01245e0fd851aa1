"""The fixed sequences that tests/README.md shows are those that the simulation plays."""

from __future__ import annotations

import re

from tests.simulation.test_sequences import FIXED
from tests.tidy.sources import ROOT


def test_the_page_shows_the_fixed_sequences() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    rows = re.findall(r"^\| `([^`]+ \. [^`]+)` \| ([^|]+?) \|$", text, re.MULTILINE)
    shown = {sequence: tuple(word == "there" for word in words.split(", ")) for sequence, words in rows}
    assert shown == FIXED
