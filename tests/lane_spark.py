"""One Spark for all tests of a process that run it in their own process.

Covers: starting it when a test first wants it, ending it when a test needs another one; nodes in this process over it.
Does not cover: nodes that are processes of their own. Always holds: a process has one Spark at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilth.node import Node, open_node
from tilth.warehouse import WarehouseSettings, WorkerSession, class_data, warehouse_settings
from tools.class_data import CLASS_DATA


def settings_of(*, master: str = "local[2]") -> WarehouseSettings:
    """Settings of a small Spark that maps the class data of all tests."""
    return warehouse_settings(CLASS_DATA | {"warehouse.master": master, "warehouse.driver-memory": "1g"})


def session_of(settings: WarehouseSettings, folder: Path) -> WorkerSession:
    """Return a session over the folder, not started."""
    return WorkerSession(
        settings,
        folder=str(folder / "spark"),
        log_folder=str(folder / "log"),
        class_data=class_data(settings, default=folder),
    )


class LaneSpark:
    """The Spark of a process, which starts again after it was ended for a test."""

    def __init__(self, folder: Path) -> None:
        self._session = session_of(settings_of(), folder)

    def running(self) -> WorkerSession:
        if not self._session.is_alive():
            self._session.start()
            self._session.warm()
        return self._session

    def end(self) -> None:
        """Leave the process to another Spark."""
        self._session.stop()

    def node(self, folder: Path, settings: Mapping[str, str] | None = None) -> Node:
        """Start a node over the folder, which computes on this Spark and leaves it running."""
        return open_node(folder, settings or {}, LentSession(self.running()))


class LentSession(WorkerSession):
    """A running session, which its borrower neither starts nor ends."""

    def __init__(self, session: WorkerSession) -> None:
        # Changes of one are changes of the other.
        self.__dict__ = session.__dict__

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """Its owner ends it."""
