"""Kernels that numba compiles, loaded once a process has enough to do for them.

Covers: when a kernel is loaded, where its machine code is cached. Does not cover: what kernels do
(messages/json_kernel.py, kafka/message_kernel.py). Always holds: a kernel that cannot be loaded is reported once, and
its caller goes on without it.

Tests: tests/unit/ingest/messages/test_json_blocks.py.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tilth.base.logs import Log
from tilth.base.units import MIB

#: Bytes of messages that a process handles before it loads a kernel: loading costs a third of a second and 40 MiB, and
#: four seconds where the kernel was never compiled before.
LOAD_AFTER_BYTES = 8 * MIB

_log = Log("ingest")
#: One kernel at a time is loaded: the folder for machine code is a setting of the whole process.
_loading = threading.Lock()


class KernelLoader:
    """Loads a kernel once in a process, if it can, after enough bytes. For any thread."""

    def __init__(
        self,
        modules: Sequence[str],
        try_out: Callable[[ModuleType], object],
        *,
        after_bytes: int = LOAD_AFTER_BYTES,
    ) -> None:
        """`modules`: the kernel, and the others that its code is in. `try_out`: calls all functions of the kernel."""
        self._modules = tuple(modules)
        self._try_out = try_out
        self._left = after_bytes
        self._kernel: ModuleType | None = None
        self._is_tried = False

    def count(self, size: int) -> ModuleType | None:
        """Count bytes of messages; return the kernel, None as long as they are too few or where it cannot be loaded."""
        if not self._is_tried:
            self._left -= size
            if self._left <= 0:
                self._load()
        return self._kernel

    def _load(self) -> None:
        with _loading:
            if self._is_tried:
                return
            try:
                kernel = import_kernel(self._modules)
                # numba compiles a function, and stores its code, at the first call.
                self._try_out(kernel)
                self._kernel = kernel
            except Exception as error:  # whatever a compiler raises on a machine that it does not know
                reason = f"{type(error).__name__}: {error}"
                _log.warning("kernel_not_loaded", kernel=self._modules[0], reason=reason)
            self._is_tried = True


#: Loader that never loads: for a process in which others wait while a kernel is loaded.
WITHOUT_KERNEL = KernelLoader((), lambda _: None, after_bytes=1 << 62)


def import_kernel(modules: Sequence[str]) -> ModuleType:
    """Import the first of the modules; raises OSError where there is no folder for machine code, and what numba raises.

    Each version of the sources has a folder of its own, because numba compares the time and size of one file only.
    """
    from numba.core import config

    paths = [_path_of(module) for module in modules]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    name = f"{paths[0].stem}-{digest[:16]}"
    # Its settings are made at run time.
    settings: Any = config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(_code_folder(paths[0].parent / "__pycache__" / name, name))
    try:
        return importlib.import_module(modules[0])
    finally:
        settings.CACHE_DIR = before


def _path_of(module: str) -> Path:
    found = find_spec(module)
    assert found is not None, module
    return Path(str(found.origin))


def _code_folder(beside: Path, name: str) -> Path:
    """Return the folder for machine code: beside the sources, else among the caches of the user. Raises OSError."""
    try:
        beside.mkdir(parents=True, exist_ok=True)
        if os.access(beside, os.W_OK):
            return beside
    except OSError:
        pass
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilth" / name
    own.mkdir(parents=True, exist_ok=True)
    return own
