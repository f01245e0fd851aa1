"""Java, Python, libraries and Spark: what a server runs on.

Covers: their versions, whether they can be used together. Does not cover: starting Spark (tilth.warehouse).

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version

from tilth.doctor.checkup import Checkup, ok
from tilth.model.diagnosis import Diagnosis, Grade

#: A fresh Python imports these; a broken library fails there and not in this process.
_IMPORTS = "import pyspark, py4j, pyarrow, pandas; print(pyspark.__version__)"
_REQUIREMENT = re.compile(r"\s*([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)")
_BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*([\d.]+)")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda found, bound: found >= bound,
    "<=": lambda found, bound: found <= bound,
    ">": lambda found, bound: found > bound,
    "<": lambda found, bound: found < bound,
    "==": lambda found, bound: found == bound,
    "!=": lambda found, bound: found != bound,
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A library that a package needs."""

    name: str
    #: Bounds of its version: `>=2.3,<3`.
    bounds: str

    def is_met(self, found: str) -> bool:
        return all(_COMPARE[sign](_numbers(found), _numbers(bound)) for sign, bound in _BOUND.findall(self.bounds))


def requirements(lines: Sequence[str]) -> Iterator[Requirement]:
    """Yield what a server needs of the requirements of a package: those of the package and of its extra `server`."""
    for line in lines:
        found = _REQUIREMENT.match(line)
        extra = _EXTRA.search(line)
        if found is not None and (extra is None or extra[1] == "server"):
            yield Requirement(found[1], found[2].strip(" ()"))


def check_java(java_home: str, environment: Mapping[str, str], seconds_max: float) -> list[Diagnosis]:
    """Find the Java that Spark would run on. Raises WrongJavaError."""
    from tilth.warehouse.session.java import find_java

    java = find_java(java_home, environment, seconds_max=seconds_max)
    return [ok("java", f"Java {java.release} in {java.home} is complete and fit for Spark")]


def check_libraries(
    check: Checkup, read: Callable[[str], str] = version, lines: Sequence[str] | None = None
) -> list[Diagnosis]:
    """Compare versions of libraries with what the installed Tilth needs; `read` returns the version of a package."""
    if lines is None:
        try:
            installed = metadata("tilth")
        except PackageNotFoundError:
            return [ok("libraries", "tilth runs from its sources, so that versions of libraries were not compared")]
        python = Requirement("Python", str(installed["Requires-Python"] or ""))
        if not python.is_met(platform.python_version()):
            sentence = f"this is Python {platform.python_version()}, and Tilth needs {python.bounds}"
            return [check.found(Grade.ERROR, sentence, "install Tilth for a Python within these bounds")]
        lines = installed.get_all("Requires-Dist") or []
    found: list[Diagnosis] = []
    needed = list(requirements(lines))
    for each in needed:
        command = f"pip install '{each.name}{each.bounds}'"
        try:
            there = read(each.name)
        except PackageNotFoundError:
            found.append(check.found(Grade.ERROR, f"the library {each.name} is not installed", command))
            continue
        if not each.is_met(there):
            sentence = f"the library {each.name} has version {there}, and Tilth needs {each.bounds}"
            found.append(check.found(Grade.ERROR, sentence, command))
    if found:
        return found
    return [ok("libraries", f"Python {platform.python_version()}, and {len(needed)} libraries have versions that fit")]


def check_spark(check: Checkup, python: str, seconds_max: float) -> list[Diagnosis]:
    """Import Spark and the libraries of its Python workers in a Python of its own; `python`: empty is this one."""
    program = python or sys.executable
    todo = "install pyspark, pyarrow and pandas for this Python, in the versions that Tilth needs"
    try:
        answer = subprocess.run(
            [program, "-c", _IMPORTS], capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired:
        sentence = f"{program} has not imported Spark within {seconds_max:g} s"
        return [check.found(Grade.ERROR, sentence, "see whether the disk of its libraries hangs")]
    except OSError as error:
        sentence = f"the Python of Spark's workers, {program}, cannot be started: {error.strerror}"
        return [check.found(Grade.ERROR, sentence, "set warehouse.python to a Python, or leave it out")]
    if answer.returncode:
        why = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        return [check.found(Grade.ERROR, f"{program} cannot import Spark: {why}", todo)]
    return [ok("spark", f"Spark {answer.stdout.strip()} can be imported by {program}")]


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version; zeros at its end say nothing."""
    found = [int(each) for each in re.findall(r"\d+", text.partition("+")[0])]
    while found and not found[-1]:
        found.pop()
    return tuple(found)
