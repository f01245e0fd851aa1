"""Files of a node's folder for a bundle: their sizes, and the ends of its logs.

Covers: sizes by folder, tails. Does not cover: content of tables, which is never read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tilth.base.units import KIB, show_bytes, show_count

#: Files that are counted; a folder with more is cut off there, and says so.
FILES_MAX = 200_000
TAIL_BYTES = 512 * KIB
LOGS_MAX = 12


def folder_sizes(folder: Path) -> str:
    """Return a line for each folder below the node's folder, two levels deep, with its files and bytes."""
    lines, counted = [], 0
    for below in (folder, *sorted(_folders(folder))):
        files = size = 0
        is_whole = below != folder and below.parent != folder
        for file_size in _sizes_in(below, is_deep=is_whole):
            files, size, counted = files + 1, size + file_size, counted + 1
            if counted >= FILES_MAX:
                break
        name = str(below.relative_to(folder)) if below != folder else "."
        lines.append(f"{name:<48} {show_count(files):>12} files  {show_bytes(size):>12}")
        if counted >= FILES_MAX:
            lines.append(f"more than {show_count(FILES_MAX)} files: the rest was not counted")
            break
    return "\n".join(lines) + "\n"


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of two levels; of Spark's temporary ones, which come and go, the first level only."""
    for first in _below(folder):
        yield first
        if first.name != "spark":
            yield from _below(first)


def _below(folder: Path) -> list[Path]:
    try:
        return [Path(each.path) for each in os.scandir(folder) if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _sizes_in(folder: Path, *, is_deep: bool) -> Iterator[int]:
    for above, folders, files in os.walk(folder):
        for name in files:
            try:
                yield os.lstat(os.path.join(above, name)).st_size
            except OSError:
                continue
        if not is_deep:
            folders.clear()


def tails(folder: Path, log_file: str) -> Iterator[tuple[str, str]]:
    """Yield the ends of logs with their names: those in the folder `log`, and the node's own where it has a file."""
    own, logs = [Path(log_file).absolute()] if log_file else [], folder.absolute() / "log"
    try:
        others = sorted(each for each in logs.iterdir() if each.is_file() and not each.is_symlink())
    except OSError:
        others = []
    for path in list(dict.fromkeys([*own, *others]))[:LOGS_MAX]:
        try:
            yield path.name, _tail(path)
        except OSError as error:
            yield path.name, f"it cannot be read: {error.strerror}\n"


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    # The first line is cut off somewhere, perhaps inside of a secret.
    return text if size <= TAIL_BYTES else text.partition("\n")[2]
