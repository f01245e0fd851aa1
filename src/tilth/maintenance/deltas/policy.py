"""Choice of the deltas of a table that are compacted next. Pure.

Rules: docs/policies/flush.md, docs/policies/delta-compaction.md.

Covers: FLUSH_DELTAS, by which change segments of a partition become deltas of their parts; MINOR_DELTA, by which the
delta files of a kind of a part become one; MAJOR_DELTA, by which updated columns of a part are written anew. Does not
cover: reading what there is (observation.py), the run (op.py, maintenance/work).
Always holds:
- FLUSH_DELTAS takes of a part all changes up to a time, without a gap, so that the new deltas apply at the
  same time as these. Changes of rows that are not flushed, and of parts that something works on, become one new change
  segment.
- MINOR_DELTA makes one of all deltas of a kind, none is left between; base data is not read.
- MAJOR_DELTA takes all updates of the part, with the columns' earlier versions that they are laid over; so no update is
  older than a column, and no column has two versions. Deletes stay.

Tests: tests/unit/maintenance/deltas/test_op.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tilth.base.hybrid import milliseconds
from tilth.base.units import show_bytes
from tilth.maintenance.gains import flush_gain
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.settings import DeltaSettings, FlushSettings
from tilth.maintenance.state import NEVER_MS
from tilth.model.delta import Delta, DeltaKind, PartSource, by_file
from tilth.model.part import Part

#: Maximum bytes and number of change segments in one run: the worker holds them at once.
FLUSH_BYTES_MAX = 64 << 20
FLUSH_FILES_MAX = 2_000
#: A reader opens each change segment, so their number counts too from FILES_MIN on, and fully from FILES_FULL on.
FILES_MIN = 32
FILES_FULL = 1_000
#: Maximum shares of columns of one MAJOR_DELTA: each is a file that readers of all updated columns open.
COLUMN_SHARES_MAX = 16
#: Kinds applied to a part row by row. Rows do not merge with values: each kind by itself.
_KINDS = (DeltaKind.DELETE, DeltaKind.UPDATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeltas:
    """The open deltas of one partition and the visible parts, segments among them, that they may change."""

    partition: str
    #: Parts by the name of their data file.
    parts: Mapping[str, Part]
    #: Deltas in the order in which they apply.
    deltas: tuple[Delta, ...]

    def apart_from(self, names: Collection[str]) -> PartitionDeltas:
        """Return the partition without the changes of the parts with these names, and without later changes of other
        parts that they change: no part keeps a change that is younger than one of it that is left out."""
        blocked = {file for file, part in self.parts.items() if str(part.name) in names}
        kept = []
        for delta in self.deltas:
            files = {target.file for target in delta.targets}
            if delta.kind is DeltaKind.CHANGES and files & blocked:
                blocked |= files
            else:
                kept.append(delta)
        return replace(self, deltas=tuple(kept))

    @property
    def changes(self) -> list[Delta]:
        """Return the change segments with a visible target, oldest first; readers need no others."""
        return [
            delta
            for delta in self.deltas
            if delta.kind is DeltaKind.CHANGES and any(target.file in self.parts for target in delta.targets)
        ]

    def of_parts(self) -> list[tuple[Part, tuple[Delta, ...]]]:
        """Return the visible parts that are no segments, each with all deltas that change it."""
        known = by_file(self.deltas)
        return [
            (self.parts[file], deltas)
            for file, deltas in sorted(known.items())
            if file in self.parts and not self.parts[file].is_segment
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaWork:
    """Deltas of one partition that become fewer."""

    kind: OpKind
    partition: str
    #: Deltas in the order in which they apply.
    deltas: tuple[Delta, ...]
    #: The parts that get new deltas; reserved, so that nothing else works on them.
    parts: tuple[Part, ...]
    #: Parts and segments whose changes become a change segment again.
    kept: tuple[Part, ...] = ()
    #: Gain for the scheduler.
    gain: float
    #: Bytes of the change segments that are retained until it is done, younger ones too.
    log_bytes: int = 0
    reason: str

    @property
    def names(self) -> list[str]:
        return [str(part.name) for part in self.parts]

    @property
    def partitions(self) -> Collection[str]:
        return (self.partition,)

    @property
    def subject(self) -> str:
        return self.partition

    @property
    def sources(self) -> tuple[Part, ...]:
        return (*self.parts, *self.kept)

    @property
    def changes(self) -> Mapping[str, tuple[Delta, ...]]:
        return by_file(self.deltas)

    @property
    def bytes(self) -> int:
        return sum(delta.bytes for delta in self.deltas)

    @property
    def about(self) -> str:
        return f"{self.partition}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaChoice:
    """The compaction to run now, or why there is none."""

    work: DeltaWork | None = None
    about: str = ""
    #: Time from which age alone gives a gain.
    due_ms: int = NEVER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaStore:
    """Changes that are not flushed."""

    bytes: int
    #: Log that would be replayed for them.
    replay_bytes: int


def choose_flush(
    partitions: Sequence[PartitionDeltas],
    *,
    busy: Collection[str],
    now_ms: int,
    settings: FlushSettings,
    used_percent: float = 0.0,
) -> DeltaChoice:
    """Choose the change segments to flush, or say why there are none or why they wait.

    `busy`: names of parts that something works on; `used_percent` is that of memory under pressure, else 0.
    """
    found = [(each, _ready(each, busy)) for each in partitions]
    stores = [(each, delta) for each, changes in found for delta in changes]
    if not stores:
        waiting = sum(len(each.changes) for each in partitions)
        return DeltaChoice(about=f"{waiting} change segments wait for their parts" if waiting else "no change segments")
    # Segments are like a log: one that is retained retains all younger ones.
    order = sorted(range(len(stores)), key=lambda index: -stores[index][1].change_ts)
    replay = 0
    weighed: list[DeltaStore] = [DeltaStore(bytes=0, replay_bytes=0)] * len(stores)
    for index in order:
        replay += stores[index][1].bytes
        weighed[index] = DeltaStore(bytes=stores[index][1].bytes, replay_bytes=replay)
    best_index = best_delta_store(weighed, used_percent=used_percent)
    assert best_index is not None
    chosen = stores[best_index][0]
    oldest_ms = min(milliseconds(delta.change_ts) for _, delta in stores)
    sources = _oldest(_ready(chosen, busy))
    elapsed_ms = max(0, now_ms - oldest_ms)
    gain = max(flush_gain(sum(delta.bytes for delta in sources), elapsed_ms, settings), _files_gain(len(sources)))
    parts, kept = _targets(chosen, sources, busy)
    waits = f"{len(stores)} change segments with {show_bytes(sum(delta.bytes for _, delta in stores))}"
    text = f"{waits}, the oldest {elapsed_ms / 1000:.0f} s old"
    if not gain:
        due_ms = oldest_ms + settings.threshold_secs * 1000 + 1
        return DeltaChoice(about=f"{text}; flush_threshold_secs={settings.threshold_secs}", due_ms=due_ms)
    work = DeltaWork(
        kind=OpKind.FLUSH_DELTAS,
        partition=chosen.partition,
        deltas=tuple(sources),
        parts=tuple(parts),
        kept=tuple(kept),
        gain=gain,
        log_bytes=weighed[best_index].replay_bytes,
        reason=f"{len(sources)} of {text}",
    )
    return DeltaChoice(work=work)


def choose_minor(
    partitions: Sequence[PartitionDeltas], *, busy: Collection[str], settings: DeltaSettings
) -> DeltaChoice:
    """Choose the part that gains most, or return why there is none."""
    best: DeltaWork | None = None
    for partition in partitions:
        for part, deltas in partition.of_parts():
            if str(part.name) in busy:
                continue
            files = {kind.value: len(_of_kind(deltas, kind)) for kind in _KINDS}
            gain = minor_gain(files, settings)
            if gain and (best is None or gain > best.gain):
                text = " and ".join(f"{count} {kind} deltas" for kind, count in files.items() if count > 1)
                best = DeltaWork(
                    kind=OpKind.MINOR_DELTA,
                    partition=partition.partition,
                    deltas=tuple(delta for kind in _KINDS if files[kind.value] > 1 for delta in _of_kind(deltas, kind)),
                    parts=(part,),
                    gain=gain,
                    reason=f"{text} of {part.name}, of {settings.minor_files_max} that count fully",
                )
    return DeltaChoice(work=best, about="" if best is not None else "no part has more than one delta of a kind")


def choose_major(
    partitions: Sequence[PartitionDeltas], *, busy: Collection[str], settings: DeltaSettings
) -> DeltaChoice:
    """Choose the part that gains most, or return why there is none."""
    best: DeltaWork | None = None
    highest = 0.0
    updated = 0
    for partition in partitions:
        for part, deltas in partition.of_parts():
            updates = [delta for delta in deltas if delta.kind is DeltaKind.UPDATE]
            updated += bool(updates)
            if str(part.name) in busy or not updates or not part.bytes:
                continue
            sparse = sum(delta.bytes for delta in deltas if delta.kind in _KINDS)
            highest = max(highest, sparse / part.bytes)
            gain = major_gain(update_files=len(updates), delta_bytes=sparse, base_bytes=part.bytes, settings=settings)
            if gain and (best is None or gain > best.gain):
                sources = folded(deltas)
                columns = {column for delta in sources for column in delta.columns}
                best = DeltaWork(
                    kind=OpKind.MAJOR_DELTA,
                    partition=partition.partition,
                    deltas=tuple(sources),
                    parts=(part,),
                    gain=gain,
                    reason=f"deltas of {part.name} have {sparse / part.bytes:.3f} of its bytes, {len(columns)} columns",
                )
    if best is not None:
        return DeltaChoice(work=best)
    if not updated:
        return DeltaChoice(about="no part has updates")
    wanted = f"{settings.major_ratio_min} are needed"
    return DeltaChoice(about=f"the deltas of a part have at most {highest:.3f} of its bytes, {wanted}")


def column_shares(source: PartSource, *, task_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Return the ids of the columns that a MAJOR_DELTA of this part writes, in shares of about so many bytes each.

    The bytes are estimated: all columns count alike. A column is never divided.
    """
    columns = sorted({column for delta in source.deltas for column in delta.columns})
    size = source.bytes * len(columns) // max(1, len(source.schema.columns))
    shares = max(1, min(len(columns), COLUMN_SHARES_MAX, -(-size // max(1, task_bytes))))
    return tuple(tuple(columns[share::shares]) for share in range(shares))


def folded(deltas: Sequence[Delta]) -> list[Delta]:
    """Return the updates of a part and its column deltas that have columns of these updates, in their order."""
    updated = {column for delta in deltas if delta.kind is DeltaKind.UPDATE for column in delta.columns}
    return [
        delta
        for delta in deltas
        if delta.kind is DeltaKind.UPDATE or (delta.kind is DeltaKind.COLUMN and not updated.isdisjoint(delta.columns))
    ]


def best_delta_store(stores: Sequence[DeltaStore], *, used_percent: float) -> int | None:
    """Return the index of the store to flush; `used_percent` is that of memory under pressure, else 0."""
    weight = min(100.0, max(0.0, used_percent))
    best_index: int | None = None
    best_score, best_bytes = 0.0, 0
    for index, store in enumerate(stores):
        score = store.bytes * weight + store.replay_bytes * (100 - weight)
        if score > best_score or (score > best_score - 1 and store.bytes > best_bytes):
            best_index, best_score, best_bytes = index, score, store.bytes
    return best_index


def minor_gain(files_by_kind: Mapping[str, int], settings: DeltaSettings) -> float:
    """Return the gain of merging one part's delta files of one kind; the kind with the most files counts."""
    files = max(files_by_kind.values(), default=0)
    return 0.0 if files <= 1 else min(1.0, files / settings.minor_files_max)


def major_gain(*, update_files: int, delta_bytes: int, base_bytes: int, settings: DeltaSettings) -> float:
    """Return the gain of writing one part's updates into its columns. Deletes alone give nothing."""
    if not update_files or not base_bytes:
        return 0.0
    ratio = delta_bytes / base_bytes
    return 0.0 if ratio < settings.major_ratio_min else min(1.0, ratio)


def _ready(deltas: PartitionDeltas, busy: Collection[str]) -> list[Delta]:
    """Return change segments, oldest first, without the leading ones that have no part to flush to."""
    changes = deltas.changes
    for index, delta in enumerate(changes):
        if any(_is_free(deltas.parts.get(target.file), busy) for target in delta.targets):
            return changes[index:]
    return []


def _oldest(changes: Sequence[Delta]) -> list[Delta]:
    """Choose the oldest changes within the bounds, all of one commit or none."""
    chosen: list[Delta] = []
    size = 0
    for delta in changes:
        is_new_commit = not chosen or delta.change_ts > chosen[-1].change_ts
        is_full = size + delta.bytes > FLUSH_BYTES_MAX or len(chosen) >= FLUSH_FILES_MAX
        if chosen and is_new_commit and is_full:
            break
        chosen.append(delta)
        size += delta.bytes
    return chosen


def _targets(deltas: PartitionDeltas, sources: Sequence[Delta], busy: Collection[str]) -> tuple[list[Part], list[Part]]:
    """Return the parts that get deltas of their own, and those that stay with a change segment. Hidden parts get
    neither: readers of later times do not see them, those of earlier ones read what they read before, and no UNDROP
    brings back parts without all that was visible together with them."""
    files = dict.fromkeys(target.file for delta in sources for target in delta.targets)
    visible = [deltas.parts[file] for file in files if file in deltas.parts]
    parts = [part for part in visible if _is_free(part, busy)]
    return parts, [part for part in visible if not _is_free(part, busy)]


def _is_free(part: Part | None, busy: Collection[str]) -> bool:
    return part is not None and not part.is_segment and str(part.name) not in busy


def _files_gain(files: int) -> float:
    return min(1.0, files / FILES_FULL) if files >= FILES_MIN else 0.0


def _of_kind(deltas: Sequence[Delta], kind: DeltaKind) -> list[Delta]:
    return [delta for delta in deltas if delta.kind is kind]
