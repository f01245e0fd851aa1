"""Locations of the files of tables: roots, each named by a URI, and folders below them. Pure.

Covers: reading and writing the text of a root, joining names. Does not cover: reaching it (stores.py), what a reference
to a secret stands for (backends/secrets.py).
Always holds: a root holds references to secrets (`env:NAME`, `file:/path`), never a secret; no error repeats a part of
a URI in which somebody may have put one. Roots travel in tasks, so they are values that can be pickled and encoded.

    /data/tables    file:///data/tables
    s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-west-1&key=env:S3_KEY&secret=file:/etc/tilth/s3
    gs://bucket/prefix?credentials=file:/etc/tilth/gcs.json
    az://container/prefix?account=name&key=env:AZURE_KEY
    hdfs://namenode:8020/prefix
    replicas://name?quorum=2&root=/disk1/tables&root=s3%3A//bucket/prefix
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.base.secret_source import REFERENCE, REFERENCE_FORM

#: Options of each kind of store: the plain ones, and those that are references to secrets.
PLAIN_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "s3": ("endpoint", "region"),
    "gs": ("endpoint",),
    "az": ("account", "endpoint"),
    "hdfs": (),
}
SECRET_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "s3": ("key", "secret", "token"),
    "gs": ("credentials",),
    "az": ("key", "sas"),
    "hdfs": (),
}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX_NAME = re.compile(r"[A-Za-z0-9._=-]+")
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+/?")
_REGION = re.compile(r"[A-Za-z0-9-]+")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
#: A NameNode with its port, or the name of a service that Hadoop's configuration resolves.
_HDFS_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
#: The scheme of a root with replicas.
REPLICAS = "replicas"
_FORMS = "write /folder, file:///folder, or an address of s3://, gs://, az:// or hdfs://"


class BadStoreError(InvalidInputError):
    """this is no location for the files of tables"""

    code = "BAD_STORE"


class StoreRoot(msgspec.Struct, frozen=True):
    """A location below which the folders of tables are."""

    #: An absolute path on the local disk, or `s3://bucket/prefix` and its like; without a slash at its end.
    uri: str
    #: Names and values, in the order of the names.
    options: tuple[tuple[str, str], ...] = ()
    #: The locations that have a copy of each file, those to read from first; none: the files are here, once.
    replicas: tuple[StoreRoot, ...] = ()
    #: Number of copies of a file that exist before a commit names it.
    quorum: int = 0
    #: Ids of the replicas in the storage's definition; empty: the root comes from no definition.
    replica_ids: tuple[str, ...] = ()
    #: Numbers of the replicas that lack a file of the table to which the root belongs.
    incomplete: tuple[int, ...] = ()
    #: Numbers of those that did not answer then.
    away: tuple[int, ...] = ()

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def kind(self) -> str:
        """Return the scheme of the URI; `file` for a path on the local disk."""
        return "file" if self.is_local else self.uri.partition("://")[0]

    @property
    def bucket(self) -> str:
        """Return the bucket or container of an object store, the NameNode of an HDFS."""
        return urlsplit(self.uri).netloc

    @property
    def prefix(self) -> str:
        """Return what the names of all files begin with; empty, or without a slash at its end."""
        return urlsplit(self.uri).path.strip("/")

    @property
    def text(self) -> str:
        """Return the text that `parse_root` reads, with the options."""
        options = self.options
        if self.replicas:
            options = (("quorum", str(self.quorum)), *(("root", each.text) for each in self.replicas))
        return f"{self.uri}?{urlencode(options, safe='/:')}" if options else self.uri

    @property
    def storage(self) -> str:
        """Return the name of the storage whose replicas these are."""
        return unquote(urlsplit(self.uri).netloc)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return an id for each replica; without a definition, its number."""
        return self.replica_ids or tuple(str(number) for number in range(len(self.replicas)))

    @property
    def locations(self) -> tuple[StoreRoot, ...]:
        """Return its replicas; itself where it has none."""
        return self.replicas or (self,)

    def with_quorum(self, quorum: int) -> StoreRoot:
        """Return the root with another number of copies before a commit; 0, or no replicas: as it is.

        Raises InvalidInputError.
        """
        if not quorum or not self.replicas:
            return self
        _check_quorum(quorum, len(self.replicas))
        return msgspec.structs.replace(self, quorum=quorum)

    def of(self, table: str) -> StoreRoot:
        """Return where the files of a table lie: a root alone holds them all."""
        return self

    def option(self, name: str) -> str:
        """Return the value of an option; empty where it is not set."""
        return dict(self.options).get(name, "")

    def __str__(self) -> str:
        return self.uri


