// One table: its parts drawn, its history, services, columns, settings, changes, readers, and what GC keeps.

import { html, useMemo, useState } from "../vendor/preact-htm.js"
import { literal, named, useRead, useWatch } from "../core/api.js"
import { bytes, count, seconds } from "../core/format.js"
import {
  Badge, Bar, Card, Code, Copy, Empty, Failure, Figure, Search, StatementDialog, Table, Tabs, Time, Waiting, toneOfState,
  useParameters,
} from "../core/ui.js"
import { LAYOUTS, PartMap } from "./table/map.js"
import { Settings } from "./table/settings.js"

const PARTS_MAX = 20_000
const ROWS_MAX = 500

const where = (database, table) => `database = ${literal(database)} AND "table" = ${literal(table)}`
const ofTable = (database, table) => `database = ${literal(database)} AND name = ${literal(table)}`

const TABS = {
  MergeTree: ["parts", "services", "history", "columns", "settings", "mutations", "gc", "ddl"],
  Kafka: ["services", "columns", "settings", "ddl"],
  MaterializedView: ["ddl"],
}
const TITLES = {
  parts: "Parts", services: "Services", history: "History", columns: "Columns", settings: "Settings",
  mutations: "Mutations and deltas", gc: "Files kept", ddl: "DDL",
}

// --- parts -----------------------------------------------------------------------------------------------------------

const PARTITIONS = [
  { key: "partition", title: "partition" },
  { key: "parts", title: "parts", align: "right", show: (row) => count(row.parts) },
  { key: "segments", title: "segments", align: "right", show: (row) => count(row.segments) },
  { key: "rows", title: "rows", align: "right", show: (row) => count(row.rows) },
  { key: "deleted_rows", title: "deleted", align: "right", show: (row) => (Number(row.deleted_rows) ? count(row.deleted_rows) : "") },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  { key: "max_level", title: "level", align: "right" },
  { key: "last_insert", title: "last insert", align: "right", show: (row) => html`<${Time} at=${row.last_insert} relative />` },
  { key: "insert_pressure", title: "INSERTs", kind: "text", show: (row) => row.insert_pressure && html`<${Badge} tone="warn">${row.insert_pressure}<//>` },
]

const CANDIDATES = [
  { key: "partition", title: "partition" },
  { key: "allowed", title: "merge", show: (row) => html`<${Badge} tone=${row.allowed ? "good" : "warn"}>${row.allowed ? "would be done" : "no"}<//>` },
  { key: "state", title: "state" },
  { key: "reason", title: "reason", kind: "text" },
  { key: "score", title: "score", align: "right", show: (row) => row.score && Number(row.score).toPrecision(3) },
  { key: "parts", title: "parts", align: "right", show: (row) => count(row.parts) },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  { key: "next_attempt", title: "next attempt", align: "right", show: (row) => row.next_attempt && html`<${Time} at=${row.next_attempt} relative />` },
]

