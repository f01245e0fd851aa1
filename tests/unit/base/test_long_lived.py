"""Full collections visit what has come since the last one, and find garbage among the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.long_lived_cases import CASES

SECONDS_MAX = 60.0


@pytest.mark.parametrize("case", CASES)
def test_a_case_holds_in_a_process_of_its_own(case: str) -> None:
    command = [sys.executable, "-m", "tests.long_lived_cases", case]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ended.returncode == 0, ended.stderr
