"""Files of ended transactions in a bucket that lists them late: a second sweep finds those missed by the first one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.bucket_roots import bucket_root, set_keys
from tests.catalog_world import World
from tilth.catalog import Catalog, InsertPart, Joining, TxnHandle
from tilth.maintenance import sweep_transaction
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.model.txn import TxnOutput
from tilth.storage.store.paths import name_of
from tilth.testing import FakeBucket


class Server(World):
    """A server whose tables are in a bucket."""

    def __init__(self, bucket: FakeBucket) -> None:
        super().__init__()
        self.bucket = bucket
        self.root = bucket_root(bucket.endpoint, prefix="p")
        self.catalog = Catalog(
            self.kv,
            self.clock,
            "s1",
            self.new_id,
            is_checking=True,
            sweep=lambda txn, *, keep: sweep_transaction(self.catalog, self.root, txn, keep=keep),
        )
        self.catalog.serve_as(self.catalog.servers.join(Joining(name="s1", run="1", version="1")))
        self.cleaner = Cleaner(self.clock, self.catalog, self.root, dropped_kept_ms=1)

    def write(self, work: TxnHandle, name: str, *, is_listed: bool) -> str:
        """Put a file of this transaction into the bucket; return its name."""
        file = f"{work.id}-{name}"
        path = f"p/{self.t}/data/{file}"
        self.bucket.objects[path] = b"x"
        if not is_listed:
            self.bucket.unlisted.add(path)
        return file

    def there(self) -> set[str]:
        return {name_of(path) for path in self.bucket.objects}

    def sweep_again(self) -> None:
        self.bucket.unlisted.clear()
        self.cleaner.tick()
        self.clock.advance(GRACE_MS / 1000)
        self.cleaner.tick()

    @property
    def outputs(self) -> list[TxnOutput]:
        return [TxnOutput(table=self.t, tasks=1)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    set_keys(monkeypatch)
    with FakeBucket() as bucket:
        yield Server(bucket)


def test_what_was_given_up(server: Server) -> None:
    work = server.catalog.transactions.open("insert", outputs=server.outputs)
    server.write(work, "0.0-0.parquet", is_listed=True)
    late = server.write(work, "0.0-1.parquet", is_listed=False)
    work.give_up("refused", is_settled=True)
    assert server.there() == {late}
    server.sweep_again()
    assert server.there() == set()
    assert server.catalog.transactions.unfinished() == []


def test_a_failed_attempt_of_what_landed(server: Server) -> None:
    with server.catalog.transactions.open("insert", outputs=server.outputs, has_tasks=True) as work:
        server.write(work, "0.0-0.parquet", is_listed=True)
        late = server.write(work, "0.0-1.parquet", is_listed=False)
        landed = server.write(work, "1.0-0.parquet", is_listed=True)
        work.tasks_ended(may_have_retried=True)
        written = server.written()
        work.commit([InsertPart(table=server.t, written=replace(written, file=replace(written.file, name=landed)))])
    assert server.there() == {late, landed}
    server.sweep_again()
    assert server.there() == {landed}
    assert server.catalog.transactions.leftover_notes() == []
