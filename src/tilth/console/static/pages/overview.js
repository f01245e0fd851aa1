// How the system is, in one sentence; what needs a person; what comes in, waits and runs.

import { html, useRef, useState } from "../vendor/preact-htm.js"
import { useWatch } from "../core/api.js"
import { ago, bytes, count, percent, perSecond, seconds } from "../core/format.js"
import { Badge, Bar, Card, Empty, Failure, Figure, Sparkline, Table, Time, Waiting, tableLink } from "../core/ui.js"

const STATEMENTS = {
  alarms: `SELECT alarm, severity, database, "table", subject, sentence, since, todo, page, server FROM system.alarms`,
  servers: `SELECT name, state, reason, memory_bytes, memory_limit_bytes FROM system.servers ORDER BY name`,
  workers: `SELECT name, server, state, reason, running, free_disk_bytes FROM system.workers ORDER BY server, name`,
  totals: `SELECT count(*) AS tables, sum(rows) AS rows, sum(bytes) AS bytes, sum(parts) AS parts FROM system.tables`,
  streams: `SELECT database, table, activity, state, sum(messages) AS messages, sum(rows) AS rows, sum(bytes) AS bytes,
    sum(lag) AS lag, sum(rate) AS rate, max(seconds_left) AS seconds_left, max(last_commit) AS last_commit
    FROM system.kafka_tables GROUP BY database, table, activity, state ORDER BY lag DESC NULLS LAST LIMIT 200`,
  freshness: `SELECT database, name, engine, rows, bytes, parts, last_commit FROM system.tables
    WHERE last_commit IS NOT NULL AND engine = 'MergeTree' ORDER BY last_commit DESC LIMIT 12`,
  backlog: `SELECT op.kind, count(*) AS ops, sum(CASE WHEN op.is_runnable THEN 1 ELSE 0 END) AS runnable,
    sum(op.running) AS running, max(op.perf_improvement) AS gain FROM system.maintenance_ops AS op GROUP BY op.kind ORDER BY runnable DESC`,
  tasks: `SELECT kind, state, "table", worker, started, created, estimated_seconds, reason FROM system.tasks
    WHERE ended IS NULL ORDER BY created LIMIT 50`,
  statements: `SELECT query_id, kind, query, elapsed, state, read_rows FROM system.processes
    WHERE lower(query) NOT LIKE '%from system.%' AND lower(query) NOT LIKE 'explain%' ORDER BY elapsed DESC LIMIT 20`,
  metrics: `SELECT name, sum(value) AS value FROM system.metrics
    WHERE name LIKE '%disk%' OR name LIKE 'tilth_ingest_rows%' OR name LIKE 'tilth_ingest_bytes%' GROUP BY name`,
}

/** Rows and bytes per second, from counters of successive answers. */
function useRates(answer) {
  const seen = useRef([])
  const total = (name) => answer.rows.reduce((sum, row) => sum + Number(row[name] ?? 0), 0)
  if (answer && !answer.error && seen.current.at(-1)?.at !== answer.at)
    seen.current = [...seen.current, { at: answer.at, messages: total("messages"), bytes: total("bytes"), rows: total("rows") }].slice(-91)
  const rates = seen.current.slice(1).map((now, index) => {
    const before = seen.current[index]
    const passed = (now.at - before.at) / 1000
    // A consumer that starts anew counts from 0.
    const rate = (name) => Math.max(0, (now[name] - before[name]) / passed)
    return { rows: rate("rows"), bytes: rate("bytes") }
  })
  return rates
}

const LONG_LAG_SECONDS = 60

const SEVERITIES = ["critical", "warning"]
const ALARMS_SHOWN = 30

const sorted = (alarms) =>
  [...alarms].sort((left, right) => SEVERITIES.indexOf(left.severity) - SEVERITIES.indexOf(right.severity))

