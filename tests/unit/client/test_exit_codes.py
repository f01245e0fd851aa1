"""Exit codes: each kind has its own, for good."""

from __future__ import annotations

from tilth.base.errors import ConflictError, ErrorKind
from tilth.client.errors import ServerUnreachableError
from tilth.client.exit_codes import CANCELLED, EXIT_CODES, GOOD, WRONG_COMMAND_LINE, exit_code


def test_each_kind_has_a_number_of_its_own_that_stays() -> None:
    assert {kind.value: code for kind, code in EXIT_CODES.items()} == {
        "internal": 1,
        "invalid": 10,
        "not_found": 11,
        "conflict": 12,
        "retry": 13,
        "unavailable": 14,
        "fenced": 15,
        "unknown_outcome": 16,
        "corrupt": 17,
    }
    assert set(EXIT_CODES) == set(ErrorKind)
    assert {GOOD, WRONG_COMMAND_LINE, CANCELLED}.isdisjoint(EXIT_CODES.values())


def test_an_error_has_the_code_of_its_kind() -> None:
    assert exit_code(ConflictError.coded("ANYTHING", "..")) == 12
    assert exit_code(ServerUnreachableError()) == 14
