"""Options of a write as Spark hands them over. Pure.

Always holds: as for reads, an option that is not known or contradicts another one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tilth.datasource.errors import SparkOptionError
from tilth.datasource.options import PATH, flag, known_options, table_of_options, whole_number
from tilth.model.outside_write import SILENCE_SECONDS_MAX, TASKS_DEFAULT, TASKS_MAX

#: Time without a sign of life of the driver after which the server aborts a write.
SILENCE_SECONDS = 120
#: Four intervals of the thread that renews writes (keeper.py).
SILENCE_SECONDS_MIN = 20
_QUORUM_MAX = 100_000
_COMMON = (PATH, "database", "url", "tasks", "silence_seconds", "insert_quorum", "speculation")
BATCH_WRITE_OPTIONS = (*_COMMON, "label", "replace_partitions")
STREAM_WRITE_OPTIONS = (*_COMMON, "stream", "new_checkpoint", "checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Target and manner of a write."""

    database: str
    table: str
    #: Server; None: the one that the session is attached to.
    url: str | None = None
    tasks: int = TASKS_DEFAULT
    silence_seconds: int = SILENCE_SECONDS
    #: Copies of each file before the commit; 0: as the table says.
    quorum: int = 0
    #: `True` if Spark runs copies of slow tasks, which may write after the commit.
    is_speculative: bool = False
    #: Name of the rows: sent again, they are not stored again.
    label: str = ""
    is_overwrite: bool = False
    #: Partitions that are replaced; none: the whole table.
    partitions: tuple[str, ...] = ()
    #: Name of the stream.
    stream: str = ""
    #: Id of the query that may follow another one under this name.
    new_query: str = ""


def batch_write_options(options: Mapping[str, str], *, is_overwrite: bool) -> WriteOptions:
    """Raises SparkOptionError naming the option."""
    given = known_options(options, BATCH_WRITE_OPTIONS)
    partitions = listed(given, "replace_partitions")
    if partitions is not None and not is_overwrite:
        raise SparkOptionError("partitions are replaced by an overwrite alone", hint='write with .mode("overwrite")')
    return _common(given, label=given.get("label", ""), is_overwrite=is_overwrite, partitions=partitions or ())


def stream_write_options(options: Mapping[str, str], *, is_overwrite: bool) -> WriteOptions:
    """Raises SparkOptionError naming the option, and for another output mode than append."""
    if is_overwrite:
        hint = 'use outputMode("append"); rows of a table with a UNIQUE KEY are upserts'
        raise SparkOptionError("a stream appends to a table", hint=hint)
    given = known_options(options, STREAM_WRITE_OPTIONS)
    name, new_query = given.get("stream", ""), given.get("new_checkpoint", "")
    if new_query and not name:
        raise SparkOptionError("a stream without a name takes any checkpoint", option="new_checkpoint")
    return _common(given, stream=name, new_query=new_query)


def listed(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return the texts of an option, `a, b` or a JSON list; None: it is not given. Raises SparkOptionError."""
    text = given.get(name)
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            texts = json.loads(text)
        except ValueError:
            texts = None
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise SparkOptionError("the option is not a JSON list of texts", option=name, value=text)
    else:
        texts = [each.strip() for each in text.split(",")]
    if not texts or not all(texts):
        # An empty list would replace the whole table.
        raise SparkOptionError("the option names nothing", option=name, value=text)
    return tuple(texts)


def _common(
    given: Mapping[str, str],
    *,
    label: str = "",
    is_overwrite: bool = False,
    partitions: tuple[str, ...] = (),
    stream: str = "",
    new_query: str = "",
) -> WriteOptions:
    database, table = table_of_options(given)
    return WriteOptions(
        database=database,
        table=table,
        url=given.get("url"),
        tasks=_bounded(given, "tasks", TASKS_DEFAULT, 1, TASKS_MAX),
        silence_seconds=_bounded(given, "silence_seconds", SILENCE_SECONDS, SILENCE_SECONDS_MIN, SILENCE_SECONDS_MAX),
        quorum=_bounded(given, "insert_quorum", 0, 0, _QUORUM_MAX),
        is_speculative=flag(given, "speculation"),
        label=label,
        is_overwrite=is_overwrite,
        partitions=partitions,
        stream=stream,
        new_query=new_query,
    )


def _bounded(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    number = whole_number(given, name)
    if number is None:
        return default
    if not low <= number <= high:
        raise SparkOptionError("the option is out of its range", option=name, value=number, range=f"{low} to {high}")
    return number
