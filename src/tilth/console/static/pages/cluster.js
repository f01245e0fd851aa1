// Servers, workers, warehouses, storages, leases and transactions; rehearsals of a failover, backups, stored files.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js"
import { literal, named, objects, read, serverNow, useRead, useWatch } from "../core/api.js"
import { bytes, count, exactly, isNone, percent, seconds } from "../core/format.js"
import {
  Badge, Bar, Card, Code, Empty, Failure, Search, StatementDialog, Table, Tabs, Time, Waiting, tableLink, useParameters,
  useTick,
} from "../core/ui.js"
import { AuditLines, auditLines, contains, nameParts, openTab, pattern, sorting, useSettled, whereAll } from "./audit.js"

const ROWS_MAX = 500
const TABLES_FOUND = 50
/** Half of what `server.clock-bound` allows by default. */
const CLOCK_OFFSET_MS = 250
/** Default of `server.gone-bound`. */
const PROOF_SECONDS = 3
/** Share of a limit from which on it is nearly reached. */
const NEARLY = 0.85

const TONES = {
  alive: "good", ok: "good", finished: "good", running: "busy", draining: "warn", drained: "warn", behind: "warn",
  restoring: "warn", aborted: "warn", silent: "bad", "without spark": "bad", away: "bad",
}

const State = ({ row }) => html`<${Badge} tone=${TONES[row.state] ?? ""} title=${row.reason}>${row.state}<//>`

/** A number beside its limit. */
const Share = ({ used, of, show }) => {
  if (isNone(used)) return "–"
  if (isNone(of)) return `${show(used)}, no limit`
  const part = Number(used) / Math.max(1, Number(of))
  const tone = part >= 1 ? "bad" : part >= NEARLY ? "warn" : ""
  return html`${show(used)} of ${show(of)} <${Bar} part=${part} tone=${tone} title=${percent(part)} />`
}

const relationLink = ({ database, name, engine }) =>
  engine === "Kafka" ? `#/stream/${encodeURIComponent(database)}/${encodeURIComponent(name)}` : tableLink(database, name)

const Answer = ({ answer, children }) =>
  answer ? html`<${Failure} error=${answer.error} />${!answer.error && children}` : html`<${Waiting} />`

// --- names of tables -------------------------------------------------------------------------------------------------

const IDS_AT_ONCE = 500

/** Tables by their uuids, read as they are needed: leases and transactions name tables by these. */
function useTables(uuids) {
  const known = useRef(new Map())
  const [turn, setTurn] = useState(0)
  const missing = [...new Set(uuids)].filter((uuid) => /^[\w-]+$/.test(uuid) && !known.current.has(uuid)).sort().slice(0, IDS_AT_ONCE)
  const key = missing.join()
  useEffect(() => {
    if (!key) return
    const controller = new AbortController()
    const keep = (rows) => {
      // A table that is gone is not looked for again.
      missing.forEach((uuid) => known.current.set(uuid, null))
      rows.forEach((row) => known.current.set(row.uuid, row))
      setTurn((old) => old + 1)
    }
    const list = missing.map(literal).join(", ")
    read(`SELECT uuid, database, name, engine FROM system.tables WHERE uuid IN (${list})`, { signal: controller.signal }).then(
      keep,
      (error) => error.name !== "AbortError" && keep([]),
    )
    return () => controller.abort()
  }, [key])
  return [known.current, turn]
}

const TableName = ({ table, uuid }) =>
  table
    ? html`<a href=${relationLink(table)}>${table.database}.${table.name}</a>`
    : html`<span class="mono" title="No table has this uuid now">${uuid}</span>`

/** A field for the name of a table or Kafka table, which suggests names. */
function TablePick({ value, onChange, label }) {
  const [text, setText] = useState(value)
  const search = useSettled(text)
  const { rows } = useRead(
    search &&
      `SELECT database, name FROM system.tables WHERE engine <> 'MaterializedView'
        AND ${contains(["concat(database, '.', name)"], search)} ORDER BY database, name LIMIT ${TABLES_FOUND}`,
  )
  const names = rows.map((row) => `${row.database}.${row.name}`)
  const type = (event) => {
    setText(event.target.value)
    if (!event.target.value || names.includes(event.target.value)) onChange(event.target.value)
  }
  return html`<label class="pick">${label}
    <input class="search" type="search" list="tables-found" value=${text} placeholder="database.table" onInput=${type}
      onChange=${(event) => onChange(event.target.value.trim())} />
    <datalist id="tables-found">${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
  </label>`
}

const isDrained = (row) => row.state === "draining" || row.state === "drained"

/** DRAIN or RESUME of a server or a worker. */
function DrainDialog({ kind, row, onClose }) {
  const head = `ALTER ${kind.toUpperCase()} ${named(row.name)}`
  if (isDrained(row))
    return html`<${StatementDialog} title=${`Resume ${kind} ${row.name}`} action="Resume" onClose=${onClose}
      about=${row.reason} statement=${() => `${head} RESUME`} />`
  const about = {
    server: "It goes on answering statements and hosts no table: its services move to the others.",
    worker: "It finishes what runs and gets nothing new; its consumers go on elsewhere.",
  }
  return html`<${StatementDialog} title=${`Drain ${kind} ${row.name}`} action="Drain" danger onClose=${onClose}
    about=${`${about[kind]} It stays so, after a restart too, until it is resumed.`}
    fields=${[{ name: "because", label: "Because", hint: "others read this" }]}
    statement=${({ because }) => `${head} DRAIN${because ? ` BECAUSE ${literal(because)}` : ""}`} />`
}

const drainColumn = (ask) => ({
  key: "drain", title: "",
  show: (row) => html`<button type="button" onClick=${() => ask(row)}
    aria-label=${`${isDrained(row) ? "Resume" : "Drain"} ${row.name}`}>${isDrained(row) ? "Resume" : "Drain"} …</button>`,
})

// --- servers ---------------------------------------------------------------------------------------------------------

const HOSTS = `SELECT holder, is_valid, sum(CASE WHEN name LIKE 'table/%' THEN 1 ELSE 0 END) AS of_tables,
  sum(CASE WHEN name LIKE 'consumer/%' THEN 1 ELSE 0 END) AS of_consumers, count(*) AS leases
  FROM system.leases GROUP BY holder, is_valid ORDER BY holder`

