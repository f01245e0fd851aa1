// The state of the system in one sentence; what needs a person; what comes in, waits and runs.

import { html, useRef, useState } from "../vendor/preact-htm.js"
import { secondsSince, useWatch } from "../core/api.js"
import { bytes, count, perSecond, seconds, sum } from "../core/format.js"
import { nameOf, streamLink, tableLink } from "../core/names.js"
import { ACTIVITY_WORDS, STALE_SECONDS } from "../core/streams.js"
import { Table, ageColumn, numberColumn, stateColumn, tableColumn } from "../core/table.js"
import { Answer, Badge, Card, Failure, Figure, Share, Sparkline, Time, Waiting, useTick } from "../core/ui.js"

const STATEMENTS = {
  alarms: `SELECT alarm, severity, database, "table", subject, sentence, since, todo, server FROM system.alarms`,
  servers: `SELECT name, process, state, reason, memory_bytes, memory_limit_bytes FROM system.servers ORDER BY name`,
  workers: `SELECT name, server, state, reason, running, free_disk_bytes FROM system.workers ORDER BY server, name`,
  totals: `SELECT count(*) AS tables, sum(rows) AS rows, sum(bytes) AS bytes, sum(parts) AS parts FROM system.tables`,
  // The age of the ends makes each answer another one, so that rates fall when nothing comes in.
  incoming: `SELECT sum(rows) AS rows, sum(bytes) AS bytes, sum(lag) AS lag, max(lag_age) AS lag_age,
    max(seconds_left) AS seconds_left FROM system.kafka_tables`,
  streams: `SELECT database, "table", activity, state, sum(lag) AS lag, max(lag_age) AS lag_age, sum(rate) AS rate,
    max(seconds_left) AS seconds_left
    FROM system.kafka_tables GROUP BY database, "table", activity, state ORDER BY lag DESC NULLS LAST LIMIT 200`,
  freshness: `SELECT database, name, rows, bytes, parts, last_commit FROM system.tables
    WHERE last_commit IS NOT NULL AND engine = 'MergeTree' ORDER BY last_commit DESC LIMIT 12`,
  backlog: `SELECT kind, count(*) AS ops, sum(CASE WHEN is_runnable THEN 1 ELSE 0 END) AS runnable,
    sum(running) AS running FROM system.maintenance_ops GROUP BY kind ORDER BY runnable DESC`,
  tasks: `SELECT id, kind, state, "table", worker, started FROM system.tasks
    WHERE ended IS NULL ORDER BY created LIMIT 50`,
  statements: `SELECT query_id, substr(query, 1, 120) AS query, started, state FROM system.processes
    WHERE coalesce(queue, '') <> 'watch' ORDER BY started LIMIT 20`,
}

/** Samples of the sparklines: three minutes. */
const SAMPLES_MAX = 91
/** Samples that a figure is the mean of: ten seconds. */
const MEAN_SAMPLES = 5
/** A lag that takes longer to be read is marked. */
const LONG_LAG_SECONDS = 60

/** Rows and bytes per second, from counters of successive answers. */
function useRates(answer) {
  const seen = useRef([])
  const row = answer?.rows[0]
  if (row && seen.current.at(-1)?.at !== answer.at)
    seen.current = [...seen.current, { at: answer.at, bytes: Number(row.bytes ?? 0), rows: Number(row.rows ?? 0) }].slice(-SAMPLES_MAX)
  return seen.current.slice(1).map((now, index) => {
    const before = seen.current[index]
    const passed = (now.at - before.at) / 1000
    // A consumer that starts anew counts from 0.
    const rate = (name) => Math.max(0, (now[name] - before[name]) / passed)
    return { rows: rate("rows"), bytes: rate("bytes") }
  })
}

// --- what needs a person ---------------------------------------------------------------------------------------------

const SEVERITIES = ["critical", "warning"]
const ALARMS_SHOWN = 30

const bySeverity = (alarms) =>
  [...alarms].sort((left, right) => SEVERITIES.indexOf(left.severity) - SEVERITIES.indexOf(right.severity))

const keyOf = (alarm) => `${alarm.alarm}/${alarm.server}/${nameOf(alarm)}/${alarm.subject}`

