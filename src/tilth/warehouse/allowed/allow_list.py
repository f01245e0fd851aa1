"""The allow list for texts of users, applied to what Spark's parser found in them.

Covers: kinds of nodes, functions, hints, options of tables. Does not cover: the lists (allowed.toml), parsing
(logical_plans.py).
Always holds: anything that no list names is refused; queries, views, conditions and defaults pass the same check.

Tests: tests/unit/warehouse/allowed/test_logical_plans.py, tests/integration/warehouse/test_allowed_functions.py.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from tilth.base.errors import InvalidInputError, TilthError
from tilth.clickhouse.functions.functions import INSTEAD, TABLE_FUNCTIONS
from tilth.clickhouse.functions.functions import functions as clickhouse_functions
from tilth.clickhouse.functions.variants import Variant
from tilth.warehouse.allowed.logical_plans import LogicalPlan, PlanNode
from tilth.warehouse.allowed.nesting import check_depth
from tilth.warehouse.errors import NotAllowedError, UnknownFunctionError

_FILE = "allowed.toml"
_TYPE_BEGIN = re.compile(r"\s*[A-Za-z_`]")
_NEAR_MAX = 3
_EXPLAIN = "org.apache.spark.sql.execution.command.ExplainCommand"
#: Nodes that call a function, with the field of its name.
_CALLS = {"UnresolvedFunction": "nameParts", "UnresolvedGenerator": "funcName"}
#: Functions with a type as a text argument, with the position of that argument.
_TYPE_ARGUMENTS = {"from_json": 1, "from_csv": 1, "variant_get": 2, "try_variant_get": 2}
#: Functions that return a type as a text, which never names a class.
_TYPE_FUNCTIONS = frozenset(("schema_of_json", "schema_of_csv"))
_TABLE_CALL = "UnresolvedTableValuedFunction"
_ONLY_QUERIES = "only queries can be run here: SELECT, WITH, VALUES, FROM and TABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Reason why something is not allowed, and what to do instead."""

    #: The user's word for a kind of node.
    what: str = ""
    why: str = ""
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """The lists of allowed.toml. Names are in lower case, except those of kinds."""

    functions: frozenset[str]
    table_functions: frozenset[str]
    #: ClickHouse's functions with the names and spellings that they have there.
    clickhouse: Mapping[str, tuple[str, tuple[Variant, ...]]]
    hints: frozenset[str]
    kinds: frozenset[str]
    refused_functions: Mapping[str, Refusal]
    refused_table_functions: Mapping[str, Refusal]
    refused_kinds: Mapping[str, Refusal]


@cache
def allow_list() -> AllowList:
    """Return the lists of the file."""
    found = tomllib.loads(files(__package__).joinpath(_FILE).read_text())
    refused = found["refused"]
    return AllowList(
        functions=_names(found["functions"]),
        table_functions=_names(found["table_functions"]),
        clickhouse={name.lower(): (name, variants) for name, variants in clickhouse_functions().items()},
        hints=_names(found["hints"]),
        kinds=_names(found["kinds"]),
        refused_functions=_refusals(refused["functions"]),
        refused_table_functions=_refusals(refused["table_functions"]),
        refused_kinds=_refusals(refused["kinds"]),
    )


def _names(texts: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for text in texts.values() for name in text.split())


# Any: what the file's tables hold.
def _refusals(entries: Iterable[Mapping[str, Any]]) -> dict[str, Refusal]:
    return {
        name: Refusal(what=entry.get("what", ""), why=entry.get("why", ""), instead=entry["instead"])
        for entry in entries
        for name in entry["names"].split()
    }


def check_plan(plan: LogicalPlan, text: str = "") -> None:
    """Raises NotAllowedError, UnknownFunctionError or TooComplexError for anything that is not allowed.

    `text`: the whole statement, for the position in the error; empty for a part of a statement.
    """
    allowed = allow_list()
    unknown = plan.kinds - allowed.kinds
    for node in plan.nodes:
        problem = _problem(node, allowed, unknown)
        if problem is not None:
            if text and node.start >= 0:
                problem = problem.with_facts(at=_line_and_column(text, node.start))
            raise problem
    if unknown:
        # Not a node, but a value in one.
        raise _refused_kind(min(unknown), allowed)


