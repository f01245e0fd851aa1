// The outcome of a statement: its progress, its rows, what it did, or why it failed.

import { html } from "../../vendor/preact-htm.js"
import { objects } from "../../core/api.js"
import { Kept, Merges } from "../../core/explain.js"
import { bytes, count, exactly, isNone, milliseconds, seconds } from "../../core/format.js"
import { Copy } from "../../core/notes.js"
import { Badge, Card, Code, Done, Empty, Failure, Tabs, useTick } from "../../core/ui.js"
import { Plan } from "./plan.js"
import { Grid } from "./grid.js"
import { Plot, isPlottable } from "./plot.js"
import { explained } from "./statements.js"
import { kindOf } from "./types.js"

/** A result of more texts is a table. */
const DOCUMENTS_MAX = 10

// --- under way -------------------------------------------------------------------------------------------------------

/** `process`: the line of system.processes; undefined: it has not come yet. */
function Progress({ run, process, onCancel }) {
  useTick(0.5)
  const passed = (Date.now() - run.begun) / 1000
  const hasRead = !isNone(process?.read_rows)
  return html`<div class="sql-progress" role="status">
    <${Badge} tone="busy">${process?.state ?? "running"}<//>
    <span>${seconds(passed)}</span>
    <span><${Done} done=${process?.stages_done} all=${process?.stages_total} what="stages" /></span>
    <span><${Done} done=${process?.tasks_done} all=${process?.tasks_total} what="tasks" /></span>
    ${hasRead && html`<span>${count(process.read_rows)} rows, ${bytes(process.read_bytes)} read</span>`}
    ${run.rowsReceived > 0 && html`<span>${count(run.rowsReceived)} rows received</span>`}
    ${process?.warehouse && html`<span>in ${process.warehouse}</span>`}
    <button type="button" class="danger" onClick=${onCancel}>Cancel</button>
  </div>`
}

// --- done ------------------------------------------------------------------------------------------------------------

const isDocument = ({ columns, rows }) =>
  columns.length === 1 &&
  rows.length <= DOCUMENTS_MAX &&
  kindOf(columns[0].type) === "text" &&
  rows.some(([text]) => String(text ?? "").includes("\n"))

/** Forms in which an answer can be seen, the best one first: [key, title]. */
function viewsOf({ sent, answer }) {
  const { columns, rows, text } = answer
  if (text !== undefined) return [["text", "Text"]]
  if (!columns.length) return []
  const table = ["table", "Table"]
  const what = explained(sent)
  if (what === "MERGE" || what === "GC") return [["reasons", "Reasons"], table]
  if (what === "PLAN" && columns.length === 1) return [["plan", "Plan"], ["text", "Text"]]
  if (isDocument(answer)) return [["text", "Text"], table]
  return isPlottable(columns, rows) ? [table, ["plot", "Plot"]] : [table]
}

const textOf = ({ text, rows }) => text ?? rows.map(([value]) => value ?? "").join("\n\n")

function View({ view, run, parameters, change }) {
  const { answer } = run
  if (view === "text")
    return html`<div><div class="sql-tools"><span class="grow"></span><${Copy} text=${textOf(answer)} /></div>
      <${Code}>${textOf(answer)}<//></div>`
  if (view === "plan") return html`<${Plan} text=${textOf(answer)} />`
  if (view === "reasons") {
    const Reasons = explained(run.sent) === "GC" ? Kept : Merges
    return html`<${Reasons} rows=${objects(answer)} height=${560} />`
  }
  const Rows = view === "plot" ? Plot : Grid
  return html`<${Rows} columns=${answer.columns} rows=${answer.rows} parameters=${parameters} change=${change} />`
}

