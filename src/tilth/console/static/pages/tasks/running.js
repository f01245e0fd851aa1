// Tasks: those that run or wait, with their estimates, and those that have ended, with how good the estimates were.

import { html } from "../../vendor/preact-htm.js"
import { secondsSince } from "../../core/api.js"
import { contains, equals, whereAll } from "../../core/filters.js"
import { bytes, count, isNone, milliseconds, percent, perSecond, seconds } from "../../core/format.js"
import { TableName, nameOf } from "../../core/names.js"
import { ACTIVITY_WORDS } from "../../core/streams.js"
import { Table, numberColumn, someColumn, stateColumn, tableColumn, textColumn, timeColumn, wordColumn } from "../../core/table.js"
import { Answer, Bar, Card, SearchBy, SelectBy, Time, useTick } from "../../core/ui.js"

const LIVE_MAX = 1000
const ENDED_MAX = 300
/** A task that has run for longer than this multiple of its estimate is marked. */
const LATE = 1.5

const KINDS = ["consume", "insert", "flush", "merge", "mutate", "delta", "copy", "query"]
const KIND_OPTIONS = [["", "all kinds"], ...KINDS.map((kind) => [kind, kind])]

/** A measure beside what was estimated; a measure of 0 is none yet. */
function Beside({ actual, estimate, show }) {
  const [isMeasured, isEstimated] = [Number(actual) > 0, Number(estimate) > 0]
  if (!isEstimated) return isMeasured ? show(actual) : "–"
  return isMeasured ? html`${show(actual)} <small>of ~${show(estimate)}</small>` : html`<small>~${show(estimate)}</small>`
}

const besideColumn = (key, title, show = bytes, { actualOf = (row) => row[key], about = "Beside it the estimate" } = {}) => ({
  key,
  title,
  about,
  align: "right",
  value: actualOf,
  show: (row) => html`<${Beside} actual=${actualOf(row)} estimate=${row[`estimated_${key}`]} show=${show} />`,
})

const TABLE = { key: "table", title: "table", kind: "tight", show: (row) => html`<${TableName} name=${row.table} />` }
const WORKER = { key: "worker", title: "worker", kind: "tight", show: (row) => html`${row.worker} <small>${row.warehouse}</small>` }

const STATE_TONES = { pending: "", running: "busy", done: "good", failed: "bad", cancelled: "warn", lost: "bad" }
const STATE = stateColumn((state) => STATE_TONES[state] ?? "")

// --- now -------------------------------------------------------------------------------------------------------------

const ESTIMATES = `estimated_seconds, estimated_input_bytes, input_bytes, estimated_output_bytes, output_bytes,
  estimated_memory_bytes, memory_bytes, estimated_temporary_bytes, temporary_bytes`

export const nowStatements = ({ parameters }) => ({
  tasks: `SELECT id, kind, state, warehouse, worker, "table", reason, placement_reason, created, started, ${ESTIMATES}
    FROM system.tasks ${whereAll("ended IS NULL", equals("kind", parameters.get("kind")))} ORDER BY created LIMIT ${LIVE_MAX}`,
  merges: `SELECT task, progress, is_mutation FROM system.merges LIMIT ${LIVE_MAX}`,
  statements: `SELECT task_id, read_rows, read_bytes, tasks_done, tasks_total FROM system.processes
    WHERE task_id IS NOT NULL LIMIT ${LIVE_MAX}`,
  consumers: `SELECT task, activity, round_running_seconds, rate, "rows", bytes FROM system.kafka_tables
    WHERE task IS NOT NULL LIMIT ${LIVE_MAX}`,
})

const byTask = (answer, name) => new Map((answer?.rows ?? []).map((row) => [row[name], row]))

/** Progress of a task: {part, words}; part is null where nothing says so. */
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
    const elapsed = secondsSince(row.started)
    const [merge, statement, consumer] = [merges, statements, consumers].map((each) => each.get(row.id))
    const task = { ...row, elapsed, merge, statement, consumer, why: row.placement_reason ?? row.reason }
    return { ...task, ...progressOf(task) }
  })
}