def _problem(node: PlanNode, allowed: AllowList, unknown: frozenset[str]) -> TilthError | None:
    """Return what is wrong with a node itself."""
    kind = node.kind
    if kind in unknown or (kind == _EXPLAIN and node.holder is not None):
        return _refused_kind(kind, allowed)
    if kind in _CALLS:
        name = node.text(_CALLS[kind])
        is_internal = bool(node.text("isInternal"))
        problem = _checked_function(name, _callable(), allowed.refused_functions, is_internal=is_internal)
        return problem or _wrong_arguments(node, name[-1], allowed) or _bad_type(node, name[-1].lower())
    if kind == _TABLE_CALL:
        in_from = allowed.table_functions | TABLE_FUNCTIONS.keys()
        return _checked_function(node.text("name"), in_from, allowed.refused_table_functions)
    if kind == "UnresolvedRelation" and (node.text("options") or node.text("isStreaming")):
        hint = "remove WITH (..) after the table's name, and STREAM before it"
        return NotAllowedError("a query cannot set options of a table", table=".".join(_relation(node)), hint=hint)
    if kind == "UnresolvedHint" and node.text("name")[0].lower() not in allowed.hints:
        known = ", ".join(sorted(name.upper() for name in allowed.hints))
        return NotAllowedError("unknown hint", name=node.text("name")[0], hint=f"remove it, or use one of {known}")
    return None


def _relation(node: PlanNode) -> tuple[str, ...]:
    return node.text("multipartIdentifier")


def _checked_function(
    parts: tuple[str, ...],
    allowed: frozenset[str],
    refused: Mapping[str, Refusal],
    *,
    is_internal: bool = False,
) -> TilthError | None:
    name = parts[-1].lower()
    refusal = refused.get(name)
    if refusal is not None:
        return NotAllowedError(f"this function is not allowed: {refusal.why}", name=name, hint=refusal.instead)
    if len(parts) > 1 or is_internal:
        hint = f"write {name}(..)" if name in allowed else "only functions of Spark can be called"
        return NotAllowedError("functions are called by a single name", name=".".join(parts), hint=hint)
    if name in allowed:
        return None
    return UnknownFunctionError(function=parts[-1], hint=_function_hint(name, allowed))


def _function_hint(name: str, known: frozenset[str]) -> str:
    """Return what to call instead of a function that is not there."""
    instead = INSTEAD.get(name)
    if instead is not None:
        return instead
    spelled = allow_list().clickhouse
    near = get_close_matches(name, sorted(known), n=_NEAR_MAX)
    shown = [spelled[each][0] if each in spelled else each for each in near]
    listing = "docs/reference/functions.md lists the functions"
    return f"did you mean {', '.join(shown)}? {listing}" if shown else listing


@cache
def own_functions() -> frozenset[str]:
    """Return the names of the functions that Tilth has and Spark has not, in small letters."""
    return frozenset(allow_list().clickhouse) - allow_list().functions


def _callable() -> frozenset[str]:
    return allow_list().functions | frozenset(allow_list().clickhouse)


def _wrong_arguments(node: PlanNode, name: str, allowed: AllowList) -> TilthError | None:
    """Return what is wrong with the number of arguments of one of ClickHouse's functions that Spark does not have."""
    if name.lower() in allowed.functions or name.lower() not in allowed.clickhouse:
        return None
    spelled, variants = allowed.clickhouse[name.lower()]
    counts = sorted({len(each.arguments) for each in variants if each.arguments is not None})
    given = sum(child.role == "arguments" for child in node.children)
    if not counts or given in counts:
        return None
    return InvalidInputError.coded(
        "BAD_ARGUMENTS",
        "a function does not accept this number of arguments",
        function=spelled,
        given=given,
        hint=f"it takes {' or '.join(map(str, counts))}",
    )


def _bad_type(node: PlanNode, name: str) -> NotAllowedError | None:
    """Return the error for a type that is not written as SQL: in JSON it can name classes, which Spark would load."""
    arguments = [child for child in node.children if child.role == "arguments"]
    position = _TYPE_ARGUMENTS.get(name, len(arguments))
    if position >= len(arguments):
        return None
    argument = arguments[position]
    if argument.kind == "Literal":
        [text] = argument.text("value") or ("",)
        # Spark parses it, too.
        check_depth(text)
        # Spark reads a text as JSON unless it is a list of columns, and every such list begins with a name.
        if not text or _TYPE_BEGIN.match(text):
            return None
    elif argument.kind == "UnresolvedFunction" and argument.text("nameParts")[-1].lower() in _TYPE_FUNCTIONS:
        return None
    hint = "write it as columns and types, as in from_json(j, 'a INT, b ARRAY<STRING>')"
    return NotAllowedError("the type that a text is read as is written down as SQL", name=name, hint=hint)


def _refused_kind(kind: str, allowed: AllowList) -> NotAllowedError:
    refusal = allowed.refused_kinds.get(kind)
    if refusal is not None:
        return NotAllowedError(f"{refusal.what} is not allowed", name=kind, hint=refusal.instead)
    return NotAllowedError(name=kind.rpartition(".")[2], hint=_ONLY_QUERIES)


def _line_and_column(text: str, offset: int) -> str:
    """Return line and column, both counted from 1."""
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}"
