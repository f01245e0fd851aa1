"""When the compiled kernel is used, and that decoding goes on without it."""

from __future__ import annotations

import pytest

from tests.unit.ingest.decoding import WITH_KERNEL, batch_of, decoder
from tilth.ingest import compiled
from tilth.ingest.messages.json_blocks import kernel_loader
from tilth.model.types import DataType, Kind, Map, Simple

GOOD = batch_of([b'{"a": %d}' % number for number in range(8)])


def test_a_process_that_decodes_little_does_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    # Only one kernel at a time is loaded.
    kernel = WITH_KERNEL.count(0)

    def load(_: object) -> object:
        loads.append(1)
        return kernel

    monkeypatch.setattr(compiled, "import_kernel", load)
    loader = kernel_loader(after_bytes=200)
    made = decoder({"a": Kind.INT64}, loader=loader)
    for _ in range(2):
        made.decode("t", 0, GOOD)
    assert loads == []
    for _ in range(3):
        assert made.decode("t", 0, GOOD).rows["a"].to_pylist() == [*range(8)]
    assert loads == [1]


@pytest.mark.parametrize("error", [ImportError("no numba"), OSError(27, "File too large")])
def test_without_it_messages_are_decoded_as_before(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(compiled, "import_kernel", fail)
    made = decoder({"a": Kind.INT64}, loader=kernel_loader(after_bytes=0))
    assert made.decode("t", 0, GOOD).rows["a"].to_pylist() == [*range(8)]


def test_functions_that_cannot_be_compiled_are_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba compiles them, and stores their code, when they are called first."""

    class Broken:
        def fill_slots(self, *_: object) -> None:
            raise OSError(27, "File too large")

    monkeypatch.setattr(compiled, "import_kernel", lambda _: Broken())
    loader = kernel_loader(after_bytes=0)
    assert decoder({"a": Kind.INT64}, loader=loader).decode("t", 0, GOOD).rows.num_rows == 8
    assert loader.count(1) is None


def test_a_float_that_is_too_large_costs_its_own_message_alone() -> None:
    values = [b'{"f": 1.5}', b'{"f": 1e39}', b'{"f": -2}']
    found = decoder({"f": Kind.FLOAT32}).decode("t", 0, batch_of(values))
    assert found.rows["f"].to_pylist() == [1.5, -2.0]
    assert [each.reason for each in found.broken] == ["column `f`: 1e+39 does not fit float"]


def test_many_doubtful_messages_are_read_without_it_for_a_while() -> None:
    made = decoder({"a": Kind.INT64})
    odd = batch_of([b'{"a": "%d"}' % number for number in range(8)])
    for messages in (odd, GOOD, odd, *[GOOD] * 20, odd):
        assert made.decode("t", 0, messages).rows["a"].to_pylist() == [*range(8)]


def test_a_null_has_zero_below_it_so_that_the_same_messages_make_the_same_bytes() -> None:
    columns: dict[str, Kind | DataType]
    columns = {"i": Kind.INT64, "f": Kind.FLOAT64, "d": Kind.DATE, "m": Map(Simple(Kind.STRING), Simple(Kind.INT64))}
    given = b'{"i": 7, "f": 1.5, "d": "2025-01-02", "m": {"a": 8, "b": 9}}'
    values = [given, b'{"i": null, "m": {"a": null}}', b'{"m": {"a": 1, "a": 2}}', b'{"m": {"c": null, "d": 5}}']
    rows = decoder(columns).decode("t", 0, batch_of(values)).rows
    for array in (rows["i"], rows["f"], rows["d"], rows["m"].items):
        size = array.type.bit_width // 8
        data = array.buffers()[1].to_pybytes()[array.offset * size :]
        below = [data[row * size : (row + 1) * size] for row in range(len(array)) if not array[row].is_valid]
        assert below == [bytes(size)] * len(below)
        assert below
