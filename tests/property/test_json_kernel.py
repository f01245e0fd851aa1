"""The compiled kernel reads messages as they are read without it: the same rows, broken messages and reasons."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.property.hostile_messages import TYPES, json_texts
from tests.unit.ingest.decoding import WITH_KERNEL, WITHOUT_KERNEL, batch_of, decoder, kafka_of
from tilth.ingest.batch import Texts
from tilth.ingest.messages.decode import Decoded, Decoder
from tilth.ingest.messages.json_blocks import BlockReader
from tilth.model.types import DataType, Kind, Simple

_PLAIN_TEXTS: dict[Kind, tuple[str, ...]] = {
    Kind.BOOLEAN: ("true", "false", "null"),
    **dict.fromkeys((Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64), ("0", "-7", "127", "null")),
    Kind.FLOAT32: ("0.5", "-1e3", "3", "16777217"),
    Kind.FLOAT64: ("0.1", "-1.5e-7", "12345678901234567", "9223372036854775.808"),
    Kind.STRING: ('"a"', '""', '"\\u00e9\\n\\"x"', '"\\ud83d\\ude00"', '"ü"'),
    Kind.DATE: ('"2025-02-28"', '"1969-12-31"', '"2000-02-29"'),
    Kind.TIMESTAMP: ('"2025-01-02T03:04:05.123456Z"', '"1969-12-31 23:59:59+02:00"', '"2025-01-02 03:04:05"'),
    Kind.TIMESTAMP_NTZ: ('"2025-01-02T03:04:05.5Z"', '"2025-01-02 03:04:05"'),
}
#: Columns by number, so that a message may have any of them.
COLUMNS: dict[str, Kind | DataType] = {
    **{f"v{number}": data_type for number, data_type in enumerate(TYPES.values())},
    "naïve": Kind.STRING,
    "n": Kind.INT64,
}
DEFAULTS: dict[str, object] = {"n": 7, "naïve": "é"}


def both(*, required: tuple[str, ...] = (), **more: str) -> tuple[Decoder, Decoder]:
    wanted = [*COLUMNS, "_offset"]
    one, other = (
        decoder(COLUMNS, wanted=wanted, required=required, defaults=DEFAULTS, loader=loader, **more)
        for loader in (WITH_KERNEL, WITHOUT_KERNEL)
    )
    return one, other


#: Numbers of 20 digits that are no more than their lowest 64 bits.
WRAPPED = (
    *(b"9223372036854775808.0", b"-9223372036854775808.000000", b"1.8446744073709551616e19", b"1.8446744073709551616"),
    *(b"0.18446744073709551616", b"922337203685477580.80", b"18446744073709551616", b"18446744073709551617.5"),
)
#: Arguments of `both`.
KINDS_OF_DECODERS: list[dict[str, Any]] = [
    {},
    {"required": ("n",)},
    {"required": ("n", "v4"), "kafka_handle_error_mode": "stream"},
    {"input_format_skip_unknown_fields": "0"},
]


def facts(decoded: Decoded) -> Any:
    owners = range(decoded.messages) if decoded.owners is None else decoded.owners.tolist()
    broken = [(each.offset, each.reason, each.raw) for each in decoded.broken]
    # NaN and -0.0 are themselves; offsets of a sliced array are not shown.
    return repr(decoded.rows.to_pydict()), [*owners], broken, decoded.rows.schema


def check(number: int, values: list[bytes | None]) -> None:
    # Each call has new decoders, because one that has met many doubtful messages leaves out the kernel for a while.
    with_kernel, without = both(**KINDS_OF_DECODERS[number])
    messages = batch_of(values)
    for _ in range(2):
        # The second time, keys are expected in the order of the last message.
        assert facts(with_kernel.decode("t", 0, messages)) == facts(without.decode("t", 0, messages))


#: Texts that the kernel reads, by the number of the type.
PLAIN: dict[int, tuple[str, ...]] = {
    number: _PLAIN_TEXTS.get(data_type.kind, ("null",)) if isinstance(data_type, Simple) else ("null",)
    for number, data_type in enumerate(TYPES.values())
}

_space = st.sampled_from(["", "", "", " ", "\n", "\t\r"])


@st.composite
def objects(draw: st.DrawFn) -> str:
    """An object with any values in any columns, unknown ones and some twice, in any order; half are plain."""
    is_plain = draw(st.booleans())
    numbers = draw(st.lists(st.integers(0, len(TYPES) - 1), max_size=6, unique=is_plain))
    types = list(TYPES.values())
    if is_plain:
        return "{" + ",".join(f'"v{number}":{draw(st.sampled_from(PLAIN[number]))}' for number in numbers) + "}"
    pairs = [(f'"v{number}"', draw(json_texts(types[number]))) for number in numbers]
    for name, data_type in (("n", Kind.INT64), ("naïve", Kind.STRING), ("unknown", Kind.STRING)):
        if draw(st.booleans()):
            pairs.append((json.dumps(name, ensure_ascii=draw(st.booleans())), draw(json_texts(Simple(data_type)))))
    space = draw(_space)
    return "{" + f"{space},{space}".join(f"{name}{space}:{space}{text}" for name, text in pairs) + "}"


_bytes = st.sampled_from(
    [*(bytes([code]) for code in b'{}[]",:\\ue+-.019 \n\0\x1f\x7f'), b"null", b"\xff", b"\xc3", b"\xed\xa0\x80", b"1e9"]
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Some objects, mostly one; sometimes with bytes put in, taken out, or repeated."""
    count = draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2, 3]))
    text = draw(_space).join(draw(objects()) for _ in range(count)).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2]))):
        at, until = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        match draw(st.integers(0, 3)):
            case 0:
                text = text[:at] + draw(_bytes) + text[at:]
            case 1:
                text = text[:at] + text[min(until, at + 3) :]
            case 2:
                text = text[:until] + text[at:]
            case _:
                text = text[:at]
    return text


