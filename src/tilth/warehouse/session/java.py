"""Finds the Java that Spark runs on, and describes what is wrong with the one found.

Tests: tests/integration/warehouse/test_spark_session.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilth.warehouse.errors import WrongJavaError

#: Java versions that Spark 4 supports.
VERSIONS = (17, 21)
#: Modules that Spark, Hadoop and Arrow load; cut-down run-times lack some of them.
MODULES = (
    "java.base",
    "java.instrument",
    "java.logging",
    "java.management",
    "java.naming",
    "java.rmi",
    "java.scripting",
    "java.security.jgss",
    "java.security.sasl",
    "java.sql",
    "java.xml",
    "jdk.security.auth",
    "jdk.unsupported",
)
_HINT = "set JAVA_HOME or the setting warehouse.java-home to the folder of a full Java 17 or 21"
_ANSWER_SECONDS_MAX = 30.0
_MODULE = re.compile(r"^([a-z][\w.]*)@((\d+)\S*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that is fit for Spark."""

    home: str
    version: int
    #: The full version.
    release: str = ""


def find_java(java_home: str, environment: Mapping[str, str], *, seconds_max: float = _ANSWER_SECONDS_MAX) -> Java:
    """The Java of the setting, of JAVA_HOME, or of the path; raises WrongJavaError saying what was found, also of one
    that has not answered within `seconds_max`.
    """
    home, source = _home(java_home, environment)
    program = Path(home) / "bin" / "java"
    if not os.access(program, os.X_OK):
        raise WrongJavaError("there is no bin/java", folder=home, named_by=source, hint=_HINT)
    modules, release, version = _read_modules(program, home, seconds_max)
    if version not in VERSIONS:
        raise WrongJavaError(
            "this Java has the wrong version", folder=home, named_by=source, version=version, hint=_HINT
        )
    missing = [name for name in MODULES if name not in modules]
    if missing:
        raise WrongJavaError(
            "this Java is cut down",
            folder=home,
            named_by=source,
            version=version,
            missing=",".join(missing),
            hint=_HINT,
        )
    return Java(home=home, version=version, release=release)


def _home(java_home: str, environment: Mapping[str, str]) -> tuple[str, str]:
    if java_home:
        return java_home, "warehouse.java-home"
    if environment.get("JAVA_HOME"):
        return environment["JAVA_HOME"], "JAVA_HOME"
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise WrongJavaError("no Java was found: JAVA_HOME is not set and no java is on the path", hint=_HINT)
    return str(Path(found).resolve().parent.parent), "PATH"


def _read_modules(program: Path, home: str, seconds_max: float) -> tuple[set[str], str, int]:
    """Return the modules, the full version, and its first number."""
    try:
        answer = subprocess.run(
            [str(program), "--list-modules"], capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WrongJavaError("this Java does not run", folder=home, reason=str(error), hint=_HINT) from error
    found = _MODULE.findall(answer.stdout)
    if answer.returncode != 0 or not found:
        # Java 8 and older know no modules.
        output = (answer.stderr or answer.stdout).strip().splitlines()[:1]
        raise WrongJavaError("this Java is older than 17, or broken", folder=home, output="".join(output), hint=_HINT)
    return {name for name, _, _ in found}, found[0][1], int(found[0][2])
