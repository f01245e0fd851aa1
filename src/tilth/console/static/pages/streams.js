// All Kafka tables: what each one does, how far it is behind, and what stops it.

import { html, useMemo } from "../vendor/preact-htm.js"
import { useWatch } from "../core/api.js"
import { count, isNone, percent, perSecond, seconds } from "../core/format.js"
import {
  Badge, Bar, Card, Failure, Figure, Search, Table, Time, Waiting, toneOfState, useParameters, useTick,
} from "../core/ui.js"
import { Age, POSITIONS_MAX, ageOf, tableOf, useOldest } from "./stream/positions.js"

const GAPS_MAX = 200
/** Ends of a topic that were seen longer ago than this say nothing about the lag now. */
const STALE_SECONDS = 60

/** Activities, the most telling one first, as the server orders them. */
const ACTIVITIES = ["waiting", "reading", "flush_interval", "open_transaction", "starting", "idle"]
export const ACTIVITY_WORDS = {
  waiting: "waits for a worker",
  reading: "reads",
  flush_interval: "collects messages",
  open_transaction: "waits for an open transaction",
  starting: "starts",
  idle: "idle",
}

export const streamLink = (database, table, more = "") =>
  `#/stream/${encodeURIComponent(database)}/${encodeURIComponent(table)}${more}`

/** The error of the first answer that has one. */
export const errorIn = (answers) => Object.values(answers).find((answer) => answer.error)?.error

const STATEMENTS = {
  consumers: `SELECT database, "table", count(*) AS consumers,
    sum(CASE WHEN state = 'running' THEN 1 ELSE 0 END) AS running,
    min(CASE activity ${ACTIVITIES.map((name, rank) => `WHEN '${name}' THEN ${rank}`).join(" ")} END) AS activity,
    max(activity_since) AS activity_since, sum(lag) AS lag, sum(CASE WHEN lag IS NULL THEN 1 ELSE 0 END) AS unknown,
    max(lag_age) AS lag_age, sum(uncommitted) AS uncommitted, sum(rate) AS rate, max(bounded_by) AS bounded_by,
    max(seconds_left) AS seconds_left, sum(dead) AS dead, sum(refused) AS refused, max(last_commit) AS last_commit,
    max(CASE WHEN slowest_view IS NOT NULL
      THEN concat(CAST(CAST(1000 + 1000 * slowest_view_share AS BIGINT) AS STRING), ' ', slowest_view) END) AS slowest
    FROM system.kafka_tables GROUP BY database, "table" ORDER BY database, "table" LIMIT 5000`,
  services: `SELECT database, "table", switch, because, until, state, reason, failures, last_exception,
    last_exception_time, next_attempt FROM system.bg_threads WHERE service = 'consume'`,
  positions: `SELECT database, "table", consumer, offsets, high_watermarks FROM system.kafka_tables
    WHERE lag > 0 ORDER BY lag DESC LIMIT ${POSITIONS_MAX}`,
  gaps: `SELECT database, "table", topic, "partition", "start", "end", reason, "at", resolution FROM system.ingest_gaps
    ORDER BY CASE WHEN resolution IS NULL THEN 0 ELSE 1 END, "at" DESC LIMIT ${GAPS_MAX}`,
}

