"""Front doors import what is asked for, and offer what their files say."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tilth

PACKAGE = Path(tilth.__file__).parent
LAZY = sorted(path for path in PACKAGE.rglob("__init__.py") if "door(__name__)" in path.read_text())


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.name)
def test_each_name_is_there_and_no_module_hides_it(path: Path) -> None:
    package = import_module(".".join(["tilth", *path.parent.relative_to(PACKAGE).parts]))
    modules = {each.stem for each in path.parent.iterdir()}
    names = dir(package)
    assert names
    for name in names:
        assert getattr(package, name) is not None
        assert name not in modules, f"{package.__name__}.{name} is a module as well, which would shadow it"


def test_the_public_names_can_be_listed() -> None:
    assert {"connect", "open", "read"} <= set(dir(tilth))


def test_a_name_that_is_not_offered_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"'tilth.storage' has no attribute 'Nothing'"):
        import_module("tilth.storage").Nothing  # noqa: B018
    with pytest.raises(ImportError, match="Nothing"):
        exec("from tilth.storage import Nothing")


def test_a_name_may_be_a_module_that_nothing_else_has_imported() -> None:
    assert "tilth" in imported("from tilth.catalog import visibility")


def test_what_a_start_waits_for_is_not_imported_before_java_starts() -> None:
    """Nor by Python's workers, which begin with each node: imports would take longer than all else that they do."""
    heavy = ("datafusion", "rocksdict", "httpx", "uvicorn", "prompt_toolkit", "starlette", "pandas")
    assert imported("import tilth.client.cli.serve, tilth.begin") & {*heavy, "pyspark"} == set()
    assert imported("import tilth.daemon") & {"datafusion", "rocksdict", "httpx", "uvicorn", "starlette"} == set()


def imported(statement: str) -> set[str]:
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys\n{statement}\nprint([name for name in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    names: list[str] = ast.literal_eval(shown.stdout)
    return {name.partition(".")[0] for name in names}
