"""Analysis of a materialized view by Spark: it picks columns, or it computes.

Covers: checking a view against its Kafka table and its target, and choosing the plan by which rounds run it. Does not
cover: the content of a plan (plans.py), running it (rounds/spark.py). Always holds: nothing is guessed from the view's
text. See also: docs/design/0006-measured.md#what-a-query-uses.

Tests: tests/integration/ingest/test_ingest_views.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tilth.base.errors import InvalidInputError, TilthError
from tilth.ingest.errors import ViewError
from tilth.ingest.messages.decode import ERROR_COLUMNS, NEVER_NULL_COLUMNS, VIRTUAL_COLUMNS, column_type
from tilth.ingest.messages.envelope import ENVELOPE_COLUMNS
from tilth.ingest.settings import Envelope, ErrorMode, KafkaConfig, read_config
from tilth.ingest.views.compiling import kernel_or_reason
from tilth.ingest.views.nodes import below, class_of, listed, nodes_of
from tilth.ingest.views.plans import FusedPlan, Picked, SqlPlan, ViewPlan
from tilth.ingest.views.refusals import RowCheck, Wanted
from tilth.model.computed import computed_columns, shown_expression
from tilth.model.table import OP_COLUMN, Column, ColumnKind, KafkaDef, Schema, TableDef, full_name, is_op_name
from tilth.model.text.quotes import double_quoted
from tilth.model.types import DataType, Decimal, Kind, Simple, quoted, spark_name
from tilth.storage import storage_settings
from tilth.warehouse import check_plan, parse_expression, parse_plan, schema_of


class BadDefaultError(InvalidInputError):
    """a column's default cannot be used"""

    code = "BAD_DEFAULT"


_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
#: Nodes that read each row of their child once. A global sort does not: it reads all rows first.
_STREAMING_NODES = frozenset({"LogicalRDD", "Project", "Filter", "Generate", "Expand", "Aggregate", "Window"})
#: Nodes that pass over rows of their child.
_CUTTING_NODES = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Sample", "Tail"})


# Any: the session and its plans are handles of the JVM; pyspark gives them no types.
def check_view(
    session: Any,
    kafka: KafkaDef,
    target: TableDef,
    select: str,
    *,
    view: str = "the view",
    target_columns: Sequence[tuple[str, int]] = (),
) -> ViewPlan:
    """Check the view and return the plan of its rounds. The session must be one that nobody else uses: a temporary view
    is made in it.

    `target_columns` comes from the view's definition: its columns find the target's by id, whatever their names are
    now; without it by name.
    Raises ViewError naming the view and the column that does not fit, BadDefaultError, or an error of the settings.
    """
    config = read_config(kafka)
    _check_quotes(session, select, view)
    columns = _offered(kafka, config, select)
    _register_empty(session, kafka, columns)
    text = _over_temporary_view(session, kafka, select, view)
    try:
        frame = session.sql(text)
        outputs = [(field.name, field.dataType.simpleString(), field.nullable) for field in schema_of(frame).fields]
    except Exception as error:
        raise _refused(view, kafka, error) from error
    op = _op_position(outputs, target, view)
    matched = _match(outputs, target, view, target_columns, op=op)
    ids = {column.name: column.id for column in target.schema.columns}
    filled = tuple((outputs[position][0], ids[name]) for name, position in matched.items())
    frame = _as_rows_come(session, kafka, config, columns, text, frame)
    plan = frame._jdf.queryExecution().optimizedPlan()
    _check_whole(frame._jdf.queryExecution().analyzed(), plan, view, kafka)
    sources = _sources(plan)
    picked = _picked(session, sources, len(outputs), matched, target, kafka)
    if picked is not None and sources is not None:
        op_column = None if op is None else _as_declared(kafka, sources[op])
        fused = FusedPlan(view=view, target=target.uuid, columns=picked, outputs=filled, op=op_column)
        return _keyed(fused, kafka, config, target)
    checks = _key_checks(plan, outputs, matched, target, view, kafka=kafka, config=config)
    if _has_events(config, kafka, target) and op is None:
        hint = "select `_op` too: without it a row that was deleted would come back"
        raise ViewError("the view leaves out what the events do", view=view, column=OP_COLUMN, hint=hint)
    there = [c for c in target.schema.columns if c.name in matched or not c.expression]
    projection = tuple(_projected(target, column, matched.get(column.name)) for column in there)
    computed: tuple[str, ...] = ()
    if len(there) < len(target.schema.columns):
        computed = tuple(computed_columns(target.schema, {column.name.lower() for column in there}))
    if op is not None:
        projection = (*projection, f"CAST(o{op} AS STRING) AS {quoted(OP_COLUMN)}")
        computed = (*computed, quoted(OP_COLUMN)) if computed else ()
    _check_projection(frame, (projection, computed), len(outputs), view, _defaults(target, matched))
    needed = _needed(plan, columns) or columns[:1]
    kernel, no_kernel = None, "it computes what rows do"
    if op is None:
        plans, constant = (frame._jdf.queryExecution().analyzed(), plan), partial(_constant, session, target)
        kernel, no_kernel = kernel_or_reason(session, plans, text, needed, matched, target, constant=constant)
    return SqlPlan(
        view=view,
        target=target.uuid,
        text=text,
        projection=projection,
        computed=computed,
        needed=tuple(needed),
        is_streamable=_is_streamable(plan),
        outputs=filled,
        checks=checks,
        kernel=kernel,
        no_kernel=no_kernel,
    )


