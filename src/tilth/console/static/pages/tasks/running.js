// Tasks: those that run or wait, with their estimates, and those that have ended, with how good the estimates were.

import { html, useMemo } from "../../vendor/preact-htm.js"
import { serverNow } from "../../core/api.js"
import { bytes, count, dateOf, isNone, percent, perSecond, seconds } from "../../core/format.js"
import { Badge, Bar, Card, Failure, Search, Table, Time, Waiting, useTick } from "../../core/ui.js"
import { ACTIVITY_WORDS } from "../streams.js"
import { Beside, Select, TableName, holds, whereAll } from "./parts.js"

const LIVE_MAX = 1000
const ENDED_MAX = 300
/** A task that has run for longer than this multiple of its estimate is marked. */
const LATE = 1.5

const KINDS = ["consume", "insert", "flush", "merge", "mutate", "delta", "copy", "query"]
const KIND_OPTIONS = [["", "all kinds"], ...KINDS.map((kind) => [kind, kind])]

const STATE_TONES = { pending: "", running: "busy", done: "good", failed: "bad", cancelled: "warn", lost: "bad" }

// --- now -------------------------------------------------------------------------------------------------------------

const ESTIMATES = `estimated_seconds, estimated_input_bytes, input_bytes, estimated_output_bytes, output_bytes,
  estimated_memory_bytes, memory_bytes, estimated_temporary_bytes, temporary_bytes`

export const nowStatements = (kind) => ({
  tasks: `SELECT id, kind, state, warehouse, worker, "table", reason, placement_reason, created, started, ${ESTIMATES}, server
    FROM system.tasks ${whereAll("ended IS NULL", kind && `kind = '${kind}'`)} ORDER BY created LIMIT ${LIVE_MAX}`,
  merges: `SELECT task, progress, is_mutation FROM system.merges LIMIT ${LIVE_MAX}`,
  statements: `SELECT task_id, query_id, read_rows, read_bytes, tasks_done, tasks_total FROM system.processes
    WHERE task_id IS NOT NULL LIMIT ${LIVE_MAX}`,
  consumers: `SELECT task, activity, round_running_seconds, rate, "rows", bytes, lag FROM system.kafka_tables
    WHERE task IS NOT NULL LIMIT ${LIVE_MAX}`,
})

const byTask = (answer, name) => new Map((answer?.rows ?? []).map((row) => [row[name], row]))

/** How far a task is: {part, words}; part is null where nothing says so. */
function progressOf(task) {
  const { statement, consumer, merge } = task
  if (consumer) {
    const round = isNone(consumer.round_running_seconds) ? "" : `, its round for ${seconds(consumer.round_running_seconds)}`
    return { part: null, words: `${ACTIVITY_WORDS[consumer.activity] ?? "stays"}${round}` }
  }
  if (Number(statement?.tasks_total) > 0)
    return {
      part: Number(statement.tasks_done) / Number(statement.tasks_total),
      words: `${statement.tasks_done} of ${statement.tasks_total} Spark tasks`,
    }
  if (merge && merge.progress > 0) return { part: merge.progress, words: percent(merge.progress) }
  if (task.elapsed !== null && task.estimated_seconds > 0) {
    const part = Math.min(1, task.elapsed / task.estimated_seconds)
    return { part, words: `${percent(part)} of its estimated time` }
  }
  return { part: null, words: task.state === "running" ? "no estimate" : "" }
}

const isLate = (task) => !task.consumer && task.estimated_seconds > 0 && task.elapsed > LATE * task.estimated_seconds

function liveRows(found) {
  const [merges, consumers] = [byTask(found.merges, "task"), byTask(found.consumers, "task")]
  const statements = byTask(found.statements, "task_id")
  return found.tasks.rows.map((row) => {
    const started = dateOf(row.started)
    const elapsed = started ? Math.max(0, (serverNow() - started.getTime()) / 1000) : null
    const [merge, statement, consumer] = [merges, statements, consumers].map((each) => each.get(row.id))
    const task = { ...row, elapsed, merge, statement, consumer, why: row.placement_reason ?? row.reason }
    return { ...task, ...progressOf(task) }
  })
}

/** What a task has read: measured at its end, reported by a statement, or read by its consumer since it was started. */
const inputOf = (row) => row.input_bytes || row.statement?.read_bytes || row.consumer?.bytes || 0

const showRows = (row) => {
  if (row.consumer) return `${count(row.consumer.rows)}${isNone(row.consumer.rate) ? "" : `, ${perSecond(row.consumer.rate)}`}`
  return row.statement ? count(row.statement.read_rows) : ""
}

