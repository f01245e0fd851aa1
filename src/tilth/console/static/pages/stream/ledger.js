// The ledger of one Kafka table: what was read and became rows, and whether all of it is in the tables once.

import { html } from "../../vendor/preact-htm.js"
import { exactly } from "../../core/format.js"
import { gapKey, offsetColumn, topicColumn } from "../../core/streams.js"
import { Table, numberColumn, someColumn, textColumn, timeColumn } from "../../core/table.js"
import { Answer, Badge, Card, Time } from "../../core/ui.js"

const LEDGER_MAX = 200
const LEDGER_WORDS = { "-1": "offsets moved", "-2": "old rounds, summed", "-3": "dead letters replayed" }

const LEDGER = [
  timeColumn("committed", "committed"),
  { key: "consumer", title: "by", show: (row) => LEDGER_WORDS[row.consumer] ?? `consumer ${row.consumer}` },
  topicColumn,
  offsetColumn("start", "from offset"),
  offsetColumn("end", "to", {
    about: "The offset behind the last one",
    show: (row) => (Number(row.end) < 0 ? "no such partition" : exactly(row.end)),
  }),
  numberColumn("messages", "messages", exactly),
  numberColumn("rows", "rows", exactly),
  someColumn("dead", "dead", exactly),
  someColumn("refused", "refused", exactly),
  numberColumn("txn", "transaction", String),
]

export const ledgerStatement = (condition) =>
  `SELECT committed, txn, consumer, topic, "partition", "start", "end", messages, rows, dead, refused
    FROM system.ingest_ledger WHERE ${condition} ORDER BY committed DESC LIMIT ${LEDGER_MAX}`

export const Ledger = ({ answer }) =>
  html`<${Card} title="Ledger" about=${`what was read, and became rows, in one transaction each; the newest ${LEDGER_MAX}`}>
    <${Answer} answer=${answer}>
      <${Table} label="ledger" rows=${answer?.rows} columns=${LEDGER} height=${640} empty="Nothing has been read yet."
        keyOf=${(row) => `${row.txn}/${gapKey(row)}`} />
    <//>
  <//>`

// --- SYSTEM VERIFY ---------------------------------------------------------------------------------------------------

const CHECKS = [
  {
    key: "ok",
    title: "result",
    show: (row) => html`<${Badge} tone=${row.ok ? "good" : "bad"}>${row.ok ? "holds" : "does not hold"}<//>`,
  },
  { key: "subject", title: "of", kind: "mono" },
  textColumn("check", "what was checked"),
  textColumn("detail", "figures, or what is wrong"),
]

/** The answer of SYSTEM VERIFY. */
export function Verified({ verified, onClose }) {
  const all = verified.rows.length
  const wrong = verified.rows.filter((row) => !row.ok).length
  const result = wrong ? `${wrong} of ${all} checks do not hold` : `all ${all} checks hold`
  return html`<${Card} title="Verified" tone=${wrong ? "bad" : ""} about=${html`<${Time} at=${verified.at} />: ${result}`}
    actions=${html`<button type="button" class="quiet" onClick=${onClose}>Close</button>`}>
    <${Table} label="checks" rows=${verified.rows} columns=${CHECKS} toneOf=${(row) => (row.ok ? "" : "bad")}
      empty="There is nothing to check." />
  <//>`
}
