"""Imports without garbage collection."""

from __future__ import annotations

import gc

import pytest

from tilth.base.importing import importing


def test_garbage_is_collected_again_after_imports_and_modules_are_not_scanned() -> None:
    frozen = gc.get_freeze_count()
    try:
        with importing():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
        with pytest.raises(ImportError), importing():
            raise ImportError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