@settings(max_examples=examples(400))
@given(st.integers(0, len(KINDS_OF_DECODERS) - 1), st.lists(st.none() | messages(), max_size=12))
@example(0, [b'{"n":1', b'}{"n":2}', b'{"naive":"x', b'"}', b'{"n":1}\0', b"\0", b'{"n":1}\0{"n":2}', b""])
@example(0, [b'{"n":"1"}', b'{"n":1.0}', b'{"n":1e2}', b'{"n":01}', b'{"n":-0}', b'{"n":-}', b'{"n":1,}', b'{"n":+1}'])
@example(3, [b'{"x":1}', b'{"n":1,"x":[{}]}', b'{"n":1,"n":2}', b'{"\\u006e":1}', b'{"n":1}'])
@example(
    1, [b'{"n":null}', b"{}", b'{"unknown":"\\x"}', b'{"unknown":"\xff"}', b'{"unknown":[1,]}', b'{"unknown":{1:2}}']
)
@example(0, [b'{"unknown":' + b"[" * depth + b"]" * depth + b',"n":1}' for depth in (1, 59, 60, 61, 500, 5000)])
def test_the_same_rows_and_reasons_with_and_without(number: int, values: list[bytes | None]) -> None:
    check(number, values)


def test_plain_messages_are_read_by_the_kernel() -> None:
    names = [f"v{number}" for number in PLAIN]
    texts = [
        "{"
        + ",".join(f'"{name}": {PLAIN[number][row % len(PLAIN[number])]}' for number, name in enumerate(names))
        + "}"
        for row in range(20)
    ]
    schema = kafka_of(COLUMNS).schema
    reader = BlockReader(schema, skip_unknown=True, defaults=DEFAULTS, loader=WITH_KERNEL)
    block = reader.read(Texts([text.encode() for text in texts]), range(len(COLUMNS)))
    assert block is not None
    assert block.doubtful.tolist() == []


@settings(max_examples=examples(200))
@given(st.lists(st.binary(max_size=24) | st.text(max_size=24).map(lambda text: json.dumps({"naïve": text}).encode())))
def test_any_bytes(values: list[bytes]) -> None:
    check(0, [*values, b'{"n": 1}'])


_digits = st.text("0123456789", min_size=1, max_size=22)


@settings(max_examples=examples(400))
@given(
    st.lists(
        st.one_of(
            st.integers(0, 2**64 - 1).map(lambda bits: repr(struct.unpack("d", struct.pack("Q", bits))[0])),
            st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), _digits, _digits),
            st.builds("{}.{}{}{}".format, _digits, _digits, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 400)),
            # Ties between two doubles, and their neighbours.
            st.builds(lambda k, d: str(2 * (2**53 + k) + 1 + d), st.integers(0, 2**40), st.sampled_from([0, 0, 1, -1])),
            st.integers(-(2**65), 2**65).map(str),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_numbers_are_the_nearest_doubles(texts: list[str]) -> None:
    values = [b'{"f": %s}' % text.encode() for text in texts]
    found, expected = (
        decoder({"f": Kind.FLOAT64}, loader=loader).decode("t", 0, batch_of(values))
        for loader in (WITH_KERNEL, WITHOUT_KERNEL)
    )
    assert facts(found) == facts(expected)
    for text, value in zip(texts, found.rows["f"].to_pylist(), strict=False) if not found.broken else ():
        assert repr(value) == repr(float(text)) or (float(text) == 0 and text.startswith("-"))
