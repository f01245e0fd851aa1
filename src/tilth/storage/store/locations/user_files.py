"""Files of users, below addresses that the operator allows: COPY INTO reads them, EXPORT writes them.

Covers: which address a statement may name, listing, patterns of names. Does not cover: what is in the files, who loads
them (tilth.statements). Always holds: an address is below one of the allowed locations, by the names of its folders
and, on the local disk, by where they really are; links are not followed; keys come from the location, never from the
statement; names are literal: nothing in them is an escape or a wildcard.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from itertools import takewhile

from tilth.base.errors import InvalidInputError
from tilth.storage.store.protocol import StoredFile
from tilth.storage.store.root import Folder, StoreRoot
from tilth.storage.store.stores import store_of

#: Names that a listing reads.
LISTED_MAX = 1_000_000
#: Below this folder of a storage are files of users.
OWN_FOLDER = "files"
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
_SCHEMES = re.compile(r"(?P<scheme>[a-z0-9+.-]+)://(?P<host>[^/]*)(?P<path>.*)", re.DOTALL | re.IGNORECASE)
_HINT = "the setting storage.file-locations lists the allowed ones; below a storage it is the folder `files`"


class BadLocationError(InvalidInputError):
    """statements may not name this location of files"""

    code = "BAD_FILE_LOCATION"


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file of a user, as a listing shows it."""

    #: Address, as messages and ledgers have it.
    address: str
    #: Path below the root of its location.
    path: str
    size: int
    modified_ms: int
    #: Mark of its content from its store; on a local disk its inode and time.
    tag: str


@dataclass(frozen=True, slots=True)
class UserFolder:
    """A folder that a statement names, below a location that is allowed."""

    #: The location; with its options, so that it can be reached.
    root: StoreRoot
    #: Path of the folder below it; empty: the location itself.
    path: str

    @property
    def address(self) -> str:
        return str(Folder(self.root, self.path))


def find_folder(address: str, allowed: Iterable[StoreRoot], storages: Iterable[StoreRoot]) -> UserFolder:
    """Return the folder of an address in a statement. Raises BadLocationError.

    `allowed`: locations on the operator's list; `storages`: those of tables, whose folder `files` is allowed.
    """
    kind, host, names = _parsed(address)
    best: UserFolder | None = None
    for root in [*allowed, *_own_folders(storages)]:
        above = [name for name in (root.uri if root.is_local else root.prefix).split("/") if name]
        is_same = root.kind == kind and (root.is_local or root.bucket == host)
        if is_same and names[: len(above)] == above and (best is None or len(root.uri) > len(best.root.uri)):
            best = UserFolder(root, "/".join(names[len(above) :]))
    if best is None:
        raise BadLocationError(address=address, hint=_HINT)
    if best.root.is_local:
        _check_real(best)
    return best


def list_folder(folder: UserFolder) -> list[UserFile]:
    """Return the files below a folder in the order of their names, or the one file that has its name.

    Hidden ones are left out: those whose name, or that of a folder on the way, begins with `_` or `.`, as for Spark.
    Raises BadLocationError for names that are no text, and for more than LISTED_MAX; and the errors of the store.
    """
    found = _listed(folder)
    if not found and folder.path:
        above, _, name = folder.path.rpartition("/")
        found = [each for each in _listed(UserFolder(folder.root, above), only=name) if each.path == folder.path]
    return sorted(found, key=lambda each: each.path)


def check_folder(folder: UserFolder) -> None:
    """Raises BadLocationError where neither a folder nor a file has this address on the local disk: it is not mounted,
    or was removed. In a bucket there are no folders.
    """
    if folder.root.is_local and not os.path.exists(folder.address):
        hint = "make or mount the folder: a pipe goes on by itself then"
        raise BadLocationError("there is no such folder", address=folder.address, hint=hint)


def is_like_pattern(path: str, pattern: str) -> bool:
    """Return whether a path is like a pattern: `*`, `?`, `[..]` stand for characters of a name, `**` for folders."""
    return _is_like(path.split("/"), pattern.split("/"))


def check_pattern(pattern: str) -> None:
    """Raises BadLocationError for a pattern that no path can be like."""
    names = pattern.split("/")
    if any(name in ("", ".", "..") or ("**" in name and name != "**") for name in names):
        hint = "write names of folders and a file with / between: 'day=*/part-*.parquet', '**/*.json'"
        raise BadLocationError("this is no pattern of files", pattern=pattern, hint=hint)


