"""Names in a statement of a user's own Spark: which mean tables of Tilth, and one time for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tilth.base.errors import ErrorKind, TilthError
from tilth.client.errors import ServerError
from tilth.datasource.statements import NamedTable, chosen_table, pinned_tables
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.model.table import Schema, TableDef
from tilth.model.wire import ErrorAnswer, ErrorBody
from tilth.query.snapshots.protocol import AsOfTime, AsOfVersion

_PINNED = (
    Snapshot(table=TableDef(uuid="u", database="d", name="t", schema=Schema(columns=())), ts=5, version=1, parts=()),
    ReaderLease(id="r1", table="u", snapshot_ts=5, holder="h", expires_ms=9, opened_ms=8),
    "/data",
)


@pytest.mark.parametrize(
    ("name", "is_known", "means"),
    [
        (("t",), False, NamedTable(database="main", table="t")),
        (("t",), True, None),
        (("d", "t"), False, NamedTable(database="d", table="t")),
        # Refused, if the server has it, too.
        (("d", "t"), True, NamedTable(database="d", table="t", is_known=True)),
        (("TILTH", "d", "t"), True, NamedTable(database="d", table="t")),
        (("spark_catalog", "d", "t"), True, None),
        (("a", "b", "c", "d"), False, None),
    ],
)
def test_a_name_means_a_table_of_tilth_or_of_the_session(
    name: tuple[str, ...], is_known: bool, means: NamedTable | None
) -> None:
    assert chosen_table(name, None, database="main", is_known=lambda _: is_known) == means


class Server:
    """A server that has the tables of the database `d`."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def pin_together(self, tables: Sequence[tuple[str, str]]) -> list[tuple[Snapshot, ReaderLease, str] | None]:
        self.calls.append(list(tables))
        return [_PINNED if database == "d" else None for database, _ in tables]

    def pin(
        self, database: str, table: str, as_of_ms: int | None = None, *, version: int | None = None
    ) -> tuple[Snapshot, ReaderLease, str]:
        self.calls.append((database, table, as_of_ms, version))
        if version == 9:
            raise ServerError(
                ErrorAnswer(ErrorBody(code="UNKNOWN_VERSION", kind="invalid", message="m", hint="", id=""))
            )
        if database != "d":
            raise ServerError(ErrorAnswer(ErrorBody(code="X", kind="not_found", message="m", hint="", id="")))
        return _PINNED


def test_tables_of_now_are_pinned_together_and_past_ones_alone() -> None:
    server = Server()
    wanted = [
        NamedTable(database="d", table="a"),
        NamedTable(database="d", table="b", as_of=AsOfVersion(version=3)),
        NamedTable(database="nope", table="c"),
        NamedTable(database="nope", table="c", as_of=AsOfTime(micros=7_999)),
        NamedTable(database="d", table="d"),
    ]
    assert pinned_tables(server, wanted) == [_PINNED, _PINNED, None, None, _PINNED]
    assert server.calls == [
        [("d", "a"), ("nope", "c"), ("d", "d")],
        ("d", "b", None, 3),
        ("nope", "c", 7, None),
    ]
    with pytest.raises(TilthError) as refused:
        pinned_tables(server, [NamedTable(database="d", table="a", as_of=AsOfVersion(version=9))])
    assert refused.value.kind is ErrorKind.INVALID
