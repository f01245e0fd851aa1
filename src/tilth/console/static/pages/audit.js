// Who changed what, the statements that were answered, and those under way.

import { html, useMemo, useState } from "../vendor/preact-htm.js"
import { chosenOf, openTab, pageLink, sorting, useParameters } from "../core/address.js"
import { literal, read, secondsSince, useWatch } from "../core/api.js"
import { LINE, Outcome, isRefused } from "../core/audit.js"
import { StatementDialog } from "../core/dialog.js"
import { contains, equals, useSettled, whereAll } from "../core/filters.js"
import { bytes, count, exactly, isNone, milliseconds, seconds } from "../core/format.js"
import { TableName, sqlLink } from "../core/names.js"
import { Copy, noteError } from "../core/notes.js"
import { Table, buttonColumn, numberColumn, textColumn, timeColumn } from "../core/table.js"
import {
  Answer, Badge, Card, Code, Done, Empty, Facts, Failure, SearchBy, SelectBy, Tabs, TickBy, Time, Waiting, shownOf, useTick,
} from "../core/ui.js"

const ROWS_MAX = 500
/** Characters of a statement in a list; the whole text is read when it is opened. */
const TEXT_SHOWN = 300
/** Statements that only read system tables, the pages of this console among them. */
const IS_OWN = "coalesce(queue, '') = 'watch'"

// --- audit -----------------------------------------------------------------------------------------------------------

const AUDIT = [
  LINE.time,
  { key: "verb", title: "what", kind: "tight" },
  LINE.table,
  LINE.outcome,
  textColumn("because", "because"),
  numberColumn("seconds", "for", seconds, { about: "How long it holds; –: until it is changed" }),
  LINE.client,
  LINE.statement,
]

const auditStatements = ({ parameters, search, table }) => ({
  verbs: "SELECT verb, count(*) AS n FROM system.audit_log GROUP BY verb ORDER BY verb",
  audit: `SELECT "time", verb, "table", statement, seconds, because, query_id, client, outcome FROM system.audit_log
    ${whereAll(
      equals("verb", parameters.get("verb")),
      contains(['"table"'], table),
      contains(["statement", "because", "client", "outcome", "query_id"], search),
      parameters.has("refused") && "outcome NOT LIKE 'done%'",
    )} ORDER BY "time" DESC LIMIT ${ROWS_MAX}`,
})

function AuditTab({ found, route, parameters, change }) {
  const verbs = (found.verbs?.rows ?? []).map((each) => [each.verb, `${each.verb} (${exactly(each.n)})`])
  const by = { parameters, change }
  return html`<${Card} title="Audit log" wide about=${found.audit && shownOf(found.audit.rows, ROWS_MAX, "newest")}>
    <div class="head">
      <${SelectBy} name="verb" label="What was done" options=${[["", "all statements"], ...verbs]} ...${by} />
      <${SearchBy} name="table" label="Table" ...${by} />
      <${SearchBy} label="Statement, reason, client or outcome" ...${by} />
      <${TickBy} name="refused" label="refused or failed only" ...${by} />
    </div>
    <${Answer} answer=${found.audit}>
      <${Table} label="audit log" rows=${found.audit?.rows} columns=${AUDIT} ...${sorting(parameters, change)} empty="No line fits."
        keyOf=${(row) => `${row.time}/${row.query_id}`} toneOf=${(row) => (isRefused(row.outcome) ? "bad" : "")}
        href=${(row) => row.query_id && pageLink(route, { id: row.query_id })} />
    <//>
  <//>`
}

// --- statements that were answered -----------------------------------------------------------------------------------

/** The whole text, which a list does not have. */
async function openStatement(event, row) {
  event.preventDefault()
  try {
    const [found] = await read(`SELECT text FROM system.query_log WHERE query_id = ${literal(row.query_id)} LIMIT 1`)
    location.hash = sqlLink(found?.text ?? row.text, row.database)
  } catch (error) {
    noteError(error)
  }
}

function StatementLink({ row }) {
  const isCut = row.text.length > TEXT_SHOWN
  return html`<a href=${sqlLink(row.text, row.database)} title=${isCut ? `${row.text} …` : row.text}
    onClick=${isCut ? (event) => openStatement(event, row) : undefined}>${row.text}${isCut ? " …" : ""}</a>`
}

const partsText = (row) =>
  row.parts_read || row.parts_pruned ? `${count(row.parts_read)}, ${count(row.parts_pruned)} pruned` : "–"

const STATEMENTS = [
  timeColumn("started", "time"),
  { key: "kind", title: "kind", kind: "tight" },
  { key: "text", title: "statement", kind: "mono", about: "A click opens it in the editor", show: (row) => html`<${StatementLink} row=${row} />` },
  numberColumn("elapsed_ms", "took", milliseconds),
  numberColumn("rows", "rows", count, { about: "Rows of the answer" }),
  numberColumn("rows_written", "written", count, { about: "Rows that it stored" }),
  numberColumn("result_bytes", "answer", bytes, { about: "Size of the answer in memory" }),
  numberColumn("parts_read", "parts read", count, {
    about: "Parts that its tables gave; parts that its predicates ruled out",
    show: partsText,
  }),
  {
    key: "error_code", title: "error",
    show: (row) => row.error_code && html`<span title=${row.error}><${Badge} tone="bad">${row.error_code}<//> ${row.error}</span>`,
  },
  textColumn("sent_again", "sent again", { about: "Why its work in Spark was lost and done again" }),
  LINE.client,
  { key: "server", title: "server" },
]