const Alarm = ({ alarm }) =>
  html`<div class="alarm">
    <${Badge} tone=${alarm.severity === "critical" ? "bad" : "warn"}>${alarm.alarm}<//>
    <p>${alarm.table ? html`<a href=${tableLink(alarm.database, alarm.table)}>${alarm.sentence}</a>` : alarm.sentence}</p>
    <span>${alarm.since && html`<${Time} at=${alarm.since} relative />`}</span>
    <p class="todo">${alarm.todo}</p>
  </div>`

function Alarms({ alarms }) {
  const [shown, setShown] = useState(ALARMS_SHOWN)
  return html`<div>
    ${alarms.slice(0, shown).map((alarm) => html`<${Alarm} key=${keyOf(alarm)} alarm=${alarm} />`)}
    ${alarms.length > shown &&
    html`<button type="button" onClick=${() => setShown(alarms.length)}>Show ${alarms.length - shown} more</button>`}
  </div>`
}

/** The tone of everything, and the sentence. */
function verdictOf(alarms) {
  const critical = alarms.filter((each) => each.severity === "critical")
  if (critical.length) return ["bad", critical.length === 1 ? critical[0].sentence : `${critical.length} things are broken`]
  if (!alarms.length) return ["good", "everything works"]
  return ["warn", `works; ${alarms.length === 1 ? "one thing needs" : `${alarms.length} things need`} a person`]
}

// --- figures ---------------------------------------------------------------------------------------------------------

const isAlive = (row) => row.state === "alive"
const toneOfHost = (state) => (state === "alive" ? "good" : "bad")

const isBehind = (row) => row.seconds_left > LONG_LAG_SECONDS || row.lag_age > STALE_SECONDS

function lagBelow(row) {
  if (row.lag_age > STALE_SECONDS) return `messages; the ends were seen ${seconds(row.lag_age)} ago`
  return Number(row.lag) && row.seconds_left !== null ? `messages; read in ${seconds(row.seconds_left)}` : "messages"
}

function Figures({ found, rates }) {
  const totals = found.totals.rows[0] ?? {}
  const incoming = found.incoming?.rows[0] ?? {}
  const hosts = [found.servers, found.workers].map((answer) => answer?.rows ?? [])
  const last = rates.slice(-MEAN_SAMPLES)
  const mean = (name) => (last.length ? sum(last.map((each) => each[name])) / last.length : null)
  const line = (name) => rates.map((each) => each[name])
  const runnable = sum((found.backlog?.rows ?? []).map((row) => row.runnable))
  return html`<div class="figures">
    <${Figure} label="rows in" value=${perSecond(mean("rows"))} below="of all views, last 10 s">
      <${Sparkline} values=${line("rows")} label="rows per second, last three minutes" />
    <//>
    <${Figure} label="bytes in" value=${perSecond(mean("bytes"), "bytes")} below="of messages, last 10 s">
      <${Sparkline} values=${line("bytes")} label="bytes per second, last three minutes" />
    <//>
    <${Figure} label="lag" href="#/streams" value=${count(incoming.lag ?? 0)} below=${lagBelow(incoming)}
      tone=${isBehind(incoming) ? "warn" : ""} />
    <${Figure} label="tables" href="#/tables" value=${count(totals.tables)}
      below=${`${count(totals.rows)} rows, ${bytes(totals.bytes)}, ${count(totals.parts)} parts`} />
    <${Figure} label="background work" href="#/tasks?tab=operations" value=${count(runnable)} below="operations that would gain something" />
    <${Figure} label="servers and workers" href="#/cluster" value=${hosts.map((rows) => rows.length).join(" + ")}
      below=${`${hosts.flat().filter((row) => !isAlive(row)).length || "none"} with troubles`} />
  </div>`
}

// --- tables ----------------------------------------------------------------------------------------------------------

