"""Libraries that a part of the package needs and that an installation may not have.

Covers: what a node, a worker and a Spark of one's own need beside a client, and the error where it is missing. Does not
cover: which versions fit (pyproject.toml). Always holds: the check imports none of these libraries.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from tilth.base.errors import UnavailableError

#: Modules of the libraries in the extra `server`.
SERVER_MODULES = (
    "confluent_kafka",
    "datafusion",
    "fastavro",
    "hdfs_native",
    "httptools",
    "numba",
    "numpy",
    "obstore",
    "pandas",
    "polars",
    "prometheus_client",
    "psutil",
    "psycopg",
    "psycopg_pool",
    "pyroaring",
    "pyspark",
    "rocksdict",
    "sqlglot",
    "starlette",
    "uvicorn",
    "uvloop",
)


def require_server(purpose: str) -> None:
    """Raises UnavailableError (NOT_INSTALLED), naming the purpose, in an installation for clients."""
    require(SERVER_MODULES, extra="server", purpose=purpose)


def require(modules: Iterable[str], *, extra: str, purpose: str) -> None:
    """Raises UnavailableError (NOT_INSTALLED), naming the purpose and the extra with which they are installed."""
    missing = [module for module in modules if not _is_there(module)]
    if missing:
        hint = f"pip install 'tilth[{extra}]'"
        raise UnavailableError.coded(
            "NOT_INSTALLED",
            "libraries that this needs are not installed",
            needed_by=purpose,
            missing=", ".join(missing),
            hint=hint,
        )


def _is_there(module: str) -> bool:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        # The package that it would be in.
        return False
    if found is None or found.origin is not None:
        return found is not None
    # A namespace, such as opentelemetry.sdk; a folder of that name without programs, as below the current one, is none.
    folders = found.submodule_search_locations or ()
    return any(next(Path(each).rglob("*.py"), None) is not None for each in folders)
