"""Puts other names into the text of a query, at the places that Spark's parser told. Pure.

Always holds: everything between the replaced places reaches Spark as it was written.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Text from `start` to before `end` becomes `text`; `start == end` inserts."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The new text, and where its places were in the old one."""

    text: str
    #: (place in the new text, place in the old text), rising: from here on both run side by side.
    anchors: tuple[tuple[int, int], ...]

    def original(self, place: int) -> int:
        """Where a place of the new text was in the old one; inside a replacement: where the replaced text began."""
        index = bisect_right([anchor for anchor, _ in self.anchors], place) - 1
        new, old = self.anchors[index]
        following = self.anchors[index + 1][1] if index + 1 < len(self.anchors) else None
        found = old + place - new
        return found if following is None else min(found, following)


def rewrite(text: str, edits: list[Edit]) -> Rewritten:
    """Applies edits that do not overlap."""
    pieces: list[str] = []
    anchors = [(0, 0)]
    at, length = 0, 0
    for edit in sorted(edits):
        assert edit.start >= at, "edits overlap"
        pieces += [text[at : edit.start], edit.text]
        length += edit.start - at
        anchors.append((length, edit.start))
        length += len(edit.text)
        at = edit.end
        anchors.append((length, at))
    pieces.append(text[at:])
    return Rewritten("".join(pieces), tuple(anchors))
