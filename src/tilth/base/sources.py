"""Sources of a node's settings: flags before the environment, that before the config file, then defaults.

Covers: names of environment variables, the config file, who wins, errors that name file or variable. Does not cover:
what settings there are (each room's `settings.py`), the options of `tilth serve` (client/cli/serve.py).
Always holds: a name that is not known and a value that is not allowed are errors, whatever wins; no message shows a
secret.

    setting                  warehouse.query-slots
    flag                     --set warehouse.query-slots=8
    environment variable     TILTH_WAREHOUSE__QUERY_SLOTS=8
    config file              [warehouse]
                             query-slots = 8
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

from tilth.base.errors import InvalidInputError
from tilth.base.settings import BadSettingError, SettingGroup, UnknownSettingError
from tilth.base.units import MIB

PREFIX = "TILTH_"
#: The path of the config file.
CONFIG_VARIABLE = "TILTH_CONFIG"
#: Maximum size of a config file; a larger one is not read.
CONFIG_BYTES_MAX = 1 * MIB
#: Variables with the prefix that are no settings: of the other commands, the service token, of failpoints and of test
#: runs, and those that Kubernetes makes of a service named tilth or tilth-x.
_NO_SETTING = re.compile(
    r"TILTH_(CONFIG|URL|SERVICE_TOKEN|FAILPOINTS|TEST_\w+|(\w+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_\w+)?)", re.ASCII
)


class ConfigFileError(InvalidInputError):
    """the config file cannot be read"""

    code = "BAD_CONFIG_FILE"


class SettingSource(StrEnum):
    """Source of a value; a later one wins."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """Texts of settings by canonical name, and where each comes from."""

    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, SettingSource] = field(default_factory=dict)

    def source(self, name: str) -> SettingSource:
        """Source of a text that names none: the caller that made the node gave it, like a flag."""
        return self.sources.get(name, SettingSource.FLAG if name in self.texts else SettingSource.DEFAULT)

    def among(self, group: SettingGroup) -> GivenSettings:
        names = {setting.name for setting in group.all}
        return GivenSettings(
            {name: text for name, text in self.texts.items() if name in names},
            {name: source for name, source in self.sources.items() if name in names},
        )


def gather(
    group: SettingGroup, *, flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None
) -> GivenSettings:
    """Return the texts of these settings in flags, environment and config file, each text checked.

    Raises UnknownSettingError, BadSettingError and ConfigFileError.
    """
    found = (
        (SettingSource.FILE, _check(group, _of_file(group, file), file=str(file)) if file is not None else {}),
        (SettingSource.ENVIRONMENT, _of_environment(group, environment)),
        (SettingSource.FLAG, group.canonical(flags)),
    )
    texts: dict[str, str] = {}
    sources: dict[str, SettingSource] = {}
    for source, given in found:
        texts |= given
        sources |= dict.fromkeys(given, source)
    return GivenSettings(texts, sources)


def gather_valid(group: SettingGroup, file: Path) -> tuple[dict[str, str], list[InvalidInputError]]:
    """Return the texts of the settings in a config file that are valid, by canonical name, and the errors of others."""
    texts: dict[str, str] = {}
    errors: list[InvalidInputError] = []
    try:
        values = list(_flat(_content(file)))
    except ConfigFileError as error:
        return texts, [error]
    for name, value in values:
        try:
            texts |= _check(group, {name: _text(group, name, value, file)}, file=str(file))
        except InvalidInputError as error:
            errors.append(error)
    return texts, errors


def variable_of(name: str) -> str:
    """The environment variable of a setting: a dot is two underscores."""
    return PREFIX + name.upper().replace(".", "__").replace("-", "_")


def _check(group: SettingGroup, given: Mapping[str, str], **where: str) -> dict[str, str]:
    """Return the texts by canonical name; errors name the source."""
    found: dict[str, str] = {}
    for name, text in given.items():
        try:
            setting = group.find(name)
            setting.read(text)
        except (UnknownSettingError, BadSettingError) as error:
            raise error.with_facts(**where) from error.__cause__
        if setting.name in found:
            raise BadSettingError("a setting is given twice", setting=setting.name, **where, hint="leave one out")
        found[setting.name] = text
    return found


def _of_environment(group: SettingGroup, environment: Mapping[str, str]) -> dict[str, str]:
    """Read the environment. An empty variable counts as not given, as programs that start containers leave them."""
    known = {variable_of(name): name for setting in group.all for name in (setting.name, *setting.aliases)}
    found: dict[str, str] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or _NO_SETTING.fullmatch(variable) or not text:
            continue
        if variable not in known:
            near = ", ".join(get_close_matches(variable, known, n=3))
            hint = (
                f"did you mean: {near}?"
                if near
                else f"no setting has this variable; names of Tilth's variables begin with {PREFIX}"
            )
            raise UnknownSettingError(variable=variable, hint=hint)
        found |= _check(group, {known[variable]: text}, variable=variable)
    return found


def _of_file(group: SettingGroup, file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _flat(_content(file)):
        if name in found:
            raise BadSettingError("a setting is given twice", setting=name, file=file, hint="leave one out")
        found[name] = _text(group, name, value, file)
    return found


def _content(file: Path) -> dict[str, object]:
    try:
        with file.open("rb") as opened:
            content = opened.read(CONFIG_BYTES_MAX + 1)
        if len(content) > CONFIG_BYTES_MAX:
            raise ConfigFileError(file=file, reason=f"it has more than {CONFIG_BYTES_MAX} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        hint = "give --config the path of a file that the node can read"
        raise ConfigFileError(file=file, reason=error.strerror, hint=hint) from error
    except UnicodeDecodeError as error:
        raise ConfigFileError(file=file, reason="it is not text in UTF-8", hint="write it in TOML") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        hint = "write it in TOML: name = value, texts in quotes, sections as [warehouse]"
        # The parser quotes no more than one character of the file.
        raise ConfigFileError(file=file, reason=str(error), hint=hint) from None


def _flat(content: Mapping[str, object], section: str = "") -> Iterator[tuple[str, object]]:
    """Flatten settings to names: `query-slots` of the section `warehouse` is `warehouse.query-slots`."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{section}{name}.")
        else:
            yield f"{section}{name}", value


def _text(group: SettingGroup, name: str, value: object, file: Path) -> str:
    """Return the value as the text that a flag would have."""
    if not group.has(name):
        last = name.rpartition(".")[2]
        if group.has(last):
            hint = f"{last} belongs to no section: write it above the first [section]"
            raise UnknownSettingError(setting=name, file=file, hint=hint)
        # The caller refuses it, with the names that are near.
        return ""
    setting = group.find(name)
    is_text, separator = isinstance(setting.default, str | tuple), setting.check.separator
    match value:
        case str():
            return value
        case bool() if not is_text:
            return str(value).lower()
        case int() | float() if not is_text:
            return str(value)
        case list() if separator and all(isinstance(item, str) and separator not in item for item in value):
            return separator.join(value)
    hint = "write a text in quotes, numbers and bools as they are, and lists only where several values are allowed"
    raise BadSettingError(setting=name, type=type(value).__name__, allowed=setting.allowed, file=file, hint=hint)
