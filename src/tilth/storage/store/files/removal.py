"""Removing files: of transactions that did not land, of parts and deltas that left their table, of dropped tables.

Covers: removal by name. Does not cover: when something may be removed (catalog, maintenance).
Always holds: no table's folder is listed to decide what is removed; removing twice is no error; a part's sidecars are
removed before its file. In a storage with replicas, the files by which others are found are removed last.

In a bucket, the names that begin with the transaction's id are listed. Elsewhere names are tried: the files of a task's
attempt are numbered, so the first number without a file ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, product

from tilth.base.errors import TilthError
from tilth.base.hybrid import milliseconds
from tilth.model.part import DataFile
from tilth.model.txn import FileRun, Txn, TxnOutput, read_file_name
from tilth.storage.errors import FilesLeftError, StoreAwayError
from tilth.storage.store.paths import (
    EXTENSIONS,
    SIDECAR_EXTENSIONS,
    data_folder,
    file_name,
    name_of,
    sidecars_of,
    table_folder,
    table_of,
)
from tilth.storage.store.protocol import Removal
from tilth.storage.store.replicas.replicated import ReplicatedStore, away_reason
from tilth.storage.store.replicas.witnesses import bucket_listings, have_begun, named_at_once, witnesses_of
from tilth.storage.store.root import Folder, Roots, StoreRoot
from tilth.storage.store.stores import store_of

#: Number of attempts of a task whose names are tried at least, and beyond the last attempt with files. Spark gives up
#: after fewer failures, but does not count attempts that ended with an executor which was taken away.
ATTEMPTS_MIN = 8
ATTEMPTS_BEYOND = 4
#: Number of names of a run that are removed without a check if no set of replicas shows all of them.
BLIND_NAMES = 16
#: The files that one attempt of a task wrote with one extension: named by a number, from 0 without a hole.
_Run = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class LeftNames:
    """Files that a transaction's tasks may have left, by name."""

    #: Runs with more files than are removed unchecked: counting no longer finds the last ones once the first are gone.
    runs: tuple[FileRun, ...]
    paths: Sequence[_Paths]

    def remove(self) -> int:
        """Remove the files; return how many the store has found. Raises FilesLeftError if some could not be removed."""
        removals = [(each, *removal) for each in self.paths for removal in each.remove()]
        failed = [removal for removal in removals if removal[2].failed]
        if failed:
            raise _left_error(failed)
        found = {
            (each.root, path)
            for each, _, removal in removals
            for path in (removal.gone if each.is_listed else removal.found)
        }
        return sum(not path.endswith(SIDECAR_EXTENSIONS) for _, path in found)


@dataclass(frozen=True, slots=True)
class _Paths:
    """Files to be removed below one root, from the last one of each run to its first."""

    root: StoreRoot
    #: Numbers of the replicas to remove them from; none in a root without replicas.
    replicas: tuple[int, ...]
    #: Numbers of the replicas, among these, in which a file has its name as soon as it is begun. Files there are
    #: removed last: their names lead to the files of the other replicas.
    leading: tuple[int, ...] = ()
    #: Paths to remove in the other replicas; in a root without replicas, all paths.
    first: list[str] = field(default_factory=list)
    #: Paths to remove in the leading replicas.
    last: list[str] = field(default_factory=list)
    #: `True` if the store has listed the paths: all of them are there, and what stays is found again.
    is_listed: bool = False

    def remove(self) -> list[tuple[Sequence[str], Removal]]:
        if not self.root.replicas:
            return [(self.first, store_of(self.root).remove(self.first))]
        store = ReplicatedStore(self.root)
        others = [number for number in self.replicas if number not in self.leading]
        first = store.remove_from(others, self.first)
        stuck = {_attempt(path) for path in first.failed}
        last = [path for path in self.last if _attempt(path) not in stuck]
        return [(self.first, first), (last, store.remove_from(self.leading, last))]


def clean_transaction(root: Roots, txn: Txn, *, keep: Collection[str] = (), also: Sequence[str] = ()) -> int:
    """Remove the files that `count_left` finds; return how many the store has found.

    Raises FilesLeftError if some could not be removed.
    """
    return count_left(root, txn, keep=keep, also=also).remove()


