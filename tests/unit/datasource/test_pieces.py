"""Pieces: each row of a part is in one of them, and tasks have about the same bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tilth.datasource.pieces import OPEN_BYTES, PIECE_BYTES, PartPiece, cut, shared_out
from tilth.model.delta import PartSource
from tilth.model.part import DataFile, PartName
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple

_SCHEMA = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))


def _piece(rows: int, size: int, *, is_segment: bool = False) -> PartPiece:
    source = PartSource(
        name=PartName("all", 1, 1, 0, 1),
        file=DataFile(name="1-0.0-0.parquet", size=size, checksum=0),
        rows=rows,
        is_segment=is_segment,
        schema=_SCHEMA,
    )
    return PartPiece(source=source, wanted=_SCHEMA, first=0, end=rows)


@given(st.integers(1, 10_000), st.integers(0, 40 * PIECE_BYTES))
@settings(max_examples=examples(100))
def test_a_part_is_cut_without_gap_and_overlap(rows: int, size: int) -> None:
    found = cut(_piece(rows, size))
    assert [piece.first for piece in found] == [0, *(piece.end for piece in found[:-1])]
    assert found[-1].end == rows
    assert all(piece.first < piece.end for piece in found)
    if rows >= 1000:
        assert max(piece.bytes for piece in found) <= PIECE_BYTES * 1.1 + OPEN_BYTES


def test_a_segment_stays_whole() -> None:
    assert len(cut(_piece(1000, 10 * PIECE_BYTES, is_segment=True))) == 1


@given(st.lists(st.integers(0, 2 * PIECE_BYTES), max_size=60))
@settings(max_examples=examples(100))
def test_tasks_share_all_pieces_in_their_order(sizes: list[int]) -> None:
    pieces = [_piece(1 + number, size) for number, size in enumerate(sizes)]
    tasks = shared_out(pieces)
    assert [piece for task in tasks for piece in task] == pieces
    assert all(len(task) == 1 or sum(piece.bytes for piece in task) <= PIECE_BYTES + OPEN_BYTES for task in tasks)
    # Neighbours that would fit into one task are in one.
    for before, after in pairwise(tasks):
        assert sum(piece.bytes for piece in before) + after[0].bytes > PIECE_BYTES + OPEN_BYTES


def test_many_small_parts_share_tasks() -> None:
    assert len(shared_out([_piece(1, 0)] * 1000)) == -(-1000 // (PIECE_BYTES // OPEN_BYTES + 1))
