"""All formats by name: each `Format` that a module of `kinds/` holds.

Tests: tests/unit/formats/test_cell_values.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from tilth.base.errors import InvalidInputError
from tilth.formats import kinds
from tilth.formats.format import Format

#: Headers whose formats are cached: clients send few different ones.
HEADERS_CACHED = 256
#: Longest header that is cached.
CACHED_CHARACTERS_MAX = 200


def _formats() -> Iterator[Format]:
    for found in iter_modules(kinds.__path__):
        module = import_module(f"{kinds.__name__}.{found.name}")
        yield from (each for each in vars(module).values() if isinstance(each, Format))


#: Formats in the order of their names.
FORMATS: tuple[Format, ...] = tuple(sorted(_formats(), key=lambda each: each.name))
_BY_NAME = {name.lower(): each for each in FORMATS for name in (each.name, *each.aliases)}


def find_format(name: str) -> Format | None:
    """Find a format without regard to case."""
    return _BY_NAME.get(name.strip().lower())


def format_names(suits: Callable[[Format], object]) -> list[str]:
    """Return the names of the formats that suit."""
    return [each.name for each in FORMATS if suits(each)]


def rows_format(name: str) -> Format | None:
    """Find a format that reads rows."""
    found = find_format(name)
    return found if found is not None and found.read is not None else None


def answer_format(name: str) -> Format:
    """Return the format that writes answers; raises InvalidInputError (UNKNOWN_OUTPUT_FORMAT)."""
    found = find_format(name)
    if found is None or found.write is None:
        known = format_names(lambda each: each.write is not None)
        raise InvalidInputError.coded(
            "UNKNOWN_OUTPUT_FORMAT", "unknown output format", format=name, hint=f"use one of {', '.join(known)}"
        )
    return found


def accepted_format(accept: str) -> Format:
    """Return the first format of an Accept header that is known; JSON when the header names none of them."""
    return (_accepted_cached if len(accept) <= CACHED_CHARACTERS_MAX else _accepted)(accept)


def body_format(content_type: str) -> Format | None:
    """Return the format of rows with this Content-Type; None: there is none."""
    return (_of_body_cached if len(content_type) <= CACHED_CHARACTERS_MAX else _of_body)(content_type)


def body_types() -> list[str]:
    """Return the media types that bodies with rows may have."""
    return sorted({_body_type(each) for each in FORMATS} - {""})


def _accepted(accept: str) -> Format:
    for item in accept.split(","):
        found = _of_media_type(item, lambda each: each.media_type if each.write is not None else "")
        if found is not None:
            return found
    return _BY_NAME["json"]


def _of_body(content_type: str) -> Format | None:
    return _of_media_type(content_type, _body_type)


_accepted_cached = lru_cache(HEADERS_CACHED)(_accepted)
_of_body_cached = lru_cache(HEADERS_CACHED)(_of_body)


def _body_type(form: Format) -> str:
    return (form.body_type or form.media_type) if form.read is not None or form.is_arrow else ""


def _of_media_type(text: str, type_of: Callable[[Format], str]) -> Format | None:
    """Return the format with this type whose own parameters, as many as possible, are all there."""
    given, parameters = _split(text)
    known = [(_split(type_of(each)), each) for each in FORMATS if type_of(each)]
    fitting = [(len(own), each) for (name, own), each in known if name == given and own <= parameters]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _split(media_type: str) -> tuple[str, frozenset[str]]:
    name, *parameters = (part.strip().lower() for part in media_type.split(";"))
    return name, frozenset(parameters)
