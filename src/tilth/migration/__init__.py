"""DDL of ByConity, ClickHouse, Kudu, Delta and Iceberg as statements of Tilth, with a report of what is not the same.

Covers: reading a script, which system wrote a statement, the statement of Tilth for it, each difference with its line.
Does not cover: running the statements (client/cli/import_ddl.py), rows.
Always holds: a statement that Tilth understands goes out word by word; one that was changed is read by Tilth's own
grammar, and passes the server's checks, before it is shown; what means something else is in the report. Pure.
See also: docs/migrate/README.md.
"""

from tilth.migration.report import DdlFinding, DdlReport, Difference, ForeignSystem, StatementVerdict, Translated
from tilth.migration.translate import translate_script
