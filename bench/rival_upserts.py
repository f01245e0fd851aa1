"""One upsert of a rival into a table of many rows; runs in the rival's own Python environment.

    python rival_upserts.py delta-rs|pyiceberg|pypaimon FOLDER TABLE_ROWS UPSERT_ROWS

Prints one line of JSON: the seconds of the upsert, the load before it not counted.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

LOAD_ROWS = 1_000_000


def rows_of(keys: np.ndarray, number: int) -> pa.Table:
    """The same columns as ours."""
    return pa.table(
        {
            "k": keys,
            "a": keys % 1000,
            "b": np.full(len(keys), number),
            "price": (keys % 10_000) / 4,
            "region": pa.array([f"region-{i}" for i in range(20)]).take(pa.array(keys % 20)),
            "name": pa.array([f"name-{i}" for i in range(100_000)]).take(pa.array(keys % 100_000)),
        }
    )


def chunks(total: int) -> Iterator[pa.Table]:
    for start in range(0, total, LOAD_ROWS):
        yield rows_of(np.arange(start, min(total, start + LOAD_ROWS)), 0)


def delta_rs(folder: Path, total: int, fresh: pa.Table) -> float:
    from deltalake import DeltaTable, write_deltalake  # type: ignore[import-not-found]  # of the rival's environment

    for rows in chunks(total):
        write_deltalake(folder, rows, mode="append")
    table = DeltaTable(folder)
    began = time.perf_counter()
    merge = table.merge(fresh, predicate="t.k = s.k", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return time.perf_counter() - began


def pyiceberg(folder: Path, total: int, fresh: pa.Table) -> float:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.u", schema=fresh.schema)
    for rows in chunks(total):
        table.append(rows)
    began = time.perf_counter()
    table.upsert(fresh, join_cols=["k"])
    return time.perf_counter() - began


def pypaimon(folder: Path, total: int, fresh: pa.Table) -> float:
    from pypaimon import CatalogFactory, Schema  # type: ignore[import-not-found]  # of the rival's environment

    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("bench", False)
    # A primary key may not be null.
    schema = fresh.schema.set(0, pa.field("k", pa.int64(), nullable=False))
    made = Schema.from_pyarrow_schema(schema, primary_keys=["k"], options={"bucket": "2"})
    catalog.create_table("bench.u", made, False)
    table = catalog.get_table("bench.u")

    def write(rows: pa.Table) -> None:
        builder = table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(rows.cast(schema))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    for rows in chunks(total):
        write(rows)
    began = time.perf_counter()
    write(fresh)
    return time.perf_counter() - began


# Any: parameters and results of the rivals' functions are described above.
RIVALS: dict[str, Callable[[Path, int, Any], float]] = {
    "delta-rs": delta_rs,
    "pyiceberg": pyiceberg,
    "pypaimon": pypaimon,
}


def main() -> None:
    name, folder, total, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    keys = np.unique(np.random.default_rng(1).integers(0, total, count))
    try:
        seconds = RIVALS[name](folder, total, rows_of(keys, 1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"seconds": seconds, "rows": len(keys)}))


if __name__ == "__main__":
    main()
