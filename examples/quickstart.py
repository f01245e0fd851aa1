"""Create a table, add rows, ask a question. Needs a server: `tilth serve --data ./data`.

python examples/quickstart.py [http://127.0.0.1:7411]
"""

import sys

import pyarrow as pa

import tilth

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7411"

with tilth.connect(url) as connection:
    connection.sql("CREATE DATABASE IF NOT EXISTS shop")
    connection.sql("DROP TABLE IF EXISTS shop.orders")
    connection.sql(
        """CREATE TABLE shop.orders (id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP)
           ENGINE = MergeTree PARTITION BY toDate(at) ORDER BY (customer, at)"""
    )
    connection.sql(
        """INSERT INTO shop.orders VALUES (1, 'ada', 12.5, TIMESTAMP '2026-01-05 10:00:00'),
                                          (2, 'bob', 4.0, TIMESTAMP '2026-01-05 11:00:00')"""
    )
    rows = pa.table(
        {"id": [3], "customer": ["ada"], "amount": [7.5], "at": pa.array([1767700000000000], pa.timestamp("us", "UTC"))}
    )
    connection.insert("shop.orders", rows)

    totals = connection.sql(
        "SELECT customer, sum(amount) AS total FROM shop.orders GROUP BY customer ORDER BY customer"
    )
    print(totals.pandas())

    parts = connection.sql("SELECT name, rows FROM system.parts WHERE table = 'orders' AND active ORDER BY name")
    print(parts.polars())
