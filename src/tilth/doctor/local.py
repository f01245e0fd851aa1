"""All checks of the machine on which a server would start.

Covers: which checks there are, and what of the settings each needs. Does not cover: the checks.

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilth.base.clock import Clock
from tilth.base.settings import read_settings
from tilth.doctor.catalog import check_local_catalog, check_postgres_catalog
from tilth.doctor.checkup import Checkup, ok
from tilth.doctor.folders import check_disk, check_folder, check_storage, check_temporary
from tilth.doctor.libraries import check_java, check_libraries, check_spark
from tilth.doctor.machine import check_clock, check_memory, check_open_files, check_port
from tilth.doctor.network import check_broker
from tilth.model.diagnosis import Diagnosis

#: Share of the time for all checks after which one step of a check is given up, so that the check can say what hangs.
_STEP_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSetup:
    """Node that would be started, and its address."""

    #: The node's folder; None: none is given.
    folder: Path | None
    #: Address of the HTTP server; None: it cannot be read, which is a finding already.
    address: tuple[str, int] | None
    #: Texts of settings by canonical name.
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Addresses of brokers with commas between; empty: none are checked.
    brokers: str = ""
    #: True if a server runs over the folder, which is checked by its URL.
    is_running: bool = False


def local_checks(clock: Clock, setup: LocalSetup, *, seconds_max: float) -> list[Checkup]:
    """Return the checks, in the order in which they are shown; `seconds_max`: the time that they have together."""
    from tilth.warehouse.settings import WarehouseSettings

    warehouse = read_settings(WarehouseSettings, setup.texts)
    step = seconds_max * _STEP_SHARE
    checks: list[Checkup] = []

    def add(name: str, heading: str, run: Callable[[Checkup], Sequence[Diagnosis]]) -> None:
        checks.append(Checkup(name=name, heading=heading, run=run))

    add("java", "java", lambda _: check_java(warehouse.java_home, setup.environment, step))
    add("libraries", "python-libraries-and-spark", check_libraries)
    add("spark", "python-libraries-and-spark", lambda own: check_spark(own, warehouse.python, step))
    add("memory", "memory", lambda own: check_memory(own, warehouse.driver_memory))
    add("open files", "open-files", check_open_files)
    add("temporary files", "disks-and-folders", check_temporary)
    if setup.address is not None:
        host, port = setup.address
        add("port", "port", lambda _: check_port(host, port, may_be_taken=setup.is_running))
    if setup.folder is not None:
        _add_node_checks(add, clock, setup, setup.folder, step)
    if setup.brokers:
        add("broker", "broker", lambda own: check_broker(own, setup.brokers, step))
    return checks


def _add_node_checks(
    add: Callable[[str, str, Callable[[Checkup], Sequence[Diagnosis]]], None],
    clock: Clock,
    setup: LocalSetup,
    folder: Path,
    step: float,
) -> None:
    from tilth.catalog import CatalogSettings
    from tilth.membership import MembershipSettings
    from tilth.server import ServerSettings
    from tilth.storage import NodeStorageSettings, chosen_root
    from tilth.warehouse.remote.token import service_token

    catalog = read_settings(CatalogSettings, setup.texts)
    root_text = read_settings(NodeStorageSettings, setup.texts).root
    backups = catalog.backup_folder

    def check_token(own: Checkup) -> list[Diagnosis]:
        token = service_token(read_settings(ServerSettings, setup.texts).token_file, setup.environment)
        return [ok(own.name, "the service token can be read" if token else "there is no service token, so no workers")]

    add("data folder", "disks-and-folders", lambda own: check_folder(own, folder, "the data folder"))
    add("disk", "disks-and-folders", lambda own: check_disk(own, folder))
    add("storage", "storage", lambda own: check_storage(own, folder, root_text))
    if backups and "://" not in backups:
        add("backups", "disks-and-folders", lambda own: check_folder(own, Path(backups), "the folder for backups"))
    if catalog.url:
        bound = read_settings(MembershipSettings, setup.texts).skew_seconds
        add(
            "catalog",
            "catalog",
            lambda own: check_postgres_catalog(
                own,
                clock,
                catalog.url,
                setup.environment,
                requires_sync=catalog.require_sync,
                clock_bound_seconds=bound,
                seconds_max=step,
            ),
        )
    else:
        add(
            "catalog",
            "catalog",
            lambda own: check_local_catalog(
                own, folder, lambda: chosen_root(folder, root_text)[0], may_be_open=setup.is_running
            ),
        )
    add("clock", "clock", lambda own: check_clock(own, clock, folder))
    add("service token", "settings", check_token)
