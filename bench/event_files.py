"""Files of narrow events, Parquet or JSON, which benchmarks of a user's own Spark read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

#: Columns of the events, as Tilth, Delta and Iceberg declare them.
COLUMNS = "user_id BIGINT, ts TIMESTAMP, page STRING, amount DOUBLE, event_id BIGINT"
#: Size of a row in a file of each format, about; for the number of rows.
ROW_BYTES = {"PARQUET": 24, "JSON": 138}
FILES = 8
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S%.6f+00:00"


def rows_of(gib: float, form: str) -> int:
    """Return how many rows fill files of so many GiB, about; a multiple of FILES."""
    return int(gib * (1 << 30)) // ROW_BYTES[form] // FILES * FILES


def make_event_files(folder: Path, form: str, rows: int) -> None:
    """Write so many rows in FILES files: an object in each line, or Parquet with zstd."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    count = rows // FILES
    for number in range(FILES):
        users = random.integers(0, 1_000_000, count)
        times = 1_700_000_000_000_000 + np.arange(number * count, (number + 1) * count) * 1000
        table = pa.table(
            {
                "user_id": users,
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "page": pa.array(np.char.add("/page/", (users % 5000).astype(str))),
                "amount": random.random(count),
                "event_id": random.integers(0, 2**62, count),
            }
        )
        if form == "PARQUET":
            pq.write_table(table, folder / f"{number}.parquet", compression="zstd")
            continue
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        texts = frame.with_columns(pl.col("ts").dt.strftime(_TIME_FORMAT))
        texts.write_ndjson(folder / f"{number}.json")
