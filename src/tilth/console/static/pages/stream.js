// One Kafka table: its consumers and topic partitions, its rounds, views and dead letters, its ledger and settings.

import { html, useMemo, useRef, useState } from "../vendor/preact-htm.js"
import { literal, named, objects, serverNow, useWatch } from "../core/api.js"
import { bytes, count, exactly, isNone, percent, perSecond, seconds } from "../core/format.js"
import {
  Badge, Bar, Card, Code, Copy, Empty, Failure, Figure, StatementDialog, Table, Tabs, Time, Waiting, tableLink,
  toneOfState, useParameters, useTick,
} from "../core/ui.js"
import { Letters } from "./stream/letters.js"
import { Plot } from "./stream/plot.js"
import { Age, ageOf, numbersByName, partitionsOf, useOldest } from "./stream/positions.js"
import { Facts, LOG_MAX, Rounds, useViewSeconds } from "./stream/rounds.js"
import { SwitchDialog } from "./stream/switch.js"
import { ACTIVITY_WORDS, errorIn } from "./streams.js"
import { Settings } from "./table/settings.js"
import { systemText } from "./tasks/parts.js"

const LEDGER_MAX = 200
/** Samples of the plots; at one in two seconds they reach an hour back. */
const SAMPLES_MAX = 1800
/** Rates are means over this time, so that rounds do not show as peaks. */
const RATE_SECONDS = 15
/** Age of the oldest unread message from which on it is marked. */
const OLD_SECONDS = 60

const sum = (values) => values.reduce((total, value) => total + Number(value ?? 0), 0)
const most = (values) => {
  const known = values.filter((value) => !isNone(value))
  return known.length ? known.reduce((left, right) => (right > left ? right : left)) : null
}

// --- what is read ----------------------------------------------------------------------------------------------------

function statementsOf(database, table, letters, tab) {
  const where = `database = ${systemText(database)} AND "table" = ${systemText(table)}`
  const relation = "database, name, engine, rows, bytes, source, target, comment, create_statement"
  const statements = {
    consumers: `SELECT * FROM system.kafka_tables WHERE ${where} ORDER BY consumer`,
    service: `SELECT * FROM system.bg_threads WHERE ${where} AND service = 'consume'`,
    relations: `SELECT ${relation} FROM system.tables WHERE source = ${systemText(`${database}.${table}`)}
      OR (database = ${systemText(database)} AND name IN (${systemText(table)}, ${systemText(letters)}))`,
    gaps: `SELECT topic, "partition", "start", "end", reason, "at", resolution FROM system.ingest_gaps WHERE ${where}
      ORDER BY CASE WHEN resolution IS NULL THEN 0 ELSE 1 END, "at" DESC LIMIT 200`,
  }
  if (tab === "rounds")
    statements.log = `SELECT "at", consumer, event, messages, rows, bytes, duration_ms, txn, detail, server
      FROM system.kafka_log WHERE ${where} ORDER BY "at" DESC LIMIT ${LOG_MAX}`
  if (tab === "ledger")
    statements.ledger = `SELECT committed, txn, consumer, topic, "partition", "start", "end", messages, rows, dead, refused
      FROM system.ingest_ledger WHERE ${where} ORDER BY committed DESC LIMIT ${LEDGER_MAX}`
  return statements
}

/** Name of the table for dead letters: a setting of the Kafka table, or its own name with an ending. */
function lettersOf(table, statement) {
  const [, name] = /\bkafka_dead_letter_table\s*=\s*'((?:[^'\\]|\\.)+)'/.exec(statement ?? "") ?? []
  return name ? name.replace(/\\(.)/g, "$1") : `${table}_dead_letters`
}

// --- history since the page was opened -------------------------------------------------------------------------------

/** Samples of the positions, ends and lag of all partitions together, one for each answer. */
function useHistory(answer) {
  const seen = useRef([])
  if (answer && !answer.error && answer.rows.length && seen.current.at(-1)?.at !== answer.at) {
    const partitions = answer.rows.flatMap(partitionsOf)
    const isKnown = partitions.length > 0 && partitions.every((each) => each.lag !== null)
    const sample = {
      at: answer.at,
      read: isKnown ? sum(partitions.map((each) => each.offset)) : null,
      end: isKnown ? sum(partitions.map((each) => each.end)) : null,
      lag: isKnown ? sum(partitions.map((each) => each.lag)) : null,
    }
    seen.current = [...seen.current, sample].slice(-SAMPLES_MAX)
  }
  return seen.current
}

