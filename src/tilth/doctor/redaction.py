"""Secrets in texts of a bundle: removed by name, by position, and by value.

Covers: lines of logs, settings and rows of system tables, where a name before a secret, or its position in an address
or a header, shows what it is; which values of a set-up are secrets. Does not cover: rules for statements
(query/language/redact.py).
Always holds: a value of six characters or more that the set-up names as a secret is in no text, at whatever position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tilth.base.errors import TilthError
from tilth.base.secret_source import REFERENCE, read_secret
from tilth.base.secrets import HIDDEN, SECRET_WORDS, without_secrets

#: Names of variables and settings whose values are secrets.
_SECRET_NAME = re.compile(SECRET_WORDS, re.IGNORECASE)
#: A user and a password before a host; the password may have an @.
_IN_ADDRESS = re.compile(r"""(://[^\s/:@]*:)[^\s/@]+@(?:[^\s/@"',]+@)*""")
#: Headers with credentials.
_HEADER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
#: A value among pairs, as in `a=1 b=2`, or the whole.
_PIECE = re.compile(r"[^\s=;,&?]+")
#: A shorter value is a word like any other.
_LENGTH_MIN = 6


def shown_and_secrets(texts: Mapping[str, str], environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings of a set-up as they may be shown, and its secrets: of settings, of the references in them,
    and of variables with such names.
    """
    from tilth.begin import NODE_SETTINGS

    shown, whole = NODE_SETTINGS.split_secrets(texts)
    found = [piece for name, text in whole.items() for piece in _hidden_pieces(text, shown[name])]
    return shown, _secrets(texts, environment, found)


def _hidden_pieces(text: str, shown: str) -> list[str]:
    """Return the pieces of a setting that are not shown: the values of its pairs, or all of it."""
    return [each for each in _PIECE.findall(text) if each not in _PIECE.findall(shown)]


def _secrets(texts: Mapping[str, str], environment: Mapping[str, str], found: list[str]) -> list[str]:
    for name, text in environment.items():
        if _SECRET_NAME.search(name):
            found.append(text)
    for text in texts.values():
        for reference in re.findall(REFERENCE.pattern, text):
            # The reference ends where the next option of an address begins.
            try:
                found.append(read_secret(reference.partition("&")[0], environment, of="a setting", error=TilthError))
            except TilthError:
                continue
        if re.fullmatch(r"/\S+", text) and _SECRET_NAME.search(text):
            found += _content(text)
    return list(dict.fromkeys(form for each in found if len(each) >= _LENGTH_MIN for form in _forms(each)))


def _forms(secret: str) -> tuple[str, ...]:
    """Return the secret as a text has it, and as JSON has it, where a key of several lines is another text."""
    return secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]


def _content(path: str) -> list[str]:
    try:
        return [read_secret(f"file:{path}", {}, of="a setting", error=TilthError)]
    except TilthError:
        return []


def without_any_secret(text: str, secrets: list[str]) -> str:
    """Return the text without the given secrets, and without what is one by its name or by its position."""
    from tilth.query.language.redact import redacted

    # Whole ones first: a form of a secret may begin as another one does, which would leave its end.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    lines = []
    for line in without_secrets(text, secrets).split("\n"):
        shown = _HEADER.sub(rf"\1 {HIDDEN}", _IN_ADDRESS.sub(rf"\1{HIDDEN}@", line))
        # A line that begins as a query does would be searched by fewer rules.
        lines.append(redacted(f"= {shown}").text[2:] if _may_have_secret(shown) else shown)
    return "\n".join(lines)


def _may_have_secret(line: str) -> bool:
    """Return whether a rule for statements may find something, as most lines have nothing and the rules are slow."""
    return bool(_SECRET_NAME.search(line)) or any(each in line for each in ("identified", "IDENTIFIED", "(", "@", "?"))
