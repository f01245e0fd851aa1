"""Words of the language, beside the server's and the console's."""

from __future__ import annotations

import re
from pathlib import Path

from tilth.client.shell.words import KEYWORDS, TYPES
from tilth.statements.registry import KINDS

EDITOR = Path(__file__).resolve().parents[4] / "src/tilth/console/static/pages/sql/editor.js"


def test_the_words_with_which_statements_begin() -> None:
    words = {word for kind in KINDS.values() for form in kind.forms for word in form.words.split() if word.isalpha()}
    assert len(words) > 20
    assert words <= KEYWORDS
    assert words <= _of_the_console()["KEYWORDS"]


def test_the_console_colours_the_same_words() -> None:
    found = _of_the_console()
    assert found["KEYWORDS"] <= KEYWORDS
    assert found["TYPES"] == TYPES


def _of_the_console() -> dict[str, set[str]]:
    return {
        name: set(text.upper().split()) for name, text in re.findall(r"const (\w+) = `([^`]+)`", EDITOR.read_text())
    }
