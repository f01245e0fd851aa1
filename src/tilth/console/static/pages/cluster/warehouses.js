// Warehouses: groups of workers that share one kind of work.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { sorting } from "../../core/address.js"
import { literal, named } from "../../core/api.js"
import { StatementDialog } from "../../core/dialog.js"
import { bytes, exactly, isNone } from "../../core/format.js"
import { Table, buttonColumn, numberColumn } from "../../core/table.js"
import { Answer, Badge, Card, Share } from "../../core/ui.js"

export const warehouseStatements = () => ({
  warehouses: `SELECT name, work, workers, workers_wanted, reason, slots, running, waiting, resident, master, worker_cores,
    worker_memory_bytes FROM system.warehouses ORDER BY name`,
})

const tasksText = (n) => `${exactly(n)} tasks`

const WAREHOUSES = [
  { key: "name", title: "warehouse", kind: "tight" },
  { key: "work", title: "used for", show: (row) => (row.work ?? []).join(", ") },
  {
    key: "workers", title: "workers", align: "right",
    show: (row) => `${exactly(row.workers)}${isNone(row.workers_wanted) ? "" : ` of ${exactly(row.workers_wanted)} wanted`}`,
  },
  {
    key: "reason", title: "lacks", kind: "text",
    show: (row) => (row.reason ? html`<${Badge} tone="warn" title=${row.reason}>short<//> ${row.reason}` : "nothing"),
  },
  {
    key: "running", title: "slots in use", about: "Tasks that run, of those that may run at once",
    show: (row) => html`<${Share} used=${row.running} of=${row.slots} show=${exactly} />`,
  },
  numberColumn("waiting", "waiting", tasksText),
  numberColumn("resident", "resident", tasksText, { about: "Tasks that stay until they are stopped" }),
  {
    key: "worker_cores", title: "each worker needs",
    show: (row) => [
      !isNone(row.worker_cores) && `${exactly(row.worker_cores)} cores`,
      !isNone(row.worker_memory_bytes) && `${bytes(row.worker_memory_bytes)} memory`,
      row.master && `master ${row.master}`,
    ].filter(Boolean).join(", ") || "anything",
  },
]

const warehouseFields = (row) => [
  { name: "num_workers", label: "Workers that it should have; 0: no number", value: String(row.workers_wanted ?? 0) },
  { name: "work", label: "Used for: queries, imports, maintenance", value: (row.work ?? []).join(", ") },
  { name: "cores", label: "Cores that each of its workers must have; 0: any number", value: String(row.worker_cores ?? 0) },
  { name: "memory", label: "Memory that each of its workers must have, as 4 GiB; 0: any", value: String(row.worker_memory_bytes ?? 0) },
  { name: "master", label: "Spark master of its workers; empty: any", value: row.master ?? "" },
]

/** The statement has the settings that were changed; the number of workers where none was. */
function alterWarehouse(row, fields, values) {
  const changed = fields.filter((field) => values[field.name].trim() !== field.value)
  const texts = (changed.length ? changed : fields.slice(0, 1)).map(({ name }) => {
    const text = values[name].trim()
    return `${name} = ${/^\d+$/.test(text) ? text : literal(text)}`
  })
  return `ALTER WAREHOUSE ${named(row.name)} SETTINGS ${texts.join(", ")}`
}

function WarehouseDialog({ row, onClose }) {
  const [fields] = useState(() => warehouseFields(row))
  return html`<${StatementDialog} title=${`Settings of warehouse ${row.name}`} action="Change" onClose=${onClose} fields=${fields}
    about="Workers that are there stay; a definition starts none." statement=${(values) => alterWarehouse(row, fields, values)} />`
}

export function Warehouses({ found, parameters, change }) {
  const [asked, setAsked] = useState(null)
  const columns = useMemo(() => [...WAREHOUSES, buttonColumn("Change", (row) => `Change ${row.name}`, setAsked)], [])
  return html`
    <${Card} title="Warehouses" wide about="groups of workers that share one kind of work">
      <${Answer} answer=${found.warehouses}>
        <${Table} label="warehouses" rows=${found.warehouses?.rows ?? []} columns=${columns} keyOf=${(row) => row.name}
          toneOf=${(row) => (row.reason ? "warn" : "")} ...${sorting(parameters, change)} empty="No warehouse." />
      <//>
      <p class="about">What its settings mean: <a href="#/settings?scope=warehouse">settings of warehouses</a>.</p>
    <//>
    ${asked && html`<${WarehouseDialog} key=${asked.name} row=${asked} onClose=${() => setAsked(null)} />`}`
}
