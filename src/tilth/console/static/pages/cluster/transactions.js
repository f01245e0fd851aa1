// Transactions under way and the last ones, and those that a failover has lost.

import { html, useMemo } from "../../vendor/preact-htm.js"
import { sorting } from "../../core/address.js"
import { secondsSince } from "../../core/api.js"
import { contains, equals, whereAll } from "../../core/filters.js"
import { exactly, isNone, seconds } from "../../core/format.js"
import { Table, textColumn, timeColumn } from "../../core/table.js"
import { Answer, Card, Code, Failure, SearchBy, SelectBy, Time } from "../../core/ui.js"
import { STATE } from "./states.js"
import { TableOf, useTables } from "./tables.js"

const ROWS_MAX = 500
const LOST_MAX = 200

const STATES = [["", "all states"], ...["running", "finished", "aborted"].map((state) => [state, state])]

export const transactionStatements = ({ search, parameters }) => ({
  transactions: `SELECT id, actor, state, begun, committed, "tables", fences, server, reason FROM system.transactions
    ${whereAll(equals("state", parameters.get("state")), contains(["actor", "server", "reason"], search))}
    ORDER BY id DESC LIMIT ${ROWS_MAX}`,
  lost: `SELECT id, actor, begun, committed, "tables", files, server, found, history_before, history_now
    FROM system.lost_transactions ORDER BY found DESC LIMIT ${LOST_MAX}`,
})

const TABLES_SHOWN = 3

const TableNames = ({ row }) =>
  html`${row.named.slice(0, TABLES_SHOWN).map(([uuid, table]) => html`<${TableOf} key=${uuid} table=${table} uuid=${uuid} /> `)}
    ${row.named.length > TABLES_SHOWN && html`<small>and ${row.named.length - TABLES_SHOWN} more</small>`}`

const TRANSACTIONS = [
  { key: "id", title: "transaction", kind: "mono", show: (row) => String(row.id) },
  STATE,
  textColumn("reason", "reason"),
  textColumn("actor", "who writes", { kind: "" }),
  timeColumn("begun", "began"),
  {
    key: "took", title: "took", align: "right", value: (row) => tookOf(row),
    show: (row) => (row.state === "running" ? `runs for ${seconds(secondsSince(row.begun))}` : seconds(tookOf(row))),
  },
  { key: "tables", title: "tables", value: (row) => row.named.length, show: (row) => html`<${TableNames} row=${row} />` },
  { key: "fences", title: "leases", align: "right", about: "Rights that its commit has to hold", value: (row) => row.fences?.length ?? 0,
    show: (row) => html`<span title=${(row.fences ?? []).join("\n")}>${exactly(row.fences?.length ?? 0)}</span>` },
  { key: "server", title: "server" },
]

const tookOf = (row) => (isNone(row.committed) ? null : (new Date(row.committed) - new Date(row.begun)) / 1000)

const LOST = [
  { key: "id", title: "transaction", kind: "mono", show: (row) => String(row.id) },
  timeColumn("found", "found missing"),
  timeColumn("committed", "committed"),
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

export function Transactions({ found, parameters, change }) {
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
        <${SelectBy} name="state" label="State" options=${STATES} parameters=${parameters} change=${change} />
        <${SearchBy} label="Who writes, server or reason" parameters=${parameters} change=${change} />
      </div>
      <${Answer} answer=${answer}>
        <${Table} label="transactions" rows=${rows} columns=${TRANSACTIONS} keyOf=${(row) => String(row.id)} empty="No transaction fits."
          toneOf=${(row) => (row.state === "aborted" ? "warn" : "")} ...${sorting(parameters, change)} />
      <//>
    <//>`
}
