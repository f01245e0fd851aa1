"""Front doors of packages that import each name when it is first used.

A package's `__init__.py` lists under `if TYPE_CHECKING:` the names of its front door and their modules, which is what
type checkers, import rules and readers see. At run time only the modules of the names that are used are imported: a
Python worker of Spark needs a kernel and not the server's half of the room, and starts in half the time.

    if TYPE_CHECKING:
        from tilth.room.module import Name
    else:
        __getattr__ = door(__name__)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data


def door(package: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a package, by the imports that its file has under `if TYPE_CHECKING:`.

    `dir(package)` lists the same names from now on.
    """
    # The loader reads it: on executors of a cluster the package is in a zip.
    offered = _offered(get_data(package, "__init__.py") or b"")

    def load(name: str) -> object:
        if name not in offered:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        module = import_module(offered[name])
        # Some names are modules of a package, which nobody may have imported yet.
        return getattr(module, name) if hasattr(module, name) else import_module(f"{offered[name]}.{name}")

    sys.modules[package].__dict__["__dir__"] = lambda: sorted(offered)
    return load


def _offered(source: bytes) -> dict[str, str]:
    """Return the module of each name."""
    return {
        alias.asname or alias.name: statement.module or ""
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
