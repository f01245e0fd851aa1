"""The wheels as somebody without a checkout has them: in an environment of their own, beside the libraries of ours."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

from tools.wheels import build

SECONDS_MAX = 120


class Installed:
    """An environment with the new wheels, and an empty folder in which its commands run."""

    def __init__(self, folder: Path) -> None:
        self.wheels = build(folder / "dist")
        self.version = self.wheels[0].name.split("-")[1]
        environment = folder / "environment"
        venv.create(environment, with_pip=False)
        self.python = environment / "bin" / "python"
        self.tilth = str(environment / "bin" / "tilth")
        self.empty = folder / "empty"
        self.empty.mkdir()
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-index"]
        pip += ["--disable-pip-version-check", "--no-deps", *map(str, self.wheels)]
        subprocess.run(pip, check=True, timeout=SECONDS_MAX)
        # The libraries of this environment; a .pth file in it, such as that of the checkout, is not read from there.
        [site] = (environment / "lib").glob("python*/site-packages")
        (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        #: First words of a command that knows neither the checkout nor its interpreter.
        self.begin = ("env", "-C", str(self.empty), "-u", "PYTHONPATH", "-u", "PYSPARK_PYTHON")

    def run(self, *command: str) -> str:
        """Return what the command prints."""
        done = subprocess.run([*self.begin, *command], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self, distribution: str) -> set[str]:
        """Return the names of what is in the wheel."""
        [wheel] = (each for each in self.wheels if each.name.startswith(f"{distribution}-"))
        with zipfile.ZipFile(wheel) as archive:
            return {*archive.namelist()}
