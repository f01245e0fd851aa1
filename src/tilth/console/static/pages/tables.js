// All tables: search, sort, and what each one needs.

import { html, useMemo } from "../vendor/preact-htm.js"
import { sorting, useParameters } from "../core/address.js"
import { errorIn, useWatch } from "../core/api.js"
import { fitting } from "../core/filters.js"
import { bytes, count } from "../core/format.js"
import { nameOf, sqlLink, tableLink } from "../core/names.js"
import { Table, ageColumn, numberColumn, someColumn, tableColumn, timeColumn } from "../core/table.js"
import { Badge, Card, Failure, SearchBy, SelectBy, Waiting } from "../core/ui.js"

const STATEMENTS = {
  tables: `SELECT database, name, engine, rows, bytes, parts, segments, last_commit, mutations_pending, comment
    FROM system.tables`,
  // The gain of maintenance by table; the troubles of tables follow.
  backlog: `SELECT database, "table", max(score) AS score, count(*) AS runnable FROM system.maintenance_ops
    WHERE is_runnable GROUP BY database, "table"`,
  pressure: `SELECT database, "table", max(insert_pressure) AS insert_pressure FROM system.partitions
    WHERE insert_pressure IS NOT NULL GROUP BY database, "table"`,
  failed: `SELECT database, "table", max(service) AS service, max(reason) AS reason FROM system.bg_threads
    WHERE state = 'failed' GROUP BY database, "table"`,
  stopped: `SELECT database, "table", count(*) AS services FROM system.bg_threads WHERE switch = 'stopped'
    GROUP BY database, "table"`,
  dropped: `SELECT database, name, uuid, engine, dropped_at, kept_until, bytes, undrop FROM system.dropped_tables`,
}

const ENGINES = [["", "all kinds"], ...["MergeTree", "Kafka", "MaterializedView"].map((each) => [each, each]), ["troubles", "with troubles"]]
/** Characters of a trouble that stand in the table; the pointer shows all. */
const TROUBLE_SHOWN = 90

const byTable = (answer) => Object.fromEntries((answer?.rows ?? []).map((row) => [nameOf(row), row]))

const COLUMNS = [
  { ...tableColumn({ isLink: false }), key: "name" },
  { key: "engine", title: "engine" },
  numberColumn("rows", "rows"),
  numberColumn("bytes", "size", bytes),
  numberColumn("parts", "parts"),
  someColumn("segments", "segments", count, { about: "Rows that are not sorted into parts yet" }),
  ageColumn("last_commit", "last commit"),
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
    show: (row) => row.trouble && html`<${Badge} tone=${row.tone} title=${row.trouble}>${row.trouble.slice(0, TROUBLE_SHOWN)}<//>`,
  },
]

const DROPPED = [
  tableColumn({ isLink: false }),
  { key: "engine", title: "engine" },
  ageColumn("dropped_at", "dropped"),
  timeColumn("kept_until", "kept until"),
  numberColumn("bytes", "size", bytes),
  { key: "undrop", title: "", show: (row) => row.undrop && html`<a href=${sqlLink(row.undrop)}>Bring it back …</a>` },
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
  const engine = parameters.get("engine") ?? ""
  const rows = useMemo(() => {
    const more = Object.fromEntries(["backlog", "pressure", "failed", "stopped"].map((name) => [name, byTable(found[name])]))
    return (found.tables?.rows ?? []).map((row) => {
      const key = nameOf(row)
      const [tone, trouble] = troubleOf(key, more, row)
      return { ...row, score: more.backlog[key]?.score, runnable: more.backlog[key]?.runnable, tone, trouble }
    })
  }, [found])
  if (!found.tables) return html`<${Waiting} />`
  const hasWords = fitting(parameters.get("search") ?? "")
  const fits = (row) =>
    (!engine || row.engine === engine || (engine === "troubles" && row.trouble)) && hasWords(`${nameOf(row)} ${row.comment ?? ""}`)
  const shown = rows.filter(fits)
  const dropped = found.dropped?.rows ?? []
  return html`
    <div class="head">
      <h1>Tables</h1>
      <${SearchBy} label="Search by name or comment" parameters=${parameters} change=${change} />
      <${SelectBy} name="engine" label="Which tables" options=${ENGINES} parameters=${parameters} change=${change} />
      <span class="about">${count(shown.length)} of ${count(rows.length)}</span>
    </div>
    <${Failure} error=${errorIn(found)} />
    <${Card}>
      <${Table} label="tables" columns=${COLUMNS} rows=${shown} keyOf=${nameOf} height=${720}
        ...${sorting(parameters, change, "order", "name-asc")} href=${(row) => tableLink(row.database, row.name)}
        toneOf=${(row) => (row.tone === "bad" || row.tone === "warn" ? row.tone : "")}
        empty=${rows.length ? "No table fits." : "There are no tables yet: CREATE TABLE makes one."} />
    <//>
    ${dropped.length > 0 &&
    html`<${Card} title="Dropped" about="kept for a while; UNDROP TABLE brings one back">
      <${Table} label="dropped tables" columns=${DROPPED} rows=${dropped} keyOf=${(row) => row.uuid} />
    <//>`}`
}