const STREAMS = [
  tableColumn({ isLink: false }),
  numberColumn("lag", "lag"),
  numberColumn("seconds_left", "read in", seconds, { about: "Time until the lag is read at this rate" }),
  numberColumn("rate", "rate", perSecond, { about: "Messages that are read in a second" }),
  { key: "activity", title: "activity", show: (row) => ACTIVITY_WORDS[row.activity] ?? row.state },
]
const FRESHNESS = [
  tableColumn({ isLink: false }),
  ageColumn("last_commit", "last commit"),
  numberColumn("rows", "rows"),
  numberColumn("parts", "parts"),
  numberColumn("bytes", "size", bytes),
]
const elapsed = (row) => seconds(secondsSince(row.started))
const TASKS = [
  { key: "kind", title: "task" },
  { key: "table", title: "table", kind: "text" },
  { key: "worker", title: "worker" },
  numberColumn("started", "for", count, { show: (row) => (row.started ? elapsed(row) : row.state) }),
]
const RUNNING = [
  { key: "query", title: "statement", kind: "mono" },
  numberColumn("started", "for", count, { show: elapsed }),
  { key: "state", title: "state" },
]
const BACKLOG = [
  { key: "kind", title: "kind" },
  numberColumn("runnable", "would gain"),
  numberColumn("running", "running"),
  numberColumn("ops", "all"),
]
const SERVERS = [
  { key: "name", title: "server" },
  stateColumn(toneOfHost),
  numberColumn("memory_bytes", "memory of writers", bytes, {
    show: (row) => html`<${Share} used=${row.memory_bytes} of=${row.memory_limit_bytes} show=${bytes} />`,
  }),
]
const WORKERS = [
  { key: "name", title: "worker" },
  stateColumn(toneOfHost),
  numberColumn("running", "tasks"),
  numberColumn("free_disk_bytes", "free disk", bytes),
]

const toneOfStream = (row) => (row.state === "failed" ? "bad" : isBehind(row) ? "warn" : "")

const Part = ({ answer, ...table }) =>
  html`<${Answer} answer=${answer}><${Table} rows=${answer?.rows} ...${table} /><//>`

export default function Overview() {
  const found = useWatch(STATEMENTS, { every: 2 })
  const rates = useRates(found.incoming)
  useTick()
  if (!found.totals) return html`<${Waiting} />`
  const alarms = bySeverity(found.alarms?.rows ?? [])
  const [tone, sentence] = found.alarms?.error ? ["warn", "alarms cannot be read"] : verdictOf(alarms)
  return html`
    <div class="head"><h1>Overview</h1>${found.alarms && html`<${Badge} tone=${tone}>${sentence}<//>`}</div>
    <${Failure} error=${found.totals.error} />
    <${Figures} found=${found} rates=${rates} />
    <${Card} title="Needs a person" wide tone=${tone === "good" ? "" : tone} about=${alarms.length ? "" : "Nothing does."}>
      <${Failure} error=${found.alarms?.error} />
      <${Alarms} alarms=${alarms} />
    <//>
    <div class="grid">
      <${Card} title="Streams" about="lag and rate by Kafka table">
        <${Part} answer=${found.streams} label="streams" columns=${STREAMS} empty="No Kafka table." height=${330}
          keyOf=${(row) => `${nameOf(row)}/${row.activity}/${row.state}`} toneOf=${toneOfStream}
          href=${(row) => streamLink(row.database, row.table)} />
      <//>
      <${Card} title="Freshness" about="tables by their last commit">
        <${Part} answer=${found.freshness} label="freshness" columns=${FRESHNESS} keyOf=${nameOf} empty="No table has a commit."
          href=${(row) => tableLink(row.database, row.name)} />
      <//>
      <${Card} title="Runs now" about="tasks on workers, then statements">
        <${Part} answer=${found.tasks} label="tasks" columns=${TASKS} keyOf=${(row) => row.id} empty="No task." />
        <${Part} answer=${found.statements} label="statements" columns=${RUNNING} keyOf=${(row) => row.query_id}
          empty="No statement." />
      <//>
      <${Card} title="Background operations" about="how many wait for their turn, by kind">
        <${Part} answer=${found.backlog} label="backlog" columns=${BACKLOG} keyOf=${(row) => row.kind} empty="None."
          href=${(row) => `#/tasks?tab=operations&kind=${row.kind}`} />
      <//>
      <${Card} title="Servers and workers">
        <${Part} answer=${found.servers} label="servers" columns=${SERVERS} keyOf=${(row) => row.process} empty="–"
          href=${() => "#/cluster"} />
        <${Part} answer=${found.workers} label="workers" columns=${WORKERS} keyOf=${(row) => `${row.server}/${row.name}`}
          empty="–" href=${() => "#/cluster?tab=workers"} />
      <//>
    </div>`
}