class Roots(Protocol):
    """Locations of tables: which root holds the files of which table."""

    def of(self, table: str) -> StoreRoot:
        """Return the root of the table with this uuid. Raises NotFoundError (STORAGE_NOT_FOUND)."""


class TableRoots(msgspec.Struct, frozen=True):
    """Roots of some tables, as they travel with a task."""

    roots: dict[str, StoreRoot]

    def of(self, table: str) -> StoreRoot:
        return self.roots[table]


class Folder(msgspec.Struct, frozen=True):
    """A folder below a root; files are its direct children."""

    root: StoreRoot
    #: Below the root; empty: the root itself.
    path: str = ""

    def key(self, name: str) -> str:
        """Return the path of a file below the root."""
        return f"{self.path}/{name}" if self.path else name

    def uri(self, name: str) -> str:
        """Return the name under which messages and Spark know a file."""
        return f"{self}/{name}"

    def __str__(self) -> str:
        return f"{self.root.uri}/{self.path}" if self.path else self.root.uri

    def __fspath__(self) -> str:
        """Return the path of a folder on a local disk; raises TypeError for others."""
        if not self.root.is_local:
            raise TypeError(f"no folder of a local disk: {self}")
        return str(self)


def local_root(path: str | os.PathLike[str]) -> StoreRoot:
    """Return the root of a folder on the local disk, by its path as it is."""
    return StoreRoot(os.fspath(path))


def local_folder(path: str | os.PathLike[str]) -> Folder:
    """Return a folder on the local disk, by its path as it is."""
    return Folder(local_root(path))


def parse_root(text: str) -> StoreRoot:
    """Read a path or a URI. Raises BadStoreError."""
    if _UNPRINTABLE.search(text):
        raise BadStoreError("the address has unprintable characters", hint=_FORMS)
    if text.startswith("/"):
        return StoreRoot(posixpath.normpath(text).replace("//", "/"))
    try:
        parts = urlsplit(text)
    except ValueError:
        raise BadStoreError("the address is no URI", hint=_FORMS) from None
    if "@" in parts.netloc:
        raise BadStoreError(
            "an address has no user and no password", hint="name the keys by options: key=env:NAME&secret=file:/path"
        )
    if parts.fragment:
        raise BadStoreError("an address has no part behind #", hint=_FORMS)
    if parts.scheme == "file":
        return _local(parts.netloc, unquote(parts.path), parts.query)
    if parts.scheme == REPLICAS:
        return _read_replicas(unquote(parts.netloc), parts.query)
    if parts.scheme in PLAIN_OPTIONS:
        host = _hdfs_host(parts.netloc) if parts.scheme == "hdfs" else _bucket(parts.netloc)
        options = _options(parts.scheme, parts.query)
        return StoreRoot(f"{parts.scheme}://{host}{_prefix(parts.path)}", options)
    raise BadStoreError("no store of this kind is known", kind=parts.scheme or "none", hint=_FORMS)


def replicated_root(name: str, replicas: Sequence[StoreRoot], quorum: int) -> StoreRoot:
    """Return the root of a storage whose files are in all of these locations.

    Raises BadStoreError and InvalidInputError.
    """
    if len(replicas) < 2:
        raise BadStoreError("a storage with replicas has two at least", hint="ROOT 'address' is one location")
    if any(each.replicas for each in replicas):
        raise BadStoreError("a replica has no replicas of its own", hint="name each location by its own address")
    if len({each.uri for each in replicas}) < len(replicas):
        raise BadStoreError("a replica is named twice", hint="each needs a location of its own")
    _check_quorum(quorum, len(replicas))
    return StoreRoot(f"{REPLICAS}://{quote(name, safe='')}", replicas=tuple(replicas), quorum=quorum)


