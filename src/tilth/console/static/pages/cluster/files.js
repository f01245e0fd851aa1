// Files of a table in every replica, compared with the catalog.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { sorting } from "../../core/address.js"
import { named, objects, serverNow } from "../../core/api.js"
import { AuditLines, auditLines } from "../../core/audit.js"
import { StatementDialog } from "../../core/dialog.js"
import { bytes, exactly, isNone } from "../../core/format.js"
import { nameParts } from "../../core/names.js"
import { Table, numberColumn, textColumn, timeColumn } from "../../core/table.js"
import { Badge, Card, Failure, Time } from "../../core/ui.js"
import { TablePick } from "./tables.js"

export const fileStatements = () => ({ repairs: auditLines("SYSTEM CHECK FILES") })

const REPAIR_ABOUT =
  "Removes orphans whose transaction can never commit any more, once both are older than " +
  "repair_files_older_than_seconds (a day). Nothing else changes."

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

const toneOf = (state) => FILE_STATES[state]?.[0] ?? ""
const todoOf = (state) => FILE_STATES[state]?.[1]

const FILES = [
  textColumn("file", "file", { kind: "mono" }),
  numberColumn("replica", "replica"),
  {
    key: "state",
    title: "state",
    show: (row) => html`<${Badge} tone=${toneOf(row.state)} title=${todoOf(row.state)}>${row.state}<//>`,
  },
  textColumn("detail", "detail"),
  numberColumn("bytes", "size", bytes),
  timeColumn("modified", "modified"),
  timeColumn("since", "unused since"),
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
      ${states.map((each) => html`<button key=${each} type="button" aria-pressed=${state === each} title=${todoOf(each)}
        onClick=${() => change({ state: each })}>${each} ${exactly(answer.rows.filter((row) => row.state === each).length)}</button>`)}
    </div>
    ${state && html`<p class="about">${state}: ${todoOf(state)}</p>`}
    <${Table} label="files" rows=${rows} columns=${FILES} empty="No file." keyOf=${(row) => `${row.replica}/${row.file}`}
      ...${sorting(parameters, change)}
      toneOf=${(row) => ({ bad: "bad", warn: "warn" })[toneOf(row.state)] ?? ""} />
  <//>`
}

export function Files({ found, parameters, change, info }) {
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
      about=${isRepair ? REPAIR_ABOUT : "Lists the folder of the table in each replica once; nothing changes."}
      statement=${() => `SYSTEM CHECK FILES ${named(...nameParts(table))}${isRepair ? " REPAIR" : ""}`} />`}`
}
