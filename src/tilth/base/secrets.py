"""Secrets in messages: replaced by a placeholder, whole or quoted in part. Pure.

Covers: the placeholder, words in names of secrets, replacing known secrets in a text. Does not cover: log lines
(logs.py), which settings are secrets (each room's `settings.py`), where they are stored (tilth.catalog).
Always holds: a quote of the beginning of a secret is replaced up to its first other character, so that a message
that cuts a secret off shows no part of it.

Tests: tests/unit/base/test_logs.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Pattern of words in the names of secrets, whatever their case.
SECRET_WORDS = r"pass?w|passphrase|secret|token|private.?key|access.?key|key\.pem|credential"
#: Shown instead of a secret.
HIDDEN = "[HIDDEN]"
#: Number of characters by which the beginning of a secret is recognized.
_BEGINNING = 8
#: A shorter secret is replaced only as a whole word; otherwise single letters would vanish from all words.
_ALONE_BELOW = 4


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret, or each quote of its beginning, replaced by the placeholder."""
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
