"""Messages over HTTP between client and server (docs/reference/http.md)."""

from __future__ import annotations

import msgspec


class ColumnInfo(msgspec.Struct, frozen=True):
    name: str
    #: Type in Spark SQL's words.
    type: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a statement, beside its rows."""

    query_id: str
    elapsed_ms: float
    #: -1 in the header of an answer whose rows are still to come.
    rows: int
    #: Message for statements without rows: `table created: db.t`.
    message: str = ""
    #: Parts of the statement that were accepted and have no effect, or were read as something else.
    notices: tuple[str, ...] = ()
    #: Settings that the connection keeps for the statements that follow, changed by SET.
    connection_settings: dict[str, str] = {}


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    kind: str
    message: str
    hint: str
    #: Id under which the log has the details.
    id: str
    #: Number of the error of ClickHouse or ByConity that is most like it; 0: not known, as where an answer broke off.
    number: int = 0
    #: Page of the documentation on the code; empty from a server that sends none.
    page: str = ""


class ErrorAnswer(msgspec.Struct, frozen=True):
    error: ErrorBody


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The body of GET /v1/health and GET /v1/ready."""

    #: `ok`, or `degraded` with what is down in `components`.
    status: str
    version: str
    server: str
    #: State by component: `ok` or what is wrong with it.
    components: dict[str, str]
    #: Notes for an operator about components that work, by component.
    notes: dict[str, str] = {}
    #: Background services that fail, `merge of db.t`, and why; not among the answers of /v1/ready.
    failed_services: dict[str, str] = {}
