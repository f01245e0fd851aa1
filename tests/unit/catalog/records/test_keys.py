"""Keys and values: what people read of them, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from tilth.base.errors import CorruptError
from tilth.catalog import NewerFormatError, TableVersion
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, after_prefix, describe, pack, span, unpack


def test_a_prefix_covers_its_field_and_no_longer_one() -> None:
    start, end = span(Space.PARTITION, "t", "ab")
    assert start <= pack(Space.PARTITION, "t", "ab", 3) < end
    for other in ("a", "abc", "ab\x00", "ab\x00c", "b"):
        assert not start <= pack(Space.PARTITION, "t", other) < end


def test_the_end_of_a_prefix_steps_over_full_bytes() -> None:
    assert after_prefix(b"a\xff\xff") == b"b"


def test_spaces_differ() -> None:
    values = [space.value for space in Space]
    assert len(set(values)) == len(values)
    assert all(len(value) == 1 for value in values)


def test_a_key_can_be_read_by_people() -> None:
    assert describe(pack(Space.NAME, "db", "tä")) == "name/db/t\\xc3\\xa4/"
    assert describe(b"?x").startswith("unknown/")


@pytest.mark.parametrize("kinds", ["s", "sss", "si"])
def test_a_key_of_other_fields_is_refused(kinds: str) -> None:
    with pytest.raises(CorruptError, match="name/db/t"):
        unpack(pack(Space.NAME, "db", "t"), kinds)


def test_a_newer_version_is_refused_by_name() -> None:
    key = pack(Space.VERSION, "abc")
    data = bytes((9,)) + msgspec.msgpack.encode({"anything": 1})
    with pytest.raises(NewerFormatError) as caught:
        codec.VERSIONS.decode(key, data)
    assert caught.value.facts == {"key": "version/abc/", "found": "9", "known": "1"}
    assert isinstance(caught.value, CorruptError)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x01", b"\x01\xc1", b"\x01\x01", b"\x01\x81\xa7counter\xa1x"])
def test_damaged_values_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(CorruptError, match="key=version/abc/"):
        codec.VERSIONS.decode(pack(Space.VERSION, "abc"), data)


def test_fields_that_a_later_program_adds_are_passed_over() -> None:
    data = b"\x01" + msgspec.msgpack.encode({"counter": 3, "invented_later": [1, 2]})
    assert codec.VERSIONS.decode(b"V", data) == TableVersion(counter=3)
