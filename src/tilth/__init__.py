"""Tilth: self-maintaining real-time tables for Spark.

    tilth.connect(url)            a connection to a server: SQL in, Arrow, pandas and Polars out
    tilth.open(path)              a whole node in this process: the same SQL, no server
    tilth.read(spark, "db.t")     a table as a DataFrame of your own Spark session

See also: README.md, docs/journey.md.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.client import Connection, Result, connect
    from tilth.front import open, read
else:
    __getattr__ = door(__name__)

__all__ = ["Connection", "Result", "connect", "open", "read"]
