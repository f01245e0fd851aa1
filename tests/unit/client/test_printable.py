"""Characters that a terminal would obey."""

from __future__ import annotations

import unicodedata

from tilth.client.printable import printable, printable_lines


def test_what_a_terminal_obeys_is_shown_and_all_else_stays() -> None:
    assert printable("a\x1b[31mb\x07\r\n\t\x9b0m") == "a\\x1b[31mb\\x07\\r\\n\\t\\x9b0m"
    assert printable("abc\u202edef\ud800") == "abc\\u202edef\\ud800"
    assert printable_lines("a\r\n\tb\x1b]0;title\x07") == "a\\r\n\tb\\x1b]0;title\\x07"
    assert printable("täxt, 日本語, 👍, | \\n") == "täxt, 日本語, 👍, | \\n"


def test_no_control_and_no_surrogate_is_left() -> None:
    every = "".join(map(chr, range(0x30000)))
    for text, kept in ((printable(every), ""), (printable_lines(every), "\n\t")):
        found = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")}
        assert found == set(kept)
        text.encode()
