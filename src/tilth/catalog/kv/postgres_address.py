"""The address of a catalog in PostgreSQL. Pure but for reading the secret that it refers to.

    postgresql://user@host:5432/database?password=file:/etc/tilth/password&schema=tilth&sslmode=verify-full

Covers: parsing it, what is shown of it. Does not cover: connecting (postgres.py).
Always holds: it holds a reference to the password, never the password; no error repeats a part in which somebody may
have put one.

Tests: tests/unit/catalog/kv/test_postgres_watch.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from tilth.base.errors import InvalidInputError, UnavailableError
from tilth.base.secret_source import REFERENCE, REFERENCE_FORM, read_secret

_SCHEMES = ("postgresql", "postgres")
_FORM = "write postgresql://user@host:5432/database?password=file:/path"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
#: Options of libpq that describe how to reach the database, not the user.
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
        endpoint = f"{given.get('host', '')}:{given.get('port', '5432')}"
        return f"postgresql://{endpoint}/{given.get('dbname', '')} schema={self.schema}"

    def connection(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters of a connection, with the password. Raises CatalogSecretError."""
        found = dict(self.parameters)
        if self.password:
            found["password"] = read_secret(
                self.password, environment, of="the catalog's database", error=CatalogSecretError
            )
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
    if password and not REFERENCE.fullmatch(password):
        hint = f"write {REFERENCE_FORM}"
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
