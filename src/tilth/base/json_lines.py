"""Log lines as JSON: one object a line, valid whatever is in it.

Covers: values as JSON, the fields of a line, errors as an object. Does not cover: where lines go, text lines (logs.py).
Always holds: a line is ASCII without line breaks, and a strict parser reads it: no NaN, no half of a surrogate pair, no
bytes; secrets are replaced in each text before it is escaped.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tilth.base.errors import TilthError

#: Characters of a text; a traceback of deep recursion has thousands of lines.
CHARACTERS_MAX = 32_768
#: Depth and length of values in values.
DEPTH_MAX, ITEMS_MAX = 5, 1_000
#: Integers beyond this are texts: parsers read numbers as doubles.
INTEGER_MAX = 2**53

# Values of JSON.
Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
# Replaces secrets in a text.
Clean = Callable[[str], str]


def json_line(
    fields: Mapping[str, object], facts: Mapping[str, object], error: BaseException | None, clean: Clean
) -> str:
    """Return a line with the fields, the facts beside them, and the error as an object. A fact with the name of a field
    that says something else has an underscore behind its name.
    """
    line = {name: as_json(value, clean) for name, value in fields.items()}
    for name, value in facts.items():
        key, fact = _text(name, clean), as_json(value, clean)
        while line.get(key, fact) != fact or (key == "error" and error is not None):
            key += "_"
        line[key] = fact
    if error is not None:
        line["error"] = _error(error, clean)
    return json.dumps(line, allow_nan=False, separators=(",", ":"))


def as_json(value: object, clean: Clean, depth: int = 0) -> Json:
    """Return the value as JSON; what JSON does not have is a text, or is left out beyond the bounds."""
    match value:
        case None | bool():
            return value
        case int():
            # A number may be a secret.
            is_shown = abs(value) <= INTEGER_MAX and clean(str(value)) == str(value)
            return value if is_shown else _text(shown_text(value), clean)
        case float():
            return value if math.isfinite(value) and clean(str(value)) == str(value) else _text(str(value), clean)
        case bytes() | bytearray():
            return _text(value[:CHARACTERS_MAX].decode("utf-8", "backslashreplace"), clean)
        case Mapping() if depth < DEPTH_MAX:
            pairs = list(value.items())[:ITEMS_MAX]
            return {_text(shown_text(key), clean): as_json(each, clean, depth + 1) for key, each in pairs}
        case list() | tuple() | set() | frozenset() if depth < DEPTH_MAX:
            return [as_json(each, clean, depth + 1) for each in list(value)[:ITEMS_MAX]]
        case _:
            return _text(shown_text(value), clean)


def rfc3339(seconds: float) -> str:
    """Return a time in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _error(error: BaseException, clean: Clean) -> Json:
    trace = _shown_by(lambda: "".join(traceback.format_exception(error)), "a traceback that cannot be shown")
    if isinstance(error, TilthError):
        found: dict[str, object] = {"kind": error.kind.value, "code": error.code, "message": error.message}
        found |= {"hint": error.hint} if error.hint else {}
    else:
        found = {"kind": "internal", "code": type(error).__name__, "message": shown_text(error)}
    return {name: as_json(value, clean) for name, value in {**found, "trace": trace}.items()}


def _text(text: str, clean: Clean) -> str:
    known = clean(unicode_text(text))
    return known if len(known) <= CHARACTERS_MAX else f"{known[:CHARACTERS_MAX]}.. ({len(known)} characters)"


def unicode_text(text: str) -> str:
    """Return the text with an escape for half of a surrogate pair, which UTF-8 cannot have."""
    return text.encode("utf-8", "backslashreplace").decode()


def shown_text(value: object) -> str:
    """Return the value as text of Unicode; of one that has none, what it is."""
    return _shown_by(lambda: unicode_text(str(value)), f"a {type(value).__name__} that cannot be shown")


def _shown_by(show: Callable[[], str], instead: str) -> str:
    """Return the text; a line about a fault must not fail for the fault's own text."""
    try:
        return show()
    except Exception:
        return instead
