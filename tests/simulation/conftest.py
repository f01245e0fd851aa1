"""Fixtures of the simulations that run over files in this process."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sequence_standins import spark_task


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where the machine allows it: what is tested is not the disk. What fails on purpose is not logged."""
    logger = logging.getLogger("tilth")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.path.isdir(shared) else None) as path, spark_task():
        yield Path(path)
    logger.setLevel(level)
