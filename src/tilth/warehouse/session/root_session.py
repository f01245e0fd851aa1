"""The first session of a JVM, from which all others are created.

Spark searches all jars for extensions of its sessions and applies them when it creates the first one. One of
its own jars has one, that for machine learning: its functions are not in the allow list, so no text can call them, and
registering them takes a sixth of a JVM's processor time until its first answers.

Covers: creating that session without this extension. Does not cover: extensions of other jars and those of the
property, which Spark applies as always.

Tests: tests/integration/warehouse/test_spark_session.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Each jar names its extensions in a file of this name.
_NAMES = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
_PROPERTY = "spark.sql.extensions"
_MACHINE_LEARNING = "spark-mllib_"


def create_root_session(context: SparkContext) -> SparkSession:
    """Create the first session of the JVM."""
    from pyspark.sql import SparkSession

    # Any: pyspark ships no types for objects of the JVM.
    jvm: Any = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if context.getConf().contains(_PROPERTY) or has_extensions(loader):
        return SparkSession(context)
    sessions, nothing = jvm.org.apache.spark.sql, jvm.scala.Option.empty()
    # Any: as above.
    maps: Any = getattr(jvm.scala.collection.immutable, "Map$")
    options = getattr(maps, "MODULE$").empty()
    extensions = sessions.SparkSessionExtensions()
    created = sessions.classic.SparkSession(context._jsc.sc(), nothing, nothing, extensions, options, options)
    return SparkSession(context, created)


def has_extensions(loader: Any) -> bool:  # Any: a class loader of the JVM
    """Return whether a jar of the loader has extensions of sessions, that for machine learning aside."""
    found = loader.getResources(_NAMES)
    while found.hasMoreElements():
        jar, _, _ = str(found.nextElement().getFile()).rpartition("!/")
        if not jar.rpartition("/")[2].startswith(_MACHINE_LEARNING):
            return True
    return False
