"""How a setting is declared; each room declares its own in its `settings.py`.

A setting is declared once. The command line, the environment, the docs page and `system.settings` follow from it.
There are two scopes: node settings are read once when the node starts, table settings live in the table's definition
and may be changed by `ALTER TABLE .. MODIFY SETTING`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from tilth.base.errors import InvalidInputError
from tilth.base.secrets import HIDDEN
from tilth.base.units import KIB, MIB, parse_bytes

T = TypeVar("T")


class Scope(StrEnum):
    #: Of the whole node; named with dots and dashes.
    NODE = "node"
    #: Of one MergeTree table.
    TABLE = "table"
    #: Of one Kafka table.
    KAFKA = "kafka"
    #: Of one statement or connection.
    SESSION = "session"


class UnknownSettingError(InvalidInputError):
    """unknown setting"""

    code = "UNKNOWN_SETTING"


class BadSettingError(InvalidInputError):
    """the value of a setting is not valid"""

    code = "BAD_SETTING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """One knob: its name, its default, how it is read and what it does."""

    name: str
    scope: Scope
    default: T
    #: Text to value; raises ValueError when the text is no such value.
    parse: Callable[[str], T]
    #: What a value must satisfy; the text says it in words, for the error.
    check: Callable[[T], bool] = lambda _: True
    allowed: str = ""
    #: What gets better and what gets worse in each direction.
    doc: str
    unit: str = ""
    #: Further names that users of other systems know.
    aliases: tuple[str, ...] = ()
    #: Returns the text without its secrets; `hidden` for a setting that is a secret.
    shown: Callable[[str], str] = str

    @property
    def has_secrets(self) -> bool:
        """Whether its text is a secret or contains one."""
        return self.shown is not str

    def read(self, text: str) -> T:
        """The value in the text; raises BadSettingError naming the setting, the value and what is allowed."""
        try:
            value = self.parse(text)
        except ValueError as error:
            # The parser's own message may quote the text.
            cause = error if self.shown(text) == text else None
            raise BadSettingError(
                setting=self.name,
                value=repr(self.shown(text)),
                allowed=self.allowed or self.kind,
                hint=self._hint(),
            ) from cause
        if not self.check(value):
            raise BadSettingError(
                setting=self.name, value=repr(self.shown(text)), allowed=self.allowed, hint=self._hint()
            )
        return value

    def _hint(self) -> str:
        return f"SHOW SETTINGS LIKE '{self.name}' describes it"

    @property
    def kind(self) -> str:
        return type(self.default).__name__


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

    def find(self, name: str) -> Setting[Any]:
        """Raises UnknownSettingError that suggests the nearest names."""
        if name not in self._by_name:
            near = ", ".join(_near(name, self._by_name))
            raise UnknownSettingError(setting=name, hint=f"did you mean: {near}?" if near else _ALL)
        return self._by_name[name]

    def read(self, given: Mapping[str, str]) -> dict[str, object]:
        """Every setting's value by canonical name: the given text where there is one, else the default."""
        values: dict[str, object] = {setting.name: setting.default for setting in self.all}
        for name, text in given.items():
            setting = self.find(name)
            values[setting.name] = setting.read(text)
        return values

    def canonical(self, given: Mapping[str, str]) -> dict[str, str]:
        """The given texts under canonical names, each of them checked."""
        checked: dict[str, str] = {}
        for name, text in given.items():
            setting = self.find(name)
            setting.read(text)
            checked[setting.name] = text
        return checked

    def parted(self, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
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
    """Return the sign for a secret; an empty text stays empty."""
    return HIDDEN if text else ""


def value_of(values: Mapping[str, object], setting: Setting[T]) -> T:
    """The typed value of a setting in what `SettingGroup.read` returned."""
    value = values[setting.name]
    assert isinstance(value, type(setting.default)), (setting.name, value)
    return value


def parse_bool(text: str) -> bool:
    """`1`, `true`, `on`, `yes` and their opposites."""
    match text.strip().lower():
        case "1" | "true" | "on" | "yes":
            return True
        case "0" | "false" | "off" | "no":
            return False
    raise ValueError(text)


LOG_SIZE_MAX: Setting[int] = Setting(
    name="log.size-max",
    scope=Scope.NODE,
    default=16 * MIB,
    parse=parse_bytes,
    check=lambda size: size >= 64 * KIB,
    allowed="64 KiB and up",
    unit="bytes",
    doc="Size at which a log file is rotated: the node's own (`--log-file`), and those of Spark in the folder `log`. "
    "More: a longer history. Less: less disk.",
)
LOG_FILES_MAX: Setting[int] = Setting(
    name="log.files-max",
    scope=Scope.NODE,
    default=4,
    parse=int,
    check=lambda count: 2 <= count <= 1000,
    allowed="2 to 1000",
    unit="files",
    doc="Number of files of each log, the current one included; rotation removes the oldest. More: a longer history. "
    "Fewer: less disk.",
)
#: Settings of all logs that the node writes.
LOG_SETTINGS = SettingGroup((LOG_SIZE_MAX, LOG_FILES_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The values, read once when the node starts."""

    size_max: int = LOG_SIZE_MAX.default
    files_max: int = LOG_FILES_MAX.default


def log_settings(given: Mapping[str, str]) -> LogSettings:
    """Return the settings among the node's texts, ignoring those of other rooms. Raises BadSettingError."""
    names = {setting.name for setting in LOG_SETTINGS.all}
    values = LOG_SETTINGS.read({name: text for name, text in given.items() if name in names})
    return LogSettings(size_max=value_of(values, LOG_SIZE_MAX), files_max=value_of(values, LOG_FILES_MAX))


def _near(name: str, known: Iterable[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, list(known), n=3, cutoff=0.6)