function Parts({ database, table, info, route }) {
  const [parameters, change] = useParameters(route)
  const layout = parameters.get("layout") ?? "size"
  const found = useWatch(
    {
      parts: `SELECT name, partition, level, rows, deleted_rows, deltas, bytes, min_block, max_block, first_insert, last_insert,
        ${layout === "keys" ? "ranges, " : ""}damaged FROM system.parts WHERE ${where(database, table)} AND active
        ORDER BY partition, min_block LIMIT ${PARTS_MAX}`,
      partitions: `SELECT * FROM system.partitions WHERE ${where(database, table)} ORDER BY partition LIMIT 5000`,
      merges: `EXPLAIN MERGE ${named(database, table)}`,
      running: `SELECT task, state, progress, elapsed, input_bytes, reason FROM system.merges WHERE ${where(database, table)}`,
    },
    { every: 3 },
  )
  const parts = found.parts?.rows
  const candidates = found.merges?.rows ?? []
  const key = info.sort_key?.[0]
  if (!parts) return html`<${Waiting} />`
  return html`
    <${Card} title="Parts" about=${parts.length === PARTS_MAX ? `the first ${count(PARTS_MAX)}` : LAYOUTS[layout][1]}
      actions=${html`<select aria-label="What the width is" value=${layout} onChange=${(event) => change({ layout: event.target.value })}>
        ${Object.entries(LAYOUTS).map(([name, [title]]) => html`<option value=${name}>${title}</option>`)}
      </select>`}>
      <${Failure} error=${found.parts.error} />
      <${PartMap} parts=${parts} candidates=${candidates} layout=${layout} column=${key} chosenName=${parameters.get("part")}
        onChoose=${(name) => change({ part: name })} />
    <//>
    ${(found.running?.rows ?? []).length > 0 &&
    html`<${Card} title="Merges under way">
      <${Table} label="merges" rows=${found.running.rows} keyOf=${(row) => row.task}
        columns=${[
          { key: "state", title: "state" },
          { key: "progress", title: "progress", show: (row) => html`<${Bar} part=${row.progress} title=${`${Math.round(100 * row.progress)} %`} /> ${Math.round(100 * row.progress)} %` },
          { key: "elapsed", title: "for", align: "right", show: (row) => seconds(row.elapsed) },
          { key: "input_bytes", title: "input", align: "right", show: (row) => bytes(row.input_bytes) },
          { key: "reason", title: "reason", kind: "text" },
        ]} />
    <//>`}
    <${Card} title="What would be merged, and why not">
      <${Failure} error=${found.merges?.error} />
      <${Table} label="merge candidates" rows=${candidates} columns=${CANDIDATES} empty="Nothing to merge." height=${320} />
    <//>
    <${Card} title="Partitions">
      <${Table} label="partitions" rows=${found.partitions?.rows ?? []} columns=${PARTITIONS} keyOf=${(row) => row.partition} empty="No partition has rows." />
    <//>`
}

// --- services --------------------------------------------------------------------------------------------------------

/** Words of SYSTEM STOP and START by service. */
const VERBS = {
  consume: "CONSUME", merge: "MERGES", mutate: "MUTATIONS", gc: "GC", flush: "FLUSH", delta: "DELTAS",
  replicate: "REPLICATION", scrub: "SCRUBS",
}

function Services({ database, table }) {
  const found = useWatch({ services: `SELECT * FROM system.bg_threads WHERE ${where(database, table)} ORDER BY service` }, { every: 2 })
  const [asked, setAsked] = useState(null)
  if (!found.services) return html`<${Waiting} />`
  const name = named(database, table)
  return html`<${Card} title="Background services" about="each can be stopped for a while, and says why it rests">
    <${Failure} error=${found.services.error} />
    <div class="switches">
      ${found.services.rows.map((row) => {
        const isStopped = row.switch === "stopped"
        return html`<div class="switch" key=${row.service + row.server}>
          <div>
            <strong>${row.service}</strong><${Badge} tone=${toneOfState(row.state)}>${row.state}<//>
            ${VERBS[row.service] &&
            html`<button type="button" onClick=${() => setAsked(row)} aria-label=${`${isStopped ? "Start" : "Stop"} ${row.service}`}>${isStopped ? "Start" : "Stop"} …</button>`}
          </div>
          <p>${row.reason}</p>
          ${isStopped &&
          html`<p>stopped${row.because ? `: ${row.because}` : ""}${row.asked_from ? `, by ${row.asked_from}` : ""}${row.until ? html`, until <${Time} at=${row.until} />` : ""}</p>`}
          ${row.last_exception && html`<p>failed <${Time} at=${row.last_exception_time} relative />: ${row.last_exception}</p>`}
          <small>${count(row.running_tasks)} tasks · last wake-up <${Time} at=${row.last_wakeup} relative />${row.next_attempt ? html` · next attempt <${Time} at=${row.next_attempt} relative />` : ""}</small>
        </div>`
      })}
    </div>
    ${asked &&
    (asked.switch === "stopped"
      ? html`<${StatementDialog} title=${`Start ${asked.service}`} action="Start" onClose=${() => setAsked(null)}
          statement=${() => `SYSTEM START ${VERBS[asked.service]} ${name}`} />`
      : html`<${StatementDialog} title=${`Stop ${asked.service}`} action="Stop" danger onClose=${() => setAsked(null)}
          about="What runs goes on to its end; nothing new begins."
          fields=${[
            { name: "minutes", label: "For how many minutes; empty: until somebody starts it", type: "number", value: "30" },
            { name: "because", label: "Because", hint: "others read this" },
          ]}
          statement=${({ minutes, because }) =>
            `SYSTEM STOP ${VERBS[asked.service]} ${name}${minutes ? ` FOR ${Number(minutes)} minutes` : ""}${because ? ` BECAUSE ${literal(because)}` : ""}`} />`)}
  <//>`
}

