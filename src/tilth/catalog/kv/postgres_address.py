"""The address of a catalog in PostgreSQL. Pure but for reading the secret that it refers to.

    postgresql://user@host:5432/database?password=file:/etc/tilth/password&schema=tilth&sslmode=verify-full

Covers: parsing it, what is shown of it. Does not cover: connecting (postgres.py).
Always holds: it holds a reference to the password, never the password; no error repeats a part in which somebody may
have put one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tilth.base.errors import InvalidInputError, UnavailableError

_SCHEMES = ("postgresql", "postgres")
_FORM = "write postgresql://user@host:5432/database?password=file:/path"
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
#: Options of libpq that say how to reach the database, not who asks.
_LIBPQ = ("host", "sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout", "target_session_attrs")
_OPTIONS = ("password", "schema", *_LIBPQ)


class BadCatalogAddressError(InvalidInputError):
    """this is no address of a catalog"""

    code = "BAD_CATALOG_ADDRESS"


class CatalogSecretError(UnavailableError):
    """the password of the catalog's database cannot be read"""

    code = "CATALOG_SECRET"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Parts of the address, in libpq's words."""

    parameters: tuple[tuple[str, str], ...]
    password: str
    schema: str

    @property
    def shown(self) -> str:
        """Return host, port and database, as errors name them."""
        given = dict(self.parameters)
        place = f"{given.get('host', '')}:{given.get('port', '5432')}"
        return f"postgresql://{place}/{given.get('dbname', '')} schema={self.schema}"

    def connection(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters of a connection, with the password. Raises CatalogSecretError."""
        found = dict(self.parameters)
        if self.password:
            found["password"] = _secret(self.password, environment)
        return found


def parse_postgres(text: str) -> PostgresAddress:
    """Raises BadCatalogAddressError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadCatalogAddressError("the address cannot be read", hint=_FORM) from None
    if parts.scheme not in _SCHEMES:
        raise BadCatalogAddressError(kind=parts.scheme or "none", hint=_FORM)
    if parts.password is not None:
        hint = "write password=env:NAME or password=file:/path as an option of the address"
        raise BadCatalogAddressError("a secret is named by where it is, not written down", hint=hint)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    unknown = [name for name, _ in pairs if name not in _OPTIONS]
    if unknown or len(options) != len(pairs):
        known = ", ".join(_OPTIONS)
        raise BadCatalogAddressError("no such option of the address, or one that is given twice", known=known)
    password, schema = options.pop("password", ""), options.pop("schema", "tilth")
    if password and not _REFERENCE.fullmatch(password):
        hint = "write env:NAME or file:/path"
        raise BadCatalogAddressError("a secret is named by where it is, not written down", option="password", hint=hint)
    if not _SCHEMA.fullmatch(schema):
        raise BadCatalogAddressError("a schema has small letters, digits and _", schema=schema)
    database = unquote(parts.path.strip("/"))
    if not database or "/" in database:
        raise BadCatalogAddressError("the address names no database", hint=_FORM)
    if not (parts.hostname or options.get("host")):
        raise BadCatalogAddressError("the address names no host", hint=_FORM)
    found = {"dbname": database, **({"host": parts.hostname} if parts.hostname else {}), **options}
    if port:
        found["port"] = str(port)
    if parts.username:
        found["user"] = unquote(parts.username)
    return PostgresAddress(parameters=tuple(sorted(found.items())), password=password, schema=schema)


def _secret(reference: str, environment: Mapping[str, str]) -> str:
    kind, _, where = reference.partition(":")
    if kind == "env":
        if where not in environment:
            raise CatalogSecretError(variable=where, hint="set this variable in the environment of the server")
        return environment[where]
    try:
        return Path(where).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is no text"
        raise CatalogSecretError(file=where, reason=reason, hint="check its path and mode") from None
