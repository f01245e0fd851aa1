// Who changed what, the statements that were answered, and those under way.

import { html, useEffect, useState } from "../vendor/preact-htm.js"
import { literal, read, serverNow, useWatch } from "../core/api.js"
import { bytes, count, exactly, isNone, seconds } from "../core/format.js"
import {
  Badge, Bar, Card, Code, Copy, Empty, Failure, Search, StatementDialog, Table, Tabs, Time, Waiting, noteError,
  tableLink, useParameters, useTick,
} from "../core/ui.js"

const ROWS_MAX = 500
/** Characters of a statement in a list; the whole text is read when it is opened. */
const TEXT_SHOWN = 300
const SETTLE_MS = 300

// --- shared with the page of the cluster -----------------------------------------------------------------------------

/** A text for LIKE: `_` stands for each character that has a meaning of its own, so nothing needs an escape. */
export const pattern = (text) => String(text).replace(/['"\\%_`\r\n]/g, "_")

/** A condition: one of the columns contains the text, in small or capital letters. */
export const contains = (columns, text) =>
  `(${columns.map((column) => `lower(${column}) LIKE '%${pattern(text.toLowerCase())}%'`).join(" OR ")})`

/** A WHERE clause of conditions, without those that are empty. */
export const whereAll = (...conditions) => {
  const given = conditions.filter(Boolean)
  return given.length ? `WHERE ${given.join(" AND ")}` : ""
}

/** The value once it has not changed for a moment, so that not each key starts a statement. */
export function useSettled(value) {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLE_MS)
    return () => clearTimeout(timer)
  }, [value])
  return value === "" ? "" : settled
}

/** Properties of a Table that keep its order in the address, as `key-asc`. */
export const sorting = (parameters, change, name = "order") => ({
  order: parameters.get(name)?.split("-"),
  onOrder: (order) => change({ [name]: order.join("-") }),
})

/** The address of the page with some parameters changed; null removes one. */
export function pageLink(route, values) {
  const next = new URLSearchParams(route.parameters)
  for (const [name, value] of Object.entries(values)) isNone(value) ? next.delete(name) : next.set(name, value)
  return `#/${route.path.map(encodeURIComponent).join("/")}?${next}`
}

/** Open another tab; filters of the former one end. */
export const openTab = (parameters, change, tab) =>
  change({ ...Object.fromEntries([...parameters.keys()].map((name) => [name, null])), tab })

/** `database.table` as a pair. */
export const nameParts = (text) => {
  const dot = text.indexOf(".")
  return dot > 0 ? [text.slice(0, dot), text.slice(dot + 1)] : ["default", text]
}

export const Outcome = ({ text }) => {
  const [word, ...rest] = String(text ?? "").split(": ")
  const tone = word === "done" ? "good" : /^[A-Z][A-Z0-9_]+$/.test(word) ? "bad" : ""
  return html`<span title=${text}><${Badge} tone=${tone}>${word || "–"}<//> ${rest.join(": ")}</span>`
}

const TableName = ({ name }) => (name ? html`<a href=${tableLink(...nameParts(name))}>${name}</a>` : "–")

const LINES = [
  { key: "time", title: "time", kind: "tight", show: (row) => html`<${Time} at=${row.time} />` },
  { key: "table", title: "table", show: (row) => html`<${TableName} name=${row.table} />` },
  { key: "outcome", title: "outcome", kind: "text", show: (row) => html`<${Outcome} text=${row.outcome} />` },
  { key: "statement", title: "statement", kind: "mono", show: (row) => html`<span title=${row.statement}>${row.statement}</span>` },
  { key: "client", title: "from", show: (row) => row.client ?? "the server itself" },
]
const LINK_TO_LINE = (row) => `#/audit?id=${encodeURIComponent(row.query_id)}`

/** Lines of the audit log of one kind of statement. */
export const AuditLines = ({ answer, label, empty }) =>
  answer
    ? html`<${Failure} error=${answer.error} />
        <${Table} label=${label} rows=${answer.rows} columns=${LINES} empty=${empty} height=${320}
          href=${(row) => (row.query_id ? LINK_TO_LINE(row) : undefined)} />`
    : html`<${Waiting} />`

