"""Cache of texts and plans of the queries that a worker has run, for the next query of the same text. Pure.

Covers: texts that were parsed and checked, what they need of their tables, handles of plans and bytes of their rows;
bounds, counters. Does not cover: making these (prepared_spark.py), what a handle is (plan_cache_spark.py).
Always holds: a cached value is used only where all that it depends on is the same: of a text the settings and the names
and columns of its tables, of a plan also each snapshot down to its files, and the JVM. Nothing is cached of a query
that failed. Rights, limits and leases are those of each query itself.

Tests: tests/integration/sql/test_query_cache.py.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilth.base.metrics import counter, gauge
from tilth.query.snapshots.predicates import Needs
from tilth.query.snapshots.protocol import Resolved, Source
from tilth.query.worker.hidden import ShownColumns
from tilth.query.worker.relations import Edit, Relations

#: Longest text, in characters, of which something is cached.
TEXT_MAX = 32_768
#: Cost of all texts together, in units of about half a kilobyte; see `_CachedText.cost`.
TEXT_COST_MAX = 50_000
_COST_CHARACTERS = 512
PLANS_MAX = 64
#: Files of one plan, and of all plans together, about half a kilobyte each in the JVM.
PLAN_FILES_MAX = 10_000
FILES_MAX = 20_000

# A handle of an object in the JVM, and Spark's context.
Java = object


@dataclass(frozen=True, slots=True)
class QueryKey:
    """A text with the `spark.sql.*` settings by which Spark reads it."""

    text: str
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Facts that follow from a text and the columns of its tables, at any time."""

    resolved: list[Resolved]
    #: Names of the views that stand for the relations.
    views: list[str]
    shown: list[ShownColumns]
    edits: list[Edit]
    #: None: the optimizer was not needed.
    needs: Needs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBasis:
    """All that a plan depends on besides its text, its settings and the columns of its tables."""

    sources: list[Source]
    #: Tasks that share a scan.
    tasks: int
    context: Java

    def is_same(self, other: PlanBasis) -> bool:
        return self.context is other.context and self.tasks == other.tasks and self.sources == other.sources

    @property
    def bytes(self) -> int:
        return sum(source.snapshot.bytes for source in self.sources if source.snapshot is not None)

    @property
    def files(self) -> int:
        return sum(len(source.snapshot.parts) for source in self.sources if source.snapshot is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCacheStats:
    """Counts of this process's queries since the start. A frozen snapshot."""

    texts_reused: int = counter(
        "tilth_query_texts_reused_total", "Queries whose text this process had parsed, checked and prepared before."
    )
    texts_prepared: int = counter(
        "tilth_query_texts_prepared_total", "Queries whose text had to be parsed, checked and prepared."
    )
    plans_reused: int = counter(
        "tilth_query_plans_reused_total", "Queries that ran by a cached plan: their tables had not changed."
    )
    plans_made: int = counter("tilth_query_plans_made_total", "Queries that Spark had to analyze and optimize.")
    texts: int = gauge("tilth_query_texts_cached", "Texts of queries in the cache.")
    plans: int = gauge("tilth_query_plans_cached", "Plans of queries in the cache.")


@dataclass(frozen=True, slots=True)
class _CachedText:
    found: Relations
    prepared: Preparation | None = None

    @property
    def cost(self) -> int:
        """Memory of its nodes, its characters and the columns of its tables."""
        tables = [] if self.prepared is None else self.prepared.resolved
        columns = sum(len(table.schema.all_columns) for table in tables)
        return len(self.found.nodes) + len(self.found.text) // _COST_CHARACTERS + columns


@dataclass(frozen=True, slots=True)
class CachedPlan:
    """A plan, and what is known of its rows."""

    resolved: list[Resolved]
    basis: PlanBasis
    handle: Java
    #: Bytes of the rows when the plan ran last, which has the same rows each time; None: it has not ended yet.
    answer_bytes: int | None = None


class QueryCache:
    """Cached texts and plans of a process; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The text used last is the last.
        self._texts: OrderedDict[QueryKey, _CachedText] = OrderedDict()
        self._plans: OrderedDict[QueryKey, CachedPlan] = OrderedDict()
        self._text_cost = 0
        self._files = 0
        self._reused_texts = self._prepared_texts = self._reused_plans = self._made_plans = 0

    def stats(self) -> QueryCacheStats:
        with self._lock:
            return QueryCacheStats(
                texts_reused=self._reused_texts,
                texts_prepared=self._prepared_texts,
                plans_reused=self._reused_plans,
                plans_made=self._made_plans,
                texts=len(self._texts),
                plans=len(self._plans),
            )

    def relations(self, key: QueryKey) -> Relations | None:
        """Return the relations of a text that was parsed and checked; None: it is not cached."""
        with self._lock:
            cached = self._texts.get(key)
            if cached is None:
                return None
            self._texts.move_to_end(key)
            return cached.found

    def add_relations(self, key: QueryKey, found: Relations) -> None:
        """Cache a text that was parsed and has passed all checks."""
        added = _CachedText(found)
        if len(key.text) > TEXT_MAX or added.cost > TEXT_COST_MAX:
            return
        with self._lock:
            if key not in self._texts:
                self._put_text(key, added)

    def preparation(self, key: QueryKey, resolved: list[Resolved]) -> Preparation | None:
        """Return the preparation of a text over tables with these names and columns."""
        with self._lock:
            cached = self._texts.get(key)
        prepared = None if cached is None else cached.prepared
        is_same = prepared is not None and prepared.resolved == resolved
        with self._lock:
            self._reused_texts += is_same
            self._prepared_texts += not is_same
        return prepared if is_same else None

    def add_preparation(self, key: QueryKey, prepared: Preparation) -> None:
        """Cache the preparation of a text that is cached."""
        with self._lock:
            if key in self._texts:
                former = self._texts.pop(key)
                self._text_cost -= former.cost
                self._put_text(key, _CachedText(former.found, prepared))

    def _put_text(self, key: QueryKey, text: _CachedText) -> None:
        """Add a text as the one used last; those used longest ago go. The lock is held."""
        self._texts[key] = text
        self._text_cost += text.cost
        while self._text_cost > TEXT_COST_MAX:
            self._text_cost -= self._texts.popitem(last=False)[1].cost

    def plan(self, key: QueryKey, resolved: list[Resolved], basis: PlanBasis) -> CachedPlan | None:
        """Return the plan with this basis; remove a plan with another basis."""
        with self._lock:
            cached = self._plans.get(key)
        is_same = cached is not None and cached.resolved == resolved and cached.basis.is_same(basis)
        with self._lock:
            if is_same and key in self._plans:
                self._plans.move_to_end(key)
            elif cached is not None and self._plans.get(key) is cached:
                self._remove_plan(key)
        return cached if is_same else None

    def note_plan(self, *, is_reused: bool) -> None:
        """Count a query by where its plan came from."""
        with self._lock:
            self._reused_plans += is_reused
            self._made_plans += not is_reused

    def add_plan(self, key: QueryKey, resolved: list[Resolved], basis: PlanBasis, handle: Java) -> None:
        """Cache the plan of a query; remove another one of its text, and those used longest ago."""
        if basis.files > PLAN_FILES_MAX or len(key.text) > TEXT_MAX:
            return
        with self._lock:
            if key in self._plans:
                self._remove_plan(key)
            for other in [other for other, plan in self._plans.items() if plan.basis.context is not basis.context]:
                # The plan was in a JVM that is gone.
                self._remove_plan(other)
            self._plans[key] = CachedPlan(resolved, basis, handle)
            self._files += basis.files
            while len(self._plans) > PLANS_MAX or self._files > FILES_MAX:
                self._remove_plan(next(iter(self._plans)))

    def note_answer(self, key: QueryKey, handle: Java, answer_bytes: int) -> None:
        """Note how many bytes the rows of a plan had, if it is still cached."""
        with self._lock:
            cached = self._plans.get(key)
            if cached is not None and cached.handle is handle:
                self._plans[key] = replace(cached, answer_bytes=answer_bytes)

    def remove_plan(self, key: QueryKey) -> None:
        """Remove a plan that cannot be used any more."""
        with self._lock:
            if key in self._plans:
                self._remove_plan(key)

    def _remove_plan(self, key: QueryKey) -> None:
        self._files -= self._plans.pop(key).basis.files


def may_cache_plan(sources: Sequence[Source]) -> bool:
    """Return whether a plan over these sources may be used again: all are files of one copy each, without deltas or row
    segments.
    """
    return all(
        source.snapshot is not None
        and source.root is not None
        and not source.root.replicas
        and not source.snapshot.deltas
        and not any(part.is_segment for part in source.snapshot.parts)
        for source in sources
    )
