"""Rounds of rows into a table with a unique key, against the rules applied row by row."""

from __future__ import annotations

import tempfile
from decimal import Decimal as Number
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.property.upsert_table import Row, UpsertTable, schema_of
from tilth.model.types import DataType, Decimal, Kind, Simple
from tilth.storage import local_folder
from tilth.storage.upsert.key_lookup import WantedKeys
from tilth.storage.values import unique_keys

_WORDS = ["", "a", "b", "aa", "12345678", "123456789", "ä", "x" * 40]
_KEYS: dict[str, tuple[tuple[DataType, ...], st.SearchStrategy[Row]]] = {
    "number": ((Simple(Kind.INT64),), st.tuples(st.integers(-3, 12))),
    "text": ((Simple(Kind.STRING),), st.tuples(st.sampled_from(_WORDS))),
    "both": ((Simple(Kind.INT32), Simple(Kind.STRING)), st.tuples(st.integers(0, 2), st.sampled_from(_WORDS[:3]))),
    "decimal": ((Decimal(12, 2),), st.tuples(st.integers(-9, 9).map(lambda n: Number(n).scaleb(-2)))),
    "date": ((Simple(Kind.DATE),), st.tuples(st.dates().map(lambda d: d.replace(year=2024, month=1)))),
}
#: Neighbours that floats and signed numbers of 64 bits do not distinguish.
_GREAT = [Number(n) for n in (2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)]
_VERSIONS: dict[str, tuple[DataType, st.SearchStrategy[object]]] = {
    "Int64": (Simple(Kind.INT64), st.integers(0, 3)),
    "UInt64": (Decimal(20, 0), st.sampled_from(_GREAT)),
}


def _values(versions: st.SearchStrategy[object] = _VERSIONS["Int64"][1]) -> st.SearchStrategy[Row]:
    return st.tuples(
        st.one_of(st.none(), versions),
        st.integers(0, 1),
        st.one_of(st.none(), st.sampled_from(["x", "y"])),
        st.one_of(st.none(), st.integers(0, 9)),
    )


@given(
    kind=st.sampled_from(sorted(_KEYS)),
    version=st.sampled_from([None, *_VERSIONS]),
    is_partial=st.booleans(),
    is_partitioned=st.booleans(),
    is_global=st.booleans(),
    data=st.data(),
)
@settings(max_examples=examples(60))
def test_rounds_leave_the_rows_of_the_rules(
    kind: str, version: str | None, is_partial: bool, is_partitioned: bool, is_global: bool, data: st.DataObject
) -> None:
    # The order of two rows of one batch is not known any more where they lie in different partitions.
    is_global = is_global and not (is_partial and is_partitioned)
    types, keys = _KEYS[kind]
    version_type, versions = _VERSIONS[version or "Int64"]
    row = st.tuples(keys, _values(versions), st.sampled_from([0, 0, 0, 1])).map(lambda t: (*t[0], *t[1], t[2]))
    with tempfile.TemporaryDirectory() as folder:
        table = UpsertTable(
            local_folder(folder),
            schema_of(*types, version=version_type),
            version_column="v" if version is not None else None,
            is_partial=is_partial,
            is_partitioned=is_partitioned,
            is_global=is_global,
        )
        loaded = data.draw(st.lists(row, max_size=12, unique_by=lambda each: each[: len(types)]))
        if loaded:
            table.load(loaded, with_filters=data.draw(st.booleans()))
        for _ in range(data.draw(st.integers(1, 4))):
            segments = data.draw(st.lists(st.lists(row, min_size=1, max_size=8), min_size=1, max_size=3))
            table.put(*segments)
            table.check()


@given(data=st.data())
@settings(max_examples=examples(20))
def test_different_keys_with_one_hash_stay_different(data: st.DataObject) -> None:
    types, keys = _KEYS["both"]
    row = st.tuples(keys, _values(), st.sampled_from([0, 0, 1])).map(lambda t: (*t[0], *t[1], t[2]))

    def same(texts: pa.Array) -> unique_keys.Hashes:
        return np.zeros(len(texts), np.uint64)

    with tempfile.TemporaryDirectory() as folder, patch.object(unique_keys, "_text_hashes", same):
        table = UpsertTable(local_folder(folder), schema_of(*types))
        for _ in range(3):
            table.put(*data.draw(st.lists(st.lists(row, min_size=1, max_size=8), min_size=1, max_size=2)))
            table.check()


@given(texts=st.lists(st.text(max_size=200), max_size=20))
def test_a_text_has_one_hash_wherever_it_stands(texts: list[str]) -> None:
    alone = [unique_keys.keys_of([pa.chunked_array([[text]])], [pa.string()]).hashes[0] for text in texts]
    column = pa.chunked_array([pa.array(["before", *texts], pa.string()).slice(1)])
    together = unique_keys.keys_of([column], [pa.string()]).hashes
    assert together.tolist() == [int(each) for each in alone]
    assert len(set(together.tolist())) == len(set(texts))


@given(
    stored=st.one_of(
        st.sets(st.integers(-30, 30)).map(sorted),
        st.lists(st.integers(-30, 30), max_size=20),
        st.lists(st.integers(-9, 9)).map(sorted),
    ),
    wanted=st.sets(st.integers(-35, 35), min_size=1),
    kept=st.sets(st.integers(-35, 35)),
    kinds=st.sampled_from([(pa.int64(), pa.int64()), (pa.int32(), pa.int64()), (pa.date32(), pa.date32())]),
    data=st.data(),
)
def test_numbers_in_order_are_found_without_hashes(
    stored: list[int],
    wanted: set[int],
    kept: set[int],
    kinds: tuple[pa.DataType, pa.DataType],
    data: st.DataObject,
) -> None:
    of_file, of_table = kinds
    column = pa.chunked_array([pa.array(stored, of_file)])
    given_keys = data.draw(st.permutations(sorted(wanted)))
    searched = pa.chunked_array([pa.array(given_keys, of_table)])
    keys = WantedKeys(
        unique_keys.keys_of([searched], [of_table]), np.arange(len(wanted)), (unique_keys.as_numbers(searched),)
    ).only(np.array([key in kept for key in given_keys]))
    ascending = unique_keys.ascending_numbers([column], [of_table])
    is_ascending = stored == sorted(set(stored))
    assert (ascending is not None) == is_ascending
    expected = [(row, given_keys.index(key)) for row, key in enumerate(stored) if key in wanted & kept]
    rows, numbers = keys.find(unique_keys.keys_of([column], [of_table]))
    assert list(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected
    if ascending is not None:
        rows, numbers = keys.find_ascending(ascending)
        assert list(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected


def test_a_number_that_comes_twice_is_not_in_order() -> None:
    numbers = pa.chunked_array([pa.array([1, 2, 2, 3], pa.int64())])
    assert unique_keys.ascending_numbers([numbers], [pa.int64()]) is None
    assert unique_keys.ascending_numbers([numbers.slice(2)], [pa.int64()]) is not None


def test_other_keys_are_no_numbers_in_order() -> None:
    texts, numbers = pa.chunked_array([["a", "b"]]), pa.chunked_array([[1, 2]])
    assert unique_keys.ascending_numbers([texts], [pa.string()]) is None
    assert unique_keys.ascending_numbers([numbers, numbers], [pa.int64(), pa.int64()]) is None
    assert unique_keys.ascending_numbers([numbers.cast(pa.float64())], [pa.float64()]) is None
