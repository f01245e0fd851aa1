// One table: its parts drawn, its history, services, columns, settings, changes, readers, and what GC keeps.

import { html, useState } from "../vendor/preact-htm.js"
import { chosenOf, openTab, useParameters } from "../core/address.js"
import { named, useRead, useWatch } from "../core/api.js"
import { Definition, TableSettings } from "../core/definition.js"
import { StatementDialog } from "../core/dialog.js"
import { equals, isOf } from "../core/filters.js"
import { bytes, count } from "../core/format.js"
import { nameOf, sqlLink, streamLink } from "../core/names.js"
import { SERVICES, ServiceCard, SwitchDialog, WHY_COLUMNS, Why } from "../core/services.js"
import { Table, numberColumn, timeColumn } from "../core/table.js"
import { Answer, Badge, Card, Empty, Figure, Reading, Tabs, Time, toneOfState } from "../core/ui.js"
import { Changes, Files, changesStatements, filesStatements } from "./table/files.js"
import { Parts, partsStatements } from "./table/parts.js"

const VERSIONS_MAX = 500
/** Characters of a statement in the history. */
const TEXT_SHOWN = 160

// --- services --------------------------------------------------------------------------------------------------------

const servicesStatements = (database, table) => ({
  services: `SELECT service, ${WHY_COLUMNS}, running_tasks, last_wakeup, server FROM system.bg_threads
    WHERE ${isOf(database, table)} ORDER BY service`,
})

function Service({ row, onAsk }) {
  const verb = row.switch === "stopped" ? "Start" : "Stop"
  const buttons = row.service in SERVICES ? [[verb, `${verb} ${row.service}`, () => onAsk(row)]] : []
  return html`<${ServiceCard} title=${row.service} tone=${toneOfState(row.state)} state=${row.state} buttons=${buttons}>
    <${Why} row=${row} />
    <small>${count(row.running_tasks)} tasks · last wake-up <${Time} at=${row.last_wakeup} relative /></small>
  <//>`
}

function Services({ found, info }) {
  const [asked, setAsked] = useState(null)
  return html`<${Card} title="Background services" about="each can be stopped for a while, and says why it rests">
    <${Answer} answer=${found.services}>
      <div class="services">
        ${found.services?.rows.map((row) => html`<${Service} key=${`${row.service}/${row.server}`} row=${row} onAsk=${setAsked} />`)}
      </div>
    <//>
    ${asked &&
    html`<${SwitchDialog} verb=${asked.switch === "stopped" ? "START" : "STOP"} service=${asked.service}
      name=${named(info.database, info.name)} onClose=${() => setAsked(null)} />`}
  <//>`
}

// --- history and columns ---------------------------------------------------------------------------------------------

const versionColumns = (info) => [
  numberColumn("version", "version"),
  timeColumn("committed", "committed"),
  { key: "kind", title: "kind" },
  { key: "actor", title: "by" },
  { key: "statement", title: "statement", kind: "code-cell", show: (row) => String(row.statement ?? "").slice(0, TEXT_SHOWN) },
  {
    key: "readable",
    title: "",
    show: (row) => {
      const browse = `SELECT * FROM ${named(info.database, info.name)} VERSION AS OF ${row.version} LIMIT 100`
      return row.readable ? html`<a href=${sqlLink(browse)}>Read as it was …</a>` : html`<small>no longer readable</small>`
    },
  },
]

function History({ info }) {
  const versions = useRead(
    `SELECT version, committed, readable, kind, actor, statement FROM system.table_versions
     WHERE ${isOf(info.database, info.name)} ORDER BY version DESC LIMIT ${VERSIONS_MAX}`,
  )
  const since = info.readable_since && html`readable since <${Time} at=${info.readable_since} /> by ${info.history_setting}`
  return html`<${Card} title="Versions" about=${since || "the table keeps no history"}
    actions=${html`<button type="button" onClick=${versions.again}>Read again</button>`}>
    <${Reading} reading=${versions}>
      <${Table} label="versions" rows=${versions.rows} columns=${versionColumns(info)} keyOf=${(row) => row.version}
        empty="No commit yet." />
    <//>
  <//>`
}

const KEYS = { partition: "is_in_partition_key", sort: "is_in_sort_key", unique: "is_in_unique_key", version: "is_version" }
const keysOf = (row) => Object.keys(KEYS).filter((name) => row[KEYS[name]]).join(", ")

const COLUMNS = [
  numberColumn("position", "#"),
  { key: "name", title: "column", kind: "mono" },
  {
    key: "type", title: "type", kind: "mono",
    show: (row) => (row.declared_type && row.declared_type !== row.type ? `${row.type} (${row.declared_type})` : row.type),
  },
  { key: "nullable", title: "NULL", show: (row) => (row.nullable ? "yes" : "no") },
  {
    key: "default_expression", title: "default", kind: "mono",
    show: (row) => [row.default_kind, row.default_expression].filter(Boolean).join(" "),
  },
  { key: "keys", title: "keys", value: keysOf, show: keysOf },
  { key: "comment", title: "comment", kind: "text" },
]

