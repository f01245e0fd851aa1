// Storages, and the replicas of those that have several.

import { html } from "../../vendor/preact-htm.js"
import { sorting } from "../../core/address.js"
import { secondsSince } from "../../core/api.js"
import { FULL_NAME, contains, whereAll } from "../../core/filters.js"
import { bytes, count, exactly, seconds } from "../../core/format.js"
import { nameOf, tableLink } from "../../core/names.js"
import { Table, numberColumn, tableColumn, textColumn, timeColumn } from "../../core/table.js"
import { Answer, Badge, Card, SearchBy, TickBy, Time, shownOf } from "../../core/ui.js"
import { STATE, toneOf } from "./states.js"

const ROWS_MAX = 500

export const storageStatements = ({ search, parameters }) => ({
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
      contains([FULL_NAME, "storage", "replica_path"], search),
    )} ORDER BY queue_size DESC, database, "table", replica_num LIMIT ${ROWS_MAX}`,
})

const STORAGES = [
  { key: "name", title: "storage", kind: "tight" },
  STATE,
  textColumn("reason", "reason"),
  timeColumn("since", "since", { about: "As this server has observed it" }),
  { key: "kind", title: "kind" },
  { key: "root", title: "location", kind: "mono" },
  numberColumn("tables", "files of", (n) => `${exactly(n)} tables`),
]

const Delay = ({ since }) => (since ? html`<${Time} at=${since} /> <small>${seconds(secondsSince(since))}</small>` : "none")
const ReadOnly = ({ tables }) => (Number(tables) ? html`<${Badge} tone="bad">${exactly(tables)} tables<//>` : "none")

const queueColumn = (about) => numberColumn("queue_size", "queue", count, {
  about,
  show: (row) => `${count(row.queue_size)} copies, ${bytes(row.queue_bytes)}`,
})

/** State of all copies of a replica together, and the number of tables that are in it. */
const worstOf = (row) => {
  if (Number(row.away)) return ["away", row.away]
  return Number(row.not_ok) ? ["behind", row.not_ok] : ["ok", row.of_tables]
}

const REPLICAS = [
  { key: "storage", title: "storage", kind: "tight" },
  { key: "replica_num", title: "replica", align: "right" },
  { key: "replica_path", title: "location", kind: "mono" },
  {
    key: "not_ok", title: "state",
    show: (row) => {
      const [state, number] = worstOf(row)
      return html`<${Badge} tone=${toneOf(state)} title=${row.reason}>${state}: ${exactly(number)} of ${exactly(row.of_tables)} tables<//>`
    },
  },
  textColumn("reason", "reason", { about: "One of the reasons" }),
  queueColumn("Copies that it lacks"),
  { key: "oldest", title: "behind since", about: "Since when it has lacked the oldest copy", show: (row) => html`<${Delay} since=${row.oldest} />` },
  { key: "read_only", title: "read only", show: (row) => html`<${ReadOnly} tables=${row.read_only} />` },
]

const COPIES = [
  tableColumn({ isLink: false }),
  {
    key: "replica_num", title: "replica", value: (row) => `${row.storage} ${row.replica_num}`,
    show: (row) => html`<span title=${row.replica_path}>${row.storage}, ${row.replica_num}</span>`,
  },
  STATE,
  textColumn("reason", "reason"),
  queueColumn("Copies that it lacks"),
  { key: "queue_oldest_time", title: "behind since", show: (row) => html`<${Delay} since=${row.queue_oldest_time} />` },
  { key: "is_readonly", title: "writes", show: (row) => (row.is_readonly ? html`<${Badge} tone="bad">read only<//>` : "possible") },
  numberColumn("active_replicas", "replicas", count, {
    show: (row) => `${row.active_replicas} of ${row.total_replicas} answer, ${row.quorum} needed`,
  }),
  {
    key: "last_queue_update_exception", title: "last failure", kind: "text",
    show: (row) => row.last_queue_update_exception && html`<span title=${row.last_queue_update_exception}><${Time}
      at=${row.last_queue_update_exception_time} relative /> ${row.last_queue_update_exception}</span>`,
  },
]

const toneOfCopy = (row) => (row.is_readonly || row.state === "away" ? "bad" : row.state === "ok" ? "" : "warn")

export function Storages({ found, parameters, change }) {
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
        <${Table} label="replicas" rows=${found.replicas?.rows ?? []} columns=${REPLICAS}
          keyOf=${(row) => `${row.storage}/${row.replica_num}/${row.replica_path}`}
          toneOf=${(row) => (Number(row.away) || Number(row.read_only) ? "bad" : Number(row.not_ok) ? "warn" : "")}
          ...${sorting(parameters, change, "order2")} empty="No table is in a storage with replicas." />
      <//>
    <//>
    <${Card} title="Replicas by table" wide about=${all ? "all tables in storages with replicas" : "tables that lack copies or cannot be written"}
      actions=${html`<${SearchBy} label="Table, storage or location" parameters=${parameters} change=${change} />
        <${TickBy} name="all" label="also those without trouble" parameters=${parameters} change=${change} />`}>
      <${Answer} answer=${found.copies}>
        <${Table} label="replicas by table" rows=${found.copies?.rows ?? []} columns=${COPIES} keyOf=${(row) => `${nameOf(row)}/${row.replica_num}`}
          href=${(row) => tableLink(row.database, row.table)} ...${sorting(parameters, change, "order3")}
          empty=${all ? "No table fits." : "All copies are there."} toneOf=${toneOfCopy} />
        <p class="about">${found.copies && shownOf(found.copies.rows, ROWS_MAX)}</p>
      <//>
    <//>`
}
