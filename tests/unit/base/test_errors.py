"""An error that goes on with more facts stays the error that it was."""

from __future__ import annotations

import pickle

import pytest

from tilth.base.errors import InvalidInputError, NotFoundError, TilthError
from tilth.storage.errors import PartFileCorruptError


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError.coded("BAD_ARGUMENTS", "too many", given=3, hint="give two"),
        NotFoundError(table="a.b"),
        PartFileCorruptError("the footer is cut", file="x.parquet"),
        InvalidInputError(),
    ],
)
def test_more_facts_leave_class_code_sentence_and_hint(error: TilthError) -> None:
    more = error.with_facts(at="line 1, column 8")
    assert (type(more), more.code, more.kind, more.hint) == (type(error), error.code, error.kind, error.hint)
    assert more.facts == error.facts | {"at": "line 1, column 8"}
    assert more.message == f"{error.message}{' ' if error.facts else ': '}at=line 1, column 8"
    assert str(pickle.loads(pickle.dumps(more))) == str(more)
    assert more.with_facts(hint="", b=2).hint == ""


def test_a_fact_that_is_there_gets_the_new_value_in_its_position() -> None:
    error = InvalidInputError("row=1 is wrong", hint="look", row=1, why="row=1")
    moved = error.with_facts(row=12, file="x")
    assert moved.message == "row=1 is wrong: row=12 why=row=1 file=x"
    assert moved.facts == {"row": "12", "why": "row=1", "file": "x"}
    assert (moved.hint, error.facts["row"]) == ("look", "1")