const NOW = [
  { key: "kind", title: "task", kind: "tight", show: (row) => (row.merge?.is_mutation ? "mutate" : row.kind) },
  { key: "table", title: "table", kind: "tight", show: (row) => html`<${TableName} name=${row.table} />` },
  {
    key: "state",
    title: "state",
    show: (row) => html`<${Badge} tone=${STATE_TONES[row.state]} title=${row.reason}>${row.state}<//>`,
  },
  {
    key: "part",
    title: "progress",
    kind: "tight",
    show: (row) => [
      row.part !== null && html`<${Bar} part=${row.part} tone=${isLate(row) ? "warn" : ""} title=${row.words} /> `,
      html`<small>${row.words}</small>`,
    ],
  },
  {
    key: "elapsed",
    title: "for",
    align: "right",
    about: "Beside it the estimate",
    show: (row) => [
      row.elapsed === null ? html`waits since <${Time} at=${row.created} />` : seconds(row.elapsed),
      row.estimated_seconds > 0 && !row.consumer && html` <small>of ~${seconds(row.estimated_seconds)}</small>`,
    ],
  },
  {
    key: "why",
    title: "why there, or why it waits",
    kind: "text",
    show: (row) => html`<span title=${row.why}>${row.why}</span>`,
  },
  {
    key: "rows",
    title: "rows",
    align: "right",
    about: "Rows that a statement has read, or that a consumer has brought",
    value: (row) => row.statement?.read_rows ?? row.consumer?.rows ?? null,
    show: showRows,
  },
  {
    key: "input_bytes",
    title: "reads",
    align: "right",
    value: inputOf,
    show: (row) => html`<${Beside} actual=${inputOf(row)} estimate=${row.estimated_input_bytes} show=${bytes} />`,
  },
  {
    key: "output_bytes",
    title: "writes",
    align: "right",
    about: "The estimate; it is measured at the end",
    show: (row) => html`<${Beside} actual=${row.output_bytes} estimate=${row.estimated_output_bytes} show=${bytes} />`,
  },
  {
    key: "memory_bytes",
    title: "memory",
    align: "right",
    about: "Beside it the estimate",
    show: (row) => html`<${Beside} actual=${row.memory_bytes} estimate=${row.estimated_memory_bytes} show=${bytes} />`,
  },
  { key: "worker", title: "worker", kind: "tight", show: (row) => html`${row.worker} <small>${row.warehouse}</small>` },
]

export function Now({ found, kind, change }) {
  useTick()
  if (!found.tasks) return html`<${Waiting} />`
  const rows = liveRows(found)
  const running = rows.filter((row) => row.state === "running").length
  return html`<${Card} title="Tasks on workers" about=${`${count(running)} run, ${count(rows.length - running)} wait`}
    actions=${html`<${Select} label="Kind" value=${kind} options=${KIND_OPTIONS} onChange=${(value) => change({ kind: value })} />`}>
    <${Failure} error=${found.tasks.error} />
    <${Table} label="tasks" rows=${rows} columns=${NOW} keyOf=${(row) => row.id} toneOf=${(row) => (isLate(row) ? "warn" : "")}
      empty="No task runs or waits." height=${720} />
  <//>`
}

// --- past ------------------------------------------------------------------------------------------------------------

const EVENTS = [
  "new", "merge", "flush", "remove_deleted", "mutate", "delete", "flush_deltas", "minor_delta", "major_delta", "hide",
  "undrop", "trash", "remove",
]
const EVENT_OPTIONS = [["", "all events"], ...EVENTS.map((event) => [event, event])]

export const pastStatements = (kind, event, text) => ({
  kinds: `SELECT kind, count(*) AS tasks, sum(CASE WHEN state IN ('failed', 'lost') THEN 1 ELSE 0 END) AS failed,
    avg(seconds) AS seconds, avg(estimated_seconds) AS estimated_seconds, avg(abs(estimate_error)) AS error
    FROM system.tasks WHERE ended IS NOT NULL GROUP BY kind ORDER BY tasks DESC`,
  ended: `SELECT id, kind, state, warehouse, worker, "table", reason, placement_reason, created, started, ended, seconds,
    estimate_error, ${ESTIMATES}, server FROM system.tasks
    ${whereAll("ended IS NOT NULL", kind && `kind = '${kind}'`, holds(['"table"', "reason", "worker"], text))}
    ORDER BY ended DESC LIMIT ${ENDED_MAX}`,
  parts: `SELECT "at", event, database, "table", part, "rows", bytes, sources, duration_ms, reason FROM system.part_log
    ${whereAll(event && `event = '${event}'`, holds(['"table"', "part", "reason"], text))} ORDER BY "at" DESC LIMIT ${ENDED_MAX}`,
})

const KINDS_ENDED = [
  { key: "kind", title: "kind" },
  { key: "tasks", title: "tasks", align: "right", show: (row) => count(row.tasks) },
  { key: "failed", title: "failed or lost", align: "right", show: (row) => count(row.failed) },
  { key: "seconds", title: "mean time", align: "right", show: (row) => seconds(row.seconds) },
  { key: "estimated_seconds", title: "mean estimate", align: "right", show: (row) => seconds(row.estimated_seconds) },
  {
    key: "error",
    title: "mean error",
    align: "right",
    about: "Of the estimated time, up or down",
    show: (row) => (isNone(row.error) ? "–" : `± ${percent(row.error)}`),
  },
]

/** An error of 1 is twice as long as estimated. */
const showError = (error) => (isNone(error) ? "–" : `${error > 0 ? "+" : ""}${Math.round(100 * error)} %`)