/** Mean growth in a second of one number over the last seconds before each sample; null where it fell or is not known. */
function ratesOf(samples, name) {
  let first = 0
  return samples.map((sample, index) => {
    while (first < index - 1 && sample.at - samples[first].at > RATE_SECONDS * 1000) first += 1
    const [before, now] = [samples[first][name], sample[name]]
    const isKnown = first < index && before !== null && now !== null && now >= before
    return isKnown ? ((now - before) * 1000) / (sample.at - samples[first].at) : null
  })
}

const RATE_LINES = [
  { label: "arrives", color: "--busy", dash: [5, 4] },
  { label: "is read", color: "--accent" },
]
const LAG_LINES = [{ label: "lag", color: "--warn" }]
const showRate = (value) => perSecond(value)

function Plots({ samples }) {
  const last = samples.at(-1)?.at
  const [rates, lag] = useMemo(() => {
    const times = samples.map((sample) => sample.at / 1000)
    return [[times, ratesOf(samples, "end"), ratesOf(samples, "read")], [times, samples.map((sample) => sample.lag)]]
  }, [last])
  return html`<${Card} title="While this page is open" about=${`messages; rates are means over ${RATE_SECONDS} s`}>
    ${samples.length < 3
      ? html`<${Empty}>The plots begin with the next answers.<//>`
      : html`<div class="plots">
          <${Plot} label="messages per second" series=${RATE_LINES} data=${rates} show=${showRate} />
          <${Plot} label="messages not read yet" series=${LAG_LINES} data=${lag} />
        </div>`}
  <//>`
}

// --- consumers and partitions ----------------------------------------------------------------------------------------

const consumerFacts = (row) => [
  ["why", row.reason],
  ["slowed", row.slowed],
  ["last broken message", row.last_broken],
  ["last exception", row.last_exception && html`<${Time} at=${row.last_exception_time} />: ${row.last_exception}`],
  ["next attempt", row.next_attempt && html`<${Time} at=${row.next_attempt} relative />`],
  ["topic partitions", (row.partitions ?? []).join(", ")],
  ["ends seen", isNone(row.lag_age) ? "never" : `${seconds(row.lag_age)} ago`],
  ["last poll of the broker", row.last_poll && html`<${Time} at=${row.last_poll} relative />`],
  ["in open transactions", `${count(row.uncommitted)} messages`],
  ["skew of the partitions", isNone(row.skew) ? null : `${Number(row.skew).toFixed(2)} (1 is even)`],
  ["task", row.task],
  ["server", row.server],
]

const CONSUMERS = [
  { key: "consumer", title: "consumer" },
  {
    key: "state",
    title: "state",
    show: (row) => html`<${Badge} tone=${toneOfState(row.state)} title=${row.reason}>${row.state}<//>`,
  },
  {
    key: "activity",
    title: "activity",
    kind: "tight",
    show: (row) =>
      row.activity &&
      html`${ACTIVITY_WORDS[row.activity] ?? row.activity} <small>since <${Time} at=${row.activity_since} /></small>`,
  },
  {
    key: "partitions",
    title: "partitions",
    align: "right",
    value: (row) => (row.partitions ?? []).length,
    show: (row) => (row.partitions ?? []).length,
  },
  { key: "lag", title: "lag", align: "right", show: (row) => (isNone(row.lag) ? "not known" : count(row.lag)) },
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
    about: "The setting that bounds a round",
    show: (row) => row.bounded_by ?? "",
  },
  { key: "seconds_left", title: "left", align: "right", show: (row) => seconds(row.seconds_left) },
  {
    key: "round_running_seconds",
    title: "round runs for",
    align: "right",
    show: (row) => seconds(row.round_running_seconds),
  },
  { key: "last_round_seconds", title: "last round", align: "right", show: (row) => seconds(row.last_round_seconds) },
  { key: "rounds", title: "rounds", align: "right", show: (row) => count(row.rounds) },
  { key: "messages", title: "messages", align: "right", show: (row) => count(row.messages) },
  { key: "bytes", title: "bytes", align: "right", show: (row) => bytes(row.bytes) },
  { key: "dead", title: "dead", align: "right", show: (row) => count(row.dead) },
  { key: "refused", title: "refused", align: "right", show: (row) => count(row.refused) },
  {
    key: "last_commit",
    title: "last commit",
    align: "right",
    show: (row) => row.last_commit && html`<${Time} at=${row.last_commit} relative />`,
  },
  { key: "reason", title: "why", kind: "line", show: (row) => html`<span title=${row.reason}>${row.reason}</span>` },
]

