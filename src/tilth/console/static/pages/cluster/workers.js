// Workers of all servers, and their tasks.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { sorting } from "../../core/address.js"
import { secondsSince } from "../../core/api.js"
import { bytes, exactly, isNone, seconds } from "../../core/format.js"
import { TableName } from "../../core/names.js"
import { Table, ageColumn, numberColumn, someColumn, textColumn } from "../../core/table.js"
import { Answer, Card, Failure, Share, Time } from "../../core/ui.js"
import { DrainDialog, STATE, drainColumn, toneOf } from "./states.js"

const TASKS_MAX = 500

export const workerStatements = () => ({
  workers: `SELECT name, warehouses, state, reason, last_answer, running, elsewhere, resident, memory_bytes, host, pid, version,
    cores, free_cores, free_memory_bytes, free_disk_bytes, last_report, server FROM system.workers ORDER BY server, name`,
  tasks: `SELECT id, kind, state, "table", worker, started, estimated_seconds, reason, server FROM system.tasks
    WHERE ended IS NULL ORDER BY created LIMIT ${TASKS_MAX}`,
})

const tasksText = (n) => `${exactly(n)} tasks`

/** 2.04 -> 2, 1.56 -> 1.6. */
const short = (value) => Number(Number(value).toFixed(1))

const WORKERS = [
  { key: "name", title: "worker", kind: "tight" },
  { key: "server", title: "server" },
  STATE,
  textColumn("reason", "reason"),
  { key: "warehouses", title: "warehouses", show: (row) => (row.warehouses ?? []).join(", ") },
  {
    key: "cores", title: "cores in use", value: (row) => (isNone(row.cores) ? null : row.cores - row.free_cores),
    show: (row) => isNone(row.cores) ? "–" : html`<${Share} used=${Math.max(0, row.cores - row.free_cores)} of=${row.cores}
      show=${short} /> <small>${short(row.free_cores)} cores free</small>`,
  },
  {
    key: "memory_bytes", title: "memory", about: "What its tasks may hold together, and what is free on its machine",
    show: (row) => html`${bytes(row.memory_bytes)} <small>${bytes(row.free_memory_bytes)} free</small>`,
  },
  numberColumn("free_disk_bytes", "free disk", bytes),
  numberColumn("running", "running", tasksText),
  someColumn("elsewhere", "of others", tasksText, { about: "Tasks with a slot that other servers have sent to it" }),
  numberColumn("resident", "resident", tasksText, { about: "Tasks that stay until they are stopped" }),
  ageColumn("last_report", "last report"),
]

const TASKS = [
  { key: "kind", title: "task" },
  { key: "table", title: "table", show: (row) => html`<${TableName} name=${row.table ?? "–"} />` },
  { key: "state", title: "state" },
  numberColumn("started", "for", (at) => (at ? seconds(secondsSince(at)) : "waits")),
  numberColumn("estimated_seconds", "estimate", seconds),
  textColumn("reason", "reason"),
]

const WorkerMore = ({ row, tasks }) =>
  html`<p class="about">
      ${row.host ? `host ${row.host}, process ${row.pid}, version ${row.version ?? "–"}` : "in the server's own process"};
      last answer <${Time} at=${row.last_answer} relative />
    </p>
    <${Table} label=${`tasks of ${row.name}`} rows=${tasks} columns=${TASKS} keyOf=${(task) => task.id} empty="No task." />`

export function Workers({ found, parameters, change }) {
  const [asked, setAsked] = useState(null)
  const columns = useMemo(() => [...WORKERS, drainColumn(setAsked)], [])
  const tasks = found.tasks?.rows ?? []
  const tasksOf = (row) => tasks.filter((task) => task.worker === row.name && (isNone(task.server) || task.server === row.server))
  return html`
    <${Card} title="Workers" wide about="those of all servers; a click on a name shows its tasks">
      <${Answer} answer=${found.workers}>
        <${Table} label="workers" rows=${found.workers?.rows ?? []} columns=${columns} keyOf=${(row) => `${row.server}/${row.name}`}
          toneOf=${(row) => (toneOf(row.state) === "good" ? "" : toneOf(row.state) || "warn")} ...${sorting(parameters, change)}
          expand=${(row) => html`<${WorkerMore} row=${row} tasks=${tasksOf(row)} />`}
          empty="No worker: only system tables are answered. tilth worker starts one." />
      <//>
      <${Failure} error=${found.tasks?.error} />
    <//>
    ${asked && html`<${DrainDialog} kind="worker" row=${asked} onClose=${() => setAsked(null)} />`}`
}
