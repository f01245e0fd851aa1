"""The archive that a node's Spark starts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilth.warehouse import WorkerSession, class_data, make_class_data, warehouse_settings
from tools.class_data import CLASS_DATA


@pytest.mark.usefixtures("no_spark")
def test_spark_maps_its_archive(java_home: Path, tmp_path: Path) -> None:
    settings = warehouse_settings(CLASS_DATA | {"warehouse.master": "local[1]", "warehouse.driver-memory": "512m"})
    assert make_class_data(settings)
    session = WorkerSession(
        settings,
        folder=str(tmp_path / "spark"),
        log_folder=str(tmp_path / "log"),
        class_data=class_data(settings, default=tmp_path),
    )
    session.start()
    try:
        mapped = Path(f"/proc/{session.jvm_pid}/maps").read_text()
        session.run_first_query()
    finally:
        session.stop()
    # The system shows resolved paths, and the folder may be a link.
    assert str(Path(CLASS_DATA["warehouse.class-data"]).resolve()) in mapped
    # It is used as it is: the JVM has nothing to say about it.
    assert "shared" not in (tmp_path / "log" / "spark.out").read_text().lower()
