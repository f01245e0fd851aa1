"""What Spark's parser makes of a text, read at once: one call to the JVM for a whole plan, not one for each node.

Covers: parsing queries and expressions, reading their nodes. Does not cover: what may stand in them (allowed.py), what
it means.
Always holds: nothing here runs a query; everything that the parser found is among the nodes or the kinds; places are
offsets in Python's text. See also: PlanReader.java, which writes what is read here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from tilth.warehouse.errors import TooComplexError

# A handle of an object in the JVM; py4j gives it no type.
Java = Any

_SOURCE = "PlanReader.java"
_CLASS = "PlanReader"


@dataclass(slots=True, eq=False)
class Node:
    """A logical plan or an expression."""

    #: The name of its class.
    kind: str
    #: Of the node that holds it, where that has it.
    role: str
    #: Offsets in the text, the end not included; -1: Spark does not know.
    start: int
    end: int
    #: The data type in Spark's words, of an expression that has one already; else empty.
    type: str
    holder: Node | None
    children: list[Node] = field(default_factory=list)
    #: Texts that it holds, and "true" for flags, by field.
    texts: dict[str, list[str]] = field(default_factory=dict)

    def text(self, name: str) -> tuple[str, ...]:
        """The texts of a field."""
        return tuple(self.texts.get(name, ()))

    def child(self, name: str) -> Node | None:
        """The first node of a field."""
        return next((each for each in self.children if each.role == name), None)

    def below(self) -> Iterator[Node]:
        """The node itself and all in it, each behind the one that holds it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan or an expression with all that is in it, subqueries and their plans too."""

    #: The first one is the root; each stands behind the one that holds it.
    nodes: list[Node]
    #: Of the nodes and of all other values in them.
    kinds: frozenset[str]

    @property
    def root(self) -> Node:
        return self.nodes[0]


class _Written(msgspec.Struct):
    """As PlanReader.java writes it."""

    kinds: list[str]
    fields: list[str]
    types: list[str]
    nodes: list[tuple[int, int, int, int, int, int]]
    texts: list[tuple[int, int, str]]


_decoder = msgspec.json.Decoder(_Written)
_lock = threading.Lock()
#: By gateway, which is one for each JVM: py4j finds methods by the name of a class, so a JVM gets it once.
_readers: WeakKeyDictionary[Java, Java] = WeakKeyDictionary()


def parse_plan(session: Java, text: str) -> Plan:
    """What Spark's parser finds in a statement. Raises Spark's ParseException and TooComplexError."""
    return read_plan(session, _parser(session).parsePlan(text))


def parse_expression(session: Java, text: str) -> Plan:
    """The same of an expression."""
    return read_plan(session, _parser(session).parseExpression(text))


def read_plan(session: Java, tree: Java) -> Plan:
    """A plan or an expression of Spark. Raises TooComplexError."""
    answer = _reader(session).apply(tree)
    if answer is None:
        raise TooComplexError(hint="put long lists of values into a table, and join it")
    written = _decoder.decode(answer if isinstance(answer, str) else "".join(iter(answer.get, "")))
    nodes: list[Node] = []
    for kind, holder, in_field, start, end, type_ in written.nodes:
        node = Node(
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
    return Plan(nodes, frozenset(written.kinds))


def make_active(session: Java) -> None:
    """Spark's parser and JSON go by the settings of the thread's active session, whichever session they belong to."""
    session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def _parser(session: Java) -> Java:
    make_active(session)
    return session._jsparkSession.sessionState().sqlParser()


def _reader(session: Java) -> Java:
    gateway = session.sparkContext._gateway
    with _lock:
        reader = _readers.get(gateway)
        if reader is None:
            compiler = session._jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(session._jvm.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.cook(files(__package__).joinpath(_SOURCE).read_text())
            reader = compiler.getClassLoader().loadClass(_CLASS).newInstance()
            _readers[gateway] = reader
        return reader
