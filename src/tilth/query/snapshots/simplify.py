"""Predicates of a bounded number of terms, for parts are many and each is tested by every term. Pure.

Covers: terms of one column that together are one list, terms that are too many. Does not cover: deciding about parts
(prune.py). Always holds: `joined` is true, false and null for the same rows; `bounded` is true at least where its
predicate is.

Tests: tests/property/test_sql_prune.py, tests/integration/storage/test_query_needs.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilth.model.part import Bound
from tilth.query.snapshots.predicates import AllOf, AnyOf, Compare, Comparison, IsIn, Negation, Predicate

#: Terms by which a part is tested; a list is one.
TERMS_MAX = 256


def joined(predicate: Predicate) -> Predicate:
    """The same predicate with `a = 1 OR a = 2` as `a IN (1, 2)` and `a <> 1 AND a <> 2` as its counterpart."""
    match predicate:
        case AnyOf(items=items):
            return _chain(AnyOf, _listed(_flat(AnyOf, items)))
        case AllOf(items=items):
            negated = [_negated(item) for item in _flat(AllOf, items)]
            return _chain(AllOf, [_negated(item) for item in _listed(negated)])
        case Negation(item=item):
            return _negated(joined(item))
        case _:
            return predicate


def bounded(predicate: Predicate) -> Predicate:
    """A predicate of at most TERMS_MAX terms, or one for each column, that is true wherever this one is."""
    if _terms(predicate) <= TERMS_MAX:
        return predicate
    if not isinstance(predicate, AllOf):
        return AllOf(tuple(IsIn(column, tuple(values)) for column, values in _necessary(predicate).items()))
    left, kept = TERMS_MAX, []
    for item in map(bounded, predicate.items):
        terms = _terms(item)
        if terms <= left:
            kept.append(item)
            left -= terms
    return AllOf(tuple(kept))


def _flat(kind: type[AllOf | AnyOf], items: Sequence[Predicate]) -> Iterator[Predicate]:
    for item in map(joined, items):
        if isinstance(item, kind):
            yield from item.items
        else:
            yield item


def _chain(kind: type[AllOf | AnyOf], items: Sequence[Predicate]) -> Predicate:
    return items[0] if len(items) == 1 else kind(tuple(items))


def _listed(items: Iterable[Predicate]) -> list[Predicate]:
    """Alternatives with one list for each column, at the position of the column's first one."""
    lists: dict[str, list[Bound]] = {}
    found: list[Predicate | str] = []
    for item in items:
        values = _values(item)
        if values is None:
            found.append(item)
            continue
        column, more = values
        if column not in lists:
            lists[column] = []
            found.append(column)
        lists[column].extend(more)
    return [IsIn(item, tuple(lists[item])) if isinstance(item, str) else item for item in found]


def _values(item: Predicate) -> tuple[str, tuple[Bound, ...]] | None:
    """The column and its list, where the predicate is one."""
    match item:
        case Compare(column=column, comparison=Comparison.EQUAL, value=value):
            return column, (value,)
        case IsIn(column=column, values=values):
            return column, values
        case _:
            return None


def _negated(predicate: Predicate) -> Predicate:
    return predicate.item if isinstance(predicate, Negation) else Negation(predicate)


def _terms(predicate: Predicate) -> int:
    match predicate:
        case AllOf(items=items) | AnyOf(items=items):
            return sum(map(_terms, items))
        case Negation(item=item):
            return _terms(item)
        case _:
            return 1


def _necessary(predicate: Predicate) -> dict[str, set[Bound]]:
    """Values by column, one of which it has in each row for which the predicate is true."""
    listed = _values(predicate)
    if listed is not None:
        return {listed[0]: set(listed[1])}
    match predicate:
        case AllOf(items=items):
            found: dict[str, set[Bound]] = {}
            for item in items:
                found.update(_necessary(item))
            return found
        case AnyOf(items=items) if items:
            readings = [_necessary(item) for item in items]
            shared = set(readings[0]).intersection(*readings)
            return {column: set().union(*(each[column] for each in readings)) for column in sorted(shared)}
        case _:
            return {}
