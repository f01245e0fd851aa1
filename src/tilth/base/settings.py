"""Declaration of settings, and the one reader of all. Each room declares its own in its `settings.py`.

A setting is declared once, as a field of a frozen dataclass:

    workers: int = node_setting("maintenance_manager_num_threads", 4, within(int, 1, 64), "More: .. Fewer: ..")

Its value (`read_settings`), flag, environment variable, position in the config file, page of the reference and row of
`system.settings` follow from that. Node settings are read once when the node starts; settings of tables are stored with
the table and changed by `ALTER TABLE .. MODIFY SETTING`. Where a node's settings come from: sources.py.

Tests: tests/unit/base/test_sources.py, tests/unit/ingest/test_library.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar, cast

from tilth.base.errors import InvalidInputError
from tilth.base.secrets import HIDDEN
from tilth.base.units import KIB, MIB, parse_bytes

T = TypeVar("T")
Number = TypeVar("Number", int, float)


class SettingScope(StrEnum):
    #: Setting of the whole node; named with dots and dashes.
    NODE = "node"
    #: Setting of one MergeTree table.
    TABLE = "table"
    #: Setting of one Kafka table.
    KAFKA = "kafka"
    #: Setting of one statement or connection.
    SESSION = "session"
    #: Setting of one warehouse.
    WAREHOUSE = "warehouse"
    #: Setting of the command `tilth serve`, which needs it to start a node.
    SERVE = "serve"


class UnknownSettingError(InvalidInputError):
    """unknown setting"""

    code = "UNKNOWN_SETTING"


class BadSettingError(InvalidInputError):
    """the value of a setting is not valid"""

    code = "BAD_SETTING"


@dataclass(frozen=True, slots=True)
class SettingCheck(Generic[T]):
    """Parser and check of a setting's value, and the check in words."""

    #: Raises ValueError when the text is no such value.
    parse: Callable[[str], T]
    allowed: str = ""
    holds: Callable[[T], bool] = lambda _: True
    #: Separator of the items of a list.
    separator: str = ""


def within(
    parse: Callable[[str], Number], low: float, high: float | None = None, words: str = ""
) -> SettingCheck[Number]:
    """Check a number against a lower, and perhaps an upper bound, both included."""
    if high is None:
        return SettingCheck(parse, words or f"{low} or more", lambda value: value >= low)
    return SettingCheck(parse, words or f"{low} to {high}", lambda value: low <= value <= high)


def parse_bool(text: str) -> bool:
    """Read `1`, `true`, `on`, `yes` and their opposites."""
    match text.strip().lower():
        case "1" | "true" | "on" | "yes":
            return True
        case "0" | "false" | "off" | "no":
            return False
    raise ValueError(text)


SWITCH = SettingCheck(parse_bool, "true or false")
TEXT = SettingCheck(str.strip)


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """Declaration of a setting."""

    name: str
    scope: SettingScope
    default: T
    check: SettingCheck[T]
    #: Effects: what gets better and what gets worse in each direction.
    doc: str
    unit: str = ""
    #: Further names that users of other systems know.
    aliases: tuple[str, ...] = ()
    #: Returns the text without its secrets; `hidden` for a setting that is a secret.
    shown: Callable[[str], str] = str

    @property
    def has_secrets(self) -> bool:
        """True if its text is a secret or contains one."""
        return self.shown is not str

    def read(self, text: str) -> T:
        """Return the value in the text; raises BadSettingError naming the setting, the value and what is allowed."""
        shown, cause = self.shown(text), None
        try:
            value = self.check.parse(text)
            if self.check.holds(value):
                return value
        except ValueError as error:
            # The parser's own message may quote the text.
            cause = error if shown == text else None
        described_by = "tilth serve --help" if self.scope is SettingScope.SERVE else f"SHOW SETTINGS LIKE '{self.name}'"
        raise BadSettingError(
            setting=self.name, value=repr(shown), allowed=self.allowed, hint=f"{described_by} describes it"
        ) from cause

    @property
    def default_text(self) -> str:
        """The default as a user writes it: `read` gives the same value for it."""
        return ", ".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)

    @property
    def allowed(self) -> str:
        """Description of the allowed values."""
        return self.check.allowed or type(self.default).__name__


