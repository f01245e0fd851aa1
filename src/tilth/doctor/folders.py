"""Folders and storages of a node: space, inodes, whether they can be written.

Covers: the data folder, temporary files, backups, the location of the tables' files. Does not cover: storages that the
catalog names, of which a server reports (server.py). Always holds: a probe has a name of its own and is removed by it;
no folder is made.

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from tilth.base.errors import TilthError
from tilth.base.full import DiskSpace, disk_space, is_low, is_nearly_full
from tilth.base.ids import random_id
from tilth.base.units import show_bytes, show_count
from tilth.doctor.checkup import Checkup, ok
from tilth.model.diagnosis import Diagnosis, Grade

#: Free inodes that a few rounds and one merge use up, and that are enough on any disk.
INODES_MIN = 1_000
INODES_ENOUGH = 50_000
PROBE_BYTES = 64 << 10


def nearest_folder(path: Path) -> Path:
    """Return the path, or the nearest of its parents that exists."""
    return next((each for each in (path.absolute(), *path.absolute().parents) if each.exists()), Path("/"))


def check_disk(check: Checkup, folder: Path, read: Callable[[str], DiskSpace | None] = disk_space) -> list[Diagnosis]:
    """Check space and inodes of the disk on which the folder is or would be made; `read` returns the space."""
    there = nearest_folder(folder)
    found: list[Diagnosis] = []
    space = read(str(there))
    todo = "make room on this disk, or use a larger one"
    if space is None or not space.size:
        found.append(ok(check.name, f"the size of the disk with {there} is not known"))
    else:
        share = 100 * space.free / space.size
        sentence = (
            f"the disk with {folder} has {show_bytes(space.free)} free, {share:.0f} % of {show_bytes(space.size)}"
        )
        if is_nearly_full(free=space.free, size=space.size):
            found.append(check.found(Grade.ERROR, f"{sentence}: writes fail soon, or fail already", todo))
        elif is_low(free=space.free, size=space.size):
            found.append(check.found(Grade.WARNING, sentence, todo))
        else:
            found.append(ok(check.name, sentence))
    facts = os.statvfs(there)
    return [*found, *check_inodes(check, folder, free=facts.f_favail, total=facts.f_files)]


def check_inodes(check: Checkup, folder: Path, *, free: int, total: int) -> list[Diagnosis]:
    """Return what is wrong with inodes; a file system that makes them as needed reports none."""
    if not total or free >= min(INODES_ENOUGH, total // 10):
        return []
    share = f"{show_count(free)} free inodes of {show_count(total)}"
    sentence = f"the disk with {folder} has {share}, and each file needs one"
    grade = Grade.ERROR if free < INODES_MIN else Grade.WARNING
    return [check.found(grade, sentence, "remove small files on this disk, or use one with more inodes")]


def check_folder(check: Checkup, folder: Path, use: str) -> list[Diagnosis]:
    """Write a probe into the folder, or into the nearest one that exists; `use`: what it is for, for sentences."""
    there = nearest_folder(folder)
    todo = "give this user the right to write there, or choose another folder"
    if not there.is_dir():
        return [check.found(Grade.ERROR, f"{use} {folder} cannot be made, because {there} is no folder", todo)]
    error = _probe_error(there)
    if error is None:
        made = "can be written" if there == folder.absolute() else f"does not exist yet, and can be made in {there}"
        return [ok(check.name, f"{use} {folder} {made}")]
    return [check.found(Grade.ERROR, f"{use} {folder} cannot be written: {error}", todo)]


def _probe_error(folder: Path) -> str | None:
    """Write and remove a probe; return why that fails."""
    probe = folder / f".tilth-doctor-{random_id()}"
    try:
        try:
            with probe.open("xb") as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def check_storage(check: Checkup, folder: Path, root_text: str) -> list[Diagnosis]:
    """Check the location of the tables' files: that of the first start, reachable, readable and writable.

    Raises BadStoreError, StoreLocationError and the errors of the store.
    """
    from tilth.storage import chosen_root

    root, _ = chosen_root(folder, root_text)
    if root.is_local:
        return check_folder(check, Path(root.uri), "the tables folder")
    from tilth.storage import store_of

    store, content = store_of(root), random_id().encode()
    name = f".tilth-doctor-{random_id()}"
    todo = "check the address, the keys and the rights of the user; the store needs to list, read, write and remove"
    try:
        store.put(name, content)
        try:
            is_same = store.read(name).to_pybytes() == content
        finally:
            store.remove([name])
    except (TilthError, OSError) as error:
        why = error.message if isinstance(error, TilthError) else error.strerror
        hint = error.hint if isinstance(error, TilthError) and error.hint else todo
        return [check.found(Grade.ERROR, f"storage {root} cannot be used: {why}", hint)]
    if not is_same:
        return [check.found(Grade.ERROR, f"storage {root} returns other bytes than were written", todo)]
    return [ok(check.name, f"storage {root} can be written and read")]


def check_temporary(check: Checkup) -> list[Diagnosis]:
    """Check the system's folder for temporary files, where Spark and Python put theirs."""
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        return [check.found(Grade.ERROR, str(error), "set TMPDIR to a folder that can be written")]
    return [*check_folder(check, folder, "the folder for temporary files"), *check_disk(check, folder)]
