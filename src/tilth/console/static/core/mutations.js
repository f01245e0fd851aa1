// Mutations: ALTERs that rewrite parts, of one table or of all.

import { html, useMemo, useState } from "../vendor/preact-htm.js"
import { literal } from "./api.js"
import { StatementDialog } from "./dialog.js"
import { whereAll } from "./filters.js"
import { count, isNone } from "./format.js"
import { nameOf } from "./names.js"
import { Table, ageColumn, buttonColumn, tableColumn, textColumn } from "./table.js"
import { Badge, Done, Time } from "./ui.js"

const MUTATIONS_MAX = 500

/** The statement that reads them, those under way first. */
export const mutationsStatement = (condition) =>
  `SELECT mutation_id, database, "table", command, kind, create_time, is_done, is_killed, end_time,
    parts_to_do, parts_done, running, latest_failed_part, latest_fail_reason, next_attempt, state_reason
    FROM system.mutations ${whereAll(condition)}
    ORDER BY CASE WHEN is_done OR is_killed THEN 1 ELSE 0 END, create_time DESC LIMIT ${MUTATIONS_MAX}`

export const isOver = (row) => row.is_done || row.is_killed
const fails = (row) => row.latest_fail_reason && !isOver(row)

function stateOf(row) {
  if (row.is_done) return ["good", "done"]
  if (row.is_killed) return ["warn", "killed"]
  if (row.latest_fail_reason) return ["bad", "fails"]
  return Number(row.running) ? ["busy", `runs × ${row.running}`] : ["", "waits"]
}

function Progress({ row }) {
  if (row.is_done) return "all parts"
  if (isNone(row.parts_to_do)) return `${count(row.parts_done)} parts done`
  const all = Number(row.parts_done) + Number(row.parts_to_do)
  return html`<${Done} done=${row.parts_done} all=${all} what="parts" tone=${row.latest_fail_reason ? "bad" : ""} />`
}

const Failing = ({ row }) => {
  const next = row.next_attempt && html`; next attempt <${Time} at=${row.next_attempt} relative />`
  return html`<span title=${row.latest_fail_reason}>${row.latest_failed_part}: ${row.latest_fail_reason}${next}</span>`
}

const columnsOf = (hasTables, kill) => [
  ...(hasTables ? [tableColumn({ page: "?tab=mutations" })] : []),
  textColumn("command", "command", { kind: "code-cell" }),
  {
    key: "state",
    title: "state",
    value: (row) => stateOf(row)[1],
    show: (row) => {
      const [tone, words] = stateOf(row)
      return html`<${Badge} tone=${tone} title=${row.state_reason}>${words}<//>`
    },
  },
  { key: "parts_done", title: "parts", kind: "tight", show: (row) => html`<${Progress} row=${row} />` },
  ageColumn("create_time", "sent"),
  ageColumn("end_time", "ended"),
  textColumn("state_reason", "why", {
    value: (row) => row.latest_fail_reason ?? row.state_reason,
    show: (row) =>
      fails(row) ? html`<${Failing} row=${row} />` : html`<span title=${row.state_reason}>${row.state_reason}</span>`,
  }),
  buttonColumn("Kill", (row) => `Kill the mutation ${row.mutation_id}`, kill, { isShown: (row) => !isOver(row) }),
]

/** Mutations of one table; with `hasTables` of all, each with a link to its table. */
export function Mutations({ rows, hasTables = false, height = 560 }) {
  const [killed, setKilled] = useState(null)
  const columns = useMemo(() => columnsOf(hasTables, setKilled), [hasTables])
  return html`<${Table} label="mutations" rows=${rows} columns=${columns} keyOf=${(row) => row.mutation_id} height=${height}
      toneOf=${(row) => (fails(row) ? "bad" : "")} empty="No mutation: an ALTER that rewrites parts makes one." />
    ${killed &&
    html`<${StatementDialog} title=${`Kill the mutation of ${nameOf(killed)}`} danger action="Kill"
      about=${`${killed.command}: parts that are rewritten already stay as they are.`} onClose=${() => setKilled(null)}
      statement=${() => `KILL MUTATION ${literal(killed.mutation_id)}`} />`}`
}