def constant_defaults(session: Any, kafka: KafkaDef) -> dict[str, object]:
    """Return the values of a Kafka table's defaults, which are constants, by column. Raises BadDefaultError."""
    return {
        column.name: _evaluate(session, column.default, column)
        for column in kafka.schema.columns
        if column.default is not None
    }


def _check_quotes(session: Any, select: str, view: str) -> None:
    """Raises ViewError for double quotes that Spark would not read as names of columns."""
    found = next(double_quoted(select), None)
    if found is None:
        return
    if session.conf.get("spark.sql.ansi.enabled") != "true":
        hint = "leave spark.sql.ansi.enabled on in warehouse.spark-conf, or write names in backticks"
        raise ViewError(
            "without ANSI mode Spark takes names in double quotes for texts", view=view, found=found, hint=hint
        )


def _check_whole(analyzed: Any, optimized: Any, view: str, kafka: KafkaDef) -> None:
    """Raises ViewError where rows would be lost silently: a view gets each round's rows, and must take all of them.

    A limit that Spark's optimizer has taken away loses none.
    """
    if not _leaves(nodes_of(analyzed)):
        hint = f"write .. FROM {full_name(kafka)}"
        raise ViewError("the view does not read its Kafka table", view=view, hint=hint)
    is_folded = not _leaves(nodes_of(optimized))
    for node in below(analyzed) if is_folded else below(optimized):
        if class_of(node) in _CUTTING_NODES and (is_folded or _leaves(below(node))):
            hint = "a view is computed anew for each round of messages: leave LIMIT, OFFSET and TABLESAMPLE out"
            raise ViewError("the view would leave out messages at random", view=view, hint=hint)


def _is_streamable(plan: Any) -> bool:
    nodes = list(nodes_of(plan))
    return len(_leaves(nodes)) == 1 and all(class_of(node) in _STREAMING_NODES for node in nodes)


def _leaves(nodes: Iterable[Any]) -> list[Any]:
    """Return the nodes that read the Kafka table."""
    return [node for node in nodes if class_of(node) == "LogicalRDD"]


def _keyed(plan: FusedPlan, kafka: KafkaDef, config: KafkaConfig, target: TableDef) -> FusedPlan:
    """Return the plan with the operations and checks that a unique key requires: a message without a key is refused."""
    if not target.unique_key:
        return plan
    op = plan.op
    if op is None and _has_events(config, kafka, target):
        op = OP_COLUMN
    key = {column.name for name in target.unique_key if (column := target.schema.find(name)) is not None}
    checks = []
    partition_columns = {transform.column for transform in target.partition_by} - key
    is_local = storage_settings(target).partition_level_unique_keys
    for each in plan.columns:
        if is_local and op is not None and each.target in partition_columns and each.source is not None:
            because = f"{full_name(target)} finds the row to delete by its partition"
            checks.append(RowCheck(each.source, Wanted.PRESENT_IN_DELETES, because, op=op))
        if each.target in key and each.source is None:
            hint = "select a column of the Kafka table for each column of the UNIQUE KEY"
            raise ViewError("a column of the unique key is not filled", view=plan.view, column=each.target, hint=hint)
        if each.target in key and each.source is not None and not _is_never_null(kafka, each.source):
            _check_stream(plan.view, each.target, config)
            because = f"it is in the unique key of {full_name(target)}"
            checks.append(RowCheck(each.source, Wanted.PRESENT, because))
    if op is not None:
        checks.append(RowCheck(op, Wanted.OP, f"{full_name(target)} must know what the row does"))
    return replace(plan, op=op, checks=tuple(checks))