const COLUMNS = [
  { key: "name", title: "Kafka table", value: tableOf, show: tableOf, kind: "tight" },
  {
    key: "state",
    title: "state",
    show: (row) => html`<${Badge} tone=${row.hasGap ? "bad" : toneOfState(row.state)} title=${row.reason}>
      ${row.hasGap ? "gap" : row.state}
    <//>`,
  },
  {
    key: "activity",
    title: "activity",
    kind: "tight",
    value: (row) => row.activity,
    show: (row) => html`<span title=${row.reason}>${row.activity === null ? "" : ACTIVITY_WORDS[row.activity]}</span>`,
  },
  { key: "reason", title: "why", kind: "line", show: (row) => html`<span title=${row.reason}>${row.reason}</span>` },
  {
    key: "consumers",
    title: "consumers",
    align: "right",
    about: "Consumers that run, of all",
    show: (row) => `${row.running} of ${row.consumers}`,
  },
  {
    key: "lag",
    title: "lag",
    align: "right",
    about: "Messages that are not read yet",
    show: (row) => (row.unknown && !row.lag ? "not known" : `${row.unknown ? "≥ " : ""}${count(row.lag)}`),
  },
  {
    key: "age",
    title: "oldest",
    align: "right",
    about: "For how long the oldest unread message has been in its topic, as far as this page has seen",
    show: (row) => html`<${Age} oldest=${row.oldest} />`,
  },
  {
    key: "rate",
    title: "rate",
    align: "right",
    about: "Messages that are read in a second",
    show: (row) => perSecond(row.rate),
  },
  {
    key: "bounded_by",
    title: "bounded by",
    kind: "tight",
    about: "The setting that bounds a round, and so the rate",
    show: (row) => row.bounded_by ?? "",
  },
  {
    key: "seconds_left",
    title: "left",
    align: "right",
    about: "Time until the lag is read at this rate",
    show: (row) => seconds(row.seconds_left),
  },
  {
    key: "dead",
    title: "dead",
    align: "right",
    about: "Messages that could not be decoded",
    show: (row) => count(row.dead),
  },
  {
    key: "refused",
    title: "refused",
    align: "right",
    about: "Messages that a view could not take",
    show: (row) => count(row.refused),
  },
  {
    key: "slowest",
    title: "slowest view",
    kind: "tight",
    value: (row) => row.share,
    show: (row) =>
      row.view && html`${row.view} <${Bar} part=${row.share} title=${`${percent(row.share)} of a round`} /> ${percent(row.share)}`,
  },
  {
    key: "last_commit",
    title: "last commit",
    align: "right",
    show: (row) => row.last_commit && html`<${Time} at=${row.last_commit} relative />`,
  },
  {
    key: "last_exception_time",
    title: "last exception",
    kind: "line",
    show: (row) =>
      row.last_exception &&
      html`<span title=${row.last_exception}><${Time} at=${row.last_exception_time} relative />: ${row.last_exception}</span>`,
  },
]

const GAPS = [
  { key: "name", title: "Kafka table", value: tableOf, show: tableOf, kind: "tight" },
  {
    key: "state",
    title: "state",
    value: (row) => row.resolution ?? "",
    show: (row) => html`<${Badge} tone=${row.resolution ? "good" : "bad"}>${row.resolution ? "closed" : "open"}<//>`,
  },
  {
    key: "partition",
    title: "topic partition",
    value: (row) => `${row.topic}/${row.partition}`,
    show: (row) => `${row.topic}/${row.partition}`,
  },
  { key: "start", title: "from offset", align: "right" },
  {
    key: "end",
    title: "to",
    align: "right",
    about: "The first offset that is there again",
    show: (row) => row.end ?? "not known",
  },
  {
    key: "missing",
    title: "missing",
    align: "right",
    value: (row) => (isNone(row.end) ? null : row.end - row.start),
    show: (row) => (isNone(row.end) ? "–" : `${count(row.end - row.start)} offsets`),
  },
  { key: "at", title: "found", kind: "tight", show: (row) => html`<${Time} at=${row.at} relative />` },
  { key: "reason", title: "why", kind: "text" },
  {
    key: "resolution",
    title: "what was decided",
    kind: "text",
    show: (row) => row.resolution ?? "nothing yet; its consumer waits",
  },
]

/** The share of the slowest view, in thousandths behind a 1, and its name: "1640 shop.v". */
const slowestOf = (text) =>
  text ? { view: text.slice(5), share: (Number(text.slice(0, 4)) - 1000) / 1000 } : { view: "", share: null }

/** One row for each Kafka table: its consumers together, its service, its gaps. */
function rowsOf(found, oldest) {
  const services = new Map((found.services?.rows ?? []).map((row) => [tableOf(row), row]))
  const open = new Set((found.gaps?.rows ?? []).filter((row) => !row.resolution).map(tableOf))
  return found.consumers.rows.map((row) => {
    const key = tableOf(row)
    const service = services.get(key) ?? {}
    return {
      ...service,
      ...row,
      ...slowestOf(row.slowest),
      state: service.state ?? "",
      last_exception_time: service.last_exception_time ?? null,
      activity: isNone(row.activity) ? null : ACTIVITIES[row.activity],
      hasGap: open.has(key),
      oldest: oldest.get(key),
      age: ageOf(oldest.get(key)),
    }
  })
}

