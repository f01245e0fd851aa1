"""Names of the session's time zone. Pure."""

from __future__ import annotations

#: Beginning of the names of Spark's settings.
SPARK_PREFIX = "spark.sql."
#: The setting with the session's time zone, and the names that mean UTC.
ZONE = f"{SPARK_PREFIX}session.timeZone"
UTC_NAMES = ("UTC", "Z", "GMT", "Etc/UTC", "+00:00")