#: Metadata keys of a dataclass's field: for its setting, or for the class with the settings that it contains.
_SETTING, _CONTAINED = "setting", "contained"


@dataclass(frozen=True, slots=True)
class _Declare:
    """Declares settings of one scope as fields of dataclasses."""

    scope: SettingScope

    def __call__(
        self,
        name: str,
        default: T,
        check: SettingCheck[T],
        doc: str,
        *,
        unit: str = "",
        aliases: tuple[str, ...] = (),
        shown: Callable[[str], str] = str,
    ) -> T:
        """Declare a field with this default; typed as its value, as `dataclasses.field` is."""
        declared = Setting(name, self.scope, default, check, doc, unit, aliases, shown)
        return field(default=default, repr=not declared.has_secrets, metadata={_SETTING: declared})


node_setting = _Declare(SettingScope.NODE)
table_setting = _Declare(SettingScope.TABLE)
kafka_setting = _Declare(SettingScope.KAFKA)
session_setting = _Declare(SettingScope.SESSION)
warehouse_setting = _Declare(SettingScope.WAREHOUSE)
serve_setting = _Declare(SettingScope.SERVE)


def contained(kind: type[T]) -> T:
    """Declare a field that holds another dataclass of settings."""
    return field(default_factory=kind, metadata={_CONTAINED: kind})


@cache
def _by_field(kind: type) -> dict[str, Setting[Any]]:
    return {each.name: each.metadata[_SETTING] for each in fields(kind) if _SETTING in each.metadata}


@cache
def _field_by_name(kind: type) -> dict[str, str]:
    return {name: each for each, one in _by_field(kind).items() for name in (one.name, *one.aliases)}


# Any: settings of every type stand in one list.
def settings_of(*kinds: type) -> tuple[Setting[Any], ...]:
    """Return the settings that these dataclasses declare, with those of the dataclasses they contain, in order."""
    found: list[Setting[Any]] = []
    for each in (each for kind in kinds for each in fields(kind)):
        if _SETTING in each.metadata:
            found.append(each.metadata[_SETTING])
        elif _CONTAINED in each.metadata:
            found += settings_of(each.metadata[_CONTAINED])
    return tuple(found)


# Any: as above.
def setting_of(kind: type, field_name: str) -> Setting[Any]:
    return _by_field(kind)[field_name]


# Any: the other fields have types of their own.
def read_settings(kind: type[T], given: Mapping[str, str], **others: Any) -> T:
    """Return the values of a dataclass of settings: from the text where one is given under the setting's name or alias,
    else the default. Texts of other settings are left out. Raises BadSettingError.

    `others`: fields that are no settings.
    """
    # Any: a class that is a dataclass.
    declared: Any = kind
    values = dict(others)
    for each in fields(declared):
        if _CONTAINED in each.metadata:
            values[each.name] = read_settings(each.metadata[_CONTAINED], given)
    known = _field_by_name(declared)
    for name, text in given.items():
        if name in known:
            values[known[name]] = setting_of(declared, known[name]).read(text)
    return kind(**values)


def cached_settings(kind: type[T], given: Mapping[str, str]) -> T:
    """Return what `read_settings` does. For dataclasses that nobody changes, of texts without secrets, such as the
    settings of a table that each statement reads.
    """
    found = _read_cached(cast("Hashable", kind), tuple(given.items()))
    return cast("T", found)


@lru_cache(4096)
def _read_cached(kind: Hashable, given: tuple[tuple[str, str], ...]) -> object:
    return read_settings(cast("type[object]", kind), dict(given))


