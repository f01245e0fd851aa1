"""Statements about warehouses and workers, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWarehouse:
    """CREATE WAREHOUSE name SETTINGS .."""

    warehouse: str
    if_not_exists: bool = False
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterWarehouse:
    """ALTER WAREHOUSE name SETTINGS .., or RESET SETTING ..; one of the two."""

    warehouse: str
    settings: tuple[tuple[str, str], ...] = ()
    reset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropWarehouse:
    warehouse: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowWarehouses:
    """SHOW WAREHOUSES, or SHOW WAREHOUSE of one."""

    like: str | None = None
    #: None: all.
    warehouse: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateWarehouse:
    warehouse: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterWorker:
    """ALTER WORKER name DRAIN or RESUME."""

    worker: str
    #: False: it takes tasks again.
    drains: bool
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterServer:
    """ALTER SERVER name DRAIN or RESUME."""

    server: str
    #: False: it hosts tables again.
    drains: bool
    because: str = ""


WarehouseStatement = (
    CreateWarehouse | AlterWarehouse | DropWarehouse | ShowWarehouses | ShowCreateWarehouse | AlterWorker | AlterServer
)
