"""Statements that may hold a password or a key, and so stay out of the shell's history file. Pure.

Covers: names that sound like secrets with a value behind them, functions and engines that take credentials, users and
keys in addresses. Does not cover: which settings are secrets, and where they end: only the server knows that
(query/language/redact.py), whose modules a client does not import.
Always holds: a statement in which the server finds a secret is one here; others may be, too.

Tests: tests/property/test_secrets_of_shell.py.
"""

from __future__ import annotations

import re

from tilth.base.secrets import SECRET_WORDS

_NAME = rf"(?:{SECRET_WORDS}|sasl|librdkafka|identified)"
#: Names that count in a statement that sets something; in a query they need a value behind them.
_NAMED = re.compile(_NAME, re.IGNORECASE)
_NAMED_WITH_VALUE = re.compile(rf"""{_NAME}[\w.-]*\\?[`"']?\s*(?:[:=>'"]|--|/\*)""", re.IGNORECASE)
#: Functions and engines whose arguments may be credentials or keys; all functions of encryption.
_HOLDER = re.compile(
    r"""\b(?:s3|s3cluster|gcs|oss|cosn|azure\w*|postgres\w*|mysql|mongo\w*|redis|sqlite|jdbc|odbc|remote\w*|iceberg\w*
    |delta\w*|hudi|\w*(?:en|de)crypt\w*)\s*(?:\(|--|/\*)""",
    re.IGNORECASE | re.VERBOSE,
)
#: A user and a password in front of a host, or a key among the parameters of an address.
_IN_ADDRESS = re.compile(
    r"://[^\s/@'\"]+:[^\s/@'\"]+@|[\w.+-]:[^\s/@'\",:]+@[\w.-]+:\d"
    r"|[?&](?:key|user|sas|sig|signature|access_key_id|account_key)=",
    re.IGNORECASE,
)
#: Statements that set nothing, in which a column may have such a name.
_READING = re.compile(
    r"\s*+(?:\(|(?:select|with|values|from|table|explain|show|desc|describe|exists|use)\b)", re.IGNORECASE
)


def may_hold_secret(text: str) -> bool:
    """True if the text may hold a password or a key."""
    # The first of several statements says nothing of the others.
    is_query = _READING.match(text) is not None and ";" not in text.rstrip("; \n")
    named = _NAMED_WITH_VALUE if is_query else _NAMED
    return any(pattern.search(text) for pattern in (named, _HOLDER, _IN_ADDRESS))