def _check_quorum(quorum: int, replicas: int) -> None:
    if not 1 <= quorum <= replicas:
        raise InvalidInputError.coded(
            "BAD_QUORUM",
            "a quorum is a number of replicas, and no more than there are",
            quorum=quorum,
            replicas=replicas,
            hint=f"from 1 to {replicas}",
        )


def _read_replicas(name: str, query: str) -> StoreRoot:
    pairs = parse_qsl(query)
    quorum = next((value for key, value in pairs if key == "quorum"), "")
    roots = [parse_root(value) for key, value in pairs if key == "root"]
    if not quorum.isdecimal():
        raise BadStoreError("replicas have a quorum", hint="quorum=2")
    return replicated_root(name, roots, int(quorum))


def _local(host: str, path: str, query: str) -> StoreRoot:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise BadStoreError("a file: address needs an absolute path", hint="write file:///folder")
    if query:
        raise BadStoreError("a folder of the local disk has no options", hint="leave out the part behind ?")
    if _UNPRINTABLE.search(path):
        raise BadStoreError("the address has unprintable characters", hint=_FORMS)
    return StoreRoot(posixpath.normpath(path).replace("//", "/"))


def _bucket(name: str) -> str:
    if not _BUCKET.fullmatch(name):
        raise BadStoreError(
            "this is no name of a bucket", bucket=name, hint="3 to 63 small letters, digits, points and hyphens"
        )
    return name


def _prefix(path: str) -> str:
    names = [name for name in path.split("/") if name]
    for name in names:
        if not _PREFIX_NAME.fullmatch(name) or name in (".", ".."):
            raise BadStoreError(
                "a prefix has letters, digits and . _ = - between slashes", prefix=path, hint="choose another prefix"
            )
    return "".join(f"/{name}" for name in names)


def _hdfs_host(name: str) -> str:
    if not _HDFS_HOST.fullmatch(name):
        raise BadStoreError("this is no address of a NameNode", hint="write hdfs://host:port/prefix")
    return name


def _options(kind: str, query: str) -> tuple[tuple[str, str], ...]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        # Its words repeat what was given.
        raise BadStoreError("the options are not name=value, joined by &") from None
    found = dict(pairs)
    plain, secret = PLAIN_OPTIONS[kind], SECRET_OPTIONS[kind]
    known = ", ".join((*plain, *secret)) or "none"
    for name, value in pairs:
        if name not in plain and name not in secret:
            raise BadStoreError("no such option of a store", option=name, known=known)
        if name in secret and not REFERENCE.fullmatch(value):
            raise BadStoreError(
                "a secret is named by where it is, not written down", option=name, hint=f"write {REFERENCE_FORM}"
            )
    if len(found) != len(pairs):
        raise BadStoreError("an option is given twice", known=known)
    if "endpoint" in found and not _ENDPOINT.fullmatch(found["endpoint"]):
        raise BadStoreError("an endpoint is http://host:port or https://host:port, without a path")
    if "region" in found and not _REGION.fullmatch(found["region"]):
        raise BadStoreError("this is no name of a region")
    _check_keys(kind, found)
    return tuple(sorted(found.items()))


def _check_keys(kind: str, found: Mapping[str, str]) -> None:
    if kind == "s3" and ("key" in found) != ("secret" in found):
        raise BadStoreError("key and secret belong together", hint="give both, or neither for the machine's own role")
    if kind != "az":
        return
    if not _ACCOUNT.fullmatch(found.get("account", "")):
        raise BadStoreError(
            "a container belongs to an account", hint="write account=NAME: 3 to 24 small letters and digits"
        )
    if "key" in found and "sas" in found:
        raise BadStoreError(
            "key and sas exclude each other", hint="give one of them, or neither for the machine's role"
        )
