"""A file that proves that two processes see the same storage.

Covers: writing it, finding it, writing beside it. Does not cover: who calls it (node.py, worker_node.py).
Always holds: a root of the same name on another machine's disk is found out: the content is drawn anew by each process,
and each server has a file of its own.
"""

from __future__ import annotations

from tilth.base.errors import TilthError, UnavailableError
from tilth.storage.store.root import StoreRoot, parse_root
from tilth.storage.store.stores import store_of

_NAME = ".server-probe"


class RootNotSharedError(UnavailableError):
    """the files below the root are not those that the server sees"""

    code = "ROOT_NOT_SHARED"


def write_probe(root: StoreRoot, content: bytes, *, server: str) -> str:
    """Write the server's file, over that of its former process; return its path."""
    name = f"{_NAME}-{server}"
    store_of(root).put(name, content)
    return name


def check_probe(root: str, path: str, content: bytes, *, own_name: str) -> None:
    """Read the server's file and write one of our own name. Raises RootNotSharedError and the errors of the store."""
    try:
        store = store_of(parse_root(root))
        if store.read(path).to_pybytes() != content:
            raise RootNotSharedError(root=root, hint="the path is there and is another disk: mount the server's here")
        own = f".worker-probe-{own_name}"
        store.put(own, content)
        store.remove([own])
    except OSError as error:
        hint = "this machine needs the server's files under the same path, readable and writable"
        reason = error.strerror or type(error).__name__
        raise RootNotSharedError(root=str(parse_root(root)), reason=reason, hint=hint) from error
    except RootNotSharedError:
        raise
    except TilthError as error:
        hint = error.hint or "the worker needs the same secrets and the same way to the store as the server"
        raise RootNotSharedError(
            "the worker cannot reach the storage", root=str(parse_root(root)), reason=error.message, hint=hint
        ) from error
