"""Wraps the prose of Markdown pages: no line of it is longer than an editor shows.

    python -m tools.prose            wraps every page that has longer lines
    python -m tools.prose --check    writes nothing; names the pages and their lines, exit code 1 if there are any

Covers: paragraphs and items of lists, also nested ones. Does not cover: tables, code and headings, which stay as they
are. Always holds: the same words in the same order; links and code in backticks stay on one line. See also: tests/tidy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Characters of a line.
WIDTH = 120
#: Link texts up to this length stay on one line.
_LINK_MAX = 60
_FENCE = re.compile(r"\s*```")
_ITEM = re.compile(r"(\s*)(?:[-*+]|\d+[.)])\s+")
#: A table, a heading, a quote or a comment.
_AS_IT_IS = re.compile(r"\s*(?:\||#{1,6} |>|<!--)")
#: Piece that must stay on one line: code, a link, a word; each with the characters that touch it.
_PIECE = re.compile(rf"(?:`[^`]*`|\[[^\]\n]{{1,{_LINK_MAX}}}\]\([^)\s]*\)|\S)+?(?=\s|$)")
#: At the begin of a line this would start a list, a heading or a quote.
_STARTS_A_BLOCK = re.compile(r"(?:[-*+]|\d+[.)]|#{1,6}|>.*|\|.*|=+|-+|```.*)$")


def main(arguments: Sequence[str]) -> int:
    """Wrap or check the pages of the project; returns the exit code."""
    found = 0
    for path in pages():
        text = path.read_text()
        lines = long_lines(text)
        found += len(lines)
        if "--check" in arguments:
            print("\n".join(f"{path.relative_to(ROOT)}:{line}" for line in lines), end="\n" if lines else "")
        elif lines:
            path.write_text(wrapped(text))
    return 1 if found and "--check" in arguments else 0


def pages() -> list[Path]:
    """Return the pages that people write or read, in order."""
    listed = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    return sorted(listed)


def long_lines(text: str) -> list[int]:
    """Return the numbers of lines of prose that are too long and could be shorter."""
    numbers, at = [], 1
    for lines, is_prose in _blocks(text):
        if is_prose and _wrapped(lines) != lines:
            numbers += [at + index for index, line in enumerate(lines) if len(line) > WIDTH]
        at += len(lines)
    return numbers


def wrapped(text: str) -> str:
    """Return the page with its long paragraphs wrapped anew; all others stay as they are."""
    return "\n".join(line for lines, is_prose in _blocks(text) for line in (_wrapped(lines) if is_prose else lines)) + (
        "\n" if text.endswith("\n") else ""
    )


def _blocks(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield all lines in groups: a paragraph or an item, which is prose, or lines that stay as they are."""
    paragraph: list[str] = []
    in_code, in_list = False, False
    for line in text.splitlines():
        is_item = _ITEM.match(line) is not None
        fenced = _FENCE.match(line) is not None
        in_list = is_item or (in_list and (in_code or line[:1] in ("", " ")))
        indented = not paragraph and not in_list and line.startswith("    ")
        if in_code or fenced or indented or not line.strip() or _AS_IT_IS.match(line):
            if paragraph:
                yield paragraph, True
            paragraph = []
            in_code ^= fenced
            yield [line], False
        elif is_item or not paragraph:
            if paragraph:
                yield paragraph, True
            paragraph = [line]
        else:
            paragraph.append(line)
    if paragraph:
        yield paragraph, True


def _wrapped(lines: list[str]) -> list[str]:
    if all(len(line) <= WIDTH for line in lines):
        return lines
    item = _ITEM.match(lines[0])
    first = item[0] if item else lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    made: list[list[str]] = [[]]
    for piece in _PIECE.findall(" ".join(line.strip() for line in lines)[len(first.strip()) :]):
        line = made[-1]
        if line and len(first) + len(" ".join([*line, piece])) > WIDTH:
            carried = [line.pop()] if len(line) > 1 and _STARTS_A_BLOCK.match(piece) else []
            made.append([*carried, piece])
        else:
            line.append(piece)
    starts = [first, *[" " * len(first)] * len(made)]
    return [start + " ".join(line) for start, line in zip(starts, made, strict=False)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