// --- history ---------------------------------------------------------------------------------------------------------

function History({ database, table, info }) {
  const versions = useRead(
    `SELECT version, committed, readable, kind, actor, txn, statement FROM system.table_versions
     WHERE ${where(database, table)} ORDER BY version DESC LIMIT ${ROWS_MAX}`,
  )
  const browse = (row) => `SELECT * FROM ${named(database, table)} VERSION AS OF ${row.version} LIMIT 100`
  return html`<${Card} title="Versions" actions=${html`<button type="button" onClick=${versions.again}>Read again</button>`}
    about=${info.readable_since ? html`readable since <${Time} at=${info.readable_since} /> by ${info.history_setting}` : "the table keeps no history"}>
    <${Failure} error=${versions.error} />
    ${versions.isLoading && !versions.rows.length
      ? html`<${Waiting} />`
      : html`<${Table} label="versions" rows=${versions.rows} keyOf=${(row) => row.version} empty="No commit yet."
          columns=${[
            { key: "version", title: "version", align: "right" },
            { key: "committed", title: "committed", show: (row) => html`<${Time} at=${row.committed} />` },
            { key: "kind", title: "kind" },
            { key: "actor", title: "by" },
            { key: "statement", title: "statement", kind: "code-cell", show: (row) => String(row.statement ?? "").slice(0, 160) },
            {
              key: "readable", title: "",
              show: (row) => (row.readable ? html`<a href=${`#/sql?q=${encodeURIComponent(browse(row))}`}>Read as it was …</a>` : html`<small>no longer readable</small>`),
            },
          ]} />`}
  <//>`
}

// --- columns, mutations, files, DDL ----------------------------------------------------------------------------------

const COLUMNS = [
  { key: "position", title: "#", align: "right" },
  { key: "name", title: "column", kind: "mono" },
  { key: "type", title: "type", kind: "mono", show: (row) => (row.declared_type && row.declared_type !== row.type ? `${row.type} (${row.declared_type})` : row.type) },
  { key: "nullable", title: "NULL", show: (row) => (row.nullable ? "yes" : "no") },
  { key: "default_expression", title: "default", kind: "mono", show: (row) => [row.default_kind, row.default_expression].filter(Boolean).join(" ") },
  {
    key: "keys", title: "keys",
    show: (row) => [row.is_in_partition_key && "partition", row.is_in_sort_key && "sort", row.is_in_unique_key && "unique", row.is_version && "version"].filter(Boolean).join(", "),
  },
  { key: "comment", title: "comment", kind: "text" },
]

function Columns({ database, table }) {
  const columns = useRead(`SELECT * FROM system.columns WHERE ${where(database, table)} ORDER BY position`)
  return html`<${Card} title="Columns">
    <${Failure} error=${columns.error} />
    ${columns.isLoading && !columns.rows.length ? html`<${Waiting} />` : html`<${Table} label="columns" rows=${columns.rows} columns=${COLUMNS} keyOf=${(row) => row.name} />`}
  <//>`
}

function Mutations({ database, table }) {
  const found = useWatch(
    {
      mutations: `SELECT * FROM system.mutations WHERE ${where(database, table)} ORDER BY create_time DESC LIMIT ${ROWS_MAX}`,
      deltas: `SELECT partition, kind, bytes, deleted_rows, updated_rows, parts, changed, active, file FROM system.deltas
        WHERE ${where(database, table)} ORDER BY changed DESC LIMIT ${ROWS_MAX}`,
    },
    { every: 3 },
  )
  const [killed, setKilled] = useState(null)
  if (!found.mutations) return html`<${Waiting} />`
  return html`
    <${Card} title="Mutations">
      <${Failure} error=${found.mutations.error} />
      <${Table} label="mutations" rows=${found.mutations.rows} keyOf=${(row) => row.mutation_id} empty="No mutation."
        toneOf=${(row) => (row.latest_fail_reason && !row.is_done ? "bad" : "")}
        columns=${[
          { key: "command", title: "command", kind: "code-cell" },
          { key: "create_time", title: "since", show: (row) => html`<${Time} at=${row.create_time} relative />` },
          {
            key: "parts_done", title: "parts", show: (row) => {
              const all = Number(row.parts_done) + Number(row.parts_to_do)
              return row.is_done ? "done" : row.is_killed ? "killed" : html`<${Bar} part=${row.parts_done / Math.max(1, all)} title="parts done" /> ${row.parts_done} of ${all}`
            },
          },
          { key: "latest_fail_reason", title: "state", kind: "text", show: (row) => row.latest_fail_reason ?? row.state_reason },
          { key: "kill", title: "", show: (row) => !row.is_done && !row.is_killed && html`<button type="button" onClick=${() => setKilled(row)}>Kill …</button>` },
        ]} />
    <//>
    <${Card} title="Deltas" about="changes of rows that lie beside the parts until they are compacted">
      <${Table} label="deltas" rows=${found.deltas?.rows ?? []} keyOf=${(row) => row.file} empty="No delta."
        columns=${[
          { key: "partition", title: "partition" }, { key: "kind", title: "kind" },
          { key: "deleted_rows", title: "deletes", align: "right", show: (row) => count(row.deleted_rows) },
          { key: "updated_rows", title: "updates", align: "right", show: (row) => count(row.updated_rows) },
          { key: "parts", title: "of parts", align: "right" },
          { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
          { key: "changed", title: "changed", show: (row) => html`<${Time} at=${row.changed} relative />` },
          { key: "active", title: "", show: (row) => (row.active ? "" : html`<small>replaced</small>`) },
        ]} />
    <//>
    ${killed && html`<${StatementDialog} title="Kill the mutation" danger action="Kill" onClose=${() => setKilled(null)}
      about="Parts that are rewritten already stay as they are." statement=${() => `KILL MUTATION ${literal(killed.mutation_id)}`} />`}`
}

function Files({ database, table }) {
  const found = useWatch(
    {
      kept: `EXPLAIN GC ${named(database, table)}`,
      readers: `SELECT id, snapshot, holder, client, opened FROM system.readers WHERE ${where(database, table)} ORDER BY opened LIMIT ${ROWS_MAX}`,
      trash: `SELECT part, file, rows, bytes, moved, is_dropped, removable_at, reason FROM system.trash WHERE ${where(database, table)} ORDER BY removable_at LIMIT ${ROWS_MAX}`,
    },
    { every: 5 },
  )
  const [text, setText] = useState("")
  if (!found.kept) return html`<${Waiting} />`
  const kept = found.kept.rows.filter((row) => Object.values(row).some((value) => String(value ?? "").includes(text)))
  const total = (rows) => bytes(rows.reduce((sum, row) => sum + Number(row.bytes ?? 0), 0))
  return html`
    <${Card} title="What GC keeps, and why" about=${`${count(kept.length)} entries, ${total(kept)}`}
      actions=${html`<${Search} label="Filter" value=${text} onChange=${setText} />`}>
      <${Failure} error=${found.kept.error} />
      <${Table} label="kept files" rows=${kept} empty="Nothing is kept." height=${420}
        columns=${[
          { key: "entry", title: "entry", kind: "mono" }, { key: "partition", title: "partition" }, { key: "kind", title: "kind" },
          { key: "state", title: "state" }, { key: "held_by", title: "held by" },
          { key: "until", title: "until", show: (row) => row.until && html`<${Time} at=${row.until} relative />` },
          { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
          { key: "reason", title: "reason", kind: "text" },
        ]} />
    <//>
    <${Card} title="Readers that hold files">
      <${Table} label="readers" rows=${found.readers?.rows ?? []} keyOf=${(row) => row.id} empty="No reader."
        columns=${[
          { key: "client", title: "client" }, { key: "holder", title: "server" },
          { key: "opened", title: "since", show: (row) => html`<${Time} at=${row.opened} relative />` },
          { key: "snapshot", title: "reads the table of", show: (row) => html`<${Time} at=${row.snapshot} />` },
        ]} />
    <//>
    <${Card} title="Trash" about=${total(found.trash?.rows ?? [])}>
      <${Table} label="trash" rows=${found.trash?.rows ?? []} keyOf=${(row) => row.file} empty="Empty."
        columns=${[
          { key: "part", title: "part", kind: "mono" },
          { key: "rows", title: "rows", align: "right", show: (row) => count(row.rows) },
          { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
          { key: "moved", title: "moved", show: (row) => html`<${Time} at=${row.moved} relative />` },
          { key: "removable_at", title: "goes", show: (row) => html`<${Time} at=${row.removable_at} relative />` },
          { key: "reason", title: "reason", kind: "text" },
        ]} />
    <//>`
}

function Ddl({ info }) {
  return html`<${Card} title="The statement that makes it" actions=${html`<${Copy} text=${info.create_statement} />`}>
    <${Code}>${info.create_statement}<//>
  <//>`
}

// --- the page --------------------------------------------------------------------------------------------------------

const VIEWS = { parts: Parts, services: Services, history: History, columns: Columns, settings: Settings, mutations: Mutations, gc: Files, ddl: Ddl }

function Actions({ database, table, info }) {
  const [asked, setAsked] = useState(null)
  const name = named(database, table)
  const statements = {
    "Merge now": `OPTIMIZE TABLE ${name}`,
    Flush: `SYSTEM FLUSH ${name}`,
    "Check files": `SYSTEM CHECK FILES ${name}`,
  }
  return html`<div class="actions">
    <a href=${`#/sql?q=${encodeURIComponent(`SELECT * FROM ${name} LIMIT 100`)}`}>Read rows …</a>
    ${info.engine === "Kafka" && html`<a href=${`#/stream/${encodeURIComponent(database)}/${encodeURIComponent(table)}`}>Stream …</a>`}
    ${info.engine === "MergeTree" && Object.keys(statements).map((title) => html`<button type="button" onClick=${() => setAsked(title)}>${title} …</button>`)}
    ${asked && html`<${StatementDialog} title=${asked} statement=${() => statements[asked]} onClose=${() => setAsked(null)} />`}
  </div>`
}

export default function TablePage({ route }) {
  const [, database, table] = route.path
  const [parameters, change] = useParameters(route)
  const found = useWatch(
    {
      table: `SELECT * FROM system.tables WHERE ${ofTable(database, table)}`,
      views: `SELECT database, name, source, target FROM system.tables WHERE engine = 'MaterializedView'
        AND (target = ${literal(`${database}.${table}`)} OR source = ${literal(`${database}.${table}`)} OR (${ofTable(database, table)}))`,
    },
    { every: 2 },
  )
  const info = found.table?.rows[0]
  const tabs = useMemo(() => TABS[info?.engine] ?? [], [info?.engine])
  if (!found.table) return html`<${Waiting} />`
  if (found.table.error) return html`<${Failure} error=${found.table.error} />`
  if (!info) return html`<${Empty}>There is no table ${database}.${table}.<//>`
  const tab = tabs.includes(parameters.get("tab")) ? parameters.get("tab") : tabs[0]
  const View = VIEWS[tab]
  return html`
    <div class="head">
      <h1>${database}.${table}</h1><${Badge}>${info.engine}<//>
      ${(found.views?.rows ?? []).map((view) => html`<small key=${view.name}>view ${view.database}.${view.name}: ${view.source} → ${view.target}</small>`)}
      <${Actions} database=${database} table=${table} info=${info} />
    </div>
    ${info.comment && html`<p class="about">${info.comment}</p>`}
    ${info.engine === "MergeTree" &&
    html`<div class="figures">
      <${Figure} label="rows" value=${count(info.rows)} below=${info.unique_key?.length ? `unique by ${info.unique_key.join(", ")}` : ""} />
      <${Figure} label="size" value=${bytes(info.bytes)} below=${`${count(info.parts)} parts, ${count(info.segments)} segments`} />
      <${Figure} label="last commit" value=${html`<${Time} at=${info.last_commit} relative />`} below=${`version ${count(info.version)}`} />
      <${Figure} label="sorted by" value=${(info.sort_key ?? []).join(", ") || "–"} below=${info.ttl ? `TTL ${info.ttl}` : "no TTL"} />
      <${Figure} label="mutations to do" value=${count(info.mutations_pending)} tone=${Number(info.mutations_pending) ? "warn" : ""} below=${info.storage_policy ? `storage ${info.storage_policy}` : ""} />
    </div>`}
    <${Tabs} label="Parts of the page" current=${tab} tabs=${tabs.map((each) => [each, TITLES[each]])} onChange=${(next) => change({ tab: next, part: null })} />
    <${View} database=${database} table=${table} info=${info} route=${route} />`
}
