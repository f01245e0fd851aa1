"""Options of a read as Spark hands them over, and names of tables. Pure.

Covers: which options a read has, what they mean, names with back-quotes, times. Does not cover: options of writes.
Always holds: an option that is not known, or that contradicts another one, is refused: a misspelled `version` must not
read the newest rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tilth.base.errors import InvalidInputError
from tilth.datasource.errors import SparkOptionError

#: Default time for which the files of a snapshot are retained after their last use.
HOLD_SECONDS = 3600.0
#: Name that Spark gives the argument of `load` and `save`.
PATH = "path"
BATCH_OPTIONS = (PATH, "database", "url", "version", "timestamp", "columns", "hold_seconds")
STREAM_OPTIONS = (
    PATH,
    "database",
    "url",
    "columns",
    "hold_seconds",
    "startingversion",
    "startingtimestamp",
    "changes",
    "readername",
    "maxversionspertrigger",
)
#: Value of `startingVersion`: only what comes from now on.
LATEST = "latest"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Options of a batch read."""

    database: str
    table: str
    #: Server; None: the one that the session is attached to.
    url: str | None = None
    version: int | None = None
    #: Milliseconds since 1970.
    as_of_ms: int | None = None
    #: Names of the columns that are read; None: all.
    columns: tuple[str, ...] | None = None
    hold_seconds: float = HOLD_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a stream."""

    database: str
    table: str
    #: Server; None: the one that the session is attached to.
    url: str | None = None
    #: Names of the columns that are read; None: all.
    columns: tuple[str, ...] | None = None
    #: First version whose changes are read.
    first_version: int | None = None
    #: The changes of versions since this time, in milliseconds since 1970.
    since_ms: int | None = None
    #: `True`: only what comes from now on.
    is_latest: bool = False
    #: `True`: deletes and updates, too, in rows with `_change` and `_version`.
    has_changes: bool = False
    #: Name of the reader; empty: a new one.
    reader_name: str = ""
    #: Versions of one batch; None: all that there are.
    versions_max: int | None = None
    hold_seconds: float = HOLD_SECONDS


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Raises SparkOptionError naming the option."""
    given = known_options(options, STREAM_OPTIONS)
    database, table = table_of_options(given)
    is_latest = given.get("startingversion", "").strip().lower() == LATEST
    if "startingversion" in given and "startingtimestamp" in given:
        raise SparkOptionError("a stream starts at a version or at a time, not both", hint="leave one option out")
    versions_max = whole_number(given, "maxversionspertrigger")
    if versions_max == 0:
        raise SparkOptionError("a batch has a version at least", option="maxVersionsPerTrigger", value=0)
    return StreamOptions(
        database=database,
        table=table,
        url=given.get("url"),
        columns=_columns(given),
        first_version=None if is_latest else whole_number(given, "startingversion"),
        since_ms=_time(given, "startingtimestamp"),
        is_latest=is_latest,
        has_changes=flag(given, "changes"),
        reader_name=given.get("readername", ""),
        versions_max=versions_max,
        hold_seconds=_seconds(given, "hold_seconds"),
    )


def is_of_stream(options: Mapping[str, str]) -> bool:
    """True if an option is one that only streams have."""
    return any(name.lower() in STREAM_OPTIONS and name.lower() not in BATCH_OPTIONS for name in options)


def batch_options(options: Mapping[str, str]) -> BatchOptions:
    """Raises SparkOptionError naming the option."""
    given = known_options(options, BATCH_OPTIONS)
    database, table = table_of_options(given)
    if "version" in given and "timestamp" in given:
        raise SparkOptionError("a table is read as of a time or of a version, not both", hint="leave one option out")
    return BatchOptions(
        database=database,
        table=table,
        url=given.get("url"),
        version=whole_number(given, "version"),
        as_of_ms=_time(given, "timestamp"),
        columns=_columns(given),
        hold_seconds=_seconds(given, "hold_seconds"),
    )