const shellQuoted = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`

/** A note on an answer that has more than a page shows, with the command that gets all of it. */
function Cut({ run }) {
  if (!run.answer.isCut) return null
  const database = run.database === "default" ? "" : ` --database ${shellQuoted(run.database)}`
  const command = `tilth sql --url ${location.origin}${database} -c ${shellQuoted(run.sent)} --format csv > result.csv`
  const what = run.answer.text === undefined ? `the first ${exactly(run.answer.rows.length)} rows` : "the beginning"
  return html`<div class="sql-cut">
    <${Badge} tone="warn">${what}<//> The answer has more, which this page does not read. Ask for less with LIMIT or an
    aggregate, or get all of it in a shell: <code>${command}</code> <${Copy} text=${command} />
  </div>`
}

function Facts({ run }) {
  const { answer, details } = run
  const { summary } = answer
  const { parts_read: partsRead, parts_pruned: partsPruned, rows_written: written } = details ?? {}
  const hasParts = !isNone(partsRead) && partsRead + partsPruned > 0
  const elapsed = details?.elapsed_ms ?? summary.elapsed_ms
  const rows = `${exactly(answer.rows.length)} ${answer.rows.length === 1 ? "row" : "rows"}`
  return html`<p class="sql-facts">
    ${answer.columns.length > 0 && html`<span>${rows}</span>`}
    ${written > 0 && html`<span>${exactly(written)} rows written</span>`}
    <span title=${`${seconds(run.seconds)} until all of it was here`}>${milliseconds(elapsed)}</span>
    ${hasParts && html`<span>${exactly(partsRead)} parts read, ${exactly(partsPruned)} ruled out</span>`}
    ${details?.result_bytes > 0 && html`<span>${bytes(details.result_bytes)}</span>`}
    ${details?.sent_again && html`<span>sent to Spark again: ${details.sent_again}</span>`}
    <span>query <code>${answer.queryId}</code> <${Copy} text=${answer.queryId ?? ""} label="Copy id" /></span>
  </p>`
}

function Answer({ run, parameters, change }) {
  const { summary } = run.answer
  const views = viewsOf(run)
  const wanted = parameters.get("view")
  const view = views.some(([key]) => key === wanted) ? wanted : views[0]?.[0]
  return html`
    ${summary.message && html`<p><${Badge} tone="good">done<//> ${summary.message}</p>`}
    ${!summary.message && !views.length && html`<p><${Badge} tone="good">done<//></p>`}
    ${summary.notices.map((notice, index) => html`<p key=${index}><${Badge} tone="warn">notice<//> ${notice}</p>`)}
    <${Cut} run=${run} />
    ${views.length > 1 &&
    html`<${Tabs} label="Forms of the answer" tabs=${views} current=${view}
      onChange=${(next) => change({ view: next })} />`}
    ${view && html`<${View} view=${view} run=${run} parameters=${parameters} change=${change} />`}
    <${Facts} run=${run} />`
}

// --- all of them -----------------------------------------------------------------------------------------------------

const SIGNS = { waiting: "○", running: "◐", done: "●", failed: "■", cancelled: "▲", skipped: "○" }

const titleOf = (run, index) => {
  const text = run.sql.replace(/\s+/g, " ")
  return `${SIGNS[run.state]} ${index + 1} ${text.length > 32 ? `${text.slice(0, 31)}…` : text}`
}

function Outcome({ run, process, onCancel, place, parameters, change }) {
  if (run.state === "running") return html`<${Progress} run=${run} process=${process} onCancel=${onCancel} />`
  if (run.state === "done") return html`<${Answer} run=${run} parameters=${parameters} change=${change} />`
  if (run.state === "failed")
    return html`<${Failure} error=${run.error} />
      <p class="sql-facts">
        ${place &&
        html`<button type="button" onClick=${place.go}>Go to line ${place.line}, column ${place.column}</button>`}
        <span>failed after ${seconds(run.seconds)}</span>
      </p>`
  if (run.state === "cancelled")
    return html`<p><${Badge} tone="warn">cancelled<//> after ${seconds(run.seconds)}; the server ends it. What it had
      committed before stays; the history says how it ended.</p>`
  if (run.state === "skipped") return html`<${Empty}>It did not run: a statement before it did not end well.<//>`
  return html`<${Empty}>It waits for the statement before it.<//>`
}

/** `placeOf(run)`: {line, column, go} of an error, or undefined. */
export function Results({ runs, chosen, onChoose, process, onCancel, placeOf, parameters, change }) {
  const run = runs.find((one) => one.key === chosen) ?? runs.findLast(({ state }) => !/waiting|skipped/.test(state))
  if (!run) return html`<${Empty}>The answers of statements come here.<//>`
  const tabs = runs.map((one, index) => [one.key, titleOf(one, index)])
  return html`<${Card} id="results">
    ${runs.length > 1 &&
    html`<${Tabs} label="Statements that ran" tabs=${tabs} current=${run.key} onChange=${onChoose} />`}
    <${Outcome} key=${run.key} run=${run} process=${process} onCancel=${onCancel}
      place=${run.state === "failed" ? placeOf(run) : undefined} parameters=${parameters} change=${change} />
  <//>`
}