#: The hint where no name is near.
_ALL = "SHOW SETTINGS lists all settings; leave out those of other systems"


class SettingGroup:
    """The settings of one scope of one or several rooms, found by name or alias."""

    def __init__(self, settings: Iterable[Setting[Any]]) -> None:
        self._by_name: dict[str, Setting[Any]] = {}
        self.all: tuple[Setting[Any], ...] = tuple(settings)
        for setting in self.all:
            for name in (setting.name, *setting.aliases):
                assert name not in self._by_name, name
                self._by_name[name] = setting

    def has(self, name: str) -> bool:
        return name in self._by_name

    def find(self, name: str) -> Setting[Any]:
        """Raises UnknownSettingError that suggests the nearest names."""
        if name not in self._by_name:
            near = ", ".join(get_close_matches(name, self._by_name, n=3))
            raise UnknownSettingError(setting=name, hint=f"did you mean: {near}?" if near else _ALL)
        return self._by_name[name]

    def canonical(self, given: Mapping[str, str]) -> dict[str, str]:
        """The given texts under canonical names, each of them checked."""
        checked: dict[str, str] = {}
        for name, text in given.items():
            setting = self.find(name)
            setting.read(text)
            checked[setting.name] = text
        return checked

    def split_secrets(self, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the texts without their secrets, and the full texts of those that contain any; both by name."""
        shown: dict[str, str] = {}
        secrets: dict[str, str] = {}
        for name, text in given.items():
            setting = self._by_name.get(name)
            shown[name] = text if setting is None else setting.shown(text)
            if shown[name] != text:
                secrets[name] = text
        return shown, secrets


def hidden(text: str) -> str:
    """Return the placeholder for a secret; an empty text stays empty."""
    return HIDDEN if text else ""


class LogFormat(StrEnum):
    #: `time level logger action=.. cause_id=.. name=value ..`
    TEXT = "text"
    #: An object a line.
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Form and bounds of the logs that the node writes."""

    format: LogFormat = node_setting(  # noqa: RUF009 - a declaration, as in other modules
        "log.format",
        LogFormat.TEXT,
        SettingCheck(lambda text: LogFormat(text.strip().lower()), ", ".join(LogFormat)),
        "Form of the log's lines. `text`: for people. `json`: one object a line, for programs that collect logs, with "
        "facts as fields. Spark's own log in the folder `log` stays text.",
    )
    size_max: int = node_setting(
        "log.size-max",
        16 * MIB,
        within(parse_bytes, 64 * KIB, words="64 KiB and up"),
        "Size at which a log file is rotated: the node's own (`--log-file`), and those of Spark in the folder `log`. "
        "More: a longer history. Less: less disk.",
        unit="bytes",
    )
    files_max: int = node_setting(
        "log.files-max",
        4,
        within(int, 2, 1000),
        "Number of files of each log, the current one included; rotation removes the oldest. More: a longer history. "
        "Fewer: less disk.",
        unit="files",
    )


def _collector(text: str) -> str:
    address = text.strip().rstrip("/")
    if address and not address.startswith(("http://", "https://")):
        raise ValueError(text)
    return address


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Destination of traces, and the share that is sent."""

    endpoint: str = node_setting(
        "trace.endpoint",
        "",
        SettingCheck(_collector, "an address that begins with http:// or https://"),
        "Address of a collector of OpenTelemetry that accepts OTLP over HTTP, as `http://localhost:4318`; `/v1/traces` "
        "is added to an address without a path. Empty: there are no traces. It needs the extra `tilth[otel]`.",
    )
    sample_ratio: float = node_setting(
        "trace.sample-ratio",
        1.0,
        within(float, 0, 1),
        "Share of the traces that begin here and are sent. A statement that a traced program sends follows that "
        "program's choice. More: nothing is missed. Less: less to send and to store.",
    )


TRACE_SETTINGS = SettingGroup(settings_of(TraceSettings))
