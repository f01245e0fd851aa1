// Lines of the audit log.

import { html } from "../vendor/preact-htm.js"
import { begins } from "./filters.js"
import { TableName } from "./names.js"
import { Table, textColumn, timeColumn } from "./table.js"
import { Answer, Badge } from "./ui.js"

const LINES_MAX = 50

/** An outcome that is an error begins with its code. */
export const isRefused = (outcome) => /^[A-Z][A-Z0-9_]+: /.test(outcome ?? "")

export const Outcome = ({ text }) => {
  const [word, ...rest] = String(text ?? "").split(": ")
  const tone = word === "done" ? "good" : isRefused(text) ? "bad" : ""
  return html`<span title=${text}><${Badge} tone=${tone}>${word || "–"}<//> ${rest.join(": ")}</span>`
}

/** Columns of lines by their keys. */
export const LINE = {
  time: timeColumn("time", "time"),
  table: { key: "table", title: "table", show: (row) => html`<${TableName} name=${row.table ?? "–"} />` },
  outcome: { key: "outcome", title: "outcome", kind: "text", show: (row) => html`<${Outcome} text=${row.outcome} />` },
  statement: textColumn("statement", "statement", { kind: "mono" }),
  client: { key: "client", title: "from", show: (row) => row.client ?? "the server itself" },
}
const COLUMNS = [LINE.time, LINE.table, LINE.outcome, LINE.statement, LINE.client]

/** Lines of one kind of statement, read by `auditLines`. */
export const AuditLines = ({ answer, label, empty }) =>
  html`<${Answer} answer=${answer}>
    <${Table} label=${label} rows=${answer?.rows} columns=${COLUMNS} empty=${empty} height=${320}
      keyOf=${(row) => `${row.time}/${row.query_id}`}
      href=${(row) => row.query_id && `#/audit?id=${encodeURIComponent(row.query_id)}`} />
  <//>`

/** The statement that reads them, newest first. */
export const auditLines = (verb) =>
  `SELECT "time", "table", outcome, statement, client, query_id FROM system.audit_log WHERE ${begins("verb", verb)}
    ORDER BY "time" DESC LIMIT ${LINES_MAX}`