const partitionColumns = (largest) => [
  { key: "name", title: "topic partition", kind: "tight" },
  {
    key: "offset",
    title: "stored offset",
    align: "right",
    about: "The next message to read",
    show: (row) => (row.offset === null ? "none yet" : exactly(row.offset)),
  },
  {
    key: "end",
    title: "end",
    align: "right",
    about: "High watermark: the offset behind the last message",
    show: (row) => (row.end === null ? "not seen" : exactly(row.end)),
  },
  {
    key: "lag",
    title: "lag",
    kind: "tight",
    show: (row) => {
      if (row.lag === null) return "not known"
      const title = `${exactly(row.lag)} messages`
      return html`<${Bar} part=${row.lag / largest} tone=${row.gap ? "bad" : ""} title=${title} /> ${count(row.lag)}`
    },
  },
  {
    key: "open",
    title: "in open transactions",
    align: "right",
    about: "Messages that cannot be read before their transaction ends",
    value: (row) => row.open,
    show: (row) => (row.open ? count(row.open) : ""),
  },
  {
    key: "gap",
    title: "gap",
    show: (row) =>
      row.gap && html`<${Badge} tone="bad" title=${row.gap.reason}>from ${exactly(row.gap.start)} to ${row.gap.end ?? "?"}<//>`,
  },
  { key: "consumer", title: "consumer", align: "right" },
]

function partitionRows(consumers, gaps) {
  const open = gaps.filter((gap) => !gap.resolution)
  return consumers.flatMap(partitionsOf).map((each) => ({
    ...each,
    open: each.end !== null && each.stable !== null ? each.end - Math.max(each.stable, each.offset ?? 0) : null,
    gap: open.find((gap) => gap.topic === each.topic && Number(gap.partition) === each.partition),
  }))
}

function Partitions({ rows }) {
  const largest = Math.max(1, ...rows.map((row) => row.lag ?? 0))
  const columns = useMemo(() => partitionColumns(largest), [largest])
  return html`<${Card} title="Topic partitions" about="a full bar is the largest lag of them">
    <${Table} label="topic partitions" rows=${rows} columns=${columns} keyOf=${(row) => row.name}
      toneOf=${(row) => (row.gap ? "bad" : "")} empty="No topic partition is known yet." />
  <//>`
}

