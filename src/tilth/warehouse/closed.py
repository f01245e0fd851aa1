"""Restrictions of the JVM itself, for texts that did not pass the allow list.

Covers: removing functions, the name of the user. Does not cover: the allow list (allowed.py), properties (conf.py).
Always holds: a definition that is older than the allow list cannot call a refused function.
"""

from __future__ import annotations

from typing import Any

from tilth.warehouse.allowed import allow_list

# A handle of an object in the JVM, or of PySpark's; py4j gives it no type.
Java = Any

#: The result of `current_user()`, so that the account of the node's process is not shown.
USER = "tilth"


def remove_refused_functions(context: Java) -> None:
    """Remove the refused functions. Call it before the first session is created: each session copies the functions."""
    allowed, catalyst = allow_list(), context._jvm.org.apache.spark.sql.catalyst
    for registry, names in (
        (catalyst.analysis.FunctionRegistry.builtin(), allowed.refused_functions),
        (catalyst.analysis.TableFunctionRegistry.builtin(), allowed.refused_table_functions),
    ):
        for name in names:
            registry.dropFunction(catalyst.FunctionIdentifier(name))


def user_of_thread(context: Java) -> Java:
    """Return the JVM's variable for the user of a thread and of the threads that it starts; `set` changes it."""
    return context._jvm.org.apache.spark.sql.catalyst.CurrentUserContext.CURRENT_USER()