def _is_never_null(kafka: KafkaDef, name: str) -> bool:
    return name in NEVER_NULL_COLUMNS and kafka.schema.find(name) is None


def _check_stream(view: str, column: str, config: KafkaConfig) -> None:
    if config.error_mode is ErrorMode.STREAM:
        hint = f"write WHERE {column} IS NOT NULL, and take the broken messages by another view"
        raise ViewError("a broken message would have no unique key", view=view, column=column, hint=hint)


def _key_checks(
    plan: Any,
    outputs: Sequence[tuple[str, str, bool]],
    matched: Mapping[str, int],
    target: TableDef,
    view: str,
    *,
    kafka: KafkaDef,
    config: KafkaConfig,
) -> tuple[RowCheck, ...]:
    """Return the checks of messages by which computed rows have a unique key. Raises ViewError if rows might lack it
    and it would be unknown from which message they came.
    """
    checks = []
    traced = _traced(plan) if target.unique_key else []
    for name in target.unique_key:
        column = target.schema.find(name)
        position = None if column is None else matched.get(column.name)
        if position is None:
            hint = "select a value for each column of the UNIQUE KEY"
            raise ViewError("a column of the unique key is not filled", view=view, column=name, hint=hint)
        if not outputs[position][2]:
            continue
        source = traced[position] if position < len(traced) else None
        if source is None:
            hint = f"declare what it is made of NOT NULL in the Kafka table, or write WHERE {name} IS NOT NULL"
            raise ViewError("a column of the unique key may get NULL", view=view, column=name, hint=hint)
        _check_stream(view, name, config)
        because = f"it is in the unique key of {full_name(target)}"
        checks.append(RowCheck(_as_declared(kafka, source), Wanted.PRESENT, because))
    return tuple(checks)


def _traced(plan: Any) -> list[str | None]:
    """Return by position the column of the Kafka table that is null where the view's column is; None: there is no such
    one.

    Known where each row of the view is made of one message, and each message makes one.
    """
    if class_of(plan) != "Project" or class_of(plan.child()) != "LogicalRDD":
        return []
    names: list[str | None] = []
    for expression in listed(plan.projectList()):
        inner = expression
        while class_of(inner) in ("Alias", "Cast"):
            inner = inner.child()
        names.append(inner.name() if class_of(inner) == "AttributeReference" else None)
    return names


def _has_events(config: KafkaConfig, kafka: KafkaDef, target: TableDef) -> bool:
    """True if messages name the operations of their rows on the target."""
    return config.envelope is Envelope.DEBEZIUM and bool(target.unique_key) and kafka.schema.find(OP_COLUMN) is None


def _offered(kafka: KafkaDef, config: KafkaConfig, select: str) -> list[str]:
    """The columns of the temporary view: those of the table, and the virtual ones that the text names."""
    names = list(kafka.schema.names)
    virtual = [*VIRTUAL_COLUMNS]
    if config.error_mode is ErrorMode.STREAM:
        virtual += ERROR_COLUMNS
    if config.envelope is Envelope.DEBEZIUM:
        virtual += ENVELOPE_COLUMNS
    named = [
        name for name in virtual if kafka.schema.find(name) is None and re.search(rf"\b{name}\b", select, re.IGNORECASE)
    ]
    if config.envelope is Envelope.DEBEZIUM and kafka.schema.find(OP_COLUMN) is None and OP_COLUMN not in named:
        # `*` includes it: a view that passes events on as they are must not turn deletes into rows.
        named.append(OP_COLUMN)
    return names + named


def spark_ddl(schema: Schema, columns: Sequence[str]) -> str:
    """The decoded columns in Spark's words; all may be null, for a broken message of stream mode has no values."""
    return ", ".join(f"{quoted(name)} {spark_name(column_type(schema, name))}" for name in columns)