const leasesStatement = ({ search, uuids }) => {
  const ofTables = uuids.map((uuid) => `name LIKE '%/${pattern(uuid)}%'`)
  const condition = search && `(${[contains(["name", "holder"], search), ...ofTables].join(" OR ")})`
  return `SELECT name, holder, epoch, is_valid FROM system.leases ${whereAll(condition)} ORDER BY is_valid, holder, name
    LIMIT ${ROWS_MAX}`
}

const serverStatements = (asked) => ({
  servers: `SELECT name, process, state, reason, url, version, is_self, "tables", started, last_proof, clock_offset_ms,
    memory_bytes, memory_limit_bytes, memory_pressure, memory_rejections FROM system.servers ORDER BY name`,
  hosts: HOSTS,
  ...(asked.search ? { leases: leasesStatement(asked) } : {}),
})

const ageOf = (time) => (isNone(time) ? null : (serverNow() - new Date(time)) / 1000)

const Clock = ({ offset }) => {
  if (isNone(offset)) return "–"
  const text = `${offset > 0 ? "+" : ""}${Number(offset).toFixed(1)} ms`
  return Math.abs(offset) < CLOCK_OFFSET_MS ? text : html`<${Badge} tone="warn">${text}<//>`
}

const Pressure = ({ row }) =>
  row.memory_pressure
    ? html`<${Badge} tone="bad" title=${row.memory_pressure}>under pressure<//> ${row.memory_pressure}`
    : isNone(row.memory_bytes) ? "–" : "none"