function Columns({ info }) {
  const columns = useRead(`SELECT * FROM system.columns WHERE ${isOf(info.database, info.name)} ORDER BY position`)
  return html`<${Card} title="Columns">
    <${Reading} reading=${columns}>
      <${Table} label="columns" rows=${columns.rows} columns=${COLUMNS} keyOf=${(row) => row.name} />
    <//>
  <//>`
}

// --- the page --------------------------------------------------------------------------------------------------------

const none = () => ({})

const TABS = {
  parts: { title: "Parts", View: Parts, statements: partsStatements },
  services: { title: "Services", View: Services, statements: servicesStatements },
  history: { title: "History", View: History, statements: none },
  columns: { title: "Columns", View: Columns, statements: none },
  settings: { title: "Settings", View: ({ info }) => html`<${TableSettings} row=${info} />`, statements: none },
  mutations: { title: "Mutations and deltas", View: Changes, statements: changesStatements },
  gc: { title: "Files kept", View: Files, statements: filesStatements },
  ddl: { title: "DDL", View: ({ info }) => html`<${Definition} row=${info} />`, statements: none },
}
const TABS_OF = {
  MergeTree: Object.keys(TABS),
  Kafka: ["services", "columns", "settings", "ddl"],
  MaterializedView: ["ddl"],
}

function Actions({ info }) {
  const [asked, setAsked] = useState(null)
  const name = named(info.database, info.name)
  const statements = {
    "Merge now": `OPTIMIZE TABLE ${name}`,
    Flush: `SYSTEM FLUSH ${name}`,
    "Check files": `SYSTEM CHECK FILES ${name}`,
  }
  return html`<div class="actions">
    <a href=${sqlLink(`SELECT * FROM ${name} LIMIT 100`)}>Read rows …</a>
    ${info.engine === "Kafka" && html`<a href=${streamLink(info.database, info.name)}>Stream …</a>`}
    ${info.engine === "MergeTree" &&
    Object.keys(statements).map((title) => html`<button key=${title} type="button" onClick=${() => setAsked(title)}>${title} …</button>`)}
    ${asked && html`<${StatementDialog} title=${asked} statement=${() => statements[asked]} onClose=${() => setAsked(null)} />`}
  </div>`
}

const Figures = ({ info }) =>
  html`<div class="figures">
    <${Figure} label="rows" value=${count(info.rows)} below=${info.unique_key?.length ? `unique by ${info.unique_key.join(", ")}` : ""} />
    <${Figure} label="size" value=${bytes(info.bytes)} below=${`${count(info.parts)} parts, ${count(info.segments)} segments`} />
    <${Figure} label="last commit" value=${html`<${Time} at=${info.last_commit} relative />`} below=${`version ${count(info.version)}`} />
    <${Figure} label="sorted by" value=${(info.sort_key ?? []).join(", ") || "–"} below=${info.ttl ? `TTL ${info.ttl}` : "no TTL"} />
    <${Figure} label="mutations to do" value=${count(info.mutations_pending)} tone=${Number(info.mutations_pending) ? "warn" : ""}
      below=${info.storage_policy ? `storage ${info.storage_policy}` : ""} />
  </div>`

const tableStatements = (database, table) => {
  const isIt = isOf(database, table, "name")
  const isEnd = ["source", "target"].map((column) => equals(column, `${database}.${table}`))
  return {
    table: `SELECT * FROM system.tables WHERE ${isIt}`,
    views: `SELECT database, name, source, target FROM system.tables
      WHERE engine = 'MaterializedView' AND (${[...isEnd, isIt].join(" OR ")})`,
  }
}

export default function TablePage({ route }) {
  const [, database, table] = route.path
  const [parameters, change] = useParameters(route)
  // The engine, which decides the tabs, is not known before the first answer.
  const [engine, setEngine] = useState("")
  const tabs = TABS_OF[engine] ?? []
  const tab = chosenOf(tabs, parameters.get("tab"))
  const statements = TABS[tab]?.statements(database, table, parameters)
  const found = useWatch({ ...tableStatements(database, table), ...statements }, { every: 2 })
  const info = found.table?.rows[0]
  if (info && info.engine !== engine) setEngine(info.engine)
  const name = html`<h1>${nameOf({ database, table })}</h1>`
  if (!info)
    return html`${name}<${Answer} answer=${found.table}><${Empty}>There is no table of this name.<//><//>`
  const View = TABS[tab]?.View
  return html`
    <div class="head">
      ${name}<${Badge}>${info.engine}<//>
      ${(found.views?.rows ?? []).map((view) => html`<small key=${nameOf(view)}>view ${nameOf(view)}: ${view.source} → ${view.target}</small>`)}
      <${Actions} info=${info} />
    </div>
    ${info.comment && html`<p class="about">${info.comment}</p>`}
    ${info.engine === "MergeTree" && html`<${Figures} info=${info} />`}
    <${Tabs} label="Parts of the page" current=${tab} tabs=${tabs.map((each) => [each, TABS[each].title])}
      onChange=${(next) => openTab(parameters, change, next, ["layout"])} />
    ${View && html`<${View} key=${tab} found=${found} info=${info} parameters=${parameters} change=${change} />`}`
}