function Alarms({ alarms }) {
  const [shown, setShown] = useState(ALARMS_SHOWN)
  return html`<div>
    ${alarms.slice(0, shown).map(
      (alarm) =>
        html`<div class="alarm" key=${`${alarm.alarm}/${alarm.server}/${alarm.database}.${alarm.table}/${alarm.subject}`}>
          <${Badge} tone=${alarm.severity === "critical" ? "bad" : "warn"}>${alarm.alarm}<//>
          <p>${alarm.table ? html`<a href=${tableLink(alarm.database, alarm.table)}>${alarm.sentence}</a>` : alarm.sentence}</p>
          <span>${alarm.since && html`<${Time} at=${alarm.since} relative />`}</span>
          <p class="todo">${alarm.todo}</p>
        </div>`,
    )}
    ${alarms.length > shown && html`<button type="button" onClick=${() => setShown(alarms.length)}>Show ${alarms.length - shown} more</button>`}
  </div>`
}

export default function Overview() {
  const found = useWatch(STATEMENTS, { every: 2 })
  const rates = useRates(found.streams)
  if (!found.totals) return html`<${Waiting} />`
  const alarms = sorted(found.alarms?.rows ?? [])
  const totals = found.totals.rows[0] ?? {}
  const streams = found.streams?.rows ?? []
  const lag = streams.reduce((sum, row) => sum + Number(row.lag ?? 0), 0)
  const left = Math.max(0, ...streams.map((row) => row.seconds_left ?? 0))
  const last = rates.slice(-5)
  const mean = (name) => (last.length ? last.reduce((sum, each) => sum + each[name], 0) / last.length : null)
  const servers = found.servers?.rows ?? []
  const workers = found.workers?.rows ?? []
  const runnable = (found.backlog?.rows ?? []).reduce((sum, row) => sum + Number(row.runnable ?? 0), 0)
  const critical = alarms.filter((each) => each.severity === "critical").length
  const [tone, sentence] = critical
    ? ["bad", critical === 1 ? alarms[0].sentence : `${critical} things are broken`]
    : alarms.length
      ? ["warn", `works; ${alarms.length === 1 ? "one thing needs" : `${alarms.length} things need`} a person`]
      : ["good", "everything works"]
  return html`
    <div class="head"><h1>Overview</h1><${Badge} tone=${tone}>${sentence}<//></div>
    <div class="figures">
      <${Figure} label="rows in" value=${perSecond(mean("rows"))} below="of all views, last 10 s">
        <${Sparkline} values=${rates.map((each) => each.rows)} label="rows per second, last three minutes" />
      <//>
      <${Figure} label="bytes in" value=${perSecond(mean("bytes"), "bytes")} below="of messages, last 10 s">
        <${Sparkline} values=${rates.map((each) => each.bytes)} label="bytes per second, last three minutes" />
      <//>
      <${Figure} label="lag" href="#/streams" value=${count(lag)} below=${left ? `messages; read in ${seconds(left)}` : "messages"}
        tone=${left > LONG_LAG_SECONDS ? "warn" : ""} />
      <${Figure} label="tables" href="#/tables" value=${count(totals.tables)} below=${`${count(totals.rows)} rows, ${bytes(totals.bytes)}, ${count(totals.parts)} parts`} />
      <${Figure} label="background work" href="#/tasks" value=${count(runnable)} below="operations that would gain something" />
      <${Figure} label="servers and workers" href="#/cluster" value=${`${servers.length} + ${workers.length}`}
        below=${`${servers.filter((row) => row.state !== "alive").length + workers.filter((row) => row.state !== "alive").length || "none"} with troubles`} />
    </div>
    <${Card} title="Needs a person" wide tone=${critical ? "bad" : alarms.length ? "warn" : ""}
      about=${alarms.length ? "" : "Nothing does."}>
      <${Failure} error=${found.alarms?.error} />
      <${Alarms} alarms=${alarms} />
    <//>
    <div class="grid">
      <${Card} title="Streams" about="lag and rate by Kafka table">
        <${Failure} error=${found.streams?.error} />
        <${Table} label="streams" rows=${streams} keyOf=${(row) => `${row.database}.${row.table}.${row.activity}.${row.state}`} empty="No Kafka table." height=${330}
          href=${(row) => `#/stream/${encodeURIComponent(row.database)}/${encodeURIComponent(row.table)}`}
          toneOf=${(row) => (row.state === "failed" ? "bad" : row.seconds_left > LONG_LAG_SECONDS ? "warn" : "")}
          columns=${[
            { key: "table", title: "table", show: (row) => `${row.database}.${row.table}` },
            { key: "lag", title: "lag", align: "right", show: (row) => count(row.lag) },
            { key: "seconds_left", title: "read in", align: "right", show: (row) => seconds(row.seconds_left) },
            { key: "rate", title: "rate", align: "right", show: (row) => perSecond(row.rate) },
            { key: "activity", title: "does", show: (row) => row.activity ?? row.state },
          ]} />
      <//>
      <${Card} title="Freshness" about="tables by their last commit">
        <${Table} label="freshness" rows=${found.freshness?.rows ?? []} keyOf=${(row) => `${row.database}.${row.name}`} empty="No table has a commit."
          href=${(row) => tableLink(row.database, row.name)}
          columns=${[
            { key: "name", title: "table", show: (row) => `${row.database}.${row.name}` },
            { key: "last_commit", title: "last commit", align: "right", show: (row) => html`<${Time} at=${row.last_commit} relative />` },
            { key: "rows", title: "rows", align: "right", show: (row) => count(row.rows) },
            { key: "parts", title: "parts", align: "right", show: (row) => count(row.parts) },
            { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
          ]} />
      <//>
      <${Card} title="Runs now" about="tasks on workers, then statements">
        <${Table} label="tasks" rows=${found.tasks?.rows ?? []} keyOf=${(row) => row.kind + row.table + row.created} empty="No task."
          columns=${[
            { key: "kind", title: "task" },
            { key: "table", title: "table", kind: "text" },
            { key: "worker", title: "worker" },
            { key: "started", title: "for", align: "right", show: (row) => (row.started ? ago(row.started, Date.now()).replace(" ago", "") : row.state) },
          ]} />
        <${Table} label="statements" rows=${found.statements?.rows ?? []} keyOf=${(row) => row.query_id} empty="No statement."
          columns=${[
            { key: "query", title: "statement", kind: "mono", show: (row) => String(row.query).slice(0, 120) },
            { key: "elapsed", title: "for", align: "right", show: (row) => seconds(row.elapsed) },
            { key: "state", title: "state" },
          ]} />
      <//>
      <${Card} title="Background operations" about="how many wait for their turn, by kind">
        <${Table} label="backlog" rows=${found.backlog?.rows ?? []} keyOf=${(row) => row.kind} empty="None."
          columns=${[
            { key: "kind", title: "kind", show: (row) => html`<a href="#/tasks">${row.kind}</a>` },
            { key: "runnable", title: "would gain", align: "right", show: (row) => count(row.runnable) },
            { key: "running", title: "running", align: "right", show: (row) => count(row.running) },
            { key: "ops", title: "all", align: "right", show: (row) => count(row.ops) },
          ]} />
      <//>
      <${Card} title="Servers and workers">
        <${Table} label="servers" rows=${servers} keyOf=${(row) => row.name} empty="–"
          href=${() => "#/cluster"}
          columns=${[
            { key: "name", title: "server" },
            { key: "state", title: "state", show: (row) => html`<${Badge} tone=${row.state === "alive" ? "good" : "bad"} title=${row.reason}>${row.state}<//>` },
            { key: "memory", title: "memory of writers", value: (row) => row.memory_bytes, align: "right",
              show: (row) => html`${bytes(row.memory_bytes)} <${Bar} part=${row.memory_bytes / row.memory_limit_bytes} title=${percent(row.memory_bytes / row.memory_limit_bytes)} />` },
          ]} />
        <${Table} label="workers" rows=${workers} keyOf=${(row) => row.server + row.name} empty="–"
          href=${() => "#/cluster"}
          columns=${[
            { key: "name", title: "worker" },
            { key: "state", title: "state", show: (row) => html`<${Badge} tone=${row.state === "alive" ? "good" : "bad"} title=${row.reason}>${row.state}<//>` },
            { key: "running", title: "tasks", align: "right" },
            { key: "free_disk_bytes", title: "free disk", align: "right", show: (row) => bytes(row.free_disk_bytes) },
          ]} />
      <//>
    </div>`
}