const GAPS = [
  {
    key: "state",
    title: "state",
    value: (row) => row.resolution ?? "",
    show: (row) => html`<${Badge} tone=${row.resolution ? "good" : "bad"}>${row.resolution ? "closed" : "open"}<//>`,
  },
  { key: "partition", title: "topic partition", show: (row) => `${row.topic}/${row.partition}` },
  { key: "start", title: "from offset", align: "right", show: (row) => exactly(row.start) },
  {
    key: "end",
    title: "to",
    align: "right",
    about: "The first offset that is there again",
    show: (row) => (isNone(row.end) ? "not known" : exactly(row.end)),
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

function Gaps({ gaps, onDecide }) {
  const isOpen = gaps.some((gap) => !gap.resolution)
  return html`<${Card} title="Gaps" tone=${isOpen ? "bad" : ""} about="offsets that could not be read"
    actions=${isOpen && html`<button type="button" class="main" onClick=${onDecide}>Decide …</button>`}>
    <${Table} label="gaps" rows=${gaps} columns=${GAPS} keyOf=${(row) => `${row.topic}/${row.partition}/${row.start}`}
      empty="No message is missing." />
  <//>`
}

function Now({ found, samples, onDecide }) {
  const consumers = found.consumers.rows
  const gaps = found.gaps?.rows ?? []
  const rows = partitionRows(consumers, gaps)
  return html`
    <${Card} title="Consumers" about="a line opens with all details">
      <${Table} label="consumers" rows=${consumers} columns=${CONSUMERS} keyOf=${(row) => row.consumer}
        toneOf=${(row) => ({ failed: "bad", stopped: "warn" })[row.state] ?? ""}
        expand=${(row) => html`<${Facts} facts=${consumerFacts(row)} />`} empty="No consumer is known." />
    <//>
    ${gaps.length > 0 && html`<${Gaps} gaps=${gaps} onDecide=${onDecide} />`}
    <${Plots} samples=${samples} />
    <${Partitions} rows=${rows} />`
}

// --- views -----------------------------------------------------------------------------------------------------------

/** Views with the time of the last round that ran them. */
function viewRows(relations, consumers) {
  return relations
    .filter((row) => row.engine === "MaterializedView")
    .map((view) => {
      const name = `${view.database}.${view.name}`
      const shares = consumers.map((row) => {
        const value = numbersByName(row.view_seconds)[name] ?? null
        const isKnown = value !== null && row.last_round_seconds > 0
        return { value, share: isKnown ? Math.min(1, value / row.last_round_seconds) : null }
      })
      return {
        ...view,
        fullName: name,
        seconds: most(shares.map((each) => each.value)),
        share: most(shares.map((each) => each.share)),
        isSlowest: consumers.some((row) => row.slowest_view === name),
      }
    })
}

const NameLink = ({ name }) => {
  const cut = String(name ?? "").indexOf(".")
  return cut < 0 ? (name ?? "") : html`<a href=${tableLink(name.slice(0, cut), name.slice(cut + 1))}>${name}</a>`
}

const VIEWS = [
  { key: "fullName", title: "view" },
  { key: "target", title: "writes into", show: (row) => html`<${NameLink} name=${row.target} />` },
  {
    key: "seconds",
    title: "time",
    align: "right",
    about: "SQL and writing in the last round, of the slowest consumer",
    show: (row) => (row.seconds === null ? "" : seconds(row.seconds)),
  },
  {
    key: "share",
    title: "share of the round",
    kind: "tight",
    show: (row) =>
      row.share === null
        ? html`<small>not measured: it only picks columns, or has not run yet</small>`
        : html`<${Bar} part=${row.share} tone=${row.share > 0.5 ? "warn" : ""} title=${percent(row.share)} /> ${percent(row.share)}`,
  },
  { key: "isSlowest", title: "", show: (row) => row.isSlowest && html`<${Badge} tone="warn">slowest<//>` },
  { key: "comment", title: "comment", kind: "text" },
]

function Views({ found }) {
  const rows = viewRows(found.relations?.rows ?? [], found.consumers.rows)
  return html`<${Card} title="Views" about="a line opens with the statement">
    <${Table} label="views" rows=${rows} columns=${VIEWS} keyOf=${(row) => row.fullName}
      expand=${(row) => html`<${Code}>${row.create_statement}<//>`}
      empty="No view reads this Kafka table, so that no consumer runs: CREATE MATERIALIZED VIEW makes one." />
  <//>`
}

// --- ledger ----------------------------------------------------------------------------------------------------------

const LEDGER_WORDS = { "-1": "offsets moved", "-2": "old rounds, summed", "-3": "dead letters replayed" }

const LEDGER = [
  { key: "committed", title: "committed", kind: "tight", show: (row) => html`<${Time} at=${row.committed} />` },
  { key: "consumer", title: "by", show: (row) => LEDGER_WORDS[row.consumer] ?? `consumer ${row.consumer}` },
  {
    key: "partition",
    title: "topic partition",
    value: (row) => `${row.topic}/${row.partition}`,
    show: (row) => `${row.topic}/${row.partition}`,
  },
  { key: "start", title: "from offset", align: "right", show: (row) => exactly(row.start) },
  {
    key: "end",
    title: "to",
    align: "right",
    about: "The offset behind the last one",
    show: (row) => (Number(row.end) < 0 ? "no such partition" : exactly(row.end)),
  },
  { key: "messages", title: "messages", align: "right", show: (row) => exactly(row.messages) },
  { key: "rows", title: "rows", align: "right", show: (row) => exactly(row.rows) },
  { key: "dead", title: "dead", align: "right", show: (row) => (row.dead ? exactly(row.dead) : "") },
  { key: "refused", title: "refused", align: "right", show: (row) => (row.refused ? exactly(row.refused) : "") },
  { key: "txn", title: "transaction", align: "right", show: (row) => String(row.txn) },
]

const Ledger = ({ found }) =>
  found.ledger
    ? html`<${Card} title="Ledger" about=${`what was read, and became rows, in one transaction each; the newest ${LEDGER_MAX}`}>
        <${Failure} error=${found.ledger.error} />
        <${Table} label="ledger" rows=${found.ledger.rows} columns=${LEDGER} height=${640} empty="Nothing has been read yet."
          keyOf=${(row) => `${row.txn}/${row.topic}/${row.partition}/${row.start}`} />
      <//>`
    : html`<${Waiting} />`

const CHECKS = [
  {
    key: "ok",
    title: "result",
    show: (row) => html`<${Badge} tone=${row.ok ? "good" : "bad"}>${row.ok ? "holds" : "does not hold"}<//>`,
  },
  { key: "subject", title: "of", kind: "mono" },
  { key: "check", title: "what was checked", kind: "text" },
  { key: "detail", title: "figures, or what is wrong", kind: "text" },
]

function Verified({ verified, onClose }) {
  const all = verified.rows.length
  const wrong = verified.rows.filter((row) => !row.ok).length
  const result = wrong ? `${wrong} of ${all} checks do not hold` : `all ${all} checks hold`
  return html`<${Card} title="Verified" tone=${wrong ? "bad" : ""} about=${html`<${Time} at=${verified.at} />: ${result}`}
    actions=${html`<button type="button" class="quiet" onClick=${onClose}>Close</button>`}>
    <${Table} label="checks" rows=${verified.rows} columns=${CHECKS} toneOf=${(row) => (row.ok ? "" : "bad")}
      empty="There is nothing to check." />
  <//>`
}

// --- DDL -------------------------------------------------------------------------------------------------------------

const Ddl = ({ relations }) =>
  relations.map(
    (row) =>
      html`<${Card} key=${row.database + row.name} title=${`${row.database}.${row.name}`} about=${row.engine}
        actions=${html`<${Copy} text=${row.create_statement} />`}>
        <${Code}>${row.create_statement}<//>
      <//>`,
  )

// --- the page --------------------------------------------------------------------------------------------------------

const RESETS = {
  BEGIN: "the first message that the topics hold",
  END: "the end: only messages that come from now on",
  STORED: "the stored offsets, gaps or not",
  INVALID: "what kafka_auto_offset_reset says",
  TIMESTAMP: "the first messages at or after a time",
  OFFSETS: "the offsets below, for the partitions that they name",
}

/** Offsets behind the open gaps, as the statement takes them; without gaps those that are stored. */
const offsetsText = (partitions) => {
  const gaps = partitions.filter((each) => each.gap)
  return (gaps.length ? gaps : partitions)
    .map((each) => `(${literal(each.topic)}, ${each.partition}, ${each.gap?.end ?? each.gap?.start ?? each.offset ?? 0})`)
    .join(", ")
}

function ResetDialog({ name, partitions, onClose }) {
  const target = ({ where, at, offsets }) => {
    if (where === "TIMESTAMP") return `TIMESTAMP ${Number.isFinite(Date.parse(at)) ? Date.parse(at) : "…"}`
    return where === "OFFSETS" ? `OFFSETS ${offsets}` : where
  }
  const first = partitions.some((each) => each.gap) ? "OFFSETS" : "BEGIN"
  return html`<${StatementDialog} title="Go on from other offsets" danger action="Reset" onClose=${onClose}
    about="The consumers stop, the offsets move, the consumers go on. Messages in between are left out, or read once more."
    fields=${[
      { name: "where", label: "Go on at", value: first, options: Object.entries(RESETS) },
      { name: "at", label: "Time, for the first messages at or after it", type: "datetime-local" },
      { name: "offsets", label: "Offsets: topic, partition, next offset", value: offsetsText(partitions) },
    ]}
    statement=${(values) => `SYSTEM RESET CONSUME OFFSET ${name} TO ${target(values)}`} />`
}

function Actions({ database, table, service, onAsk }) {
  const isStopped = service?.switch === "stopped"
  return html`<div class="actions">
    <a href=${tableLink(database, table)}>Table …</a>
    <button type="button" onClick=${() => onAsk(isStopped ? "START" : "STOP")}>${isStopped ? "Start" : "Stop"} …</button>
    <button type="button" onClick=${() => onAsk("RESTART")}>Restart …</button>
    <button type="button" onClick=${() => onAsk("RESET")}>Reset offsets …</button>
    <button type="button" onClick=${() => onAsk("VERIFY")}>Verify …</button>
  </div>`
}

const VERIFY_ABOUT = "Checks that every offset of the ledger is in the tables exactly once. It reads them, and changes nothing."

const SWITCH_ABOUTS = {
  STOP: "A round under way is cancelled, and its messages are read again later. Offsets stay: nothing is lost as long as the topic keeps its messages.",
  START: "The consumers go on at their stored offsets.",
  RESTART: "All consumers end and start anew. A round under way is cancelled, and its messages are read again.",
}

function Dialogs({ asked, name, partitions, onClose, onVerified }) {
  if (asked === "RESET") return html`<${ResetDialog} name=${name} partitions=${partitions} onClose=${onClose} />`
  if (asked === "VERIFY") {
    const show = (answer) => onVerified({ at: new Date(serverNow()).toISOString(), rows: objects(answer) })
    return html`<${StatementDialog} title="Verify" action="Verify" about=${VERIFY_ABOUT} onClose=${onClose} onDone=${show}
      statement=${() => `SYSTEM VERIFY ${name}`} />`
  }
  return html`<${SwitchDialog} verb=${asked} word="CONSUME" name=${name} about=${SWITCH_ABOUTS[asked]} onClose=${onClose} />`
}

function Stopped({ service }) {
  const by = service.asked_from ? `, by ${service.asked_from}` : ""
  const until = service.until ? html`, until <${Time} at=${service.until} />` : ""
  return html`<p>Stopped${service.because ? `: ${service.because}` : ""}${by}${until}.</p>`
}

function Failed({ service }) {
  const times = `Failed ${count(service.failures)} times in a row, last`
  const next = service.next_attempt ? html` Next attempt <${Time} at=${service.next_attempt} relative />.` : ""
  return html`<p>${times} <${Time} at=${service.last_exception_time} relative />: ${service.last_exception}${next}</p>`
}

/** Why the stream is in its state. */
const Reasons = ({ service }) =>
  html`<div class="reasons">
    <p>${service.reason}</p>
    ${service.switch === "stopped" && html`<${Stopped} service=${service} />`}
    ${Number(service.failures) > 0 && html`<${Failed} service=${service} />`}
  </div>`

function Figures({ consumers, samples, oldest, letters, hrefOf }) {
  const lags = consumers.map((row) => row.lag)
  const unknown = lags.filter(isNone).length
  const left = most(consumers.map((row) => row.seconds_left))
  const [dead, refused] = [sum(consumers.map((row) => row.dead)), sum(consumers.map((row) => row.refused))]
  const last = most(consumers.map((row) => row.last_commit))
  // Consumers that are not behind have no rate of their own.
  const rate = sum(consumers.map((row) => row.rate)) || ratesOf(samples, "read").at(-1)
  const bounded = [...new Set(consumers.map((row) => row.bounded_by).filter(Boolean))].join(", ")
  const read = ["messages", "bytes", "rounds"].map((name) => sum(consumers.map((row) => row[name])))
  return html`<div class="figures">
    <${Figure} label="lag" value=${unknown === lags.length ? "not known" : `${unknown ? "≥ " : ""}${count(sum(lags))}`}
      below=${left === null ? "messages" : `messages; read in ${seconds(left)}`} />
    <${Figure} label="oldest unread message" value=${html`<${Age} oldest=${oldest} />`}
      below=${oldest ? "in the topic" : "nothing waits"} tone=${ageOf(oldest) > OLD_SECONDS ? "warn" : ""} />
    <${Figure} label="rate" value=${perSecond(rate)} below=${bounded ? `messages; bounded by ${bounded}` : "messages"} />
    <${Figure} label="read since the consumers started" value=${count(read[0])}
      below=${`messages, ${bytes(read[1])}, ${count(read[2])} rounds`} />
    <${Figure} label="dead and refused" href=${hrefOf("letters")} value=${count(dead + refused)}
      tone=${dead + refused ? "warn" : ""} below=${letters ? `${count(letters.rows)} letters are kept` : "no table for dead letters"} />
    <${Figure} label="last commit" value=${last ? html`<${Time} at=${last} relative />` : "–"}
      below=${last ? html`<${Time} at=${last} />` : "no round yet"} />
  </div>`
}

const TITLES = {
  now: "Now", rounds: "Rounds", views: "Views", letters: "Dead letters", ledger: "Ledger", settings: "Settings",
  ddl: "DDL",
}

export default function Stream({ route }) {
  const [, database, table] = route.path
  const [parameters, change] = useParameters(route)
  const [asked, setAsked] = useState(null)
  const [verified, setVerified] = useState(null)
  const [lettersName, setLettersName] = useState(`${table}_dead_letters`)
  useTick(2)
  const tab = parameters.get("tab") in TITLES ? parameters.get("tab") : "now"
  const found = useWatch(statementsOf(database, table, lettersName, tab), { every: 2 })
  const samples = useHistory(found.consumers)
  const seen = useViewSeconds(found.consumers)
  const oldest = useOldest(found.consumers).get(`${database}.${table}`)
  if (!found.consumers || !found.relations) return html`<${Waiting} />`
  const relations = found.relations.rows
  const info = relations.find((row) => row.database === database && row.name === table)
  const wanted = lettersOf(table, info?.create_statement)
  if (info && wanted !== lettersName) setLettersName(wanted)
  const letters = relations.find((row) => row.database === database && row.name === lettersName && row.engine === "MergeTree")
  if (info?.engine !== "Kafka")
    return html`<${Failure} error=${errorIn(found)} /><${Empty}>There is no Kafka table ${database}.${table}.<//>`
  const consumers = found.consumers.rows
  const service = found.service?.rows[0]
  const name = named(database, table)
  const partitions = partitionRows(consumers, found.gaps?.rows ?? [])
  const hasGap = partitions.some((each) => each.gap)
  const hrefOf = (next) => `#/stream/${encodeURIComponent(database)}/${encodeURIComponent(table)}?tab=${next}`
  const views = relations.filter((row) => row.engine === "MaterializedView")
  const numbers = { views: views.length, letters: letters ? count(letters.rows) : null }
  const close = () => setAsked(null)
  return html`
    <div class="head">
      <h1>${database}.${table}</h1>
      ${service &&
      html`<${Badge} tone=${hasGap ? "bad" : toneOfState(service.state)} title=${service.reason}>${hasGap ? "gap" : service.state}<//>`}
      <${Actions} database=${database} table=${table} service=${service} onAsk=${setAsked} />
    </div>
    ${service && html`<${Reasons} service=${service} />`}
    <${Failure} error=${errorIn(found)} />
    <${Figures} consumers=${consumers} samples=${samples} oldest=${oldest} letters=${letters} hrefOf=${hrefOf} />
    ${verified && html`<${Verified} verified=${verified} onClose=${() => setVerified(null)} />`}
    <${Tabs} label="Parts of the page" current=${tab} tabs=${Object.entries(TITLES).map(([key, title]) => [key, title, numbers[key]])}
      onChange=${(next) => change({ tab: next, round: null })} />
    ${tab === "now" && html`<${Now} found=${found} samples=${samples} onDecide=${() => setAsked("RESET")} />`}
    ${tab === "rounds" && html`<${Rounds} found=${found} seen=${seen} route=${route} />`}
    ${tab === "views" && html`<${Views} found=${found} />`}
    ${tab === "letters" && html`<${Letters} database=${database} table=${table} info=${letters} route=${route} />`}
    ${tab === "ledger" && html`<${Ledger} found=${found} />`}
    ${tab === "settings" && html`<${Settings} database=${database} table=${table} info=${info} />`}
    ${tab === "ddl" && html`<${Ddl} relations=${relations} />`}
    ${asked &&
    html`<${Dialogs} asked=${asked} name=${name} partitions=${partitions} onClose=${close} onVerified=${setVerified} />`}`
}
