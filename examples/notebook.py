"""A whole node in this process, as in a notebook: no server, the same SQL.

python examples/notebook.py [FOLDER]
"""

import sys
import tempfile

import tilth

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()

with tilth.open(folder) as node:
    node.sql("CREATE TABLE IF NOT EXISTS numbers (n BIGINT, square BIGINT) ENGINE = MergeTree ORDER BY n")
    node.sql("INSERT INTO numbers SELECT id, id * id FROM range(1000)")
    print(node.sql("SELECT count(*) AS rows, max(square) AS largest FROM numbers").pandas())