const logStatements = ({ parameters, search }) => ({
  log: `SELECT query_id, client, kind, substr(text, 1, ${TEXT_SHOWN + 1}) AS text, database, started, elapsed_ms, "rows",
    rows_written, result_bytes, parts_read, parts_pruned, error_code, error, sent_again, server FROM system.query_log
    ${whereAll(
      parameters.has("errors") && "error_code IS NOT NULL",
      contains(["text", "kind", "client", "error_code", "error", "query_id"], search),
    )} ORDER BY ${parameters.has("slow") ? "elapsed_ms" : "started"} DESC LIMIT ${ROWS_MAX}`,
})

function LogTab({ found, route, parameters, change }) {
  const isSlow = parameters.has("slow")
  const shown = found.log && shownOf(found.log.rows, ROWS_MAX, isSlow ? "slowest" : "newest")
  const by = { parameters, change }
  return html`<${Card} title="Statements" wide about=${shown && `${shown}; servers forget them when they restart`}>
    <div class="head">
      <${SearchBy} label="Statement, kind, client or error" ...${by} />
      <${TickBy} name="errors" label="errors only" ...${by} />
      <${TickBy} name="slow" label="slow ones first" parameters=${parameters}
        change=${(values) => change({ ...values, order: null })} />
    </div>
    <${Answer} answer=${found.log}>
      <${Table} label="statements" rows=${found.log?.rows} columns=${STATEMENTS} ...${sorting(parameters, change)}
        empty="No statement fits." keyOf=${(row) => `${row.server}/${row.query_id}/${row.started}`}
        toneOf=${(row) => (row.error_code ? "bad" : row.sent_again ? "warn" : "")}
        href=${(row) => pageLink(route, { id: row.query_id })} />
    <//>
  <//>`
}

// --- statements under way --------------------------------------------------------------------------------------------

const runningStatements = ({ parameters }) => ({
  running: `SELECT query_id, kind, substr(query, 1, 1000) AS query, database, address, started, max_execution_time, state,
    warehouse, read_rows, read_bytes, stages_done, stages_total, tasks_done, tasks_total, server
    FROM system.processes ${whereAll(!parameters.has("all") && `NOT ${IS_OWN}`)} ORDER BY started LIMIT ${ROWS_MAX}`,
})

const elapsedOf = (row) => secondsSince(row.started)

/** Spark tasks that are done, of the stages that have begun. */
const Progress = ({ row }) =>
  row.tasks_total
    ? html`<${Done} done=${row.tasks_done} all=${row.tasks_total} what="tasks" show=${exactly} />
        <small>, ${exactly(row.stages_done)} of ${exactly(row.stages_total)} stages</small>`
    : "–"

const runningColumns = (kill) => [
  { key: "query", title: "statement", kind: "mono", show: (row) => html`<span title=${row.query}>${row.query.slice(0, TEXT_SHOWN)}</span>` },
  { key: "kind", title: "kind", show: (row) => row.kind || "–" },
  numberColumn("started", "for", seconds, { value: elapsedOf, show: (row) => seconds(elapsedOf(row)) }),
  numberColumn("max_execution_time", "limit", seconds, { about: "It is cancelled after this time" }),
  textColumn("state", "state"),
  { key: "tasks_done", title: "progress", show: (row) => html`<${Progress} row=${row} />` },
  numberColumn("read_rows", "rows read"),
  numberColumn("read_bytes", "bytes read", bytes),
  { key: "warehouse", title: "warehouse", show: (row) => row.warehouse ?? "–" },
  { key: "address", title: "from", show: (row) => row.address || "the server itself" },
  { key: "server", title: "server" },
  buttonColumn("End", (row) => `End statement ${row.query_id}`, kill),
]

const MODES = [["ASYNC", "at once"], ["SYNC", "when it has ended, after 10 s at most"], ["TEST", "at once, and nothing ends: a test"]]

const EndDialog = ({ row, onClose }) =>
  html`<${StatementDialog} title="End a statement" danger action="End it" onClose=${onClose}
    about=${`${row.kind || "Statement"}: ${row.query.slice(0, TEXT_SHOWN)}. Nothing of it is applied, unless its commit has begun.`}
    fields=${[{ name: "mode", label: "When the answer comes", value: "ASYNC", options: MODES }]}
    statement=${({ mode }) => `KILL QUERY ${literal(row.query_id)} ${mode}`} />`

