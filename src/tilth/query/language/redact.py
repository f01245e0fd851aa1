"""Redacts statements: passwords and keys are replaced before a text is logged or shown. Pure.

Covers: finding secrets in a statement, also in one that cannot be parsed or that only another system takes: by name,
and by position, as in the arguments of `s3(..)` and `ENGINE = MySQL(..)`. Does not cover: where the text is shown.
Always holds: the value behind the name of a secret setting does not remain in the text; the values are returned, so
that they can be removed from errors too.

Tests: tests/property/test_redacted_statements.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilth.base.errors import TilthError
from tilth.base.secrets import HIDDEN, SECRET_WORDS, without_secrets
from tilth.grammar.render import quoted_string
from tilth.grammar.text.tokens import Token, TokenKind, string_value
from tilth.ingest import KAFKA_SETTINGS, secrets_in

#: Characters of a statement that are searched and kept; fewer of inserts, which contain rows.
SHOWN_MAX = 1 << 20
INSERT_SHOWN_MAX = 1 << 14
#: Share of a shortened statement that is its end.
_END_SHARE = 0.25

_NAMES = {name: one for one in KAFKA_SETTINGS.all if one.has_secrets for name in (one.name, *one.aliases)}
#: Blanks and comments.
_GAP = r"(?:\s|--[^\n]*+(?:\n|\Z)|/\*.{0,1000}?\*/)*+"
_QUOTED = r"""[rR]?'(?:[^'\\]|\\.|'')*+' | [rR]?"(?:[^"\\]|\\.|"")*+" """
#: One or several strings; an unclosed one extends to the end.
_QUOTED = rf"(?:{_QUOTED})(?:{_GAP}(?:{_QUOTED}))*+ | ['\"].*\Z"
_VALUE = rf"""{_QUOTED} | \\".*?\\" | [^\s,;(){{}}'"]+"""
_SEPARATOR = rf"(?=[:=>])(?:[:=>(\[{{]+{_GAP})++"
_NAMED = re.compile(
    rf"""\b(?P<name>{"|".join(map(re.escape, sorted(_NAMES, key=len, reverse=True)))})\b[`"']?
    {_GAP} (?: {_SEPARATOR} (?P<value>{_VALUE}) | (?P<beside>{_QUOTED}) )""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
#: Names that contain a typical word: misspelled settings, pairs of the client library's settings.
_SUSPECTED = re.compile(
    rf"""(?<![\w.-])[\w.-]{{0,60}}
    (?:{SECRET_WORDS})
    [\w.-]{{0,60}}\\?[`"']? {_GAP} (?: {_SEPARATOR} (?P<value>{_VALUE}) | (?P<beside>{_QUOTED}) )""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
#: Names of functions and table engines whose arguments may be credentials or keys.
_HOLDERS = (
    "s3|s3cluster|gcs|oss|cosn|azureblobstorage|azureblobstoragecluster|postgresql|mysql|mongodb|redis|sqlite|jdbc|odbc|"
    "remote|remotesecure|icebergs3|icebergazure|deltalake|hudi|aes_encrypt|aes_decrypt|try_aes_decrypt|encrypt|decrypt|"
    "aes_encrypt_mysql|aes_decrypt_mysql|trydecrypt"
)
#: Functions of encryption, whose first text argument may already be the key.
_CRYPT = re.compile(r"\w*(?:en|de)crypt", re.IGNORECASE)
_HOLDER = re.compile(rf"\b(?:{_HOLDERS})\b{_GAP}\(", re.IGNORECASE | re.DOTALL)
_ARGUMENT = re.compile(rf"(?P<text>{_QUOTED}) | (?P<bracket>[()])", re.VERBOSE | re.DOTALL)
#: Arguments that are never secrets: formats, compressions and modes of ciphers.
_PLAIN = re.compile(
    r"(?:csv|tsv|jsoneachrow|parquet|orc|avro|arrow|native|raw|gzip|zstd|none|auto|gcm|cbc|ecb)\w*|", re.I
)
_IDENTIFIED = re.compile(
    rf"\bidentified\b{_GAP}(?:with{_GAP}\w+{_GAP})?by\b{_GAP}(?P<value>{_QUOTED})", re.I | re.S | re.X
)
#: A secret among the query parameters of a URL.
_OPTION = re.compile(
    r"(?<=[?&])(?:key|user|sas|sig|signature|access_key_id|account_key)=(?P<value>[^&\s'\"]+)", re.IGNORECASE
)
#: A user and a password in front of a host without a scheme, as in a list of brokers.
_BEFORE_HOST = re.compile(r"(?<![\w/.@:-])(?P<value>[\w.+-]{1,100}:[^\s/@'\",:]{1,200})(?=@[\w.-]+:\d)")
_REFERENCE = re.compile(r"(?:env|file):.+")
#: A user and a password in an address.
_IN_ADDRESS = re.compile(r"(?<=://)(?P<value>[^\s/@'\"]{1,1000}:[^\s/@'\"]{1,1000})(?=@)")
_STRING = re.compile(r"[rR]?'(?:[^'\\]|\\.|'')*+'", re.DOTALL)
#: A message may quote any word of a value.
_WORD = re.compile(r"[^\s'\"]+")
#: Statements that set nothing, and in which a column may have such a name.
_QUERY = re.compile(
    r"\s*+(?:\(|(?:select|with|values|from|table|explain|insert|delete|update|show|desc|describe|exists|use)\b)",
    re.IGNORECASE,
)
_INSERT = re.compile(r"\s*+insert\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted statement and the secrets that were in it."""

    text: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def is_in(self, message: str) -> bool:
        return without_secrets(message, self.secrets) != message

    def hide_in(self, error: TilthError) -> None:
        if not self.secrets:
            return
        error.message = without_secrets(error.message, self.secrets)
        error.hint = without_secrets(error.hint, self.secrets)
        error.facts = {name: without_secrets(text, self.secrets) for name, text in error.facts.items()}
        error.args = (error.message,)


def redacted(text: str) -> Redacted:
    secrets: list[str] = []

    def hide(found: re.Match[str]) -> str:
        groups = found.groupdict()
        value = groups["value"] or groups.get("beside") or ""
        if found.re is _OPTION and _REFERENCE.fullmatch(value):
            return found[0]
        kept, values = _shown(groups.get("name"), value)
        secrets.extend(values)
        return found[0][: len(found[0]) - len(value)] + kept

    is_query = _QUERY.match(text) is not None
    shown = _NAMED.sub(hide, text[: INSERT_SHOWN_MAX if _INSERT.match(text) else SHOWN_MAX])
    shown = _without_arguments(shown, secrets)
    if not is_query:
        for pattern in (_IDENTIFIED, _SUSPECTED, _IN_ADDRESS, _BEFORE_HOST, _OPTION):
            shown = pattern.sub(hide, shown)
    return Redacted(shown, tuple(dict.fromkeys(filter(None, secrets))))


def _without_arguments(text: str, secrets: list[str]) -> str:
    """Hide the texts among the arguments of functions and engines that take credentials, except the first, which is an
    address; the hidden ones are added to `secrets`.
    """
    pieces: list[str] = []
    at = end = 0
    for found in _HOLDER.finditer(text):
        # A call among the arguments of another was searched with it: each character is read once.
        if found.start() < end:
            continue
        depth, count = 1, 0
        for each in _ARGUMENT.finditer(text, found.end()):
            end = each.end()
            if each["bracket"] is not None:
                depth += 1 if each["bracket"] == "(" else -1
                if not depth:
                    break
                continue
            count += 1
            inner = each["text"].strip("rR").strip("'\"")
            is_address = count == 1 and _CRYPT.match(text, found.start()) is None
            if is_address or _PLAIN.fullmatch(inner) or inner == HIDDEN:
                continue
            secrets.append(inner)
            pieces += [text[at : each.start()], f"'{HIDDEN}'"]
            at = each.end()
    return "".join([*pieces, text[at:]])


def shortened(text: str, length_max: int) -> str:
    """Return a text of about this length at most: of a longer one the beginning and the end."""
    if len(text) <= length_max:
        return text
    end = int(length_max * _END_SHARE)
    return f"{text[: length_max - end]} ... {len(text) - length_max:,} characters ... {text[-end:]}"


def _shown(name: str | None, value: str) -> tuple[str, list[str]]:
    """Return the redacted value and the secrets in it."""
    if value.strip("\"'\\") == HIDDEN:
        return value, []
    is_string = _STRING.fullmatch(value) is not None
    inner = string_value(Token(TokenKind.STRING, value, 0, len(value))) if is_string else value.strip("\"'\\")
    if not inner:
        return value, []
    setting = _NAMES.get(name.lower()) if name is not None else None
    if setting is not None and is_string and setting.shown(inner) != HIDDEN:
        # Pairs, some of which are secrets.
        shown = setting.shown(inner)
        return (value, []) if shown == inner else (quoted_string(shown), [*secrets_in(inner), inner])
    words = [found[0] for found in _WORD.finditer(value)]
    return (HIDDEN if words == [value] else f"'{HIDDEN}'"), [inner, value.strip("\"'"), *words]
