"""Changes of a query's clauses, from ClickHouse's dialect to Spark's: LIMIT BY, WITH, ARRAY JOIN, names, ORDER BY.

Covers: trees in which functions have their names of ClickHouse. Does not cover: expressions (dialect_calls.py), which
constructs there are (dialect_words.py). Always holds: a clause that has no counterpart is refused by name. Pure.

Tests: tests/unit/clickhouse/test_dialect.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from tilth.clickhouse.dialect_words import SPARK, call, refused

#: Names that mean other names, which mean other names.
_NAMES_DEEP_MAX = 10


def prewhere(tree: exp.Expression) -> exp.Expression:
    """Move PREWHERE into WHERE: the order of reading is decided here without it."""
    for select in tree.find_all(exp.Select):
        first = select.args.get("prewhere")
        if first is not None:
            select.set("prewhere", None)
            select.where(first.this, append=True, copy=False)
    return tree


def final(tree: exp.Expression) -> exp.Expression:
    """Remove FINAL: every SELECT sees one row for each key."""
    for node in list(tree.find_all(exp.Final)):
        node.replace(node.this)
    return tree


def sample(tree: exp.Expression) -> exp.Expression:
    for sample in tree.find_all(exp.TableSample):
        size = sample.args.get("size")
        if not isinstance(size, exp.Literal) or sample.args.get("offset"):
            raise refused("this SAMPLE", "use TABLESAMPLE (10 PERCENT)")
        number = float(size.name)
        if number < 1:
            sample.set("size", None)
            sample.set("percent", exp.Literal.number(f"{number * 100:g}"))
    return tree


def limit_by(tree: exp.Expression) -> exp.Expression:
    """Write LIMIT n BY a as the first n rows of each a, by the order of the query."""
    for select in tree.find_all(exp.Select):
        limit = select.args.get("limit")
        keys = limit.expressions if limit is not None else []
        if select.args.get("offset") is not None and select.args["offset"].expressions:
            raise refused("LIMIT m, n BY", "use row_number() OVER (..) and QUALIFY")
        if limit is None or not keys:
            continue
        if any(select.args.get(each) for each in ("group", "distinct", "offset", "qualify")):
            raise refused("LIMIT BY beside GROUP BY, DISTINCT, QUALIFY or OFFSET", "use row_number() OVER (..)")
        order = select.args.get("order")
        named = _aliases_of(select)
        window = exp.Window(
            this=call("row_number"),
            partition_by=[_resolved(key.copy(), named) for key in keys],
            order=_resolved(order.copy(), named)
            if order is not None
            else exp.Order(expressions=[exp.Ordered(this=_resolved(keys[0].copy(), named))]),
        )
        select.set("limit", limit.args.get("then"))
        select.set("qualify", exp.Qualify(this=exp.LTE(this=window, expression=limit.expression.copy())))
    return tree


def named_values(tree: exp.Expression) -> exp.Expression:
    """Replace the name in WITH 1 AS one by the expression."""
    for select in list(tree.find_all(exp.Select)):
        given = select.args.get("with_") or select.args.get("with")
        if given is None:
            continue
        for value in [each for each in given.expressions if each.args.get("scalar")]:
            name, meant = value.alias_or_name, value.this
            value.pop()
            # A query keeps its parentheses.
            inner = meant.copy() if isinstance(meant, exp.Subquery) else exp.paren(meant.copy())
            for column in list(select.find_all(exp.Column)):
                if column.name == name and not column.table:
                    column.replace(inner.copy())
        if not given.expressions:
            given.pop()
    return tree


def _aliases_of(select: exp.Select) -> dict[str, exp.Expression]:
    """Return what the names of a SELECT's columns mean: they stand before columns of the tables."""
    return {
        each.alias: each.this
        for each in select.expressions
        if isinstance(each, exp.Alias) and not (isinstance(each.this, exp.Column) and each.this.name == each.alias)
    }


def _resolved(root: exp.Expression, named: dict[str, exp.Expression], known: tuple[str, ...] = ()) -> exp.Expression:
    """Return the tree with what each name means instead of the name. A name inside of what it means itself
    is a column.
    """
    for column in [each for each in _of_this_query(root) if isinstance(each, exp.Column)]:
        meant = named.get(column.name) if not column.table else None
        if meant is None or column.name == (known or ("",))[-1]:
            continue
        if column.name in known or len(known) >= _NAMES_DEEP_MAX:
            raise refused("names that mean each other", "give them other names")
        inner = _resolved(exp.paren(meant.copy()), named, (*known, column.name))
        if column is root:
            return inner
        column.replace(inner)
    return root


def _of_this_query(root: exp.Expression) -> Iterator[exp.Expr]:
    """Nodes of the tree without those of queries inside."""
    yield from root.walk(prune=lambda node: isinstance(node, exp.Query) and id(node) != id(root))


