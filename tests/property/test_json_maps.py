"""The compiled kernel reads maps as they are read without it: keys given twice or in two spellings, any values."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.property.hostile_messages import json_texts
from tests.property.test_json_kernel import facts
from tests.unit.ingest.decoding import WITH_KERNEL, WITHOUT_KERNEL, batch_of, decoder, kafka_of
from tilth.ingest.batch import Texts
from tilth.ingest.messages.json_blocks import Block, BlockReader
from tilth.model.types import Array, DataType, Kind, Map, Simple

_STRING = Simple(Kind.STRING)
#: Maps by name: of each simple type, and of values that the kernel leaves to msgspec.
MAPS: dict[str, Kind | DataType] = {
    **{f"m{number}": Map(_STRING, Simple(kind)) for number, kind in enumerate(Kind)},
    "nested": Map(_STRING, Array(Simple(Kind.INT64))),
}
#: Some are one value in two spellings, some have no value at all.
_KEYS = (
    *('"a"', '"b"', '"c"', '""', '"ab"', '"\\u0061"', '"\\""', '"\\\\"', '"\u00fc"', '"\\u00fc"', '"a\\u0000"'),
    *('"\\ud83d\\ude00"', '"\\ud800"', '"x', "1", "null", '"\t"'),
)
_space = st.sampled_from(["", "", "", " ", "\n\t"])


@st.composite
def map_texts(draw: st.DrawFn, value: DataType) -> str:
    """An object with any keys, some of them twice."""
    keys = draw(st.lists(st.sampled_from(_KEYS[: draw(st.sampled_from([3, 3, 5, len(_KEYS)]))]), max_size=5))
    space = draw(_space)
    texts = (f"{key}{space}:{space}{draw(json_texts(value))}" for key in keys)
    return "{" + space + f"{space},{space}".join(texts) + space + "}"


@st.composite
def messages(draw: st.DrawFn, name: str) -> bytes:
    kind = MAPS[name]
    assert isinstance(kind, Map)
    value = draw(st.one_of(map_texts(kind.value), map_texts(kind.value), map_texts(kind.value), json_texts(kind)))
    return f'{{"{name}":{value}}}'.encode("utf-8", "surrogatepass")


@st.composite
def batches(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    name = draw(st.sampled_from(list(MAPS)))
    return name, draw(st.lists(messages(name), min_size=1, max_size=10))


@settings(max_examples=examples(400))
@given(batches())
@example(("m4", [b'{"m4":{"a":1,"b":2}}', b'{"m4":{"a":1,"a":2}}', b'{"m4":{"b":1,"a":2,"b":null}}', b'{"m4":{}}']))
@example(("m4", [b'{"m4":{"a":1}}', b'{"m4":{"a":2,"\\u0061":3}}', b'{"m4":{"a":1,}}', b'{"m4":{"a":1.5,"b":2}}']))
@example(("m4", [b'{"m4":null}', b"{}", b'{"m4":[]}', b'{"m4":{"a":"1"}}', b'{"m4":{"a":{}}}', b'{"m4":{"a":9}}']))
@example(
    ("m5", [b'{"m5":{"a":1e39,"b":1}}', b'{"m5":{"a":1}}', b'{"m5":{}}', b'{"m5":{"b":-1e39}}', b'{"m5":{"c":2}}'])
)
def test_the_same_maps_and_reasons_with_and_without(given: tuple[str, list[bytes]]) -> None:
    name, values = given
    for required in ((), (name,)):
        found, expected = (
            decoder({name: MAPS[name]}, required=required, loader=loader).decode("t", 0, batch_of(values))
            for loader in (WITH_KERNEL, WITHOUT_KERNEL)
        )
        assert facts(found) == facts(expected)


def _block(texts: Sequence[str]) -> Block:
    schema = kafka_of({"m": Map(_STRING, Simple(Kind.FLOAT64))}).schema
    block = BlockReader(schema, skip_unknown=True, defaults={}, loader=WITH_KERNEL).read(
        Texts([text.encode() for text in texts]), [0]
    )
    assert block is not None
    return block


def _text(keys: Sequence[str]) -> str:
    return json.dumps({"m": {key: number / 4 for number, key in enumerate(keys)}})


def test_maps_of_many_keys_in_any_order_are_read_by_the_kernel() -> None:
    keys = [f"key {number}" for number in range(1000)]
    orders = [keys, keys, keys[::-1], keys[500:], keys[1::2], [f"other {key}" for key in keys], []]
    block = _block([_text(order) for order in orders])
    assert block.doubtful.tolist() == []
    assert block.arrays[0].to_pylist() == [[(key, number / 4) for number, key in enumerate(order)] for order in orders]


def _colliding(count: int, slots: int) -> list[str]:
    """Return keys with one hash, as a producer that knows the kernel may choose them."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        key, code = f"{number:x}", 0xCBF29CE484222325
        for byte in key.encode():
            code = ((code ^ byte) * 0x100000001B3) % 2**64
        if code % slots == 0:
            found.append(key)
        number += 1
    return found


def test_keys_that_collide_on_purpose_cost_their_message_alone() -> None:
    keys = _colliding(150, 1024)
    usual = _text(["a", "b"])
    block = _block([usual, _text(keys), usual])
    assert block.doubtful.tolist() == [1]
    made = decoder({"m": Map(_STRING, Simple(Kind.FLOAT64))})
    found = made.decode("t", 0, batch_of([usual.encode(), _text(keys).encode()]))
    assert found.rows["m"].to_pylist()[1] == [(key, number / 4) for number, key in enumerate(keys)]
