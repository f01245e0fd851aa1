"""The machine: memory, open files, the port, the clock.

Covers: what a server would have of them. Does not cover: disks (folders.py), clocks of other machines (catalog.py,
server.py).

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

import resource
from pathlib import Path

from tilth.base.clock import Clock
from tilth.base.errors import UnavailableError
from tilth.base.units import GIB, parse_bytes, show_bytes, show_count, show_time
from tilth.doctor.checkup import Checkup, ok
from tilth.model.diagnosis import Diagnosis, Grade

#: Memory beside Java: the server, its Python workers, the blocks of the catalog.
BESIDE_JAVA_BYTES = GIB
#: Open files without which a server does not work: RocksDB has up to 512 of them.
FILES_MIN = 700
#: Open files that are enough for a server with consumers and readers.
FILES_ENOUGH = 1024
#: Difference of a file's time and the clock that no rounding makes.
FUTURE_SECONDS_MAX = 120


def check_memory(check: Checkup, heap: str, free: int | None = None) -> list[Diagnosis]:
    """Compare free memory with the heap of Spark; `free`: bytes, None reads them."""
    free = free_memory() if free is None else free
    wanted = parse_bytes(heap)
    facts = f"{show_bytes(free)} of memory are free, and Spark's heap may take {show_bytes(wanted)}"
    todo = "end other programs, give the machine or the container more memory, or lower warehouse.driver-memory"
    if free < wanted:
        return [check.found(Grade.ERROR, facts, todo)]
    if free < wanted + BESIDE_JAVA_BYTES:
        sentence = f"{facts}: less than {show_bytes(BESIDE_JAVA_BYTES)} is left for everything else"
        return [check.found(Grade.WARNING, sentence, todo)]
    return [ok("memory", facts)]


def free_memory() -> int:
    """Return the bytes that a new process could have, in a container too."""
    import psutil

    from tilth.maintenance.memory.meter import machine_bytes

    memory = psutil.virtual_memory()
    return max(0, min(int(memory.available), machine_bytes() - _used_by_container()))


def _used_by_container() -> int:
    """Return the bytes that programs of this container use; 0 outside of one."""
    try:
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        facts = dict(line.split() for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines())
        # Pages of files are given back when memory is scarce.
        return max(0, used - int(facts.get("inactive_file", 0)) - int(facts.get("active_file", 0)))
    except (OSError, ValueError):
        return 0


def check_open_files(check: Checkup, limit: int | None = None) -> list[Diagnosis]:
    """Check the limit of open files; `limit`: None reads that of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if soft == resource.RLIM_INFINITY or soft >= FILES_ENOUGH:
        return [ok("open files", f"a process may have {'any number of' if soft < 0 else show_count(soft)} open files")]
    sentence = f"a process may have {show_count(soft)} open files, and a server needs {show_count(FILES_ENOUGH)}"
    todo = (
        "raise the limit: `ulimit -n 65536` in a shell, LimitNOFILE=65536 in a systemd unit, --ulimit for a container"
    )
    return [check.found(Grade.ERROR if soft < FILES_MIN else Grade.WARNING, sentence, todo)]


def check_port(host: str, port: int, *, may_be_taken: bool) -> list[Diagnosis]:
    """Bind the address and release it. Raises UnavailableError (ADDRESS_IN_USE).

    `may_be_taken`: a server runs, so that its port is taken.
    """
    from tilth.server import bind

    try:
        bind(host, port).close()
    except UnavailableError:
        if not may_be_taken:
            raise
        return [ok("port", f"{host}:{port} is taken, as by a server that runs")]
    return [ok("port", f"{host}:{port} is free")]


def check_clock(check: Checkup, clock: Clock, folder: Path) -> list[Diagnosis]:
    """Compare the clock with the times of files in a node's folder: no file is written in the future."""
    now_ms = clock.now_ms()
    newest = 0.0
    for name in ("", "catalog", "tables", "log"):
        try:
            newest = max(newest, (folder / name).stat().st_mtime)
        except OSError:
            continue
    ahead = newest - now_ms / 1000
    if ahead > FUTURE_SECONDS_MAX:
        sentence = f"the clock says {show_time(now_ms)}, and {folder} was written {ahead:.0f} s later than that"
        todo = "set the clock of this machine right, as by NTP: commits need times that do not go back"
        return [check.found(Grade.ERROR, sentence, todo)]
    return [ok("clock", f"the clock says {show_time(now_ms)}, and no file of the node is from later")]