/** Statement that reads them, newest first. */
export const auditLines = (verb) =>
  `SELECT "time", "table", outcome, statement, client, query_id FROM system.audit_log WHERE verb LIKE '${pattern(verb)}%'
    ORDER BY "time" DESC LIMIT 50`

// --- audit -----------------------------------------------------------------------------------------------------------

const AUDIT = [
  LINES[0],
  { key: "verb", title: "what", kind: "tight" },
  LINES[1],
  LINES[2],
  { key: "because", title: "because", kind: "text", show: (row) => row.because && html`<span title=${row.because}>${row.because}</span>` },
  {
    key: "seconds", title: "for", align: "right", about: "How long it holds; –: until it is changed",
    show: (row) => seconds(row.seconds),
  },
  LINES[4],
  LINES[3],
]

const auditStatements = ({ parameters, search, table }) => ({
  verbs: "SELECT verb, count(*) AS n FROM system.audit_log GROUP BY verb ORDER BY verb",
  audit: `SELECT "time", verb, "table", statement, seconds, because, query_id, client, outcome FROM system.audit_log
    ${whereAll(
      parameters.get("verb") && `verb LIKE '${pattern(parameters.get("verb"))}'`,
      table && contains(['"table"'], table),
      search && contains(["statement", "because", "client", "outcome", "query_id"], search),
      parameters.get("refused") && "outcome NOT LIKE 'done%'",
    )} ORDER BY "time" DESC LIMIT ${ROWS_MAX}`,
})

/** A box to tick, kept in the address. */
const Tick = ({ name, label, parameters, change }) =>
  html`<label class="tick"><input type="checkbox" checked=${parameters.has(name)}
    onChange=${(event) => change({ [name]: event.target.checked ? "1" : null })} />${label}</label>`

const shownOf = (rows, which) =>
  rows.length < ROWS_MAX ? `${exactly(rows.length)} in all` : `the ${which} ${exactly(ROWS_MAX)}; filter to see others`

function AuditTab({ found, route, parameters, change }) {
  const rows = found.audit?.rows ?? []
  const verbs = found.verbs?.rows ?? []
  return html`<${Card} title="Audit log" wide about=${found.audit && shownOf(rows, "newest")}>
    <div class="head">
      <select aria-label="What was done" value=${parameters.get("verb") ?? ""} onChange=${(event) => change({ verb: event.target.value })}>
        <option value="">all statements</option>
        ${verbs.map((each) => html`<option key=${each.verb} value=${each.verb}>${each.verb} (${exactly(each.n)})</option>`)}
      </select>
      <${Search} label="Table" value=${parameters.get("table") ?? ""} onChange=${(value) => change({ table: value })} />
      <${Search} label="Statement, reason, client or outcome" value=${parameters.get("search") ?? ""}
        onChange=${(value) => change({ search: value })} />
      <${Tick} name="refused" label="refused or failed only" parameters=${parameters} change=${change} />
    </div>
    <${Failure} error=${found.audit?.error} />
    ${found.audit
      ? html`<${Table} label="audit log" rows=${rows} columns=${AUDIT} ...${sorting(parameters, change)} empty="No line fits."
          toneOf=${(row) => (/^[A-Z][A-Z0-9_]+: /.test(row.outcome ?? "") ? "bad" : "")}
          href=${(row) => (row.query_id ? pageLink(route, { id: row.query_id }) : undefined)} />`
      : html`<${Waiting} />`}
  <//>`
}

// --- statements that were answered -----------------------------------------------------------------------------------

const sqlLink = (text, database) =>
  `#/sql?${new URLSearchParams({ q: text, ...(database && database !== "default" ? { database } : {}) })}`

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

const milliseconds = (value) => (isNone(value) ? "–" : seconds(value / 1000))

