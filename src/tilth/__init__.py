"""Tilth: self-maintaining real-time tables for Spark.

    tilth.connect(url)            a connection to a server: SQL in, Arrow, pandas and Polars out
    tilth.open(path)              a whole node in this process: the same SQL, no server
    tilth.read(spark, "db.t")     a table as a DataFrame of your own Spark session
    tilth.attach(spark, url=..)   the data source `tilth` in your own Spark session
    tilth.sql(spark, "SELECT ..") a statement of your own Spark session over tables of Tilth and its own
    tilth.write(frame, "db.t")    a DataFrame of your own Spark session into a table

See also: README.md, docs/journey.md.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    # Type checkers of those who use the package need each name said twice.
    from tilth.client import Connection as Connection
    from tilth.client import Result as Result
    from tilth.client import connect as connect
    from tilth.datasource.attach import attach as attach
    from tilth.front import open as open
    from tilth.front import read as read
    from tilth.front import sql as sql
    from tilth.front import write as write
else:
    __getattr__ = door(__name__)
