"""When the compiled kernel is used, and that decoding goes on without it."""

from __future__ import annotations

import pytest

from tests.unit.ingest.decoding import WITH_KERNEL, batch_of, decoder
from tilth.ingest import compiled
from tilth.ingest.messages.json_blocks import kernel_loader
from tilth.model.types import Kind

GOOD = batch_of([b'{"a": %d}' % number for number in range(8)])


def test_a_process_that_decodes_little_does_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []

    def load(_: object) -> object:
        loads.append(1)
        return WITH_KERNEL.count(0)

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