def _register_empty(session: Any, kafka: KafkaDef, columns: Sequence[str], *, may_lack: bool = False) -> None:
    """Register the temporary view. `may_lack`: rows may lack any column of the messages."""
    # It stands over an RDD, because the optimizer would fold away a relation that it knows to be empty.
    # Columns that are never NULL are NOT NULL: a message without one is a dead letter, so it may fill such a column.
    is_streaming = read_config(kafka).error_mode is ErrorMode.STREAM
    required = {name for name in columns if _is_never_null(kafka, name)}
    if not is_streaming and not may_lack:
        required |= {c.name for c in kafka.schema.columns if not c.nullable}
    ddl = ", ".join(
        f"{quoted(name)} {spark_name(column_type(kafka.schema, name))}{' NOT NULL' if name in required else ''}"
        for name in columns
    )
    frame = session.createDataFrame(session.sparkContext.emptyRDD(), ddl)
    frame.createOrReplaceTempView(quoted(kafka.name))


def _as_rows_come(
    session: Any, kafka: KafkaDef, config: KafkaConfig, columns: Sequence[str], text: str, frame: Any
) -> Any:
    """Return the frame of the text over rows as they come: a delete of Debezium may lack columns that are NOT NULL."""
    if config.envelope is not Envelope.DEBEZIUM:
        return frame
    _register_empty(session, kafka, columns, may_lack=True)
    return session.sql(text)


def _over_temporary_view(session: Any, kafka: KafkaDef, select: str, view: str) -> str:
    """The text with `database.table` replaced by the temporary view's name."""
    try:
        plan = parse_plan(session, select)
    except Exception as error:
        raise _refused(view, kafka, error) from error
    if plan.root.kind.endswith("Command"):
        raise ViewError("a view is a SELECT", view=view, hint="write AS SELECT .. FROM the Kafka table")
    try:
        check_plan(plan, select)
    except TilthError as error:
        raise ViewError(view=view, why=error.message, hint=error.hint) from error
    name = (kafka.database.lower(), kafka.name.lower())
    relations = [node for node in plan.nodes if node.kind == "UnresolvedRelation"]
    spans = {(n.start, n.end) for n in relations if tuple(map(str.lower, n.text("multipartIdentifier"))) == name}
    text = select
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + quoted(kafka.name) + text[end:]
    return text


# --- columns ---------------------------------------------------------------------------------------------------------


def _op_position(outputs: Sequence[tuple[str, str, bool]], target: TableDef, view: str) -> int | None:
    """Return the position of the view's column with the operations of rows; None: there is none, or the target has no
    unique key.
    """
    if not target.unique_key:
        return None
    found = [
        position
        for position, (name, _, _) in enumerate(outputs)
        if is_op_name(name) and target.schema.find(name) is None
    ]
    if len(found) > 1:
        raise ViewError("two columns say what rows do", view=view, column=outputs[found[1]][0])
    for position in found:
        name, given, _ = outputs[position]
        if given not in ("string", "boolean", *_INTEGERS):
            raise ViewError("wrong type of a column", view=view, column=name, given=given, target="string")
    return found[0] if found else None


def _match(
    outputs: Sequence[tuple[str, str, bool]],
    target: TableDef,
    view: str,
    known: Sequence[tuple[str, int]],
    *,
    op: int | None,
) -> dict[str, int]:
    """Return by column of the target the position of the view's column that fills it."""
    matched: dict[str, int] = {}
    key = {name.lower() for name in target.unique_key}
    ids = {name.lower(): identity for name, identity in known}
    for position, (name, given, may_be_null) in enumerate(outputs):
        if position == op:
            continue
        column = _filled(target.schema, name, ids)
        if column is None:
            if name in VIRTUAL_COLUMNS or name in ERROR_COLUMNS or name in ENVELOPE_COLUMNS:
                # `*` stands for virtual columns too when the text names one; they were not meant.
                continue
            _check_not_alias(target, view, name)
            hint = f"columns of {full_name(target)}: {', '.join(target.schema.names)}; rename it with AS"
            raise ViewError("the target has no such column", view=view, column=name, hint=hint)
        if column.kind is not ColumnKind.DEFAULT:
            hint = f"leave it out, or rename it with AS: {full_name(target)} computes it when a row is written"
            raise ViewError("a view does not fill a MATERIALIZED column", view=view, column=name, hint=hint)
        if column.name in matched:
            raise ViewError("a column is selected twice", view=view, column=name)
        if not fits(given, column.type):
            hint = f"write CAST({name} AS {spark_name(column.type)}) AS {name}"
            wanted = column.declared_type
            raise ViewError("wrong type of a column", view=view, column=name, given=given, target=wanted, hint=hint)
        if may_be_null and not column.nullable and column.name.lower() not in key:
            hint = f"declare it NOT NULL in the Kafka table, or write coalesce({name}, ..) AS {name}"
            raise ViewError("a NOT NULL column of the target may get NULL", view=view, column=name, hint=hint)
        matched[column.name] = position
    for column in target.schema.columns:
        if column.name not in matched and not (column.nullable or column.default or column.expression):
            hint = "select it, or give the target's column a default"
            raise ViewError("a NOT NULL column of the target is not filled", view=view, column=column.name, hint=hint)
    return matched


