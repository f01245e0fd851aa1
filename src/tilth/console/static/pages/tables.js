// All tables: search, sort, and what each one needs.

import { html, useMemo } from "../vendor/preact-htm.js"
import { useWatch } from "../core/api.js"
import { bytes, count } from "../core/format.js"
import { Badge, Card, Failure, Search, Table, Time, Waiting, tableLink, useParameters } from "../core/ui.js"

const STATEMENTS = {
  tables: `SELECT database, name, engine, rows, bytes, parts, segments, last_commit, mutations_pending, comment
    FROM system.tables`,
  // What maintenance would gain, and what it says about each table.
  backlog: `SELECT database, "table", sum(data_retained_bytes) AS retained, max(score) AS score,
    sum(CASE WHEN is_runnable THEN 1 ELSE 0 END) AS runnable FROM system.maintenance_ops
    WHERE is_runnable OR running > 0 GROUP BY database, "table"`,
  pressure: `SELECT database, "table", max(insert_pressure) AS insert_pressure FROM system.partitions
    WHERE insert_pressure IS NOT NULL GROUP BY database, "table"`,
  failed: `SELECT database, "table", max(service) AS service, max(reason) AS reason FROM system.bg_threads
    WHERE state = 'failed' GROUP BY database, "table"`,
  stopped: `SELECT database, "table", count(*) AS services FROM system.bg_threads WHERE switch = 'stopped'
    GROUP BY database, "table"`,
  dropped: `SELECT database, name, engine, dropped_at, kept_until, files, bytes, undrop FROM system.dropped_tables`,
}

const keyOf = (row) => `${row.database}.${row.table ?? row.name}`
const byTable = (answer) => Object.fromEntries((answer?.rows ?? []).map((row) => [keyOf(row), row]))

const COLUMNS = [
  { key: "name", title: "table", value: keyOf, show: keyOf, kind: "tight" },
  { key: "engine", title: "engine" },
  { key: "rows", title: "rows", align: "right", show: (row) => count(row.rows) },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  { key: "parts", title: "parts", align: "right", show: (row) => count(row.parts) },
  {
    key: "segments",
    title: "segments",
    align: "right",
    about: "Rows that are not sorted into parts yet",
    show: (row) => (row.segments ? count(row.segments) : ""),
  },
  {
    key: "last_commit",
    title: "last commit",
    align: "right",
    show: (row) => row.last_commit && html`<${Time} at=${row.last_commit} relative />`,
  },
  {
    key: "score",
    title: "backlog",
    align: "right",
    about: "Score of the operation that would gain most; operations that would gain something",
    show: (row) => (row.runnable ? `${row.runnable} × up to ${Number(row.score).toPrecision(2)}` : ""),
  },
  {
    key: "trouble",
    title: "needs",
    kind: "text",
    show: (row) => row.trouble && html`<${Badge} tone=${row.tone} title=${row.trouble}>${row.trouble.slice(0, 90)}<//>`,
  },
]

const DROPPED = [
  { key: "name", title: "table", value: keyOf, show: keyOf },
  { key: "engine", title: "engine" },
  { key: "dropped_at", title: "dropped", show: (row) => html`<${Time} at=${row.dropped_at} relative />` },
  { key: "kept_until", title: "kept until", show: (row) => html`<${Time} at=${row.kept_until} />` },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  {
    key: "undrop",
    title: "",
    show: (row) => row.undrop && html`<a href=${`#/sql?q=${encodeURIComponent(row.undrop)}`}>Bring it back …</a>`,
  },
]

function troubleOf(key, { failed, pressure, stopped }, row) {
  if (failed[key]) return ["bad", `${failed[key].service}: ${failed[key].reason}`]
  if (pressure[key]) return ["warn", pressure[key].insert_pressure]
  if (stopped[key]) return ["warn", `${stopped[key].services === 1 ? "one service is" : `${stopped[key].services} services are`} stopped`]
  if (row.mutations_pending) return ["busy", `mutations to do: ${row.mutations_pending}`]
  return ["", null]
}

export default function Tables({ route }) {
  const found = useWatch(STATEMENTS, { every: 3 })
  const [parameters, change] = useParameters(route)
  const text = parameters.get("search") ?? ""
  const engine = parameters.get("engine") ?? ""
  const order = (parameters.get("order") ?? "name-asc").split("-")
  const rows = useMemo(() => {
    const more = Object.fromEntries(["backlog", "pressure", "failed", "stopped"].map((name) => [name, byTable(found[name])]))
    return (found.tables?.rows ?? []).map((row) => {
      const key = keyOf(row)
      const [tone, trouble] = troubleOf(key, more, row)
      return { ...row, score: more.backlog[key]?.score, runnable: more.backlog[key]?.runnable, tone, trouble }
    })
  }, [found])
  if (!found.tables) return html`<${Waiting} />`
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const fits = (row) =>
    (!engine || row.engine === engine || (engine === "troubles" && row.trouble)) &&
    words.every((word) => `${keyOf(row)} ${row.comment ?? ""}`.toLowerCase().includes(word))
  const shown = rows.filter(fits)
  const dropped = found.dropped?.rows ?? []
  return html`
    <div class="head">
      <h1>Tables</h1>
      <${Search} label="Search by name or comment" value=${text} onChange=${(value) => change({ search: value })} />
      <select aria-label="Which tables" value=${engine} onChange=${(event) => change({ engine: event.target.value })}>
        <option value="">all kinds</option>
        ${["MergeTree", "Kafka", "MaterializedView"].map((each) => html`<option value=${each}>${each}</option>`)}
        <option value="troubles">with troubles</option>
      </select>
      <span class="about">${count(shown.length)} of ${count(rows.length)}</span>
    </div>
    <${Failure} error=${found.tables.error} />
    <${Card}>
      <${Table} label="tables" columns=${COLUMNS} rows=${shown} keyOf=${keyOf} order=${order} height=${720}
        onOrder=${(next) => change({ order: next.join("-") })} href=${(row) => tableLink(row.database, row.name)}
        toneOf=${(row) => (row.tone === "bad" ? "bad" : row.tone === "warn" ? "warn" : "")}
        empty=${rows.length ? "No table fits." : "There are no tables yet: CREATE TABLE makes one."} />
    <//>
    ${dropped.length > 0 &&
    html`<${Card} title="Dropped" about="kept for a while; UNDROP TABLE brings one back">
      <${Table} label="dropped tables" columns=${DROPPED} rows=${dropped} keyOf=${(row) => keyOf(row) + row.dropped_at} />
    <//>`}`
}
