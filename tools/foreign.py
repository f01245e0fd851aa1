"""Classes statements in ByConity's and ClickHouse's spelling by what a node answers: `python -m tools.foreign`.

Covers: reading the collection, running it in order on a node of its own, the class of each answer. Does not cover:
whether the rows of an answer are right (tests/integration/sql). A line `-- setup` begins statements that only prepare
tables, `-- <group>` begins a group.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import tilth
from tilth.base.errors import TilthError
from tilth.front import LocalNode

COLLECTION = Path(__file__).parents[1] / "tests" / "acceptance" / "foreign.sql"
DATABASE = "d"
_SETUP = "setup"
_GROUP = re.compile(r"-- ([a-z]+)\n")
_END = re.compile(r";[ \t]*(?:\n|\Z)")
#: Codes that blame the user's spelling, or the node, where the statement is right elsewhere.
_UNCLEAR_CODES = frozenset({"SYNTAX_ERROR", "INTERNAL_ERROR", "INTERNAL", "QUERY_FAILED"})
#: Codes of an overloaded machine: no answer to the statement.
_NO_ANSWER = frozenset({"SPARK_RESTARTING", "TASK_LOST", "NO_WORKER"})
#: Words of Spark, DataFusion, Java and Python.
_FOREIGN_WORDS = re.compile(
    r"Syntax error at or near|ParserError|SQL error|SQLSTATE|spark\.sql\.|Caused by|An error occurred|__tilth_"
    r"|Traceback|PARSE_|Error\(|org\.apache|java\."
)
#: Clauses that are read and have no effect, with a word that the notice must contain.
_WITHOUT_EFFECT = {
    r"\bCODEC\s*\(": "CODEC",
    r"\bON\s+CLUSTER\b": "ON CLUSTER",
    r"\bSAMPLE BY\b": "SAMPLE BY",
    r"\bINDEX \w+ \w+ TYPE\b": "INDEX",
    r"\bENGINE = (?:Atomic|Cnch);|\bENGINE = (?:Atomic|Cnch) COMMENT": "ENGINE",
    r"\bReplicatedMergeTree\('": "ReplicatedMergeTree",
    r"\bNO DELAY\b": "NO DELAY",
    r"^(?!KILL QUERY)[\s\S]*\bSYNC\b": "SYNC",
    r"\bindex_granularity\b": "index_granularity",
    r"\bmin_bytes_for_wide_part\b": "min_bytes_for_wide_part",
    r"\bwait_for_async_insert\b": "wait_for_async_insert",
    r"\bmax_threads\s*=": "max_threads",
    r"\benable_optimizer\b": "enable_optimizer",
    r"\bkafka_(?:row_delimiter|thread_per_consumer|commit_every_batch|leader_priority)\b": "kafka_",
    r"\bINTO\s+\d+\s+BUCKETS\b": "",
    r"^OPTIMIZE .*mutations_sync": "mutations_sync",
}


class Class(StrEnum):
    """Outcome of a statement."""

    WORKS = "works"
    CLEAR = "clear refusal"
    UNCLEAR = "unclear"
    SILENT = "silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A statement of the collection."""

    group: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A statement with the class of its answer."""

    statement: Foreign
    result: Class
    #: The answer or the error as the user sees it.
    answer: str


#: Runs a statement and returns its message and its notices.
Run = Callable[[str], tuple[str, Sequence[str]]]


def read_collection(path: Path = COLLECTION) -> Iterator[Foreign]:
    """Yield the statements in their order."""
    group = ""
    text = path.read_text()
    at = 0
    while at < len(text):
        line = text[at : text.find("\n", at) + 1] or text[at:]
        if line.startswith("--") or not line.strip():
            named = _GROUP.fullmatch(line)
            group = named[1] if named else group
            at += len(line)
            continue
        end = _END.search(text, at)
        assert end is not None, f"a statement has no end: {line}"
        yield Foreign(group=group, text=text[at : end.start()])
        at = end.end()


def judge(statement: Foreign, run: Run) -> Judged:
    """Run a statement and class its answer."""
    try:
        message, notices = run(statement.text)
    except TilthError as error:
        if error.code in _NO_ANSWER:
            raise
        shown_text = f"{error.code}: {error}"
        hint = error.hint
        is_clear = bool(hint) and error.code not in _UNCLEAR_CODES and not _FOREIGN_WORDS.search(f"{shown_text} {hint}")
        # Words of the statement are taken for the name of a table.
        named = error.facts.get("table", "")
        is_clear &= error.code != "TABLE_NOT_FOUND" or named in statement.text
        shown = f"{shown_text} | {hint}" if hint and hint not in shown_text else shown_text
        return Judged(statement=statement, result=Class.CLEAR if is_clear else Class.UNCLEAR, answer=shown)
    except Exception as error:
        return Judged(statement=statement, result=Class.UNCLEAR, answer=f"{type(error).__name__}: {error}")
    shown_text = " ".join(notices)
    ignored = [
        word for what, word in _WITHOUT_EFFECT.items() if re.search(what, statement.text) and word not in shown_text
    ]
    result = Class.SILENT if ignored else Class.WORKS
    return Judged(statement=statement, result=result, answer=" | ".join([message, *notices, *ignored]))


def judge_all(run: Run, path: Path = COLLECTION) -> list[Judged]:
    """Run the whole collection; raises what a statement of the set-up raises."""
    judged: list[Judged] = []
    for statement in read_collection(path):
        if statement.group == _SETUP:
            run(statement.text)
        else:
            judged.append(judge(statement, run))
    return judged


def table_of(judged: Sequence[Judged]) -> str:
    """Return the number of statements by group and class."""
    groups = list(dict.fromkeys(each.statement.group for each in judged))
    counts = Counter((each.statement.group, each.result) for each in judged)
    lines = ["| group | " + " | ".join(Class) + " |", "|---|" + "---|" * len(Class)]
    for group in groups:
        lines.append(f"| {group} | " + " | ".join(str(counts[group, each]) for each in Class) + " |")
    sums = (str(sum(counts[group, each] for group in groups)) for each in Class)
    return "\n".join([*lines, "| all | " + " | ".join(sums) + " |"])


def run_on(node: LocalNode) -> Run:
    """Return what runs statements on a node."""

    def run(text: str) -> tuple[str, Sequence[str]]:
        summary = node.sql(text, database=DATABASE).summary
        return summary.message, summary.notices

    return run


def main() -> None:
    """Print the table of classes, and each statement with its class and its answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collection", nargs="?", type=Path, default=COLLECTION)
    parser.add_argument("--all", action="store_true", help="print each statement, not only those that fail")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tilth.open(folder) as node:
        node.sql(f"CREATE DATABASE {DATABASE}")
        judged = judge_all(run_on(node), given.collection)
    for each in judged:
        if given.all or each.result in (Class.UNCLEAR, Class.SILENT):
            print(f"[{each.result}] {each.statement.text}\n    {each.answer}")
    print(table_of(judged))


if __name__ == "__main__":
    main()