const STATEMENTS = [
  { key: "started", title: "time", kind: "tight", show: (row) => html`<${Time} at=${row.started} />` },
  { key: "kind", title: "kind", kind: "tight" },
  { key: "text", title: "statement", kind: "mono", about: "A click opens it in the editor", show: (row) => html`<${StatementLink} row=${row} />` },
  { key: "elapsed_ms", title: "took", align: "right", show: (row) => milliseconds(row.elapsed_ms) },
  { key: "rows", title: "rows", align: "right", about: "Rows of the answer", show: (row) => count(row.rows) },
  { key: "rows_written", title: "written", align: "right", about: "Rows that it stored", show: (row) => count(row.rows_written) },
  { key: "result_bytes", title: "answer", align: "right", about: "Size of the answer in memory", show: (row) => bytes(row.result_bytes) },
  {
    key: "parts_read", title: "parts read", align: "right", about: "Parts that its tables gave; parts that its predicates ruled out",
    show: (row) => (row.parts_read || row.parts_pruned ? `${count(row.parts_read)}, ${count(row.parts_pruned)} pruned` : "–"),
  },
  {
    key: "error_code", title: "error",
    show: (row) => row.error_code && html`<span title=${row.error}><${Badge} tone="bad">${row.error_code}<//> ${row.error}</span>`,
  },
  { key: "sent_again", title: "sent again", about: "Why its work in Spark was lost and done again", show: (row) => row.sent_again && html`<span title=${row.sent_again}>${row.sent_again}</span>` },
  { key: "client", title: "from", show: (row) => row.client ?? "the server itself" },
  { key: "server", title: "server" },
]

const logStatements = ({ parameters, search }) => ({
  log: `SELECT query_id, client, kind, substr(text, 1, ${TEXT_SHOWN + 1}) AS text, database, started, elapsed_ms, "rows",
    rows_written, result_bytes, parts_read, parts_pruned, error_code, error, sent_again, server FROM system.query_log
    ${whereAll(
      parameters.get("errors") && "error_code IS NOT NULL",
      search && contains(["text", "kind", "client", "error_code", "error", "query_id"], search),
    )} ORDER BY ${parameters.get("slow") ? "elapsed_ms" : "started"} DESC LIMIT ${ROWS_MAX}`,
})

function LogTab({ found, route, parameters, change }) {
  const rows = found.log?.rows ?? []
  return html`<${Card} title="Statements" wide
    about=${found.log && `${shownOf(rows, parameters.get("slow") ? "slowest" : "newest")}; servers forget them when they restart`}>
    <div class="head">
      <${Search} label="Statement, kind, client or error" value=${parameters.get("search") ?? ""}
        onChange=${(value) => change({ search: value })} />
      <${Tick} name="errors" label="errors only" parameters=${parameters} change=${change} />
      <${Tick} name="slow" label="slow ones first" parameters=${parameters} change=${(values) => change({ ...values, order: null })} />
    </div>
    <${Failure} error=${found.log?.error} />
    ${found.log
      ? html`<${Table} label="statements" rows=${rows} columns=${STATEMENTS} ...${sorting(parameters, change)} empty="No statement fits."
          toneOf=${(row) => (row.error_code ? "bad" : row.sent_again ? "warn" : "")}
          href=${(row) => pageLink(route, { id: row.query_id })} />`
      : html`<${Waiting} />`}
  <//>`
}

// --- statements under way --------------------------------------------------------------------------------------------

const runningStatements = ({ parameters }) => ({
  running: `SELECT query_id, kind, substr(query, 1, 1000) AS query, database, address, started, max_execution_time, state,
    queue, warehouse, task_id, read_rows, read_bytes, stages_done, stages_total, tasks_done, tasks_total, server
    FROM system.processes ${parameters.get("all") ? "" : "WHERE coalesce(queue, '') <> 'watch'"} ORDER BY started LIMIT ${ROWS_MAX}`,
})

const elapsedOf = (row) => Math.max(0, (serverNow() - new Date(row.started)) / 1000)

const Progress = ({ row }) =>
  row.tasks_total
    ? html`<${Bar} part=${Number(row.tasks_done) / Number(row.tasks_total)} title="Spark tasks that are done, of the stages that have begun" />
        <small> ${exactly(row.tasks_done)} of ${exactly(row.tasks_total)} tasks, ${exactly(row.stages_done)} of ${exactly(row.stages_total)} stages</small>`
    : "–"