def names(tree: exp.Expression) -> exp.Expression:
    """Write what a name of SELECT means wherever it is used but in ORDER BY, where Spark prefers the name as well."""
    for select in reversed(list(tree.find_all(exp.Select))):
        named = _aliases_of(select)
        if not named:
            continue
        _exploded_names(select, named)
        for item in select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(item, exp.Alias):
                item.set("this", _resolved(inner, named, (item.alias,)))
            elif not isinstance(inner, exp.Column):
                _resolved(inner, named)
        for part in ("where", "having", "qualify"):
            if select.args.get(part) is not None:
                _resolved(select.args[part], named)
        group = select.args.get("group")
        for key in list(group.expressions) if group is not None else []:
            # A number would be the position of a column.
            if not (isinstance(key, exp.Column) and isinstance(named.get(key.name), exp.Literal)):
                key.replace(_resolved(key.copy(), named))
    return tree


def _exploded_names(select: exp.Select, named: dict[str, exp.Expression]) -> None:
    """Make rows of an array before the names that mean its elements are used: in WHERE, in GROUP BY."""
    for item in select.expressions:
        meant = item.this if isinstance(item, exp.Alias) else None
        if not isinstance(meant, exp.Anonymous) or meant.name.lower() != "arrayjoin" or len(meant.expressions) != 1:
            continue
        if not any(select.args.get(each) for each in ("where", "group", "having", "qualify")):
            continue
        name, view = item.alias, f"each_{item.alias}"
        if select.args.get("from_") is None:
            select.from_("(SELECT 0) AS nothing", dialect=SPARK, copy=False)
        lateral = exp.Lateral(
            this=exp.Explode(this=meant.expressions[0].copy()),
            view=True,
            alias=exp.TableAlias(this=exp.to_identifier(view), columns=[exp.to_identifier(name)]),
        )
        select.append("laterals", lateral)
        column = exp.column(name, table=view)
        item.set("this", column)
        named[name] = column.copy()


def using(tree: exp.Expression) -> exp.Expression:
    """Say of columns behind USING that they join tables: floats do not do it as they do there."""
    for select in tree.find_all(exp.Select):
        for join in select.args.get("joins") or []:
            for name in join.args.get("using") or []:
                column = name.copy() if isinstance(name, exp.Column) else exp.Column(this=name.copy())
                select.where(call("clickhouse_is_join_key", column), append=True, copy=False)
    return tree


def orders(tree: exp.Expression) -> exp.Expression:
    """NaN stands behind all numbers in ClickHouse, beside NULL; in Spark it is the largest number."""
    for order in list(tree.find_all(exp.Order)):
        keys = list[exp.Expression]()
        # A frame by values takes one key.
        is_framed = isinstance(order.parent, exp.Window) and order.parent.args.get("spec") is not None
        for key in [each for one in order.expressions for each in _elements(one)]:
            value = _sorted_by(key, order.parent)
            if value is not None and not isinstance(value, exp.Star | exp.Literal):
                keys.extend(_before(key, value.copy(), is_framed=is_framed))
            keys.append(key)
        order.set("expressions", keys)
    return tree


def _elements(key: exp.Expression) -> list[exp.Expression]:
    """Return the keys of the elements of a tuple that is written out, each with the tuple's direction."""
    if not isinstance(key.this, exp.Tuple):
        return [key]
    words = {name: value for name, value in key.args.items() if name != "this"}
    return [exp.Ordered(this=each.copy(), **words) for each in key.this.expressions]


def _sorted_by(key: exp.Expression, select: exp.Expr | None) -> exp.Expression | None:
    """Return what a key means, which may be the position of a column."""
    value: exp.Expression | None = key.this
    if isinstance(value, exp.Literal) and value.is_int and isinstance(select, exp.Select):
        number = int(value.name)
        item = select.expressions[number - 1] if number <= len(select.expressions) else None
        return item.this if isinstance(item, exp.Alias) else item
    return value


def _before(key: exp.Expression, value: exp.Expression, *, is_framed: bool) -> Iterator[exp.Expression]:
    """Yield the key that goes before a key: 0 of all values that have an order of their own in both systems."""
    if key.args.get("nulls_first"):
        yield exp.Ordered(this=call("clickhouse_is_unordered", value), desc=True)
    elif key.args.get("desc"):
        yield exp.Ordered(this=call("clickhouse_is_unordered", value), nulls_first=True)
    elif not is_framed:
        yield exp.Ordered(this=call("clickhouse_has_order", value), nulls_first=True)


def array_join(tree: exp.Expression) -> exp.Expression:
    for select in tree.find_all(exp.Select):
        for join in list(select.args.get("joins") or []):
            if str(join.args.get("kind") or "").upper() != "ARRAY":
                continue
            array, name = join.this, join.this.alias
            if join.args.get("side"):
                raise refused("LEFT ARRAY JOIN", "write ARRAY JOIN: without an element there is 0 or '' there")
            if join.expressions or not isinstance(array, exp.Alias):
                raise refused("this ARRAY JOIN", "write it of one array that has a name: ARRAY JOIN a AS item")
            view = exp.Lateral(
                this=exp.Explode(this=array.this.copy()),
                view=True,
                alias=exp.TableAlias(this=exp.to_identifier(f"each_{name}"), columns=[exp.to_identifier(name)]),
            )
            select.append("laterals", view)
            join.pop()
    return tree
