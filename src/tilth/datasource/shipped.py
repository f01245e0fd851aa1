"""Objects that Spark ships to executors, so that one without Tilth says so.

Unpickling an object of a package that is missing fails with `No module named 'tilth'`, before any code of ours runs. So
the function that opens the object travels by value, as all nested functions do. Always holds: what travels is bytes of
facts; no token of a server is among them, and its address only where it is an option.

Tests: tests/unit/datasource/test_rows.py.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable


# Any: the object is whatever the target makes of its bytes.
def opener(target: str) -> Callable[[bytes], object]:
    """Return a function that calls `module:function` with the shipped bytes, wherever it is unpickled."""
    module_name, _, name = target.partition(":")

    def open_shipped(packed: bytes) -> object:
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ImportError(
                f"[NOT_INSTALLED] (unavailable) Tilth, or a library that it needs, is not installed for this executor: "
                f"host={socket.gethostname()} missing={error.name}; what to do: pip install 'tilth[server]' in the "
                "Python of the executors (spark.pyspark.python), the same version as in the driver"
            ) from error
        opened: object = getattr(module, name)(packed)
        return opened

    return open_shipped
