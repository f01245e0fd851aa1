"""Messages between a server and its workers. Values only, in MessagePack.

    worker                                              server
      | -- register: name, version, address ---------------> |   refused: version, warehouse, name
      | <-- registered: storages to try -------------------- |
      | -- report, each second: free cores, memory, disk --> |   its heartbeat
      | <-- assign, touch, cancel, retire ------------------ |   at the worker's address
      | -- ended: result or failure of a task -------------> |
      | -- calls of runners: consumer/*, query/* ----------> |
      | -- leave -------------------------------------------> |

Covers: the messages. Does not cover: sending (channel.py), who receives them (workers.py, link.py), errors as values
(model/failure.py).
Always holds: a registration of any version can be decoded, at least to be refused with a reason.
"""

from __future__ import annotations

import msgspec

from tilth.model.failure import CallFailure
from tilth.model.task import Cost, TaskSpec
from tilth.warehouse.stats import WorkerLoad

#: Raised with every change of a message that the other side must know.
WIRE_VERSION = 2
#: Headers with the id that a worker drew when it registered, and with the id of the call, the same for a retry.
WORKER_HEADER = "x-tilth-worker"
CALL_HEADER = "x-tilth-call"
MEDIA_TYPE = "application/msgpack"
#: Path prefix of every call of this kind, at the server and at the worker.
PATH = "/v1/worker/"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a worker by itself; that of another version may lack fields, and is refused with a reason."""

    name: str
    version: str
    wire: int
    #: Drawn anew for each registration.
    instance: str = ""
    warehouse: str = ""
    #: URL of its HTTP endpoint, as the server reaches it.
    url: str = ""
    host: str = ""
    pid: int = 0
    #: Master of its Spark, as named to the worker.
    master: str = ""
    #: 0: not known yet.
    cores: int = 0
    memory_bytes: int = 0
    slots: int = 0
    #: Trial registration, which only checks the worker: its Spark is not there yet.
    is_trial: bool = False


class StorageProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the server has written below a root, for a worker to find."""

    #: Root as `parse_root` reads it: with references to secrets, without secrets.
    root: str
    path: str
    content: bytes


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    #: The server's name.
    server: str
    #: A worker that has not reported for this many seconds is gone for the server, and the server is gone for it.
    gone_seconds: float
    probes: tuple[StorageProbe, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat of a worker."""

    load: WorkerLoad
    #: Reason why it cannot run what needs Spark; empty: it can.
    trouble: str = ""


class EndedTask(msgspec.Struct, frozen=True, kw_only=True):
    """Report of a task's end."""

    task_id: str
    payload: bytes = b""
    actual: Cost = Cost()
    may_have_retried: bool = True
    #: None: it ended well.
    failure: CallFailure | None = None


class AssignTask(msgspec.Struct, frozen=True, kw_only=True):
    spec: TaskSpec


class NameTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks to touch, or the one to cancel or to retire; the answer to a touch is those that are there."""

    ids: tuple[str, ...]


class Farewell(msgspec.Struct, frozen=True, kw_only=True):
    """A worker accepts no more tasks, or is about to end."""

    reason: str
    #: Running tasks may end first.
    is_draining: bool


class Done(msgspec.Struct, frozen=True):
    """Answer of a call that only acts."""
