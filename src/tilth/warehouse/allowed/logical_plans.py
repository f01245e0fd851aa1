"""Reads what Spark's parser finds in a text by one call to the JVM, instead of one call for each node.

Covers: parsing queries and expressions, reading their nodes, what an optimized plan needs of its leaves. Does not
cover: what is allowed in them (allow_list.py), what they mean.
Always holds: nothing here runs a query; everything that the parser found is among the nodes or the kinds; positions are
offsets in Python's text; Python reads a type that comes from a user's text only once it is known to be a type of SQL.
See also: PlanReader.java and NeedsReader.java, which write the texts that are read here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import msgspec

from tilth.base.java_class import Java, compiled
from tilth.warehouse.allowed.nesting import check_depth
from tilth.warehouse.errors import NotAllowedError, TooComplexError

#: Mark of a type with a class of its own in the JSON that Spark writes; quotation marks in names are escaped there.
_CLASS_TYPE = '"type":"udt"'
#: Each may use those before it.
_CLASSES = ("PlanReader", "NeedsReader")


@dataclass(slots=True, eq=False)
class PlanNode:
    """A logical plan or an expression."""

    #: The name of its class.
    kind: str
    #: The field of its holder that contains it.
    role: str
    #: Offsets in the text, the end not included; -1: unknown to Spark.
    start: int
    end: int
    #: The data type of a resolved expression, in Spark's words; else empty.
    type: str
    holder: PlanNode | None
    children: list[PlanNode] = field(default_factory=list)
    #: Its texts by field; "true" for a flag that is set.
    texts: dict[str, list[str]] = field(default_factory=dict)

    def text(self, name: str) -> tuple[str, ...]:
        """Return the texts of a field."""
        return tuple(self.texts.get(name, ()))

    def child(self, name: str) -> PlanNode | None:
        """Return the first node of a field."""
        return next((each for each in self.children if each.role == name), None)

    def below(self) -> Iterator[PlanNode]:
        """Yield the node and all nodes in it; holders come first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """A plan or an expression with everything in it, including plans of subqueries."""

    #: Holders come first; the first node is the root.
    nodes: list[PlanNode]
    #: Kinds of the nodes and of all other values in them.
    kinds: frozenset[str]

    @property
    def root(self) -> PlanNode:
        return self.nodes[0]


class _Written(msgspec.Struct):
    """The output of PlanReader.java."""

    kinds: list[str]
    fields: list[str]
    types: list[str]
    nodes: list[tuple[int, int, int, int, int, int]]
    texts: list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class _Handles:
    """Objects of one JVM; each lookup needs several calls."""

    #: A PlanReader and a NeedsReader. py4j caches methods by the name of their class, so a JVM can load a class only
    #: once.
    reader: Java
    needs: Java
    #: The class of sessions.
    sessions: Java


_decoder = msgspec.json.Decoder(_Written)
_lock = threading.Lock()
#: Handles by gateway; each JVM has its own.
_known: WeakKeyDictionary[Java, _Handles] = WeakKeyDictionary()


def parse_plan(session: Java, text: str) -> LogicalPlan:
    """Parse a statement. Raises Spark's ParseException and TooComplexError."""
    check_depth(text)
    return read_plan(session, _parser(session).parsePlan(text))


def parse_expression(session: Java, text: str) -> LogicalPlan:
    """Parse an expression. Raises Spark's ParseException and TooComplexError."""
    check_depth(text)
    return read_plan(session, _parser(session).parseExpression(text))


def read_plan(session: Java, tree: Java) -> LogicalPlan:
    """Read a plan or an expression of Spark. Raises TooComplexError."""
    answer = _handles(session).reader.apply(tree)
    if answer is None:
        raise TooComplexError(hint="write long lists of values into a table, and join it")
    written = _decoder.decode(_text(answer))
    nodes: list[PlanNode] = []
    for kind, holder, in_field, start, end, type_ in written.nodes:
        node = PlanNode(
            written.kinds[kind],
            written.fields[in_field],
            start,
            end,
            written.types[type_] if type_ >= 0 else "",
            nodes[holder] if holder >= 0 else None,
        )
        if node.holder is not None:
            node.holder.children.append(node)
        nodes.append(node)
    for node_number, in_field, text in written.texts:
        nodes[node_number].texts.setdefault(written.fields[in_field], []).append(text)
    return LogicalPlan(nodes, frozenset(written.kinds))


def read_needs(session: Java, optimized: Java) -> str:
    """Return the output of NeedsReader.java for an optimized plan."""
    return _text(_handles(session).needs.apply(optimized))


def schema_of(frame: Java) -> Java:
    """Return the schema of a DataFrame that was made from a user's text. Raises NotAllowedError for a column whose type
    has a class of its own: PySpark would import whatever module it names.
    """
    if _CLASS_TYPE in frame._jdf.schema().json():
        raise NotAllowedError("a column has a type that only a program can read", hint="cast it to a type of SQL")
    return frame.schema


def make_active(session: Java) -> None:
    """Make Spark's parser and its JSON use the settings of this session: they use those of the thread's active one."""
    _handles(session).sessions.setActiveSession(session._jsparkSession)


def _text(answer: Java) -> str:
    return answer if isinstance(answer, str) else "".join(iter(answer.get, ""))


def _parser(session: Java) -> Java:
    make_active(session)
    return session._jsparkSession.sessionState().sqlParser()


def _handles(session: Java) -> _Handles:
    gateway = session.sparkContext._gateway
    with _lock:
        found = _known.get(gateway)
        if found is None:
            jvm = session._jvm
            reader, needs = _compiled(jvm)
            found = _Handles(reader, needs, jvm.org.apache.spark.sql.classic.SparkSession)
            _known[gateway] = found
        return found


def _compiled(jvm: Java) -> Iterator[Java]:
    """Yield an object of each class."""
    loader = None
    for name in _CLASSES:
        made = compiled(jvm, __package__, name, loader=loader)
        loader = made.getClass().getClassLoader()
        yield made