def _check_not_alias(target: TableDef, view: str, name: str) -> None:
    if target.schema.find_any(name) is not None:
        hint = f"leave it out, or rename it with AS: {full_name(target)} computes it when it is read"
        raise ViewError("a view does not fill an ALIAS column", view=view, column=name, hint=hint)


def _filled(schema: Schema, name: str, ids: Mapping[str, int]) -> Column | None:
    """The column that one of these names fills: by id, where ids are known; a name that came later, by its name."""
    identity = ids.get(name.lower())
    if identity is not None:
        return next((column for column in schema.columns if column.id == identity), None)
    column = schema.find(name)
    is_meant = not ids or not (name in VIRTUAL_COLUMNS or name in ERROR_COLUMNS or name in ENVELOPE_COLUMNS)
    return column if is_meant and column is not None and column.id not in ids.values() else None


def fits(given: str, wanted: DataType) -> bool:
    """True if every value of a type (by Spark's name) is also one of the column's type."""
    target = spark_name(wanted)
    if given.lower() in (target.lower(), "void"):
        return True
    given_decimal = _DECIMAL.fullmatch(given)
    match wanted:
        case Decimal(precision=precision, scale=scale):
            if given in _DIGITS:
                return precision - scale >= _DIGITS[given]
            if given_decimal is not None:
                whole = int(given_decimal[1]) - int(given_decimal[2])
                return precision - scale >= whole and scale >= int(given_decimal[2])
            return False
        case Simple(kind=Kind.FLOAT64):
            return given in ("tinyint", "smallint", "int", "float")
        case Simple(kind=Kind.FLOAT32):
            return given in ("tinyint", "smallint")
        case Simple(kind=Kind.TIMESTAMP):
            return given == "date"
        case Simple():
            return given in _INTEGERS and target in _INTEGERS and _INTEGERS.index(given) < _INTEGERS.index(target)
    return False


def _picked(
    session: Any,
    sources: Sequence[str] | None,
    outputs: int,
    matched: Mapping[str, int],
    target: TableDef,
    kafka: KafkaDef,
) -> tuple[Picked, ...] | None:
    """The target's columns if the plan only picks; None if Spark has to compute."""
    if sources is None or len(sources) != outputs:
        return None
    picked = []
    for column in target.schema.columns:
        if column.name in matched:
            source = _as_declared(kafka, sources[matched[column.name]])
            if not _arrow_casts(column_type(kafka.schema, source), column.type):
                return None
            picked.append(Picked(target=column.name, source=source))
        elif column.expression:
            return None
        elif not column.is_default_computed or _keeps_old_value(target, column):
            picked.append(Picked(target=column.name, source=None, constant=_constant(session, target, column)))
        else:
            return None
    return tuple(picked)


def _constant(session: Any, target: TableDef, column: Column) -> object:
    """Return the value of a column of the target that the view does not fill."""
    if column.default is None or _keeps_old_value(target, column):
        return None
    return _evaluate(session, column.default, column)


def _as_declared(kafka: KafkaDef, name: str) -> str:
    """Spark keeps the case in which the view writes a column; the decoder knows it as it was declared."""
    column = kafka.schema.find(name)
    return column.name if column is not None else name.lower()


