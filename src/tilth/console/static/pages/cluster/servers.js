// Servers that live, and the tables that each hosts.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { sorting } from "../../core/address.js"
import { secondsSince } from "../../core/api.js"
import { bytes, exactly, isNone, seconds } from "../../core/format.js"
import { Table, numberColumn, textColumn } from "../../core/table.js"
import { Answer, Badge, Card, SearchBy, Share, Time } from "../../core/ui.js"
import { Leases, VALIDITY, leasesStatement } from "./leases.js"
import { DrainDialog, STATE, drainColumn } from "./states.js"

/** Half of what `server.clock-bound` allows by default. */
const CLOCK_OFFSET_MS = 250
/** Default of `server.gone-bound`. */
const PROOF_SECONDS = 3

const HOSTS = `SELECT holder, is_valid, sum(CASE WHEN starts_with(name, 'table/') THEN 1 ELSE 0 END) AS of_tables,
  sum(CASE WHEN starts_with(name, 'consumer/') THEN 1 ELSE 0 END) AS of_consumers, count(*) AS leases
  FROM system.leases GROUP BY holder, is_valid ORDER BY holder`

export const serverStatements = (asked) => ({
  servers: `SELECT name, process, state, reason, url, version, is_self, "tables", started, last_proof, clock_offset_ms,
    memory_bytes, memory_limit_bytes, memory_pressure, memory_rejections FROM system.servers ORDER BY name`,
  hosts: HOSTS,
  ...(asked.search ? { leases: leasesStatement(asked) } : {}),
})

const Clock = ({ offset }) => {
  if (isNone(offset)) return "–"
  const text = `${offset > 0 ? "+" : ""}${Number(offset).toFixed(1)} ms`
  return Math.abs(offset) < CLOCK_OFFSET_MS ? text : html`<${Badge} tone="warn">${text}<//>`
}

const Pressure = ({ row }) =>
  row.memory_pressure
    ? html`<${Badge} tone="bad" title=${row.memory_pressure}>under pressure<//> ${row.memory_pressure}`
    : isNone(row.memory_bytes) ? "–" : "none"

/** A link only for what a browser may open. */
const Address = ({ url, last_proof: proof }) =>
  /^https?:\/\//.test(url ?? "") ? html`<a href=${url} rel="noreferrer">${url}</a>` : (url ?? (proof ? "not listening yet" : "–"))

const SERVERS = [
  {
    key: "name", title: "server", kind: "tight",
    show: (row) => html`<strong>${row.name}</strong>${row.is_self ? html` <small>answers this page</small>` : ""}`,
  },
  STATE,
  textColumn("reason", "reason"),
  numberColumn("tables", "hosts", (n) => `${exactly(n)} tables`, { about: "Tables and Kafka tables that it hosts" }),
  { key: "url", title: "address", show: (row) => html`<${Address} ...${row} />` },
  { key: "version", title: "version", kind: "tight", show: (row) => row.version ?? "–" },
  { key: "started", title: "up since", kind: "tight", show: (row) => html`<${Time} at=${row.started} /> <small>${seconds(secondsSince(row.started))}</small>` },
  {
    key: "last_proof", title: "last proof", about: "When it has last proved that it lives, by its own clock",
    show: (row) => !row.last_proof ? "–"
      : html`<${Badge} tone=${secondsSince(row.last_proof) > PROOF_SECONDS ? "warn" : ""}><${Time} at=${row.last_proof} relative /><//>`,
  },
  numberColumn("clock_offset_ms", "clock offset", (offset) => html`<${Clock} offset=${offset} />`, {
    about: "Its clock minus that of the catalog's database",
  }),
  {
    key: "memory_bytes", title: "memory of writers", about: "Of the process and all below it; known of the server that answers",
    show: (row) => html`<${Share} used=${row.memory_bytes} of=${row.memory_limit_bytes} show=${bytes} />`,
  },
  { key: "memory_pressure", title: "pressure", kind: "text", show: (row) => html`<${Pressure} row=${row} />` },
  numberColumn("memory_rejections", "refused", (n) => `${exactly(n)} writes`, {
    about: "Writes that were refused for want of memory since the start",
  }),
]

const leasesText = (n) => `${exactly(n)} leases`

const HOST_COLUMNS = [
  { key: "holder", title: "process" },
  VALIDITY,
  numberColumn("of_tables", "of tables", leasesText),
  numberColumn("of_consumers", "of consumers", leasesText),
  numberColumn("leases", "all", leasesText),
]

export function Servers({ found, parameters, change }) {
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
      actions=${html`<${SearchBy} label="Table, uuid or server" parameters=${parameters} change=${change} />`}>
      <${Answer} answer=${found.hosts}>
        <${Table} label="hosts" rows=${found.hosts?.rows ?? []} columns=${HOST_COLUMNS} keyOf=${(row) => `${row.holder}/${row.is_valid}`}
          empty="No lease is held." href=${(row) => `#/cluster?${new URLSearchParams({ tab: "leases", search: row.holder })}`} />
      <//>
      ${parameters.get("search") && html`<${Leases} answer=${found.leases} parameters=${parameters} change=${change} order="order2" />`}
    <//>
    ${asked && html`<${DrainDialog} kind="server" row=${asked} onClose=${() => setAsked(null)} />`}`
}