function RunningTab({ found, parameters, change }) {
  const [ended, setEnded] = useState(null)
  const columns = useMemo(() => runningColumns(setEnded), [])
  useTick()
  return html`<${Card} title="Statements under way" wide about="oldest first; those of all servers"
    actions=${html`<${TickBy} name="all" label="also those that read system tables" parameters=${parameters} change=${change} />`}>
    <${Answer} answer=${found.running}>
      <${Table} label="statements under way" rows=${found.running?.rows} columns=${columns}
        ...${sorting(parameters, change)} keyOf=${(row) => row.query_id} empty="No statement runs." />
    <//>
    ${ended && html`<${EndDialog} row=${ended} onClose=${() => setEnded(null)} />`}
  <//>`
}

// --- one statement ---------------------------------------------------------------------------------------------------

/** Answers are named by the statement, so that none of a former one is drawn as of this one. */
const detailStatements = (id) => ({
  [`said ${id}`]: `SELECT "time", verb, "table", statement, seconds, because, client, outcome FROM system.audit_log
    WHERE ${equals("query_id", id)} ORDER BY "time" LIMIT 20`,
  [`logged ${id}`]: `SELECT query_id, client, kind, text, database, started, elapsed_ms, "rows", rows_written, result_bytes, parts_read,
    parts_pruned, error_code, error, exception_code, sent_again, server FROM system.query_log
    WHERE ${equals("query_id", id)} LIMIT 5`,
})

const Said = ({ row }) =>
  html`<h3>${row.verb}</h3>
    <${Facts} facts=${[
      ["time", html`<${Time} at=${row.time} />`],
      ["table", row.table && html`<${TableName} name=${row.table} />`],
      ["because", row.because],
      ["holds for", isNone(row.seconds) ? null : seconds(row.seconds)],
      ["from", row.client ?? "the server itself"],
      ["outcome", html`<${Outcome} text=${row.outcome} />`],
    ]} />
    <${Code}>${row.statement}<//>`

const Logged = ({ row }) =>
  html`<h3>${row.kind}</h3>
    <${Facts} facts=${[
      ["time", html`<${Time} at=${row.started} />`],
      ["took", milliseconds(row.elapsed_ms)],
      ["rows", `${exactly(row.rows)} answered, ${exactly(row.rows_written)} stored`],
      ["answer", `${bytes(row.result_bytes)} in memory`],
      ["parts", `${exactly(row.parts_read)} read, ${exactly(row.parts_pruned)} pruned`],
      ["database", row.database],
      ["from", row.client ?? "the server itself"],
      ["server", row.server],
      ["error", row.error_code && html`<${Badge} tone="bad">${row.error_code}<//> ${row.error} (number ${row.exception_code})`],
      ["sent again", row.sent_again],
    ]} />
    <${Code}>${row.text}<//>
    <p class="about"><a href=${sqlLink(row.text, row.database)}>Open in the editor</a></p>`

function Details({ id, found, change }) {
  const [audit, log] = [found[`said ${id}`], found[`logged ${id}`]]
  const said = audit?.rows ?? []
  const logged = log?.rows ?? []
  return html`<${Card} title="One statement" wide about=${id}
    actions=${html`<${Copy} text=${id} label="Copy its id" /><button type="button" onClick=${() => change({ id: null })}>Close</button>`}>
    <${Failure} error=${audit?.error ?? log?.error} />
    ${said.map((row, index) => html`<${Said} key=${index} row=${row} />`)}
    ${logged.map((row, index) => html`<${Logged} key=${`log${index}`} row=${row} />`)}
    ${audit && log && !said.length && !logged.length && !audit.error && !log.error &&
    html`<${Empty}>No log knows it any more: the query log is empty after a restart, the audit log has the newest 10,000 lines.<//>`}
    ${!audit && html`<${Waiting} />`}
  <//>`
}

// --- the page --------------------------------------------------------------------------------------------------------

const TABS = {
  audit: { title: "Audit", statements: auditStatements, View: AuditTab, every: 3 },
  statements: { title: "Statements", statements: logStatements, View: LogTab, every: 3 },
  running: { title: "Under way", statements: runningStatements, View: RunningTab, every: 1 },
}

export default function Audit({ route }) {
  const [parameters, change] = useParameters(route)
  const tab = chosenOf(Object.keys(TABS), parameters.get("tab"))
  const search = useSettled(parameters.get("search") ?? "")
  const table = useSettled(parameters.get("table") ?? "")
  const id = parameters.get("id")
  const { statements, View, every } = TABS[tab]
  const found = useWatch(
    {
      ...statements({ parameters, search, table }),
      ...(id ? detailStatements(id) : {}),
      number: `SELECT count(*) AS n FROM system.processes WHERE NOT ${IS_OWN}`,
    },
    { every },
  )
  return html`
    <div class="head"><h1>Audit</h1></div>
    <${Tabs} label="Logs" current=${tab} onChange=${(key) => openTab(parameters, change, key)}
      tabs=${Object.entries(TABS).map(([key, { title }]) => [key, title, key === "running" ? found.number?.rows[0]?.n : null])} />
    ${id && html`<${Details} id=${id} found=${found} change=${change} />`}
    <${View} key=${tab} found=${found} route=${route} parameters=${parameters} change=${change} />`
}