def known_options(options: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return the options by their names in small letters, as Spark compares them; raises SparkOptionError for one that
    is not known.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in known:
            listed = ", ".join(sorted(each for each in known if each != PATH))
            hint = "correct its name, or leave it out"
            raise SparkOptionError("the data source tilth has no such option", option=name, known=listed, hint=hint)
    return given


def table_of_options(given: Mapping[str, str]) -> tuple[str, str]:
    """Return database and table by the argument of `load` or `save` and the option `database`."""
    if not given.get(PATH):
        raise SparkOptionError("the table is not named", hint='name it as in .load("db.t") or .save("db.t")')
    database, table = table_name(given[PATH])
    named = given.get("database")
    if database and named and database != named:
        raise SparkOptionError(
            "two databases are named", table=given[PATH], database=named, hint="leave out the option database"
        )
    return database or named or "default", table


def table_name(text: str) -> tuple[str, str]:
    """Return database and table of `t`, `db.t` or names in back-quotes; empty: no database. Raises SparkOptionError."""
    parts: list[str] = []
    rest = text.strip()
    while True:
        part, rest = _first_part(rest, text)
        parts.append(part)
        if not rest:
            break
        rest = rest[1:]
    if len(parts) > 2 or not all(parts):
        raise SparkOptionError(
            "a table is named by its name, or by database and name",
            name=text,
            hint="write names with dots in back-quotes: `a.b`.`c`",
        )
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def milliseconds_of(time: datetime | str) -> int:
    """Milliseconds since 1970 of a time, UTC without a zone; raises InvalidInputError."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError as error:
            raise InvalidInputError(
                "as_of is not a time", as_of=time, hint="write it as 2026-01-31 12:00:00"
            ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def whole_number(given: Mapping[str, str], name: str) -> int | None:
    """Return the number of an option; None: it is not given. Raises SparkOptionError."""
    if name not in given:
        return None
    text = given[name].strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise SparkOptionError("the option is not a whole number", option=name, value=given[name])
    return int(text)


def flag(given: Mapping[str, str], name: str) -> bool:
    """Return an option that is `true` or `false`; not given: `False`. Raises SparkOptionError."""
    text = given.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise SparkOptionError("the option is true or false", option=name, value=given[name])
    return text == "true"


def _first_part(rest: str, whole: str) -> tuple[str, str]:
    """Return the first part of a name and what follows it, a point in front or nothing."""
    if not rest.startswith("`"):
        part, dot, after = rest.partition(".")
        return part, dot + after
    part, position = "", 1
    while True:
        end = rest.find("`", position)
        if end < 0:
            raise SparkOptionError("a back-quote is not closed", name=whole)
        part += rest[position:end]
        if rest[end + 1 : end + 2] != "`":
            break
        part, position = part + "`", end + 2
    after = rest[end + 1 :]
    if after and not after.startswith("."):
        raise SparkOptionError("a dot follows a name in back-quotes", name=whole)
    return part, after


def _time(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    try:
        return milliseconds_of(given[name])
    except (InvalidInputError, OverflowError) as error:
        hint = "write it as 2026-01-31 12:00:00, UTC without a zone"
        raise SparkOptionError("the option is not a time", option=name, value=given[name], hint=hint) from error


def _seconds(given: Mapping[str, str], name: str) -> float:
    if name not in given:
        return HOLD_SECONDS
    try:
        seconds = float(given[name])
    except ValueError:
        seconds = -1.0
    # Not a number compares as false.
    if not 0.0 < seconds < 1e9:
        raise SparkOptionError("the option is not a number of seconds above 0", option=name, value=given[name])
    return seconds


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    text = given.get("columns")
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SparkOptionError("the option is not a JSON list of names", option="columns", value=text)
    else:
        names = [name.strip() for name in text.split(",")]
    if not names or not all(names):
        raise SparkOptionError("the option names no column", option="columns", value=text)
    return tuple(names)