const ENDED = [
  { key: "ended", title: "ended", kind: "tight", show: (row) => html`<${Time} at=${row.ended} />` },
  { key: "kind", title: "task", kind: "tight" },
  { key: "table", title: "table", kind: "tight", show: (row) => html`<${TableName} name=${row.table} />` },
  {
    key: "state",
    title: "state",
    show: (row) => html`<${Badge} tone=${STATE_TONES[row.state]} title=${row.reason}>${row.state}<//>`,
  },
  {
    key: "seconds",
    title: "took",
    align: "right",
    show: (row) => html`<${Beside} actual=${row.seconds} estimate=${row.estimated_seconds} show=${seconds} />`,
  },
  {
    key: "estimate_error",
    title: "error",
    align: "right",
    about: "By how much it took longer than estimated: 100 % is twice as long",
    show: (row) => showError(row.estimate_error),
  },
  {
    key: "reason",
    title: "why there, or why it failed",
    kind: "text",
    show: (row) => {
      const why = row.state === "done" ? (row.placement_reason ?? row.reason) : row.reason
      return html`<span title=${why}>${why}</span>`
    },
  },
  {
    key: "input_bytes",
    title: "read",
    align: "right",
    show: (row) => html`<${Beside} actual=${row.input_bytes} estimate=${row.estimated_input_bytes} show=${bytes} />`,
  },
  {
    key: "output_bytes",
    title: "wrote",
    align: "right",
    show: (row) => html`<${Beside} actual=${row.output_bytes} estimate=${row.estimated_output_bytes} show=${bytes} />`,
  },
  {
    key: "memory_bytes",
    title: "memory",
    align: "right",
    about: "Beside it the estimate",
    show: (row) => html`<${Beside} actual=${row.memory_bytes} estimate=${row.estimated_memory_bytes} show=${bytes} />`,
  },
  {
    key: "temporary_bytes",
    title: "shuffled and spilled",
    align: "right",
    show: (row) =>
      html`<${Beside} actual=${row.temporary_bytes} estimate=${row.estimated_temporary_bytes} show=${bytes} />`,
  },
  { key: "worker", title: "worker", kind: "tight", show: (row) => html`${row.worker} <small>${row.warehouse}</small>` },
]

const PARTS = [
  { key: "at", title: "when", kind: "tight", show: (row) => html`<${Time} at=${row.at} />` },
  { key: "event", title: "event", show: (row) => html`<${Badge}>${row.event}<//>` },
  {
    key: "table",
    title: "table",
    kind: "tight",
    value: (row) => `${row.database}.${row.table}`,
    show: (row) => html`<${TableName} name=${`${row.database}.${row.table}`} />`,
  },
  { key: "part", title: "part", kind: "mono" },
  {
    key: "sources",
    title: "sources",
    align: "right",
    about: "Parts or deltas that it read",
    show: (row) => count(row.sources),
  },
  { key: "rows", title: "rows", align: "right", show: (row) => count(row.rows) },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  {
    key: "duration_ms",
    title: "took",
    align: "right",
    show: (row) => (Number(row.duration_ms) ? seconds(row.duration_ms / 1000) : ""),
  },
  { key: "reason", title: "why", kind: "text", show: (row) => html`<span title=${row.reason}>${row.reason}</span>` },
]

export function Past({ found, kind, event, text, change }) {
  const kinds = useMemo(() => found.kinds?.rows ?? [], [found.kinds])
  if (!found.ended) return html`<${Waiting} />`
  return html`
    <${Card} title="How good estimates are" about="of the tasks that the servers remember, by kind">
      <${Failure} error=${found.kinds?.error} />
      <${Table} label="kinds of tasks" rows=${kinds} columns=${KINDS_ENDED} keyOf=${(row) => row.kind} empty="No task has ended yet." />
    <//>
    <${Card} title="Tasks that have ended" about=${`the newest ${count(found.ended.rows.length)} that fit`}
      actions=${html`<${Search} label="Table, reason or worker" value=${text} onChange=${(value) => change({ search: value })} />
        <${Select} label="Kind" value=${kind} options=${KIND_OPTIONS} onChange=${(value) => change({ kind: value })} />`}>
      <${Failure} error=${found.ended.error} />
      <${Table} label="ended tasks" rows=${found.ended.rows} columns=${ENDED} keyOf=${(row) => row.id} height=${520}
        toneOf=${(row) => (row.state === "failed" || row.state === "lost" ? "bad" : "")} empty="No task that has ended fits." />
    <//>
    <${Card} title="What happened to parts" about=${found.parts ? `the newest ${count(found.parts.rows.length)} that fit` : ""}
      actions=${html`<${Select} label="Event" value=${event} options=${EVENT_OPTIONS} onChange=${(value) => change({ event: value })} />`}>
      <${Failure} error=${found.parts?.error} />
      ${found.parts
        ? html`<${Table} label="part log" rows=${found.parts.rows} columns=${PARTS} height=${520}
            empty="Nothing that fits has happened to a part." keyOf=${(row) => `${row.at}/${row.event}/${row.database}/${row.table}/${row.part}`} />`
        : html`<${Waiting} />`}
    <//>`
}
