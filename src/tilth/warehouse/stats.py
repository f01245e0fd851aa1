"""Statistics of the room: warehouses, workers and their load. Frozen snapshots."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class WorkerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Cores, memory and disk of a worker's machine, or the cores of its cluster, and what of them is free; 0: not
    known."""

    cores: int = 0
    free_cores: float = 0.0
    memory_bytes: int = 0
    free_memory_bytes: int = 0
    #: Disk with the temporary files of its Spark.
    disk_bytes: int = 0
    free_disk_bytes: int = 0
    #: Tasks of Spark that share a scan, a shuffle or a round, and where that number is from.
    tasks: int = 0
    tasks_reason: str = ""
    #: Slots of a warehouse that writes, by the executors of a cluster; 0: those with which the worker has joined.
    write_slots: int = 0
    #: Slots and memory that tasks of other servers take on a worker that serves several.
    taken_slots: int = 0
    taken_memory_bytes: int = 0
    #: Milliseconds since 1970, by the server's clock; 0: it has never reported.
    reported_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """The process that a worker is."""

    host: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """One row of `system.workers`."""

    name: str
    warehouses: tuple[str, ...]
    #: `alive`, `silent` since the last heartbeat, `without spark` while its JVM is gone or does not answer, `draining`
    #: while it gets no more tasks, `drained` when none is left.
    state: str
    #: Reason why it is not alive.
    reason: str
    #: Milliseconds since 1970; 0 before the first answer.
    last_answer_ms: int
    running: int
    resident: int
    memory_bytes: int
    #: Measured load of its machine; of the server's own worker, the disk alone.
    load: WorkerLoad
    #: None: a worker in the server's own process.
    process: WorkerProcess | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseInfo:
    """One row of `system.warehouses`."""

    name: str
    workers: int
    #: Slots now, of all workers.
    slots: int
    running: int
    waiting: int
    #: Tasks that stay until they are stopped; they take no slot.
    resident: int
    #: Kinds of work that it accepts.
    work: tuple[str, ...] = ()
    #: Workers that it should have; 0: not set.
    workers_wanted: int = 0
    #: Requirements for each of its workers; empty and 0: none.
    master: str = ""
    worker_cores: int = 0
    worker_memory_bytes: int = 0
    #: Tasks of Spark that share a scan, a shuffle or a round of this warehouse, on all workers, and where that is from.
    tasks: int = 0
    tasks_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseStats:
    """Counters since the start, by their names in the metrics, and the two lists."""

    done: int
    failed: int
    cancelled: int
    lost: int
    workers: tuple[WorkerInfo, ...]
    warehouses: tuple[WarehouseInfo, ...]
