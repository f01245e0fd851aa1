"""Batches of streams: each lands once, however late it is sent again. Pure.

Covers: which batch may follow the last one of its stream. Does not cover: the rows of a batch (fold_table.py).
Always holds: of a stream the batches in a table only rise. A stream is known by its name, if it has one, else by the id
of its query; Spark counts the batches of a query from 0, and keeps id and count in the query's checkpoint.
"""

from __future__ import annotations

from tilth.base.errors import ConflictError
from tilth.catalog.errors import BatchLandedError
from tilth.catalog.records.nouns import StreamRecord
from tilth.catalog.rules.changes import CommitTimes
from tilth.catalog.rules.updates import InsertBatch

#: Streams of one table: their records stay as long as the table.
STREAMS_MAX = 10_000


def check_batch(table: str, update: InsertBatch, known: StreamRecord | None, *, count: int) -> None:
    """Raise BatchLandedError for the last batch of the stream sent again, ConflictError for one that cannot follow it.

    `count`: the streams of the table, if this one is new.
    """
    if known is None:
        if count >= STREAMS_MAX:
            raise ConflictError.coded(
                "TOO_MANY_STREAMS",
                "the table has records of too many streams",
                table=table,
                streams_max=STREAMS_MAX,
                hint="give each stream a name that stays: option stream",
            )
        return
    facts = {"table": table, "stream": update.stream, "batch": str(update.batch), "last_batch": str(known.batch)}
    if known.query != update.query:
        if update.is_new_checkpoint:
            return
        raise ConflictError.coded(
            "STREAM_CHECKPOINT_LOST",
            "the stream comes with another checkpoint than the one that its last batch was sent from",
            **facts,
            query=update.query,
            last_query=known.query,
            hint="go on with the old checkpoint. With a new one rows may come again: compare the table with the "
            "source, and set the option new_checkpoint to the id of the new query to go on",
        )
    if update.batch == known.batch:
        hint = "leave it: its rows are in the table"
        raise BatchLandedError(hint=hint, rows=known.rows, txn=known.txn, commit_ts=known.commit_ts).with_facts(**facts)
    if update.batch < known.batch:
        raise ConflictError.coded(
            "STREAM_BATCH_OLD",
            "the stream has gone back behind a batch that is in the table",
            **facts,
            hint="its checkpoint was restored from an older copy: rows of the batches since then are in the table "
            "already; restore the newest checkpoint, or begin a new one behind those rows",
        )


def batch_record(update: InsertBatch, times: CommitTimes) -> StreamRecord:
    """Return the record of the batch as the last one of its stream."""
    return StreamRecord(
        stream=update.stream,
        query=update.query,
        batch=update.batch,
        txn=times.txn,
        commit_ts=times.commit_ts,
        rows=update.rows,
    )