const runningColumns = (kill) => [
  { key: "query", title: "statement", kind: "mono", show: (row) => html`<span title=${row.query}>${row.query.slice(0, TEXT_SHOWN)}</span>` },
  { key: "kind", title: "kind", show: (row) => row.kind || "–" },
  { key: "started", title: "for", align: "right", value: elapsedOf, show: (row) => seconds(elapsedOf(row)) },
  { key: "max_execution_time", title: "limit", align: "right", about: "It is cancelled after this time", show: (row) => seconds(row.max_execution_time) },
  { key: "state", title: "state", kind: "text" },
  { key: "tasks_done", title: "progress", show: (row) => html`<${Progress} row=${row} />` },
  { key: "read_rows", title: "rows read", align: "right", show: (row) => count(row.read_rows) },
  { key: "read_bytes", title: "bytes read", align: "right", show: (row) => bytes(row.read_bytes) },
  { key: "warehouse", title: "warehouse", show: (row) => row.warehouse ?? "–" },
  { key: "address", title: "from", show: (row) => row.address || "the server itself" },
  { key: "server", title: "server" },
  {
    key: "kill", title: "",
    show: (row) => html`<button type="button" onClick=${() => kill(row)} aria-label=${`End statement ${row.query_id}`}>End …</button>`,
  },
]

function RunningTab({ found, parameters, change }) {
  const [ended, setEnded] = useState(null)
  useTick()
  return html`<${Card} title="Statements under way" wide about="oldest first; those of all servers"
    actions=${html`<${Tick} name="all" label="also those that read system tables" parameters=${parameters} change=${change} />`}>
    <${Failure} error=${found.running?.error} />
    ${found.running
      ? html`<${Table} label="statements under way" rows=${found.running.rows} columns=${runningColumns(setEnded)}
          ...${sorting(parameters, change)} keyOf=${(row) => row.query_id} empty="No statement runs." />`
      : html`<${Waiting} />`}
    ${ended &&
    html`<${StatementDialog} title="End a statement" danger action="End it" onClose=${() => setEnded(null)}
      about=${`${ended.kind || "Statement"}: ${ended.query.slice(0, TEXT_SHOWN)}. Nothing of it is applied, unless its commit has begun.`}
      fields=${[
        {
          name: "mode", label: "When the answer comes", value: "ASYNC",
          options: [["ASYNC", "at once"], ["SYNC", "when it has ended, after 10 s at most"], ["TEST", "at once, and nothing ends: a test"]],
        },
      ]}
      statement=${({ mode }) => `KILL QUERY ${literal(ended.query_id)} ${mode}`} />`}
  <//>`
}

// --- one statement ---------------------------------------------------------------------------------------------------

/** Answers are named by the statement, so that none of a former one is drawn as of this one. */
const detailStatements = (id) => ({
  [`said ${id}`]: `SELECT "time", verb, "table", statement, seconds, because, client, outcome FROM system.audit_log
    WHERE query_id LIKE '${pattern(id)}' ORDER BY "time" LIMIT 20`,
  [`logged ${id}`]: `SELECT query_id, client, kind, text, database, started, elapsed_ms, "rows", rows_written, result_bytes, parts_read,
    parts_pruned, error_code, error, exception_code, sent_again, server FROM system.query_log
    WHERE query_id LIKE '${pattern(id)}' LIMIT 5`,
})

const Facts = ({ facts }) =>
  html`<dl class="facts">
    ${facts.filter(([, value]) => !isNone(value) && value !== "").map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
  </dl>`

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
  const tab = Object.hasOwn(TABS, parameters.get("tab") ?? "") ? parameters.get("tab") : "audit"
  const search = useSettled(parameters.get("search") ?? "")
  const table = useSettled(parameters.get("table") ?? "")
  const id = parameters.get("id")
  const { statements, View, every } = TABS[tab]
  const found = useWatch(
    {
      ...statements({ parameters, search, table }),
      ...(id ? detailStatements(id) : {}),
      number: "SELECT count(*) AS n FROM system.processes WHERE coalesce(queue, '') <> 'watch'",
    },
    { every },
  )
  return html`
    <div class="head"><h1>Audit</h1></div>
    <${Tabs} label="Logs" current=${tab} onChange=${(key) => openTab(parameters, change, key)}
      tabs=${Object.entries(TABS).map(([key, { title }]) => [key, title, key === "running" ? found.number?.rows[0]?.n : null])} />
    ${id && html`<${Details} id=${id} found=${found} change=${change} />`}
    <${View} found=${found} route=${route} parameters=${parameters} change=${change} />`
}
