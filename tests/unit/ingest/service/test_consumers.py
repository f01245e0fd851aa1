"""Consumers that were replaced and do not know it yet: what they still say changes nothing, each call alone.

Two things guard a round: the server knows which identity it handed out last, and the catalog knows the epoch of the
lease. Each is tested without the other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.ingest.consume_world import PARTITION, Server, begin, done, replaced
from tilth.base.errors import FencedError
from tilth.catalog import TxnNotFoundError
from tilth.ingest.consumer.calls import EndsReport, SnapshotTables
from tilth.ingest.kafka.metadata import Offset, PartitionEnd, ReportedEnd
from tilth.ingest.rounds.round import Scope
from tilth.model.txn import Txn, TxnState


def state_of(server: Server, txn: int) -> TxnState | None:
    return server.world.catalog.transactions.resolve(txn)


# --- this server has replaced it ---


def test_a_late_begin_leaves_the_round_of_its_successor_alone(server: Server) -> None:
    fence = replaced(server)
    txn = begin(server, fence)
    with pytest.raises(FencedError) as caught:
        begin(server, server.fence)
    assert (caught.value.facts["epoch"], caught.value.facts["now_epoch"]) == ("1", "2")
    assert state_of(server, txn) is TxnState.RUNNING
    server.consumers.commit(done(server, fence, txn))
    assert server.stored() == 1


def test_a_late_commit_is_refused_before_anybody_hears_of_it(server: Server) -> None:
    txn = begin(server, server.fence)
    late = done(server, server.fence, txn)
    now = begin(server, replaced(server))
    with pytest.raises(FencedError) as caught:
        server.consumers.commit(late)
    assert (caught.value.facts["epoch"], caught.value.facts["now_epoch"]) == ("1", "2")
    # The task that runs is not the one that wanted to commit.
    assert server.dispatcher.committed == []
    assert (server.stored(), server.world.names(), server.world.catalog.transactions.live()) == (0, [], {now})


@pytest.mark.parametrize("call", ["look", "heard"])
def test_late_questions_and_news_are_refused_too(server: Server, call: str) -> None:
    txn = begin(server, server.fence)
    replaced(server)
    kafka = server.kafka.uuid
    reach = ReportedEnd(topic_partition=PARTITION, end=PartitionEnd(stable=Offset(9), high=Offset(9)))
    scope = Scope(table=server.world.t, partitions=None)
    calls: dict[str, Callable[[], object]] = {
        "look": lambda: server.consumers.snapshot_tables(
            SnapshotTables(kafka_table=kafka, consumer=0, fence=server.fence, txn=txn, scopes=(scope,), number=0)
        ),
        "heard": lambda: server.consumers.report_ends(
            EndsReport(kafka_table=kafka, consumer=0, fence=server.fence, ends=(reach,))
        ),
    }
    with pytest.raises(FencedError):
        calls[call]()


def test_the_round_of_a_replaced_consumer_is_settled_at_once(server: Server) -> None:
    txn = begin(server, server.fence)
    replaced(server)
    [left] = server.world.catalog.transactions.unfinished()
    assert (left.id, left.state, left.reason) == (txn, TxnState.ABORTED, "its consumer was replaced")
    assert server.world.catalog.transactions.live() == set()


def test_a_round_that_is_begun_again_settles_the_one_before(server: Server) -> None:
    first = begin(server, server.fence)
    second = begin(server, server.fence)
    assert (state_of(server, first), state_of(server, second)) == (TxnState.ABORTED, TxnState.RUNNING)


def test_a_round_whose_consumer_is_replaced_while_it_begins_is_settled(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is there, and nobody knows it yet."""
    transactions = server.world.catalog.transactions
    made = transactions.begin

    def raced(*args: object, **kwargs: object) -> Txn:
        txn = made(*args, **kwargs)  # type: ignore[arg-type]  # as it was called
        monkeypatch.setattr(transactions, "begin", made)
        replaced(server)
        return txn

    monkeypatch.setattr(transactions, "begin", raced)
    with pytest.raises(FencedError):
        begin(server, server.fence)
    [left] = transactions.unfinished()
    assert left.state is TxnState.ABORTED
    assert server.world.catalog.transactions.live() == set()


def test_a_commit_of_another_round_than_the_last_is_refused(server: Server) -> None:
    """Its identity is good, but its round is not the one that runs."""
    first = begin(server, server.fence)
    second = begin(server, server.fence)
    with pytest.raises(TxnNotFoundError):
        server.consumers.commit(done(server, server.fence, first))
    server.consumers.commit(done(server, server.fence, second))
    assert (state_of(server, second), server.stored()) == (TxnState.FINISHED, 1)


def test_a_commit_that_is_asked_for_again_has_the_same_answer(server: Server) -> None:
    txn = begin(server, server.fence)
    assert server.world.catalog.transactions.live() == {txn}
    committed = server.consumers.commit(done(server, server.fence, txn))
    assert server.world.catalog.transactions.live() == set()
    assert server.consumers.commit(done(server, server.fence, txn)) == committed
    assert server.stored() == 1


@pytest.mark.parametrize("may_have_retried", [False, True])
def test_what_failed_attempts_of_a_round_left_goes_where_spark_tries_again(
    server: Server, *, may_have_retried: bool
) -> None:
    """The files that the round names stay."""
    swept: list[tuple[int, set[str]]] = []
    catalog = server.world.catalog
    catalog.transactions.sweep = lambda txn, *, keep: swept.append((txn.id, set(keep)))
    txn = begin(server, server.fence)
    call = done(server, server.fence, txn, may_have_retried=may_have_retried)
    server.consumers.commit(call)
    named = {each.part.file.name for each in call.facts.parts}
    assert swept == ([(txn, named)] if may_have_retried else [])
    assert catalog.transactions.leftover_notes() == [] or catalog.transactions.swept() == {txn}


# --- another server has replaced it, and this one does not know ---


def taken_over(server: Server) -> None:
    server.world.catalog.leases.acquire(server.fence.name, "s2")


def test_no_round_begins_under_an_epoch_that_is_over(server: Server) -> None:
    taken_over(server)
    with pytest.raises(FencedError):
        begin(server, server.fence)
    assert server.world.catalog.transactions.unfinished() == []


def test_no_round_commits_under_an_epoch_that_is_over(server: Server) -> None:
    txn = begin(server, server.fence)
    taken_over(server)
    with pytest.raises(FencedError) as caught:
        server.consumers.commit(done(server, server.fence, txn))
    assert caught.value.facts["now_holder"] == "s2"
    assert (server.stored(), server.world.names()) == (0, [])