const isStale = (row) => row.lag_age > STALE_SECONDS && row.switch !== "stopped"
const isLost = (row) => row.dead > 0 || row.refused > 0
const toneOf = (row) => (row.state === "failed" || row.hasGap ? "bad" : row.state === "stopped" || isStale(row) ? "warn" : "")

const CHOICES = {
  "": ["all", () => true],
  troubles: ["with troubles", (row) => toneOf(row) !== "" || isLost(row)],
  lagging: ["with a lag", (row) => row.lag > 0],
  stopped: ["stopped", (row) => row.switch === "stopped"],
  lost: ["with dead or refused messages", isLost],
}

const sum = (rows, name) => rows.reduce((total, row) => total + Number(row[name] ?? 0), 0)

function Figures({ rows, gaps }) {
  const ages = rows.filter((row) => row.age !== null)
  const oldest = ages.reduce((most, row) => (row.age > (most?.age ?? -1) ? row : most), null)
  const [dead, refused] = [sum(rows, "dead"), sum(rows, "refused")]
  const open = gaps.filter((row) => !row.resolution).length
  const running = `${count(sum(rows, "running"))} of ${count(sum(rows, "consumers"))} consumers run`
  return html`<div class="figures">
    <${Figure} label="Kafka tables" value=${count(rows.length)} below=${running} />
    <${Figure} label="lag" value=${count(sum(rows, "lag"))} below="messages" />
    <${Figure} label="oldest unread message" value=${html`<${Age} oldest=${oldest?.oldest} />`}
      below=${oldest ? `of ${tableOf(oldest)}` : "nothing waits"} />
    <${Figure} label="rate" value=${perSecond(sum(rows, "rate"))} below="messages, of consumers that read" />
    <${Figure} label="dead and refused" value=${count(dead + refused)} tone=${dead + refused ? "warn" : ""}
      below=${`${count(dead)} not decoded, ${count(refused)} not taken by a view`} />
    <${Figure} label="open gaps" value=${count(open)} tone=${open ? "bad" : ""}
      below=${open ? "each stops a consumer" : "no message is missing"} />
  </div>`
}

export default function Streams({ route }) {
  const found = useWatch(STATEMENTS, { every: 2 })
  const [parameters, change] = useParameters(route)
  const oldest = useOldest(found.positions)
  useTick(2)
  const text = parameters.get("search") ?? ""
  const show = parameters.get("show") in CHOICES ? parameters.get("show") : ""
  const order = (parameters.get("order") ?? "lag-desc").split("-")
  const words = useMemo(() => text.toLowerCase().split(/\s+/).filter(Boolean), [text])
  if (!found.consumers) return html`<${Waiting} />`
  const rows = rowsOf(found, oldest)
  const fits = (row) => CHOICES[show][1](row) && words.every((word) => `${tableOf(row)} ${row.reason}`.toLowerCase().includes(word))
  const shown = rows.filter(fits)
  const gaps = found.gaps?.rows ?? []
  return html`
    <div class="head">
      <h1>Streams</h1>
      <${Search} label="Search by name or reason" value=${text} onChange=${(value) => change({ search: value })} />
      <select aria-label="Which Kafka tables" value=${show} onChange=${(event) => change({ show: event.target.value })}>
        ${Object.entries(CHOICES).map(([key, [title]]) => html`<option key=${key} value=${key}>${title}</option>`)}
      </select>
      <span class="about">${count(shown.length)} of ${count(rows.length)}</span>
    </div>
    <${Failure} error=${errorIn(found)} />
    <${Figures} rows=${rows} gaps=${gaps} />
    <${Card}>
      <${Table} label="Kafka tables" columns=${COLUMNS} rows=${shown} keyOf=${tableOf} order=${order} height=${720}
        onOrder=${(next) => change({ order: next.join("-") })} href=${(row) => streamLink(row.database, row.table)} toneOf=${toneOf}
        empty=${rows.length ? "No Kafka table fits." : "There are no Kafka tables yet: CREATE TABLE .. ENGINE = Kafka makes one."} />
    <//>
    <${Card} title="Gaps" about="offsets that could not be read; an open one stops its consumer until somebody decides">
      <${Table} label="gaps" columns=${GAPS} rows=${gaps} empty="No message is missing."
        keyOf=${(row) => `${tableOf(row)}/${row.topic}/${row.partition}/${row.start}`}
        href=${(row) => streamLink(row.database, row.table)} toneOf=${(row) => (row.resolution ? "" : "bad")} />
    <//>`
}