def count_left(
    root: Roots,
    txn: Txn,
    *,
    keep: Collection[str] = (),
    also: Sequence[str] = (),
    runs: Sequence[FileRun] = (),
) -> LeftNames:
    """Find the files that the transaction's tasks may have left, except those named in `keep`.

    `keep`: names of the files that the transaction has committed, so that only files of failed attempts are found;
    empty if it has not committed. `also`: paths that an earlier FilesLeftError named. `runs`: runs that an earlier
    count has found; files written since have higher numbers than the removed ones.
    Raises StoreAwayError if a replica is away: files that are not counted in all replicas may be forgotten.
    """
    lefts: dict[tuple[StoreRoot, tuple[int, ...]], _Paths] = {}
    found: list[FileRun] = []
    listings: list[_Paths] = []
    for path in also:
        store_root = root.of(table_of(path))
        all_replicas = tuple(range(len(store_root.replicas)))
        lefts.setdefault((store_root, ()), _Paths(store_root, all_replicas)).first.append(path)
    for output in txn.outputs:
        folder = data_folder(root, output.table)
        listed = _list_left(folder, txn.id, keep)
        listings += listed
        folders = named_at_once(folder.root)
        if not folders and listed:
            continue
        known = {(run.task, run.attempt, run.extension): run.files for run in runs if run.table == output.table}
        witnesses = _witnesses(folder.root, txn, output)
        if folders and not witnesses:
            # Files whose names the folders lack may be in a bucket.
            for run, count in _above(txn.id, [name_of(path) for each in listed for path in each.first]).items():
                known[run] = max(known.get(run, 0), count)
        counts = _counts(folder, txn.id, output.tasks, _above(txn.id, keep), known, witnesses)
        leading = witnesses or folders
        left = lefts.setdefault((folder.root, leading), _Paths(folder.root, folders, leading))
        for run, (count, least) in counts.items():
            if count > least:
                task, attempt, extension = run
                found.append(FileRun(table=output.table, task=task, attempt=attempt, extension=extension, files=count))
            names = [folder.key(name) for name in _names(txn.id, run, count, keep)]
            left.last.extend(names)
            # After the last file of an attempt that a quorum has begun, the other replicas may have one more.
            left.first.extend([folder.key(_name(txn.id, run, count))] if witnesses else ())
            left.first.extend(names)
    paths = [*lefts.values(), *listings]
    for store_root in {each.root for each in paths}:
        # A replica that is not counted may hold forgotten names; a name that stays in one is removed again in all.
        if reason := away_reason(store_root):
            raise StoreAwayError(reason, file=str(store_root))
    return LeftNames(tuple(found), paths)


def _witnesses(root: StoreRoot, txn: Txn, output: TxnOutput) -> tuple[int, ...]:
    """Return the replicas whose names show how many files an attempt has begun; none: all replicas are searched."""
    if not root.replicas:
        return ()
    return witnesses_of(root, output.table, begun_ms=milliseconds(txn.id), quorum=output.quorum)


def _list_left(folder: Folder, txn: int, keep: Collection[str]) -> list[_Paths]:
    """Return the files that listings of buckets show, for each bucket; none if neither the root nor a replica is one.

    Raises StoreAwayError if a bucket does not answer.
    """
    kept = {name for each in keep for name in (*sidecars_of(each), each)}

    def left(paths: Sequence[str]) -> list[str]:
        return [path for path in paths if name_of(path) not in kept and read_file_name(name_of(path)) is not None]

    if folder.root.replicas:
        found = bucket_listings(folder.root, folder.key(f"{txn}-"))
        return [_Paths(folder.root, (number,), first=left(paths), is_listed=True) for number, paths in found.items()]
    paths = store_of(folder.root).list_prefix(folder.key(f"{txn}-"))
    return [] if paths is None else [_Paths(folder.root, (), first=left(paths), is_listed=True)]


def _left_error(removals: Sequence[tuple[_Paths, Sequence[str], Removal]]) -> FilesLeftError:
    """Return the error that names what nobody finds any more by counting: what stays above others that are gone."""
    lost: list[str] = []
    for each, paths, removal in removals:
        if not each.is_listed:
            gone = set(removal.gone)
            last = max((index for index, path in enumerate(paths) if path in gone), default=0)
            lost += [path for path in paths[:last] if path in removal.failed]
    paths_failed, _, removal = removals[0]
    path, why = next(iter(removal.failed.items()))
    files = sum(len(each.failed) for _, _, each in removals)
    return FilesLeftError(lost, file=Folder(paths_failed.root).uri(path), files=files, reason=why)


