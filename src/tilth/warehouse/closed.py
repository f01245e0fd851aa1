"""What a JVM cannot do any more once it runs a worker's Spark, whatever a text says.

Covers: functions that are taken away, the name of who asks. Does not cover: texts (allowed.py), properties (conf.py).
Always holds: a text that nobody has looked at, of an older definition for instance, finds no refused function.
"""

from __future__ import annotations

from typing import Any

from tilth.warehouse.allowed import allow_list

# A handle of an object in the JVM, or of PySpark's; py4j gives it no type.
Java = Any

#: What `current_user()` says: the account of the node's process is nobody's business.
USER = "tilth"


def remove_refused_functions(context: Java) -> None:
    """Call it before the first session is there: each has a copy of the functions."""
    allowed, catalyst = allow_list(), context._jvm.org.apache.spark.sql.catalyst
    for registry, names in (
        (catalyst.analysis.FunctionRegistry.builtin(), allowed.refused_functions),
        (catalyst.analysis.TableFunctionRegistry.builtin(), allowed.refused_table_functions),
    ):
        for name in names:
            registry.dropFunction(catalyst.FunctionIdentifier(name))


def name_user(context: Java) -> None:
    """Names who asks in this thread, and in those that it starts."""
    context._jvm.org.apache.spark.sql.catalyst.CurrentUserContext.CURRENT_USER().set(USER)
