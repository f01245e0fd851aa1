"""How far back a table can be read: docs/policies/history.md."""

from __future__ import annotations

import pytest

from tests.codes import WithCode
from tests.oracle import Row, number, oracle
from tilth.base.errors import ErrorKind, InvalidInputError
from tilth.base.hybrid import pack
from tilth.model.history import SnapshotTooOldError, ancient_mark, check_readable

NOW_MS = 1_700_000_000_000
NOW = pack(NOW_MS, 5)


@pytest.mark.parametrize("row", oracle("history", "Ancient history mark at 445644800000000005"))
def test_ancient_history_mark(row: Row) -> None:
    assert ancient_mark(NOW, number(row["age (s)"])) == (None if row["mark"] == "none" else int(row["mark"]))


def test_a_read_at_the_mark_is_allowed_and_one_before_it_is_not() -> None:
    mark = ancient_mark(NOW, 900)
    assert mark is not None
    for at in (mark, mark + 1, NOW):
        check_readable(at, ahm=mark, now=NOW, table="default.t")
    with pytest.raises(SnapshotTooOldError) as refused:
        check_readable(mark - 1, ahm=mark, now=NOW, table="default.t")
    assert (refused.value.code, refused.value.kind) == ("INVALID_SNAPSHOT", ErrorKind.INVALID)
    with pytest.raises(SnapshotTooOldError) as refused:
        check_readable(pack(NOW_MS - 1_000_500), ahm=mark, now=NOW, table="default.t")
    message = str(refused.value)
    assert "snapshot scan end timestamp is earlier than the ancient history mark" in message
    assert "2023-11-14T21:56:39.500Z" in message
    assert "2023-11-14T21:58:20.000Z" in message
    assert "difference=100.500 s" in message
    assert "consider increasing tablet_history_max_age_sec" in message


def test_a_time_in_the_future_is_refused() -> None:
    with pytest.raises(InvalidInputError, check=WithCode("SNAPSHOT_IN_FUTURE")) as refused:
        check_readable(pack(NOW_MS + 2000), ahm=0, now=NOW, table="default.t")
    assert (refused.value.code, refused.value.kind) == ("SNAPSHOT_IN_FUTURE", ErrorKind.INVALID)
    assert "difference=2.000 s" in str(refused.value)
    with pytest.raises(InvalidInputError, check=WithCode("SNAPSHOT_IN_FUTURE")):
        check_readable((1 << 63) - 1, ahm=None, now=NOW, table="default.t")


def test_without_history_only_the_present_is_read() -> None:
    check_readable(NOW, ahm=None, now=NOW, table="default.t")
    with pytest.raises(SnapshotTooOldError, match="keeps no history"):
        check_readable(NOW - 1, ahm=None, now=NOW, table="default.t")
