"""The allow list against the installed Spark: a new version of Spark fails here until somebody has decided."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tilth.warehouse import WorkerSession
from tilth.warehouse.allowed.allow_list import allow_list

pytestmark = pytest.mark.integration

_CATALYST = "org.apache.spark.sql.catalyst."
#: Where kinds that are named shortly live.
_PACKAGES = ("plans.logical.", "analysis.", "expressions.", "expressions.aggregate.", "plans.", "")


# Any: a handle of the JVM; py4j gives it no type.
@pytest.fixture(scope="module")
def jvm(spark: WorkerSession) -> Any:
    return spark.session._jvm


def _keys(scala_map: Any) -> set[str]:  # Any: as above
    keys = scala_map.keysIterator()
    found = set()
    while keys.hasNext():
        found.add(str(keys.next()))
    return found


def test_every_function_of_spark_is_allowed_or_refused_with_a_reason(jvm: Any) -> None:  # Any: as above
    allowed = allow_list()
    known = _keys(jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.expressions())
    assert len(known) > 500
    assert allowed.functions | allowed.refused_functions.keys() == known
    assert not allowed.functions & allowed.refused_functions.keys()
    assert all(one.why and one.instead for one in allowed.refused_functions.values())


def test_every_table_function_of_spark_is_allowed_or_refused_with_a_reason(jvm: Any) -> None:  # Any: as above
    allowed = allow_list()
    known = _keys(jvm.org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry.logicalPlans())
    assert allowed.table_functions | allowed.refused_table_functions.keys() == known
    assert not allowed.table_functions & allowed.refused_table_functions.keys()
    assert all(one.why and one.instead for one in allowed.refused_table_functions.values())


def test_every_kind_that_is_named_is_a_class_of_spark(jvm: Any) -> None:  # Any: as above
    allowed = allow_list()

    def is_class(name: str) -> bool:
        names = [name] if "." in name else [_CATALYST + package + name for package in _PACKAGES]
        return any(_is_there(jvm, one) or _is_there(jvm, f"{one}$") for one in names)

    assert [name for name in sorted(allowed.kinds | allowed.refused_kinds.keys()) if not is_class(name)] == []
    assert not allowed.kinds & allowed.refused_kinds.keys()


def _is_there(jvm: Any, name: str) -> bool:  # Any: as above
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return loader.loadClass(name) is not None
    except Py4JJavaError:
        return False
