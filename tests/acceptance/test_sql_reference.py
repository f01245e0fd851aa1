"""Every example of docs/reference/sql.md, of the README and of the operators' pages runs as it stands, in its order, on
one served node, and so do those of docs/howto; docs/getting-started.md and the tutorials with a broker, their answers
being those that they show. The notebook of examples/ runs on the same node.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tilth.grammar.text.script import split
from tilth.statements.registry import parse
from tools.broker import Broker
from tools.node_process import NodeProcess

pytestmark = pytest.mark.acceptance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sql.md"
README = PAGE.parents[2] / "README.md"
DOCS = PAGE.parents[1]
#: Pages whose answers are compared, each with the least number of its steps.
STORIES = {"getting-started.md": 12, "tutorials/dashboard.md": 6, "tutorials/cdc.md": 8}
#: Blocks marked `sql broker` need a broker that answers, `sql storage` files; other tests run those forms.
BLOCK = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
READ_BLOCK = re.compile(r"^```sql (?:broker|storage)\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: Blocks of getting-started.md and of tutorials: statements or a program, and the answer behind them.
STEP = re.compile(r"^```(sql|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
EXAMPLES_MIN = 30
OPERATE_MIN = 7
#: Plots of examples/story.ipynb.
PLOTS = 4
#: Time limit of one cell: it waits for its topic by itself, and says so.
CELL_SECONDS_MAX = 180
#: Until a topic has been read.
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("pages")).serving() as node:
        yield node


def test_the_queries_of_the_operators_pages_run(node: NodeProcess) -> None:
    # The queries of questions.md run on a mess of their own, in test_questions.py.
    pages = sorted(set((PAGE.parents[1] / "operate").glob("*.md")) - {PAGE.parents[1] / "operate" / "questions.md"})
    statements = [one for page in pages for block in BLOCK.findall(page.read_text()) for one in split(block)]
    assert len(statements) >= OPERATE_MIN
    node.connection.sql("CREATE DATABASE db")
    node.connection.sql("CREATE TABLE db.t (id BIGINT) ENGINE = MergeTree ORDER BY id")
    for statement in statements:
        with node.connection.request(statement, accept="application/json") as reply:
            assert b"".join(reply.pieces), statement


def test_the_jobs_of_a_data_engineer_run(node: NodeProcess) -> None:
    """Each page makes what it needs, and leaves nothing; those with a broker are read alone."""
    for page in sorted((DOCS / "howto").glob("*.md")):
        for statement in (one for block in BLOCK.findall(page.read_text()) for one in split(block)):
            node.connection.sql(statement)
        for block in READ_BLOCK.findall(page.read_text()):
            assert all(parse(statement) for statement in split(block)), page


def test_the_python_of_the_readme_runs_as_one_block(node: NodeProcess, tmp_path: Path) -> None:
    text = README.read_text()
    first = BLOCK.search(text)
    block = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert first is not None
    assert block is not None
    # Up to the table that a broker feeds.
    for statement in split(first[1].partition("-- the same table")[0]):
        node.connection.sql(statement)
    script = block[1].replace("http://127.0.0.1:7411", node.url)
    assert node.url in script
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ada") == 2, done.stdout


def test_every_example_runs(node: NodeProcess) -> None:
    statements = [statement for block in BLOCK.findall(PAGE.read_text()) for statement in split(block)]
    assert len(statements) >= EXAMPLES_MIN
    for statement in statements:
        with node.connection.request(statement, accept="application/json") as reply:
            assert b"".join(reply.pieces), statement


@pytest.mark.parametrize("name", STORIES)
def test_a_page_with_a_broker_runs_and_answers_as_it_shows(node: NodeProcess, broker: Broker, name: str) -> None:
    steps = STEP.findall((DOCS / name).read_text())
    assert len(steps) >= STORIES[name]
    for language, text, answer in steps:
        block = text.replace("localhost:9092", broker.bootstrap).replace("http://127.0.0.1:7411", node.url)
        if language == "python":
            # Programs stand in the checkout, beside its tools.
            subprocess.run([sys.executable, "-c", block], cwd=README.parent, check=True, timeout=SECONDS_MAX)
            continue
        *before, last = split(block)
        for statement in before:
            node.connection.sql(statement)
        _ask_until(node, last, [_cells(line) for line in answer.splitlines()[2:]])


def test_the_notebook_runs_in_a_kernel_of_jupyter(node: NodeProcess, broker: Broker) -> None:
    notebook = nbformat.read(README.parent / "examples" / "story.ipynb", as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        cell.source = cell.source.replace("localhost:9092", broker.bootstrap).replace("http://127.0.0.1:7411", node.url)
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS_MAX, resources={"metadata": {"path": str(README.parent / "examples")}}
    )
    # Raises the first error of a cell; the notebook asserts by itself that each flight is a row, once.
    client.execute()
    plots = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    assert len(plots) == PLOTS


def _ask_until(node: NodeProcess, statement: str, wanted: Sequence[Sequence[str]]) -> None:
    """Ask until the answer has the wanted rows: a topic is read after a while. `..` stands for anything."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        rows = [[str(value) for value in row] for row in node.connection.sql(statement).rows]
        if not wanted or (
            len(rows) == len(wanted)
            and all(
                re.fullmatch(re.escape(cell).replace(r"\.\.", ".*"), value)
                for row, cells in zip(rows, wanted, strict=True)
                for value, cell in zip(row, cells, strict=True)
            )
        ):
            return
        assert time.monotonic() < deadline, f"{statement}: {rows}"
        time.sleep(0.5)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("│")]
