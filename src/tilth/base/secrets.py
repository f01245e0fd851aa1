"""Texts that nobody may read: how they are shown, and how they are taken out of other texts. Pure.

Covers: the sign that stands for a secret, hiding known secrets in messages. Does not cover: log lines (logs.py), which
settings are secrets (each room's `settings.py`), where they are kept (tilth.catalog).
Always holds: a text that begins like a known secret is hidden as far as it goes on like it, so that a message that
quotes a part of one does not show that part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Stands for a secret wherever one would be shown.
HIDDEN = "[HIDDEN]"
#: So many characters of a secret are recognized as its beginning.
_BEGINNING = 8
#: A shorter one is hidden where it stands alone only: else every letter of it would go from every word.
_ALONE_BELOW = 4


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text with the sign in the place of each secret, or of what is quoted of its beginning."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if not secret or secret == HIDDEN:
            continue
        if len(secret) < _ALONE_BELOW:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", lambda _: HIDDEN, text)
        else:
            text = _without(text, secret)
    return text


def _without(text: str, secret: str) -> str:
    beginning = secret[:_BEGINNING]
    pieces: list[str] = []
    at = 0
    while (found := text.find(beginning, at)) >= 0:
        length = len(beginning)
        while length < len(secret) and text[found + length : found + length + 1] == secret[length]:
            length += 1
        pieces += [text[at:found], HIDDEN]
        at = found + length
    return "".join([*pieces, text[at:]])
