"""The folder in which the driver and Spark's planning processes meet."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tilth.base.errors import InvalidInputError, NotFoundError
from tilth.client.http import Connection
from tilth.datasource.attachment import Attachment, HeldLease, PinnedTable, new_attachment
from tilth.datasource.errors import NotAttachedError
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple

_TABLE = TableDef(
    uuid="u",
    database="db",
    name="t",
    schema=Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),)),
    created_ms=0,
)
_PINNED = PinnedTable(Snapshot(table=_TABLE, ts=5, version=2, parts=()), "/root")


@pytest.fixture
def attachment() -> Iterator[Attachment]:
    made = new_attachment()
    yield made
    made.remove()


def test_folders_of_programs_that_were_killed_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = new_attachment()
    mine.add_server("http://h:1", "secret")
    name = Path(mine.folder).name
    # No process has this number: Linux has 22 bits for them.
    killed = [tmp_path / name.replace(f"-{os.getpid()}-", f"-{process}-") for process in (2**22 + 1, 2**70)]
    others = [tmp_path / "tilth-attached-elsewhere-4194305-x", tmp_path / "tilth-attached-", tmp_path / f"{name}x"]
    for path in (*killed, *others):
        path.mkdir()
    again = new_attachment()
    assert sorted(tmp_path.iterdir()) == sorted([Path(mine.folder), Path(again.folder), killed[1], *others])


def test_only_the_owner_can_read_it(attachment: Attachment) -> None:
    attachment.add_server("http://h:1", "secret")
    assert stat.S_IMODE(os.stat(attachment.folder).st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in Path(attachment.folder).iterdir()] == [0o600]
    assert "secret" not in repr(attachment)


def test_a_token_goes_to_its_own_address_only(attachment: Attachment) -> None:
    attachment.add_server("http://h:1,http://h:2", "secret")
    assert [_token(attachment.connection(url)) for url in (None, "http://h:1,http://h:2", "http://evil:1")] == [
        "Bearer secret",
        "Bearer secret",
        None,
    ]
    assert attachment.address() == "http://h:1,http://h:2"
    attachment.add_server("http://other", "")
    assert [_token(attachment.connection(url)) for url in (None, "http://h:1,http://h:2")] == [None, "Bearer secret"]


@pytest.mark.parametrize("token", ["a\nb", "a b", "ü", "a\x00"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Connection("http://h:1", token=token)
    assert token not in str(refused.value)


def test_what_is_held_is_found_until_it_is_forgotten(attachment: Attachment) -> None:
    lease = HeldLease(id="l1", url="http://h:1", seconds=60.0, table="db.t")
    attachment.hold(lease, _PINNED)
    attachment.hold(msgspec.structs.replace(lease, id="l2"))
    assert [each for each, _ in attachment.held()] == [lease, msgspec.structs.replace(lease, id="l2")]
    os.utime(Path(attachment.folder, "l1.held"), (1, 1))
    assert attachment.held()[0][1] == 1
    assert attachment.use("l1") == _PINNED
    assert attachment.held()[0][1] > 1
    attachment.forget("l1")
    attachment.forget("l1")
    with pytest.raises(NotFoundError, match="held no more"):
        attachment.use("l1")
    assert [each.id for each, _ in attachment.held()] == ["l2"]


def test_an_attachment_that_has_ended_says_so(attachment: Attachment) -> None:
    attachment.remove()
    assert attachment.held() == []
    with pytest.raises(NotAttachedError, match="has ended"):
        attachment.connection()
    with pytest.raises(NotAttachedError, match="has ended"):
        attachment.hold(HeldLease(id="l1", url="", seconds=1.0, table="t"))


def _token(connection: Connection) -> str | None:
    with connection:
        token: str | None = connection._http.headers.get("Authorization")
        return token