def remove_data(
    root: Roots, table: str, files: Sequence[DataFile], *, deleters: int = 1
) -> dict[str, TilthError | OSError]:
    """Remove files of parts and deltas, and what lies beside them; return by name why some may be there still.

    One that is gone already is no failure. `deleters`: so many requests at a time.
    """
    folder = data_folder(root, table)
    store = store_of(folder.root)
    keys = [[folder.key(name) for name in (*sidecars_of(file.name), file.name)] for file in files]
    per_request = store.names_per_removal // (1 + len(SIDECAR_EXTENSIONS))
    step = per_request or max(1, -(-len(keys) // deleters))
    runs = [list(chain.from_iterable(keys[at : at + step])) for at in range(0, len(keys), step)]
    if len(runs) <= 1:
        removals = [store.remove(run) for run in runs]
    else:
        with ThreadPoolExecutor(min(deleters, len(runs)), thread_name_prefix="remove") as pool:
            removals = list(pool.map(store.remove, runs))
    failed = {path: error for removal in removals for path, error in removal.failed.items()}
    return {file.name: failed[key] for file, names in zip(files, keys, strict=True) for key in names if key in failed}


def drop_table_folder(root: Roots, uuid: str) -> None:
    """Remove everything of a table; nothing where there is nothing. Raises why a file may be there still."""
    remove_folder(table_folder(root, uuid))


def remove_folder(folder: Folder) -> None:
    """Remove all below a folder; nothing where there is nothing. Raises why a file may be there still."""
    store_of(folder.root).remove_folder(folder.path)


def _above(txn: int, names: Iterable[str]) -> dict[_Run, int]:
    """Return for each run of these files a number greater than the numbers of all of them."""
    above: dict[_Run, int] = {}
    for name in names:
        found = read_file_name(name)
        if found is not None and found.txn == txn:
            run = found.task, found.attempt, found.extension
            above[run] = max(above.get(run, 0), found.n + 1)
    return above


def _counts(
    folder: Folder,
    txn: int,
    tasks: int,
    kept: Mapping[_Run, int],
    known: Mapping[_Run, int],
    witnesses: tuple[int, ...],
) -> dict[_Run, tuple[int, int]]:
    """Return for each run a number greater than the numbers of all its files, and the number of its names that are
    removed in any case.

    A kept file may have been removed from its table since: the gap that it leaves must not hide the files after it.
    """
    blind = BLIND_NAMES if folder.root.replicas and not witnesses else 0
    # After a commit, failed attempts have written about as many files as those whose files are kept.
    above = max(kept.values(), default=0) if blind else 0
    counts: dict[_Run, tuple[int, int]] = {}
    first, last = 0, ATTEMPTS_MIN + max((attempt for _, attempt, _ in (*kept, *known)), default=-1)
    while first <= last:
        runs = list(product(range(tasks), range(first, last + 1), EXTENSIONS))
        least = [max(above + blind, kept.get(run, 0)) for run in runs]
        floor = [max(known.get(run, 0), names) for run, names in zip(runs, least, strict=True)]
        reached = _count_from(folder, txn, runs, floor, step=max(1, blind), witnesses=witnesses)
        counts |= dict(zip(runs, zip(reached, least, strict=True), strict=True))
        with_files = [run[1] for run, count, names in zip(runs, reached, least, strict=True) if count > names]
        first, last = last + 1, max(with_files, default=-1) + ATTEMPTS_BEYOND
    return counts


def _count_from(
    folder: Folder, txn: int, runs: Sequence[_Run], counts: list[int], *, step: int, witnesses: tuple[int, ...]
) -> list[int]:
    """Return for each run the first number, from the given one in steps, under which there is no file."""
    exist: Callable[[Sequence[str]], list[bool]] = store_of(folder.root).exist
    growing = list(range(len(runs)))
    if folder.root.replicas:
        exist = partial(have_begun, folder.root, witnesses or named_at_once(folder.root))
    while growing:
        paths = [folder.key(_name(txn, runs[index], counts[index])) for index in growing]
        growing = [index for index, is_there in zip(growing, exist(paths), strict=True) if is_there]
        for index in growing:
            counts[index] += step
    return counts


def _names(txn: int, run: _Run, count: int, keep: Collection[str]) -> Iterator[str]:
    """Yield what is to be removed from the last file to the first, so that a crash in between leaves no hole."""
    # A row map is begun before the part beside it.
    yield from sidecars_of(_name(txn, run, count))
    for n in reversed(range(count)):
        name = _name(txn, run, n)
        if name not in keep:
            yield from (*sidecars_of(name), name)


def _attempt(path: str) -> str:
    """Return the common beginning of the names of all files of an attempt."""
    return path.rpartition("-")[0]


def _name(txn: int, run: _Run, n: int) -> str:
    task, attempt, extension = run
    return file_name(txn=txn, task=task, attempt=attempt, n=n, extension=extension)