/** Bytes that a task has read: measured at its end, reported by a statement, or read by its consumer since it was started. */
const inputOf = (row) => row.input_bytes || row.statement?.read_bytes || row.consumer?.bytes || 0

const showRows = (row) => {
  if (row.consumer) return `${count(row.consumer.rows)}${isNone(row.consumer.rate) ? "" : `, ${perSecond(row.consumer.rate)}`}`
  return row.statement ? count(row.statement.read_rows) : ""
}

const NOW = [
  { key: "kind", title: "task", kind: "tight", show: (row) => (row.merge?.is_mutation ? "mutate" : row.kind) },
  TABLE,
  STATE,
  {
    key: "part",
    title: "progress",
    kind: "tight",
    show: (row) => [
      row.part !== null && html`<${Bar} part=${row.part} tone=${isLate(row) ? "warn" : ""} title=${row.words} /> `,
      html`<small>${row.words}</small>`,
    ],
  },
  numberColumn("elapsed", "for", seconds, {
    about: "Beside it the estimate",
    show: (row) => [
      row.elapsed === null ? html`waits since <${Time} at=${row.created} />` : seconds(row.elapsed),
      row.estimated_seconds > 0 && !row.consumer && html` <small>of ~${seconds(row.estimated_seconds)}</small>`,
    ],
  }),
  textColumn("why", "why there, or why it waits"),
  numberColumn("rows", "rows", count, {
    about: "Rows that a statement has read, or that a consumer has brought",
    value: (row) => row.statement?.read_rows ?? row.consumer?.rows ?? null,
    show: showRows,
  }),
  besideColumn("input_bytes", "reads", bytes, { actualOf: inputOf }),
  besideColumn("output_bytes", "writes", bytes, { about: "The estimate; it is measured at the end" }),
  besideColumn("memory_bytes", "memory"),
  WORKER,
]

export function Now({ found, parameters, change }) {
  useTick()
  const rows = found.tasks ? liveRows(found) : []
  const running = rows.filter((row) => row.state === "running").length
  return html`<${Card} title="Tasks on workers" about=${found.tasks && `${count(running)} run, ${count(rows.length - running)} wait`}
    actions=${html`<${SelectBy} name="kind" label="Kind" options=${KIND_OPTIONS} parameters=${parameters} change=${change} />`}>
    <${Answer} answer=${found.tasks}>
      <${Table} label="tasks" rows=${rows} columns=${NOW} keyOf=${(row) => row.id} toneOf=${(row) => (isLate(row) ? "warn" : "")}
        empty="No task runs or waits." height=${720} />
    <//>
  <//>`
}

// --- past ------------------------------------------------------------------------------------------------------------

const EVENTS = [
  "new", "merge", "flush", "remove_deleted", "mutate", "delete", "flush_deltas", "minor_delta", "major_delta", "hide",
  "undrop", "trash", "remove",
]
const EVENT_OPTIONS = [["", "all events"], ...EVENTS.map((event) => [event, event])]

export const pastStatements = ({ parameters, search }) => ({
  kinds: `SELECT kind, count(*) AS tasks, sum(CASE WHEN state IN ('failed', 'lost') THEN 1 ELSE 0 END) AS failed,
    avg(seconds) AS seconds, avg(estimated_seconds) AS estimated_seconds, avg(abs(estimate_error)) AS error
    FROM system.tasks WHERE ended IS NOT NULL GROUP BY kind ORDER BY tasks DESC`,
  ended: `SELECT id, kind, state, warehouse, worker, "table", reason, placement_reason, created, started, ended, seconds,
    estimate_error, ${ESTIMATES} FROM system.tasks
    ${whereAll("ended IS NOT NULL", equals("kind", parameters.get("kind")), contains(['"table"', "reason", "worker"], search))}
    ORDER BY ended DESC LIMIT ${ENDED_MAX}`,
  parts: `SELECT "at", event, database, "table", part, "rows", bytes, sources, duration_ms, reason FROM system.part_log
    ${whereAll(equals("event", parameters.get("event")), contains(['"table"', "part", "reason"], search))}
    ORDER BY "at" DESC LIMIT ${ENDED_MAX}`,
})

