"""One Spark for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilth.warehouse import WarehouseSettings, WorkerSession


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = WarehouseSettings(master="local[2]", driver_memory="1g")
    session = WorkerSession(settings, folder=str(folder / "spark"), log_folder=str(folder / "log"))
    session.start()
    session.warm()
    yield session
    session.stop()
