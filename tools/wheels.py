"""Builds the wheels of both distributions: `tilth`, and `tilth-server`, which has no code.

    python -m tools.wheels [--out dist]

Covers: a build without the network, by the setuptools of this environment. Does not cover: what is in them
(pyproject.toml). Always holds: nothing is written into the tree but the wheels; what earlier builds left is in none of
them.

Tests: tests/acceptance/test_served_node.py.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVER = Path("packages") / "server"


def build(out: Path) -> list[Path]:
    """Return the paths of the new wheels; wheels of the same names are replaced."""
    with tempfile.TemporaryDirectory(prefix="tilth-wheels-") as folder:
        # setuptools leaves its files beside the source, and would put old ones of them into a wheel.
        tree, made = Path(folder) / "tree", Path(folder) / "made"
        shutil.copytree(ROOT / "src" / "tilth", tree / "src" / "tilth", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / SERVER, tree / SERVER)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree / name)
        shutil.copy(ROOT / "LICENSE", tree / SERVER / "LICENSE")
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index"]
        command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(made), str(tree), str(tree / SERVER)]
        subprocess.run(command, check=True)
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(wheel, out / wheel.name)) for wheel in sorted(made.glob("*.whl"))]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description="Builds the wheels.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for them")
    for wheel in build(parser.parse_args().out):
        print(f"{wheel}  {wheel.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
