"""Classes of this project's Java, compiled in the JVM by the compiler that Spark uses for generated code.

Covers: compiling, one object of a class. Does not cover: what the classes do.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

# A handle of an object in the JVM; py4j gives it no type.
Java = Any


def compiled(jvm: Java, package: str, name: str, *, loader: Java = None) -> Java:
    """Return a new object of the class in the package's file `name`.java. `loader`: that of classes that it uses; None:
    the thread's own.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader or jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files(package).joinpath(f"{name}.java").read_text())
    return compiler.getClassLoader().loadClass(name).newInstance()
