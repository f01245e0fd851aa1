// Leases, the rights to act of servers, and readers.

import { html, useMemo } from "../../vendor/preact-htm.js"
import { sorting } from "../../core/address.js"
import { FULL_NAME, contains, whereAll } from "../../core/filters.js"
import { exactly } from "../../core/format.js"
import { READERS_MAX, Readers, readersStatement } from "../../core/readers.js"
import { Table, numberColumn } from "../../core/table.js"
import { Answer, Badge, Card, SearchBy, shownOf } from "../../core/ui.js"
import { TableOf, useTables } from "./tables.js"

const ROWS_MAX = 500

/** `uuids`: of tables whose names fit the search. */
export function leasesStatement({ search, uuids }) {
  const ways = [contains(["name", "holder"], search), ...uuids.map((uuid) => contains(["name"], `/${uuid}`))]
  const condition = search && `(${ways.join(" OR ")})`
  return `SELECT name, holder, epoch, is_valid FROM system.leases ${whereAll(condition)} ORDER BY is_valid, holder, name
    LIMIT ${ROWS_MAX}`
}

export const leaseStatements = (asked) => ({
  leases: leasesStatement(asked),
  readers: readersStatement(contains([FULL_NAME, "holder", "client", "name"], asked.search)),
})

const VALID_WORDS = { true: "its holder lives", false: "its holder is gone" }

export const VALIDITY = {
  key: "is_valid",
  title: "state",
  show: (row) => html`<${Badge} tone=${row.is_valid ? "good" : "warn"}>${VALID_WORDS[row.is_valid]}<//>`,
}

const LEASES = [
  {
    key: "table",
    title: "table",
    value: (row) => row.table?.name ?? row.uuid,
    show: (row) => html`<${TableOf} table=${row.table} uuid=${row.uuid} />`,
  },
  { key: "kind", title: "right", show: (row) => (row.index ? `consumer ${row.index}` : row.kind) },
  { key: "holder", title: "holder", about: "Name and epoch of the server's process" },
  numberColumn("epoch", "epoch", exactly, { about: "Raised by each taking over" }),
  VALIDITY,
]

export function Leases({ answer, parameters, change, order }) {
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
    <p class="about">${shownOf(rows, ROWS_MAX)}</p>
  <//>`
}

export const LeasesAndReaders = ({ found, parameters, change }) => html`
  <${Card} title="Leases" wide about="rights to act: commits of an older holder are refused"
    actions=${html`<${SearchBy} label="Table, uuid, server or reader" parameters=${parameters} change=${change} />`}>
    <${Leases} answer=${found.leases} parameters=${parameters} change=${change} order="order" />
  <//>
  <${Card} title="Readers" wide about="snapshots that queries hold, oldest first; old files stay for them">
    <${Answer} answer=${found.readers}>
      <${Readers} rows=${found.readers?.rows} hasTables ...${sorting(parameters, change, "order2")} />
      <p class="about">${found.readers && shownOf(found.readers.rows, READERS_MAX, "oldest")}</p>
    <//>
  <//>`
