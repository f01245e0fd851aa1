"""The others: a kit of benchmarks of Spark, Delta and Iceberg, kept outside of this project, run beside ours.

Covers: finding the kit, preparing its work directory, its interpreters and input files. Does not cover: what a
comparison is (each benchmark's own).
Always holds: a rival runs in an interpreter and a Python environment of its own; the kit's folder is only read.

The kit is a folder with `setup.sh`, `fresh.py` (interpreters that answer calls) and one module for each comparison.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
_DEFAULT_KIT = PROJECT.parent / "shared" / "bench"
_DEFAULT_WORK = PROJECT / ".cache" / "bench"
_SETUP_SECONDS_MAX = 1800
_INPUT_SECONDS_MAX = 600
_PREPARE_PARTS = """
import json, sys
from pathlib import Path
from anchors_merge import prepare_parts
from work import WorkDir
paths = prepare_parts(WorkDir(Path(sys.argv[1])), rows=int(sys.argv[2]), files=int(sys.argv[3]))
print(json.dumps([str(path) for path in paths]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """Folders of the rivals: their kit, and the one where they may write."""

    folder: Path
    work: Path

    @property
    def python(self) -> Path:
        """The rivals' own Python."""
        return self.work / "venv" / "bin" / "python"

    def prepare(self) -> None:
        """Runs the kit's setup where the work directory is not ready; raises CalledProcessError."""
        if self.python.exists() and any((self.work / "jars").glob("*.jar")):
            return
        command = ["bash", str(self.folder / "setup.sh"), "--work", str(self.work)]
        subprocess.run(command, check=True, timeout=_SETUP_SECONDS_MAX)

    def merge_inputs(self, *, rows: int, files: int) -> list[Path]:
        """The sorted Parquet files of narrow events that every merge reads; made once, then kept."""
        answer = self.run_script(_PREPARE_PARTS, str(self.work), str(rows), str(files))
        return [Path(path) for path in json.loads(answer)]

    def run_script(self, script: str, *arguments: str, seconds_max: float = _INPUT_SECONDS_MAX) -> str:
        """Run a script with the kit's modules in the rivals' Python; return the last line that it prints."""
        done = subprocess.run(
            [str(self.python), "-c", script, *arguments],
            cwd=self.folder,
            env=clean_environment(),
            check=True,
            timeout=seconds_max,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout.splitlines()[-1]


class Rival:
    """One rival in its own interpreter, which stays warm between calls."""

    def __init__(self, kit: Kit, stack: ExitStack) -> None:
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(clean_environment())
        try:
            self._interpreter = stack.enter_context(_fresh(kit).Interpreter(kit.python))
        finally:
            os.environ.clear()
            os.environ.update(before)

    # Any: what the kit's function returns as JSON.
    def call(self, function: str, arguments: Mapping[str, object]) -> Any:
        """Call `module:function` of the kit, and return its result."""
        return self._interpreter.call(function, arguments)


def add_kit_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --kit and --work."""
    parser.add_argument("--kit", type=Path, default=_DEFAULT_KIT, help="the folder of the rivals' kit")
    parser.add_argument("--work", type=Path, default=_DEFAULT_WORK, help="where the kit keeps what it needs")


def kit_of(arguments: argparse.Namespace) -> Kit:
    """The kit that was named, ready; raises SystemExit where there is none."""
    if not (arguments.kit / "setup.sh").exists():
        raise SystemExit(f"no kit of rivals here, name its folder by --kit: folder={arguments.kit}")
    kit = Kit(folder=arguments.kit.resolve(), work=arguments.work.resolve())
    kit.prepare()
    return kit


# Any: a module of the kit.
def _fresh(kit: Kit) -> Any:
    spec = importlib.util.spec_from_file_location("rivals_fresh", kit.folder / "fresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def clean_environment() -> dict[str, str]:
    """This environment without what is meant for our own Spark."""
    ours = ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME")
    return {name: value for name, value in os.environ.items() if name not in ours} | {"PYTHONDONTWRITEBYTECODE": "1"}