def _sources(plan: Any) -> list[str] | None:
    """The names of the columns that a plan picks, by position; None if it does anything else."""
    if class_of(plan) == "LogicalRDD":
        return [attribute.name() for attribute in listed(plan.output())]
    if class_of(plan) != "Project" or class_of(plan.child()) != "LogicalRDD":
        return None
    names = []
    for expression in listed(plan.projectList()):
        inner = expression.child() if class_of(expression) == "Alias" else expression
        if class_of(inner) == "Cast" and fits(inner.child().dataType().catalogString(), _simple(inner)):
            inner = inner.child()
        if class_of(inner) != "AttributeReference":
            return None
        names.append(inner.name())
    return names


def _simple(cast: Any) -> DataType:
    """The type that a cast leads to; a string, which nothing else fits, for types that are not simple."""
    name = cast.dataType().catalogString()
    return Simple(Kind(name)) if name in {kind.value for kind in Kind} else Simple(Kind.STRING)


def _arrow_casts(given: DataType, wanted: DataType) -> bool:
    """True if Arrow's cast means the same as Spark's."""
    is_number = isinstance(given, Simple) and given.kind not in (Kind.DATE, Kind.STRING)
    return given == wanted or (is_number and fits(spark_name(given), wanted))


def _keeps_old_value(target: TableDef, column: Column) -> bool:
    """True if a row that does not bring the column leaves it as it is: then the column gets no default."""
    return (
        bool(target.unique_key)
        and column.nullable
        and column.name not in target.unique_key
        and storage_settings(target).enable_unique_partial_update
    )


def _projected(target: TableDef, column: Column, position: int | None) -> str:
    default = None if _keeps_old_value(target, column) else column.default
    value = default or "NULL" if position is None else f"o{position}"
    return f"CAST({value} AS {spark_name(column.type)}) AS {quoted(column.name)}"


def _defaults(target: TableDef, matched: Mapping[str, int]) -> list[str]:
    """Return the defaults of the columns that the view does not fill."""
    lacking = [c for c in target.schema.columns if c.name not in matched]
    texts = [shown_expression(c, target.schema) if c.expression else c.default for c in lacking]
    return [text for text in texts if text is not None]


def _check_projection(
    frame: Any, steps: tuple[Sequence[str], Sequence[str]], outputs: int, view: str, defaults: Sequence[str]
) -> None:
    projection, computed = steps
    try:
        for default in defaults:
            check_plan(parse_expression(frame.sparkSession, default))
        rows = frame.toDF(*[f"o{i}" for i in range(outputs)]).selectExpr(*projection)
        schema_of(rows.selectExpr(*computed) if computed else rows)
    except Exception as error:
        raise ViewError("a default of the target cannot be computed", view=view, why=_first_line(error)) from error


def _needed(plan: Any, columns: Sequence[str]) -> list[str]:
    """The columns that the optimized plan reads."""
    leaves = _leaves(nodes_of(plan))
    ids = {attribute.exprId().id(): attribute.name() for leaf in leaves for attribute in listed(leaf.output())}
    used = {ids.get(attribute.exprId().id()) for attribute in listed(plan.output())}
    for node in nodes_of(plan):
        if class_of(node) != "LogicalRDD":
            used |= {ids.get(each.exprId().id()) for each in listed(node.references().toSeq())}
    return [name for name in columns if name in used]


# --- values and errors -----------------------------------------------------------------------------------------------


def _evaluate(session: Any, text: str, column: Column) -> object:
    try:
        table = session.sql(f"SELECT CAST({text} AS {spark_name(column.type)}) AS v").toArrow()
    except Exception as error:
        raise BadDefaultError(column=column.name, default=text, why=_first_line(error)) from error
    value: object = table["v"][0].as_py()
    return value


def _refused(view: str, kafka: KafkaDef, error: Exception) -> ViewError:
    why = _first_line(error)
    hint = f"columns of {full_name(kafka)}: {', '.join(kafka.schema.names)}"
    if "TABLE_OR_VIEW_NOT_FOUND" in why:
        hint = f"a materialized view reads from its Kafka table {full_name(kafka)} and from nothing else"
    return ViewError(view=view, why=why, hint=hint)


def _first_line(error: Exception) -> str:
    """Spark's error in one line, without the plan that follows it."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:500]