const KINDS_ENDED = [
  { key: "kind", title: "kind" },
  numberColumn("tasks", "tasks"),
  numberColumn("failed", "failed or lost"),
  numberColumn("seconds", "mean time", seconds),
  numberColumn("estimated_seconds", "mean estimate", seconds),
  numberColumn("error", "mean error", (error) => (isNone(error) ? "–" : `± ${percent(error)}`), {
    about: "Of the estimated time, up or down",
  }),
]

/** An error of 1 is twice as long as estimated. */
const showError = (error) => (isNone(error) ? "–" : `${error > 0 ? "+" : ""}${Math.round(100 * error)} %`)

const ENDED = [
  timeColumn("ended", "ended"),
  wordColumn("kind", "task"),
  TABLE,
  STATE,
  besideColumn("seconds", "took", seconds),
  numberColumn("estimate_error", "error", showError, {
    about: "By how much it took longer than estimated: 100 % is twice as long",
  }),
  textColumn("reason", "why there, or why it failed", {
    show: (row) => {
      const why = row.state === "done" ? (row.placement_reason ?? row.reason) : row.reason
      return html`<span title=${why}>${why}</span>`
    },
  }),
  besideColumn("input_bytes", "read"),
  besideColumn("output_bytes", "wrote"),
  besideColumn("memory_bytes", "memory"),
  besideColumn("temporary_bytes", "shuffled and spilled"),
  WORKER,
]

const PARTS = [
  timeColumn("at", "when"),
  stateColumn(() => "", { key: "event", title: "event" }),
  tableColumn(),
  { key: "part", title: "part", kind: "mono" },
  numberColumn("sources", "sources", count, { about: "Parts or deltas that it read" }),
  numberColumn("rows", "rows"),
  numberColumn("bytes", "size", bytes),
  someColumn("duration_ms", "took", milliseconds),
  textColumn("reason", "why"),
]

const newest = (answer) => answer && `the newest ${count(answer.rows.length)} that fit`

export function Past({ found, parameters, change }) {
  const by = { parameters, change }
  return html`
    <${Card} title="How good estimates are" about="of the tasks that the servers remember, by kind">
      <${Answer} answer=${found.kinds}>
        <${Table} label="kinds of tasks" rows=${found.kinds?.rows} columns=${KINDS_ENDED} keyOf=${(row) => row.kind}
          empty="No task has ended yet." />
      <//>
    <//>
    <${Card} title="Tasks that have ended" about=${newest(found.ended)}
      actions=${html`<${SearchBy} label="Table, reason or worker" ...${by} />
        <${SelectBy} name="kind" label="Kind" options=${KIND_OPTIONS} ...${by} />`}>
      <${Answer} answer=${found.ended}>
        <${Table} label="ended tasks" rows=${found.ended?.rows} columns=${ENDED} keyOf=${(row) => row.id} height=${520}
          toneOf=${(row) => (row.state === "failed" || row.state === "lost" ? "bad" : "")} empty="No task that has ended fits." />
      <//>
    <//>
    <${Card} title="What happened to parts" about=${newest(found.parts)}
      actions=${html`<${SelectBy} name="event" label="Event" options=${EVENT_OPTIONS} ...${by} />`}>
      <${Answer} answer=${found.parts}>
        <${Table} label="part log" rows=${found.parts?.rows} columns=${PARTS} height=${520}
          empty="Nothing that fits has happened to a part." keyOf=${(row) => `${row.at}/${row.event}/${nameOf(row)}/${row.part}`} />
      <//>
    <//>`
}