def changed_files(folder: UserFolder, files: Sequence[UserFile]) -> list[UserFile]:
    """Return those of the files that are gone, or are not as they were when they were listed."""
    levels = zip(*(each.path.split("/")[:-1] for each in files), strict=False)
    shared = "/".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels))
    # The folder that these files share may have many fewer than the named one, which may also be the file itself.
    listed = list_folder(UserFolder(folder.root, max(folder.path, shared, key=len)))
    now = {each.path: each for each in listed}
    return [each for each in files if now.get(each.path) != each]


def _parsed(address: str) -> tuple[str, str, list[str]]:
    """Return kind, bucket and names of an address; raises BadLocationError."""
    if _UNPRINTABLE.search(address):
        raise BadLocationError("the address has unprintable characters", address=repr(address))
    found = _SCHEMES.fullmatch(address)
    if found is None:
        kind, host, path = "file", "", address
    else:
        kind, host, path = found["scheme"].lower(), found["host"], found["path"]
    kind = "s3" if kind == "s3a" else kind
    if kind != "file" and ("?" in address or "@" in host):
        hint = "keys and endpoints belong to the location in storage.file-locations, or to a storage"
        raise BadLocationError("an address in a statement has no options and no user", hint=hint)
    if kind == "file" and (host not in ("", "localhost") or not path.startswith("/")):
        raise BadLocationError("a folder of this machine is named by its whole path", address=address, hint="/folder")
    names = [name for name in path.split("/") if name]
    if any(name in (".", "..") for name in names):
        raise BadLocationError("an address names its folders without . and ..", address=address)
    return kind, host, names


def _own_folders(storages: Iterable[StoreRoot]) -> Iterator[StoreRoot]:
    for root in storages:
        if not root.replicas:
            yield StoreRoot(f"{root.uri}/{OWN_FOLDER}", root.options)


def _check_real(folder: UserFolder) -> None:
    """Raises BadLocationError where links lead out of the allowed location."""
    real, allowed = os.path.realpath(folder.address), os.path.realpath(folder.root.uri)
    if real != os.path.join(allowed, folder.path).rstrip("/"):
        raise BadLocationError("a link is on the way to this folder", address=folder.address, hint=_HINT)


def _listed(folder: UserFolder, only: str = "") -> list[UserFile]:
    files: list[UserFile] = []
    for count, each in enumerate(_stored(folder, only), start=1):
        if count > LISTED_MAX:
            hint = "name a folder further down"
            raise BadLocationError("there are too many files", address=folder.address, limit=LISTED_MAX, hint=hint)
        below = each.path[len(folder.path) :].lstrip("/")
        if any(name.startswith(("_", ".")) for name in below.split("/")) or below.endswith("._COPYING_"):
            continue
        address = Folder(folder.root).uri(each.path)
        if not _is_text(address):
            hint = "rename it: names of files are text in UTF-8"
            raise BadLocationError("the name of a file is no text", file=ascii(address), hint=hint)
        files.append(UserFile(address, each.path, each.size, each.modified_ms, each.tag))
    return files


def _stored(folder: UserFolder, only: str) -> Iterator[StoredFile]:
    if folder.root.is_local:
        return _local_files(folder.address, folder.path, only)
    return store_of(folder.root).files(folder.path)


def _local_files(folder: str, path: str, only: str) -> Iterator[StoredFile]:
    """Yield the regular files below a folder; links and devices are none. `only`: the name of the one that is wanted of
    the folder itself.
    """
    waiting = [(folder, path)]
    while waiting:
        full_path, below = waiting.pop()
        try:
            entries = list(os.scandir(full_path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            own = f"{below}/{entry.name}" if below else entry.name
            if only and entry.name != only:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting += [] if only else [(entry.path, own)]
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(found.st_mode):
                # The inode shows that another file has the name, whatever times it was given.
                mark = f"{found.st_ino}-{found.st_mtime_ns}"
                yield StoredFile(own, found.st_size, found.st_mtime_ns // 1_000_000, mark)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_like(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether the path matches the patterns, one name each, `**` any number."""
    # Prefixes of the path, by their length, that match the patterns before this one.
    reached = [True] + [False] * len(names)
    for pattern in patterns:
        if pattern == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [position >= first for position in range(len(reached))]
        else:
            matches = _name_pattern(pattern)
            reached = [
                position > 0 and reached[position - 1] and matches.match(names[position - 1]) is not None
                for position in range(len(reached))
            ]
    return reached[-1]


@cache
def _name_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
