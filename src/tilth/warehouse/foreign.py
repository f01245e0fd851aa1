"""Registers ClickHouse's functions in a JVM.

Covers: the lines that ClickHouseFunctions.java reads, compiling and calling it. Does not cover: which functions there
are (clickhouse.py), what may be called (allowed.py).
Always holds: the functions are those of every session, for each session copies the JVM's when it is created.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from tilth.warehouse.clickhouse import TABLE_FUNCTIONS, functions

# A handle of an object in the JVM, or of PySpark's; py4j gives it no type.
Java = Any

_CLASS = "ClickHouseFunctions"
_ARGUMENT = re.compile(r"\$([1-9])")


def register_functions(context: Java) -> None:
    """Register the functions. Call it before the first session is created."""
    jvm = context._jvm
    analysis = jvm.org.apache.spark.sql.catalyst.analysis
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files(__package__).joinpath(f"{_CLASS}.java").read_text())
    registrar = compiler.getClassLoader().loadClass(_CLASS).newInstance()
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
