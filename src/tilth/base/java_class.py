"""Classes of this project's Java, compiled in the JVM by the compiler that Spark uses for generated code.

Covers: compiling, one object of a class for each JVM. Does not cover: what the classes do. It stands below the rooms,
because storage and warehouse, which do not know each other, both compile classes.

Tests: tests/integration/sql/test_query_cache.py.
"""

from __future__ import annotations

import threading
from importlib.resources import files
from typing import Any
from weakref import WeakKeyDictionary

# A handle of an object in the JVM; py4j gives it no type.
Java = Any

_lock = threading.Lock()
#: Objects by gateway, package and name. py4j caches methods by the name of their class, so a JVM can load a class only
#: once.
_known: WeakKeyDictionary[Java, dict[tuple[str, str], Java]] = WeakKeyDictionary()


def compiled(jvm: Java, package: str, name: str, *, loader: Java = None) -> Java:
    """Return a new object of the class in the package's file `name`.java. `loader`: that of classes that it uses; None:
    the thread's own.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader or jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files(package).joinpath(f"{name}.java").read_text())
    return compiler.getClassLoader().loadClass(name).newInstance()


def compiled_once(session: Java, package: str, name: str) -> Java:
    """Return the session's JVM's only object of the class; see `compiled`."""
    with _lock:
        found = _known.setdefault(session.sparkContext._gateway, {})
        if (package, name) not in found:
            found[package, name] = compiled(session._jvm, package, name)
        return found[package, name]