const SERVERS = [
  {
    key: "name", title: "server", kind: "tight",
    show: (row) => html`<strong>${row.name}</strong>${row.is_self ? html` <small>answers this page</small>` : ""}`,
  },
  { key: "state", title: "state", show: (row) => html`<${State} row=${row} />` },
  { key: "reason", title: "reason", show: (row) => row.reason ?? "" },
  { key: "tables", title: "hosts", align: "right", about: "Tables and Kafka tables that it hosts", show: (row) => `${exactly(row.tables)} tables` },
  {
    key: "url", title: "address",
    show: (row) => (/^https?:\/\//.test(row.url ?? "") ? html`<a href=${row.url} rel="noreferrer">${row.url}</a>` : (row.url ?? "not listening yet")),
  },
  { key: "version", title: "version", kind: "tight", show: (row) => row.version ?? "–" },
  { key: "started", title: "up since", kind: "tight", show: (row) => html`<${Time} at=${row.started} /> <small>${seconds(ageOf(row.started))}</small>` },
  {
    key: "last_proof", title: "last proof", about: "When it has last proved that it lives, by its own clock",
    show: (row) => html`<${Badge} tone=${ageOf(row.last_proof) > PROOF_SECONDS ? "warn" : ""}><${Time} at=${row.last_proof} relative /><//>`,
  },
  {
    key: "clock_offset_ms", title: "clock offset", align: "right", about: "How far its clock is ahead of the catalog's database",
    show: (row) => html`<${Clock} offset=${row.clock_offset_ms} />`,
  },
  {
    key: "memory_bytes", title: "memory of writers", about: "Of the process and all below it; known of the server that answers",
    show: (row) => html`<${Share} used=${row.memory_bytes} of=${row.memory_limit_bytes} show=${bytes} />`,
  },
  { key: "memory_pressure", title: "pressure", kind: "text", show: (row) => html`<${Pressure} row=${row} />` },
  { key: "memory_rejections", title: "refused", align: "right", about: "Writes that were refused for want of memory since the start", show: (row) => `${exactly(row.memory_rejections)} writes` },
]

const LEASES = [
  { key: "table", title: "table", value: (row) => row.table?.name ?? row.uuid, show: (row) => html`<${TableName} table=${row.table} uuid=${row.uuid} />` },
  { key: "kind", title: "right", show: (row) => (row.index ? `consumer ${row.index}` : row.kind) },
  { key: "holder", title: "holder", about: "Name and epoch of the server's process" },
  { key: "epoch", title: "epoch", align: "right", about: "Raised by each taking over", show: (row) => exactly(row.epoch) },
  {
    key: "is_valid", title: "state",
    show: (row) => html`<${Badge} tone=${row.is_valid ? "good" : "warn"}>${row.is_valid ? "its holder lives" : "its holder is gone"}<//>`,
  },
]

function Leases({ answer, parameters, change, order }) {
  const split = useMemo(
    () => (answer?.rows ?? []).map((row) => {
      const [kind, uuid = "", index] = row.name.split("/")
      return { ...row, kind, uuid, index }
    }),
    [answer],
  )
  const [tables, turn] = useTables(split.map((row) => row.uuid))
  const rows = useMemo(() => split.map((row) => ({ ...row, table: tables.get(row.uuid) })), [split, turn])
  return html`<${Answer} answer=${answer}>
    <${Table} label="leases" rows=${rows} columns=${LEASES} keyOf=${(row) => row.name} empty="No lease fits."
      toneOf=${(row) => (row.is_valid ? "" : "warn")} ...${sorting(parameters, change, order)} />
    ${rows.length === ROWS_MAX && html`<p class="about">The first ${exactly(ROWS_MAX)}; search to see others.</p>`}
  <//>`
}

const HOST_COLUMNS = [
  { key: "holder", title: "process" },
  { key: "is_valid", title: "state", show: LEASES.at(-1).show },
  { key: "of_tables", title: "of tables", align: "right", show: (row) => `${exactly(row.of_tables)} leases` },
  { key: "of_consumers", title: "of consumers", align: "right", show: (row) => `${exactly(row.of_consumers)} leases` },
  { key: "leases", title: "all", align: "right", show: (row) => `${exactly(row.leases)} leases` },
]

const LeaseSearch = ({ parameters, change }) =>
  html`<${Search} label="Table, uuid or server" value=${parameters.get("search") ?? ""} onChange=${(value) => change({ search: value })} />`

function Servers({ found, parameters, change }) {
  const [asked, setAsked] = useState(null)
  const columns = useMemo(() => [...SERVERS, drainColumn(setAsked)], [])
  const rows = found.servers?.rows ?? []
  const versions = [...new Set(rows.map((row) => row.version).filter(Boolean))]
  return html`
    <${Card} title="Servers" wide about="all that live; any of them answers any statement">
      ${versions.length > 1 && html`<p class="remark">Versions differ: ${versions.join(", ")}. Upgrade the servers one after the other.</p>`}
      <${Answer} answer=${found.servers}>
        <${Table} label="servers" rows=${rows} columns=${columns} keyOf=${(row) => row.process} empty="No server has joined yet."
          toneOf=${(row) => (row.memory_pressure ? "bad" : row.state === "alive" ? "" : "warn")} ...${sorting(parameters, change)} />
      <//>
    <//>
    <${Card} title="Hosts of tables" wide about="leases that each process holds"
      actions=${html`<${LeaseSearch} parameters=${parameters} change=${change} />`}>
      <${Answer} answer=${found.hosts}>
        <${Table} label="hosts" rows=${found.hosts?.rows ?? []} columns=${HOST_COLUMNS} keyOf=${(row) => `${row.holder} ${row.is_valid}`}
          empty="No lease is held." href=${(row) => `#/cluster?${new URLSearchParams({ tab: "leases", search: row.holder })}`} />
      <//>
      ${parameters.get("search") && html`<${Leases} answer=${found.leases} parameters=${parameters} change=${change} order="order2" />`}
    <//>
    ${asked && html`<${DrainDialog} kind="server" row=${asked} onClose=${() => setAsked(null)} />`}`
}

// --- workers ---------------------------------------------------------------------------------------------------------

const workerStatements = () => ({
  workers: `SELECT name, warehouses, state, reason, last_answer, running, resident, memory_bytes, host, pid, version, cores,
    free_cores, free_memory_bytes, free_disk_bytes, last_report, server FROM system.workers ORDER BY server, name`,
  tasks: `SELECT id, kind, state, "table", worker, started, created, estimated_seconds, reason, server FROM system.tasks
    WHERE ended IS NULL ORDER BY created LIMIT ${ROWS_MAX}`,
})

const workerKey = (server, name) => `${server} ${name}`

/** 2.04 -> 2, 1.56 -> 1.6. */
const short = (value) => Number(Number(value).toFixed(1))

const WORKERS = [
  { key: "name", title: "worker", kind: "tight" },
  { key: "server", title: "server" },
  { key: "state", title: "state", show: (row) => html`<${State} row=${row} />` },
  { key: "reason", title: "reason", show: (row) => row.reason ?? "" },
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
  { key: "free_disk_bytes", title: "free disk", align: "right", show: (row) => bytes(row.free_disk_bytes) },
  { key: "running", title: "running", align: "right", show: (row) => `${exactly(row.running)} tasks` },
  { key: "resident", title: "resident", align: "right", about: "Tasks that stay until they are stopped", show: (row) => `${exactly(row.resident)} tasks` },
  {
    key: "last_report", title: "last report", align: "right",
    show: (row) => (row.last_report ? html`<${Time} at=${row.last_report} relative />` : "none yet"),
  },
]

const TASKS = [
  { key: "kind", title: "task" },
  { key: "table", title: "table", show: (row) => row.table ?? "–" },
  { key: "state", title: "state" },
  { key: "started", title: "for", align: "right", show: (row) => (row.started ? seconds(ageOf(row.started)) : "waits") },
  { key: "estimated_seconds", title: "estimate", align: "right", show: (row) => seconds(row.estimated_seconds) },
  { key: "reason", title: "reason", kind: "text" },
]

const WorkerMore = ({ row, tasks }) =>
  html`<p class="about">
      ${row.host ? `host ${row.host}, process ${row.pid}, version ${row.version ?? "–"}` : "in the server's own process"};
      last answer <${Time} at=${row.last_answer} relative />
    </p>
    <${Table} label=${`tasks of ${row.name}`} rows=${tasks} columns=${TASKS} keyOf=${(task) => task.id} empty="No task." />`

function Workers({ found, parameters, change }) {
  const [asked, setAsked] = useState(null)
  const columns = useMemo(() => [...WORKERS, drainColumn(setAsked)], [])
  const tasks = found.tasks?.rows ?? []
  const tasksOf = (row) => tasks.filter((task) => task.worker === row.name && (isNone(task.server) || task.server === row.server))
  return html`
    <${Card} title="Workers" wide about="those of all servers; a click on a name shows its tasks">
      <${Answer} answer=${found.workers}>
        <${Table} label="workers" rows=${found.workers?.rows ?? []} columns=${columns} keyOf=${(row) => workerKey(row.server, row.name)}
          toneOf=${(row) => TONES[row.state] === "good" ? "" : (TONES[row.state] ?? "warn")} ...${sorting(parameters, change)}
          expand=${(row) => html`<${WorkerMore} row=${row} tasks=${tasksOf(row)} />`}
          empty="No worker: only system tables are answered. tilth worker starts one." />
      <//>
      <${Failure} error=${found.tasks?.error} />
    <//>
    ${asked && html`<${DrainDialog} kind="worker" row=${asked} onClose=${() => setAsked(null)} />`}`
}

// --- warehouses ------------------------------------------------------------------------------------------------------

const warehouseStatements = () => ({
  warehouses: `SELECT name, work, workers, workers_wanted, reason, slots, running, waiting, resident, master, worker_cores,
    worker_memory_bytes FROM system.warehouses ORDER BY name`,
})

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
  { key: "waiting", title: "waiting", align: "right", show: (row) => `${exactly(row.waiting)} tasks` },
  { key: "resident", title: "resident", align: "right", about: "Tasks that stay until they are stopped", show: (row) => `${exactly(row.resident)} tasks` },
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

function Warehouses({ found, parameters, change }) {
  const [asked, setAsked] = useState(null)
  const columns = useMemo(() => [
    ...WAREHOUSES,
    { key: "change", title: "", show: (row) => html`<button type="button" onClick=${() => setAsked(row)} aria-label=${`Change ${row.name}`}>Change …</button>` },
  ], [])
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

// --- storages and replicas -------------------------------------------------------------------------------------------

const storageStatements = ({ search, parameters }) => ({
  storages: `SELECT name, kind, root, "tables", state, reason, since FROM system.storages ORDER BY name`,
  replicas: `SELECT storage, replica_num, replica_path, count(*) AS of_tables,
    sum(CASE WHEN state = 'ok' THEN 0 ELSE 1 END) AS not_ok, sum(CASE WHEN state = 'away' THEN 1 ELSE 0 END) AS away,
    sum(CASE WHEN is_readonly THEN 1 ELSE 0 END) AS read_only, sum(queue_size) AS queue_size, sum(queue_bytes) AS queue_bytes,
    min(queue_oldest_time) AS oldest, max(reason) AS reason FROM system.replicas
    GROUP BY storage, replica_num, replica_path ORDER BY storage, replica_num`,
  copies: `SELECT database, "table", storage, replica_num, replica_path, state, reason, is_readonly, queue_size, queue_bytes,
    queue_oldest_time, quorum, total_replicas, active_replicas, last_queue_update_exception,
    last_queue_update_exception_time FROM system.replicas ${whereAll(
      !parameters.get("all") && "(state <> 'ok' OR is_readonly)",
      search && contains(["concat(database, '.', \"table\")", "storage", "replica_path"], search),
    )} ORDER BY queue_size DESC, database, "table", replica_num LIMIT ${ROWS_MAX}`,
})

const STORAGES = [
  { key: "name", title: "storage", kind: "tight" },
  { key: "state", title: "state", show: (row) => html`<${State} row=${row} />` },
  { key: "reason", title: "reason", kind: "text", show: (row) => row.reason ?? "" },
  { key: "since", title: "since", kind: "tight", about: "As this server has observed it", show: (row) => html`<${Time} at=${row.since} />` },
  { key: "kind", title: "kind" },
  { key: "root", title: "location", kind: "mono" },
  { key: "tables", title: "files of", align: "right", show: (row) => `${exactly(row.tables)} tables` },
]

const Delay = ({ since }) => (since ? html`<${Time} at=${since} /> <small>${seconds(ageOf(since))}</small>` : "none")
const ReadOnly = ({ tables }) => (Number(tables) ? html`<${Badge} tone="bad">${exactly(tables)} tables<//>` : "none")

const REPLICAS = [
  { key: "storage", title: "storage", kind: "tight" },
  { key: "replica_num", title: "replica", align: "right" },
  { key: "replica_path", title: "location", kind: "mono" },
  {
    key: "not_ok", title: "state",
    show: (row) => {
      const [state, number] = Number(row.away) ? ["away", row.away] : Number(row.not_ok) ? ["behind", row.not_ok] : ["ok", row.of_tables]
      return html`<${Badge} tone=${TONES[state]} title=${row.reason}>${state}: ${exactly(number)} of ${exactly(row.of_tables)} tables<//>`
    },
  },
  { key: "reason", title: "reason", kind: "text", about: "One of the reasons", show: (row) => row.reason ?? "" },
  { key: "queue_size", title: "queue", align: "right", about: "Copies that it lacks", show: (row) => `${count(row.queue_size)} copies, ${bytes(row.queue_bytes)}` },
  { key: "oldest", title: "behind since", about: "Since when it has lacked the oldest copy", show: (row) => html`<${Delay} since=${row.oldest} />` },
  { key: "read_only", title: "read only", show: (row) => html`<${ReadOnly} tables=${row.read_only} />` },
]

const COPIES = [
  { key: "table", title: "table", value: (row) => `${row.database}.${row.table}`, show: (row) => `${row.database}.${row.table}` },
  { key: "replica_num", title: "replica", value: (row) => `${row.storage} ${row.replica_num}`, show: (row) => html`<span title=${row.replica_path}>${row.storage}, ${row.replica_num}</span>` },
  { key: "state", title: "state", show: (row) => html`<${State} row=${row} />` },
  { key: "reason", title: "reason", kind: "text", show: (row) => html`<span title=${row.reason}>${row.reason ?? ""}</span>` },
  { key: "queue_size", title: "queue", align: "right", show: (row) => `${count(row.queue_size)} copies, ${bytes(row.queue_bytes)}` },
  { key: "queue_oldest_time", title: "behind since", show: (row) => html`<${Delay} since=${row.queue_oldest_time} />` },
  { key: "is_readonly", title: "writes", show: (row) => (row.is_readonly ? html`<${Badge} tone="bad">read only<//>` : "possible") },
  { key: "active_replicas", title: "replicas", align: "right", show: (row) => `${row.active_replicas} of ${row.total_replicas} answer, ${row.quorum} needed` },
  {
    key: "last_queue_update_exception", title: "last failure", kind: "text",
    show: (row) => row.last_queue_update_exception && html`<span title=${row.last_queue_update_exception}><${Time}
      at=${row.last_queue_update_exception_time} relative /> ${row.last_queue_update_exception}</span>`,
  },
]

function Storages({ found, parameters, change }) {
  const all = parameters.has("all")
  return html`
    <${Card} title="Storages" wide about="locations of tables' files">
      <${Answer} answer=${found.storages}>
        <${Table} label="storages" rows=${found.storages?.rows ?? []} columns=${STORAGES} keyOf=${(row) => row.name}
          toneOf=${(row) => (row.state === "ok" ? "" : "bad")} ...${sorting(parameters, change)} empty="No storage." />
      <//>
    <//>
    <${Card} title="Replicas" wide about="of storages that have several">
      <${Answer} answer=${found.replicas}>
        <${Table} label="replicas" rows=${found.replicas?.rows ?? []} columns=${REPLICAS} keyOf=${(row) => `${row.storage} ${row.replica_num} ${row.replica_path}`}
          toneOf=${(row) => (Number(row.away) || Number(row.read_only) ? "bad" : Number(row.not_ok) ? "warn" : "")}
          ...${sorting(parameters, change, "order2")} empty="No table is in a storage with replicas." />
      <//>
    <//>
    <${Card} title="Replicas by table" wide about=${all ? "all tables in storages with replicas" : "tables that lack copies or cannot be written"}
      actions=${html`<${Search} label="Table, storage or location" value=${parameters.get("search") ?? ""} onChange=${(value) => change({ search: value })} />
        <label class="tick"><input type="checkbox" checked=${all} onChange=${(event) => change({ all: event.target.checked ? "1" : null })} />also those without trouble</label>`}>
      <${Answer} answer=${found.copies}>
        <${Table} label="replicas by table" rows=${found.copies?.rows ?? []} columns=${COPIES} keyOf=${(row) => `${row.database}.${row.table} ${row.replica_num}`}
          href=${(row) => tableLink(row.database, row.table)} ...${sorting(parameters, change, "order3")}
          empty=${all ? "No table fits." : "All copies are there."} toneOf=${(row) => (row.is_readonly || row.state === "away" ? "bad" : row.state === "ok" ? "" : "warn")} />
        ${found.copies?.rows.length === ROWS_MAX && html`<p class="about">The first ${exactly(ROWS_MAX)}; search to see others.</p>`}
      <//>
    <//>`
}

// --- leases and readers ----------------------------------------------------------------------------------------------

const leaseStatements = (asked) => ({
  leases: leasesStatement(asked),
  readers: `SELECT id, database, "table", snapshot, holder, client, opened FROM system.readers
    ${whereAll(asked.search && contains(["concat(database, '.', \"table\")", "holder", "client"], asked.search))}
    ORDER BY opened LIMIT ${ROWS_MAX}`,
})

const READERS = [
  { key: "table", title: "table", value: (row) => `${row.database}.${row.table}`, show: (row) => (row.table ? `${row.database}.${row.table}` : "gone") },
  { key: "client", title: "reader", show: (row) => row.client ?? "not known" },
  { key: "opened", title: "since", show: (row) => html`<${Time} at=${row.opened} /> <small>${seconds(ageOf(row.opened))}</small>` },
  { key: "snapshot", title: "snapshot of", show: (row) => html`<${Time} at=${row.snapshot} />` },
  { key: "holder", title: "opened by", about: "The server that opened it" },
  { key: "id", title: "lease", kind: "mono" },
]

const LeasesAndReaders = ({ found, parameters, change }) => html`
  <${Card} title="Leases" wide about="rights to act: commits of an older holder are refused"
    actions=${html`<${LeaseSearch} parameters=${parameters} change=${change} />`}>
    <${Leases} answer=${found.leases} parameters=${parameters} change=${change} order="order" />
  <//>
  <${Card} title="Readers" wide about="snapshots that queries hold, oldest first; old files stay for them">
    <${Answer} answer=${found.readers}>
      <${Table} label="readers" rows=${found.readers?.rows ?? []} columns=${READERS} keyOf=${(row) => row.id} empty="Nobody holds a snapshot."
        href=${(row) => (row.table ? tableLink(row.database, row.table, "?tab=gc") : undefined)} ...${sorting(parameters, change, "order2")} />
      ${found.readers?.rows.length === ROWS_MAX && html`<p class="about">The oldest ${exactly(ROWS_MAX)}; search to see others.</p>`}
    <//>
  <//>`

// --- transactions ----------------------------------------------------------------------------------------------------

const TRANSACTION_STATES = ["running", "finished", "aborted"]

const transactionStatements = ({ search, parameters }) => {
  const state = TRANSACTION_STATES.find((each) => each === parameters.get("state"))
  return {
    transactions: `SELECT id, actor, state, begun, committed, "tables", fences, server, reason FROM system.transactions
      ${whereAll(state && `state = '${state}'`, search && contains(["actor", "server", "reason"], search))}
      ORDER BY id DESC LIMIT ${ROWS_MAX}`,
    lost: `SELECT id, actor, begun, committed, "tables", files, server, found, history_before, history_now
      FROM system.lost_transactions ORDER BY found DESC LIMIT 200`,
  }
}

const TABLES_SHOWN = 3

const TableNames = ({ row }) =>
  html`${row.named.slice(0, TABLES_SHOWN).map(([uuid, table]) => html`<${TableName} key=${uuid} table=${table} uuid=${uuid} /> `)}
    ${row.named.length > TABLES_SHOWN && html`<small>and ${row.named.length - TABLES_SHOWN} more</small>`}`

const TRANSACTIONS = [
  { key: "id", title: "transaction", kind: "mono", show: (row) => String(row.id) },
  { key: "state", title: "state", show: (row) => html`<${State} row=${row} />` },
  { key: "reason", title: "reason", kind: "text", show: (row) => html`<span title=${row.reason}>${row.reason ?? ""}</span>` },
  { key: "actor", title: "who writes", show: (row) => html`<span title=${row.actor}>${row.actor}</span>` },
  { key: "begun", title: "began", kind: "tight", show: (row) => html`<${Time} at=${row.begun} />` },
  {
    key: "took", title: "took", align: "right", value: (row) => tookOf(row),
    show: (row) => (row.state === "running" ? `${seconds(ageOf(row.begun))} so far` : seconds(tookOf(row))),
  },
  { key: "tables", title: "tables", value: (row) => row.named.length, show: (row) => html`<${TableNames} row=${row} />` },
  { key: "fences", title: "leases", align: "right", about: "Rights that its commit has to hold", value: (row) => row.fences?.length ?? 0,
    show: (row) => html`<span title=${(row.fences ?? []).join("\n")}>${exactly(row.fences?.length ?? 0)}</span>` },
  { key: "server", title: "server" },
]

const tookOf = (row) => (isNone(row.committed) ? null : (new Date(row.committed) - new Date(row.begun)) / 1000)

const LOST = [
  { key: "id", title: "transaction", kind: "mono", show: (row) => String(row.id) },
  { key: "found", title: "found missing", kind: "tight", show: (row) => html`<${Time} at=${row.found} />` },
  { key: "committed", title: "committed", kind: "tight", show: (row) => html`<${Time} at=${row.committed} />` },
  { key: "actor", title: "who wrote" },
  { key: "tables", title: "tables", value: (row) => (row.tables ?? []).join(), show: (row) => (row.tables ?? []).join(", ") },
  { key: "files", title: "files", align: "right", value: (row) => row.files?.length ?? 0, show: (row) => exactly(row.files?.length ?? 0) },
  { key: "server", title: "committed by" },
]

const LostMore = ({ row }) =>
  html`<p class="about">The history <b>${row.history_before}</b> had it, <b>${row.history_now}</b> lacks it. Its files stay for 30 days
      from <${Time} at=${row.found} />: read the rows from them, or send the INSERT again.</p>
    <p>${(row.tables ?? []).filter((name) => name.includes(".")).map((name) => html`<a key=${name}
      href=${`#/cluster?${new URLSearchParams({ tab: "files", table: name })}`}>Check the files of ${name}</a> `)}</p>
    <${Code}>${(row.files ?? []).join("\n")}<//>`

function Transactions({ found, parameters, change }) {
  const answer = found.transactions
  const lost = found.lost?.rows ?? []
  const [tables, turn] = useTables((answer?.rows ?? []).flatMap((row) => row.tables ?? []))
  const rows = useMemo(
    () => (answer?.rows ?? []).map((row) => ({ ...row, named: (row.tables ?? []).map((uuid) => [uuid, tables.get(uuid)]) })),
    [answer, turn],
  )
  return html`
    <${Failure} error=${found.lost?.error} />
    ${lost.length > 0 &&
    html`<${Card} title="Lost transactions" wide tone="bad"
      about="They were answered as committed, and the catalog's database has lost them, as by a failover to a standby that lagged.">
      <${Table} label="lost transactions" rows=${lost} columns=${LOST} keyOf=${(row) => String(row.id)} ...${sorting(parameters, change, "order2")}
        expand=${(row) => html`<${LostMore} row=${row} />`} toneOf=${() => "bad"} />
    <//>`}
    <${Card} title="Transactions" wide about=${`those under way and the last ones; the newest ${exactly(ROWS_MAX)} that fit`}>
      <div class="head">
        <select aria-label="State" value=${parameters.get("state") ?? ""} onChange=${(event) => change({ state: event.target.value })}>
          <option value="">all states</option>
          ${TRANSACTION_STATES.map((state) => html`<option key=${state} value=${state}>${state}</option>`)}
        </select>
        <${Search} label="Who writes, server or reason" value=${parameters.get("search") ?? ""} onChange=${(value) => change({ search: value })} />
      </div>
      <${Answer} answer=${answer}>
        <${Table} label="transactions" rows=${rows} columns=${TRANSACTIONS} keyOf=${(row) => String(row.id)} empty="No transaction fits."
          toneOf=${(row) => (row.state === "aborted" ? "warn" : "")} ...${sorting(parameters, change)} />
      <//>
    <//>`
}

// --- rehearsal of a failover -----------------------------------------------------------------------------------------

const DRILL_SECONDS = 5
const DRILL_SECONDS_MAX = 3600

/** The answer about leases is named by the table, so that none of another one is taken for a move. */
const drillStatements = ({ uuid }) => ({
  drills: auditLines("DRILL FAILOVER"),
  ...(uuid
    ? { [`rights ${uuid}`]: `SELECT name, holder, epoch FROM system.leases WHERE name LIKE '%/${pattern(uuid)}%' ORDER BY name LIMIT ${ROWS_MAX}` }
    : {}),
})

const rightName = (name) => {
  const [kind, , index] = name.split("/")
  return index ? `consumer ${index}` : kind
}

/** Changes of holders since the table was chosen, as the leases have shown them. */
function useMoves(answer) {
  const seen = useRef({ at: null, holders: null, moves: [] })
  if (answer && !answer.error && answer.at !== seen.current.at) {
    const holders = new Map(answer.rows.map((row) => [row.name, row.holder]))
    const before = seen.current.holders
    const moves = !before ? [] : [...new Set([...before.keys(), ...holders.keys()])]
      .filter((name) => before.get(name) !== holders.get(name))
      .map((name) => ({ at: answer.at, right: rightName(name), from: before.get(name), to: holders.get(name) }))
    seen.current = { at: answer.at, holders, moves: [...seen.current.moves, ...moves].slice(-100) }
  }
  return seen.current.moves
}

const Step = ({ at, tone = "", children }) =>
  html`<li class=${tone}><span class="at">${at}</span><div>${children}</div></li>`

const clock = (ms) => html`<${Time} at=${new Date(ms).toISOString()} />`

const moveSteps = (row, title) => {
  const isLossless = row.lost === "nothing"
  return [
    html`<${Step} at=${`+ ${seconds(row.seconds)}`}>
      <b>${title}: ${row.from_server} → ${row.to_server}.</b> ${row.to_server} has all services after ${seconds(row.seconds)}.
    <//>`,
    html`<${Step} at="there" tone=${isLossless ? "good" : "bad"}>
      ${exactly(row.rounds)} rounds committed${Number(row.rounds) ? html`, at most ${seconds(row.gap_seconds)} between two of them` : ""};
      ${isLossless ? html`<${Badge} tone="good">nothing lost<//>` : html`<${Badge} tone="bad">lost<//> ${row.lost}`}
    <//>`,
  ]
}

/** The answer of a drill as steps. `ended` is the time of the answer, in milliseconds since 1970. */
function Protocol({ drill }) {
  const elapsed = drill.elapsed_ms
  const [away, back] = drill.rows
  return html`<${Card} title="Protocol" about=${drill.message}>
    <ol class="steps">
      <${Step} at=${clock(drill.ended - elapsed)}>The drill of ${drill.table} begins on ${away.from_server}.<//>
      ${moveSteps(away, "Away")}
      ${moveSteps(back, "Back")}
      <${Step} at=${clock(drill.ended)}>The table is where it was, ${seconds(elapsed / 1000)} after the beginning.<//>
    </ol>
  <//>`
}

function Observed({ answer }) {
  const moves = useMoves(answer)
  const rows = answer?.rows ?? []
  return html`<${Card} title="Its leases" about="as they are now, and each move since the table was chosen">
    <${Answer} answer=${answer}>
      ${rows.length
        ? html`<p>${rows.map((row) => html`<${Badge} key=${row.name}>${rightName(row.name)}: ${row.holder}<//> `)}</p>`
        : html`<${Empty}>No lease: nothing of it runs.<//>`}
      <ol class="steps">
        ${moves.map((move, index) => html`<${Step} key=${index} at=${clock(move.at)}>${move.right}:
          ${move.from ?? "nobody"} → <b>${move.to ?? "nobody"}</b><//>`)}
      </ol>
    <//>
  <//>`
}

const drillStatement = (name, text) => {
  const wanted = Math.round(Number(text))
  return `DRILL FAILOVER ${named(...nameParts(name))}${wanted > 0 ? ` FOR SECONDS ${Math.min(wanted, DRILL_SECONDS_MAX)}` : ""}`
}

function Drill({ found, parameters, change, info }) {
  const [isAsked, setAsked] = useState(false)
  const [drill, setDrill] = useState(null)
  const table = parameters.get("table") ?? ""
  const servers = found.nServers?.rows[0]
  const isAlone = servers && servers.n - servers.troubles < 2
  const done = (answer) => setDrill({
    rows: objects(answer), table, ended: serverNow(), elapsed_ms: answer.summary?.elapsed_ms ?? 0, message: answer.summary?.message,
  })
  return html`
    <${Card} title="Drill of a failover" wide
      about="A rehearsal: the services of a table move to another server, stay there for a while and move back, while everything goes on.">
      <div class="head">
        <${TablePick} label="Table or Kafka table" value=${table} onChange=${(value) => change({ table: value })} />
        <button type="button" class="main" disabled=${!info.uuid || isAlone} onClick=${() => setAsked(true)}>Drill …</button>
        ${table && !info.isLoading && !info.uuid && html`<${Badge} tone="warn">no table of this name<//>`}
      </div>
      ${isAlone && html`<p class="remark">With one server alone it is refused: start a second one over the same catalog.</p>`}
      <${Failure} error=${info.error} />
    <//>
    <div class="grid">
      ${drill && html`<${Protocol} drill=${drill} />`}
      ${info.uuid && html`<${Observed} key=${info.uuid} answer=${found[`rights ${info.uuid}`]} />`}
    </div>
    <${Card} title="Past drills" wide>
      <${AuditLines} answer=${found.drills} label="past drills" empty="There was none." />
    <//>
    ${isAsked &&
    html`<${StatementDialog} title=${`Drill a failover of ${table}`} danger action="Begin" onClose=${() => setAsked(false)} onDone=${done}
      about="It takes as long as the services stay away, and the two moves. You may close this dialog to watch: the drill goes on, and its protocol comes."
      fields=${[{ name: "seconds", label: `Seconds that they stay away, up to ${DRILL_SECONDS_MAX}`, type: "number", value: String(DRILL_SECONDS) }]}
      statement=${({ seconds: text }) => drillStatement(table, text)} />`}`
}

// --- backup ----------------------------------------------------------------------------------------------------------

const backupStatements = () => ({ backups: auditLines("BACKUP CATALOG") })

const BACKUP_FOLDER = "SELECT value FROM system.settings WHERE name = 'catalog.backup-folder'"

/** A name that no other backup has. */
const freshName = () => `catalog-${new Date(serverNow()).toISOString().slice(0, 19).replaceAll(":", "-")}Z`

function Backup({ found }) {
  const [isAsked, setAsked] = useState(false)
  const [files, setFiles] = useState([])
  const folder = useRead(BACKUP_FOLDER).rows[0]?.value
  return html`
    <${Card} title="Backup of the catalog" wide actions=${html`<button type="button" class="main" onClick=${() => setAsked(true)}>Back up …</button>`}
      about="One file with all that the catalog knows at one moment: definitions, parts, offsets, switches, secrets.">
      <p class="about">It is written below <code>${folder || "backups in the data folder"}</code>
        (<a href="#/settings?search=catalog.backup-folder">catalog.backup-folder</a>). Files of tables are copied beside it;
        <code>tilth catalog restore</code> makes a catalog of it again.</p>
      ${files.map((row) => html`<p key=${row.file} role="status"><${Badge} tone="good">written<//> <code>${row.file}</code>:
        ${bytes(row.bytes)}, ${exactly(row.records)} records as of <${Time} at=${row.created} /></p>`)}
    <//>
    <${Card} title="Past backups" wide>
      <${AuditLines} answer=${found.backups} label="past backups" empty="There was none, as far as the audit log reaches back." />
    <//>
    ${isAsked &&
    html`<${StatementDialog} title="Back up the catalog" action="Back up" onClose=${() => setAsked(false)}
      onDone=${(answer) => setFiles((old) => [...objects(answer), ...old])}
      about="Everything goes on meanwhile; no file is ever replaced."
      fields=${[{ name: "name", label: "Name of the file", value: freshName() }]}
      statement=${({ name }) => `BACKUP CATALOG TO ${literal(name)}`} />`}`
}

// --- stored files ----------------------------------------------------------------------------------------------------

const fileStatements = () => ({ repairs: auditLines("SYSTEM CHECK FILES") })

/** States of files: tone, and what is to be done. */
const FILE_STATES = {
  known: ["good", "a summary of the replica: nothing is to be done"],
  running: ["busy", "its transaction runs, or was committed a moment ago"],
  "in trash": ["", "garbage collection removes it, or UNDROP brings it back"],
  orphan: ["warn", "no commit will ever name it; those that do not go by themselves are removed by REPAIR"],
  "sidecar without file": ["warn", "its part's file is not known; removed by REPAIR"],
  lost: ["bad", "a failover has lost its transaction: read the rows from it within 30 days"],
  foreign: ["warn", "Tilth gives no such names and never removes it: find out who put it there"],
  missing: ["bad", "the catalog names it and it is not there: put it back from a copy"],
  "copy to be made": ["busy", "the replica lacks it; the copy is made by itself"],
  "wrong size": ["bad", "the file was cut or changed: put it back from a copy"],
  away: ["bad", "the replica does not answer"],
}

const FILES = [
  { key: "file", title: "file", kind: "mono", show: (row) => html`<span title=${row.file}>${row.file || "–"}</span>` },
  { key: "replica", title: "replica", align: "right" },
  { key: "state", title: "state", show: (row) => html`<${Badge} tone=${FILE_STATES[row.state]?.[0] ?? ""} title=${FILE_STATES[row.state]?.[1]}>${row.state}<//>` },
  { key: "detail", title: "detail", kind: "text", show: (row) => html`<span title=${row.detail}>${row.detail}</span>` },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  { key: "modified", title: "modified", show: (row) => html`<${Time} at=${row.modified} />` },
  { key: "since", title: "unused since", show: (row) => html`<${Time} at=${row.since} />` },
  { key: "removed", title: "removed", show: (row) => (row.removed ? "yes" : "no") },
  { key: "txn", title: "transaction", kind: "mono", show: (row) => (isNone(row.txn) ? "–" : String(row.txn)) },
]

function FileAnswer({ answer, parameters, change }) {
  const states = [...new Set(answer.rows.map((row) => row.state))]
  const state = states.includes(parameters.get("state")) ? parameters.get("state") : ""
  const rows = useMemo(() => answer.rows.filter((row) => !state || row.state === state), [answer, state])
  return html`<${Card} title=${`Files of ${answer.table}`} wide
    about=${html`as of <${Time} at=${new Date(answer.at).toISOString()} />${answer.isRepair ? ", with REPAIR" : ""}; ${answer.message}`}>
    <div class="head">
      <button type="button" aria-pressed=${!state} onClick=${() => change({ state: null })}>all ${exactly(answer.rows.length)}</button>
      ${states.map((each) => html`<button key=${each} type="button" aria-pressed=${state === each} title=${FILE_STATES[each]?.[1]}
        onClick=${() => change({ state: each })}>${each} ${exactly(answer.rows.filter((row) => row.state === each).length)}</button>`)}
    </div>
    ${state && html`<p class="about">${state}: ${FILE_STATES[state]?.[1]}</p>`}
    <${Table} label="files" rows=${rows} columns=${FILES} empty="No file." ...${sorting(parameters, change)}
      toneOf=${(row) => ({ bad: "bad", warn: "warn" })[FILE_STATES[row.state]?.[0]] ?? ""} />
  <//>`
}

function Files({ found, parameters, change, info }) {
  const [asked, setAsked] = useState("")
  const [answer, setAnswer] = useState(null)
  const table = parameters.get("table") ?? ""
  const isRepair = asked === "repair"
  const canBeChecked = info.engine === "MergeTree"
  const done = (found) =>
    setAnswer({ rows: objects(found), table, isRepair, at: serverNow(), message: found.summary?.message ?? "" })
  return html`
    <${Card} title="Stored files" wide about="Files of a table, in every replica, compared with the catalog.">
      <div class="head">
        <${TablePick} label="Table" value=${table} onChange=${(value) => change({ table: value })} />
        <button type="button" class="main" disabled=${!canBeChecked} onClick=${() => setAsked("check")}>Check …</button>
        <button type="button" disabled=${!canBeChecked} onClick=${() => setAsked("repair")}>Remove orphans …</button>
        ${table && !info.isLoading && !canBeChecked && html`<${Badge} tone="warn">no table of this name that stores files<//>`}
      </div>
      <${Failure} error=${info.error} />
    <//>
    ${answer && html`<${FileAnswer} answer=${answer} parameters=${parameters} change=${change} />`}
    <${Card} title="Past repairs" wide about="a check that removes nothing leaves no line">
      <${AuditLines} answer=${found.repairs} label="past repairs" empty="There was none." />
    <//>
    ${asked &&
    html`<${StatementDialog} key=${asked} title=${isRepair ? `Remove orphans of ${table}` : `Check the files of ${table}`} danger=${isRepair}
      action=${isRepair ? "Remove" : "Check"} onClose=${() => setAsked("")} onDone=${done}
      about=${isRepair
        ? "Removes orphans whose transaction can never commit any more, once both are older than repair_files_older_than_seconds (a day). Nothing else changes."
        : "Lists the folder of the table in each replica once; nothing changes."}
      statement=${() => `SYSTEM CHECK FILES ${named(...nameParts(table))}${isRepair ? " REPAIR" : ""}`} />`}`
}

// --- the page --------------------------------------------------------------------------------------------------------

const troubles = (table, well) =>
  `SELECT count(*) AS n, sum(CASE WHEN state = '${well}' THEN 0 ELSE 1 END) AS troubles FROM system.${table}`

const SUMMARY = {
  nServers: troubles("servers", "alive"),
  nWorkers: troubles("workers", "alive"),
  nStorages: troubles("storages", "ok"),
  nLost: "SELECT count(*) AS n, count(*) AS troubles FROM system.lost_transactions",
}

const TABS = {
  servers: { title: "Servers", number: "nServers", statements: serverStatements, View: Servers },
  workers: { title: "Workers", number: "nWorkers", statements: workerStatements, View: Workers },
  warehouses: { title: "Warehouses", statements: warehouseStatements, View: Warehouses },
  storages: { title: "Storages and replicas", number: "nStorages", statements: storageStatements, View: Storages, every: 5 },
  leases: { title: "Leases and readers", statements: leaseStatements, View: LeasesAndReaders },
  transactions: { title: "Transactions", number: "nLost", statements: transactionStatements, View: Transactions },
  drill: { title: "Drill", statements: drillStatements, View: Drill, every: 0.5 },
  backup: { title: "Backup", statements: backupStatements, View: Backup, every: 5 },
  files: { title: "Files", statements: fileStatements, View: Files, every: 5 },
}

const wordsOf = (key, { n, troubles: bad }) =>
  key === "nLost" ? (n ? `${exactly(n)} lost` : null) : Number(bad) ? `${exactly(n)}, ${exactly(bad)} with trouble` : exactly(n)

const numberOf = (found, key) => {
  const row = key && found[key]?.rows[0]
  return row ? wordsOf(key, row) : null
}

/** The table that is named in the address. */
function useInfo(name) {
  const [database, table] = nameParts(name)
  const { rows, error, isLoading } = useRead(
    name && `SELECT uuid, engine FROM system.tables WHERE database = ${literal(database)} AND name = ${literal(table)}`,
  )
  return { ...(rows[0] ?? {}), error, isLoading }
}

/** Uuids of tables whose names contain the text, for the search among leases. */
function useUuids(search) {
  const { rows } = useRead(
    search && `SELECT uuid FROM system.tables WHERE ${contains(["concat(database, '.', name)"], search)} LIMIT ${TABLES_FOUND}`,
  )
  return rows.map((row) => row.uuid).sort()
}

export default function Cluster({ route }) {
  const [parameters, change] = useParameters(route)
  const tab = Object.hasOwn(TABS, parameters.get("tab") ?? "") ? parameters.get("tab") : "servers"
  const search = useSettled(parameters.get("search") ?? "")
  const uuids = useUuids(tab === "servers" || tab === "leases" ? search : "")
  const info = useInfo(tab === "drill" || tab === "files" ? (parameters.get("table") ?? "") : "")
  const { statements, View, every = 2 } = TABS[tab]
  const found = useWatch({ ...SUMMARY, ...statements({ parameters, search, uuids, uuid: info.uuid }) }, { every })
  useTick()
  const lost = Number(found.nLost?.rows[0]?.n ?? 0)
  return html`
    <div class="head"><h1>Cluster</h1>
      ${lost > 0 && tab !== "transactions" && html`<a href="#/cluster?tab=transactions"><${Badge} tone="bad">lost transactions: ${exactly(lost)}<//></a>`}
    </div>
    <${Tabs} label="Parts of the cluster" current=${tab} onChange=${(key) => openTab(parameters, change, key)}
      tabs=${Object.entries(TABS).map(([key, { title, number }]) => [key, title, numberOf(found, number)])} />
    <${View} key=${tab} found=${found} parameters=${parameters} change=${change} info=${info} />`
}
