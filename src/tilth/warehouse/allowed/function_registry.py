"""Functions of a JVM before its first session: ClickHouse's are registered, the refused ones are removed.

Covers: the lines that ClickHouseFunctions.java reads, compiling and calling it; restrictions for texts that did not
pass the allow list: the removal, the name of the user. Does not cover: which functions there are
(clickhouse/functions/functions.py), what may be called (allow_list.py), properties (session/conf.py).
Always holds: the functions are those of every session, for each session copies the JVM's when it is created; a
definition that is older than the allow list cannot call a refused function.

Tests: tests/integration/warehouse/test_allowed_functions.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilth.base.java_class import Java, compiled
from tilth.clickhouse.functions.functions import TABLE_FUNCTIONS, functions
from tilth.warehouse.allowed.allow_list import allow_list

#: The result of `current_user()`, so that the account of the node's process is not shown.
USER = "tilth"

_PACKAGE, _CLASS = "tilth.clickhouse.functions", "ClickHouseFunctions"
_ARGUMENT = re.compile(r"\$([1-9])")


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


def register_functions(context: Java) -> None:
    """Register the functions. Call it before the first session is created."""
    jvm = context._jvm
    analysis = jvm.org.apache.spark.sql.catalyst.analysis
    registrar = compiled(jvm, _PACKAGE, _CLASS)
    registrar.apply(analysis.FunctionRegistry.builtin(), "\n".join(_lines()))
    registrar.apply(analysis.TableFunctionRegistry.builtin(), "\n".join(_table_lines()))


def _lines() -> Iterator[str]:
    for name, variants in functions().items():
        for variant in variants:
            kinds = "*" if variant.arguments is None else " ".join(variant.arguments)
            yield "\t".join((name.lower(), kinds, _filled(variant.expression)))


def _table_lines() -> Iterator[str]:
    for name, queries in TABLE_FUNCTIONS.items():
        for count, query in enumerate(queries, start=1):
            yield "\t".join((name, " ".join(["any"] * count), _filled(query)))


def _filled(expression: str) -> str:
    return _ARGUMENT.sub(lambda found: f"__argument{int(found[1]) - 1}", expression)
