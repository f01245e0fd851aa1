"""Runs the project's mutants: breaks one promise of the source after the other and shows the tests that fail then.

They run in a temporary copy of the tree. A mutant is killed when each of its tests fails; one that survives is printed,
and the run fails. `make mutants` runs all, `python -m tools.mutants NAME ..` some. See also: mutant_list.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tools.mutant_list import MUTANTS, Mutant, mutated

ROOT = Path(__file__).resolve().parents[1]
#: Parts of the tree that tests need, copied; the rest is linked, for nobody writes to it.
COPIED = ("src", "tests", "tools", "packages", "pyproject.toml", "README.md", "LICENSE")
LINKED = (".venv", ".cache", "docs")
#: Time limit of the tests of one mutant; some mutants make a test wait for an event that never comes.
SECONDS_MAX = 300
#: Times of files, in seconds, each other than that of any file of the tree.
_TIMES = count(1_000_000_000)
#: Exit code of pytest where tests failed, in contrast to tests that could not be found or collected.
TESTS_FAILED = 1


def main(names: Sequence[str]) -> int:
    """Runs the mutants of these names, all where none is given; returns the exit code."""
    unknown = set(names) - {each.name for each in MUTANTS}
    if unknown:
        print(f"no such mutant: {', '.join(sorted(unknown))}")
        return 2
    chosen = [each for each in MUTANTS if not names or each.name in names]
    with copied_tree() as tree:
        tests = sorted({test for each in chosen for test in each.tests})
        code, output = run_tests(tree, tests)
        if code:
            print(f"{output}\nthe tests fail without any mutant")
            return 1
        survivors = [each.name for each in chosen if not is_killed(tree, each)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants are killed")
    if survivors:
        print(f"survived: {', '.join(survivors)}")
    return 1 if survivors else 0


def is_killed(tree: Path, mutant: Mutant) -> bool:
    """Return whether each of its tests fails, and print which did."""
    started = time.monotonic()
    with applied(tree, mutant):
        code, output = run_tests(tree, mutant.tests)
    found = (line.split(" - ")[0].split(" ", 1) for line in output.splitlines())
    # Without the values of its parameters.
    failed = {words[1].split("[")[0] for words in found if words[0] == "FAILED"}
    passed = [test for test in mutant.tests if test not in failed]
    seconds = f"{time.monotonic() - started:.1f} s"
    if code == TESTS_FAILED and not passed:
        print(f"killed   {mutant.name} ({seconds}): {', '.join(mutant.tests)}", flush=True)
        return True
    print(f"SURVIVED {mutant.name} ({seconds}), pytest ended with {code}; not failed: {', '.join(passed)}", flush=True)
    if code not in (0, TESTS_FAILED):
        print(output)
    return False


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the tree that is removed again."""
    with tempfile.TemporaryDirectory(prefix="tilth-mutants-") as folder:
        tree = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, tree / name)
        for name in LINKED:
            (tree / name).symlink_to((ROOT / name).resolve())
        yield tree


@contextmanager
def applied(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The patch in the copy, for as long as it takes."""
    path = tree / mutant.path
    text = path.read_text()
    _write(path, mutated(text, mutant))
    try:
        yield
    finally:
        _write(path, text)


def run_tests(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Return the exit code and the output of pytest; in a run that does not end all tests have failed."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, "\n".join(f"FAILED {test}" for test in tests)
    return done.returncode, done.stdout + done.stderr


def _write(path: Path, text: str) -> None:
    """Write the file with a time of its own: by time and size Python knows whether its compiled code is still right."""
    path.write_text(text)
    seconds = next(_TIMES)
    os.utime(path, (seconds, seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
