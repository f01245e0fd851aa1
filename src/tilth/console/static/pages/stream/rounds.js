// Rounds of the consumers of one Kafka table, drawn over time and listed, from the lines of system.kafka_log.

import { html, useMemo, useRef } from "../../vendor/preact-htm.js"
import { serverNow } from "../../core/api.js"
import { bytes, count, dateOf, exactly, fullTime, isNone, milliseconds, perSecond, seconds, sum, time } from "../../core/format.js"
import { numbersByName } from "../../core/streams.js"
import { Table, lineColumn, numberColumn, someColumn, stateColumn, textColumn, timeColumn } from "../../core/table.js"
import { Badge, Card, Facts, Failure, Select, Time, Waiting, useTick } from "../../core/ui.js"

/** Newest lines of the log that are read. */
const LOG_MAX = 800

export const logStatement = (condition) =>
  `SELECT "at", consumer, event, messages, rows, bytes, duration_ms, fetch_ms, decode_ms, write_ms, commit_ms,
    txn, detail, server
    FROM system.kafka_log WHERE ${condition} ORDER BY "at" DESC LIMIT ${LOG_MAX}`

const millis = (text) => dateOf(text)?.getTime() ?? null

/** Events of one instant: a round ends before the next one begins. */
const RANKS = { WRITE: 0, PARSE_ERROR: 0, COMMIT: 1, EXCEPTION: 2, POLL: 3 }
const SEEN_MAX = 1000
/** Largest difference between the times of one commit in the log and in the row of its consumer. */
const SAME_COMMIT_MS = 250

const byTime = (left, right) => left.at - right.at || (RANKS[left.event] ?? 0) - (RANKS[right.event] ?? 0)

const REPEATED = "it was not committed, and its messages were read again; an error that repeats itself is logged once a minute"

const newRound = (key, { txn, consumer, server }) => ({ key, txn, consumer, server, start: null, end: null, state: "running" })

/** Rounds from the lines of system.kafka_log, oldest first. */
function roundsOf(lines) {
  const rounds = new Map()
  const open = new Map()
  for (const line of lines.map((each) => ({ ...each, at: millis(each.at) })).sort(byTime)) {
    if (isNone(line.consumer)) continue
    const consumer = `${line.server}/${line.consumer}`
    if (line.event === "EXCEPTION") {
      const round = open.get(consumer)
      if (round) Object.assign(round, { end: line.at, state: "failed", detail: line.detail })
      open.delete(consumer)
      continue
    }
    if (isNone(line.txn)) continue
    const key = `${consumer}/${line.txn}`
    const round = rounds.get(key) ?? newRound(key, line)
    rounds.set(key, round)
    if (line.event === "POLL") {
      const before = open.get(consumer)
      if (before) Object.assign(before, { end: line.at, state: "repeated", detail: REPEATED })
      Object.assign(round, { start: line.at, offsets: line.messages })
      open.set(consumer, round)
    } else if (line.event === "PARSE_ERROR") Object.assign(round, { broken: line.messages, detail: line.detail })
    else if (line.event === "WRITE") Object.assign(round, { written: line.rows, files: line.bytes })
    else if (line.event === "COMMIT") {
      const work = Number(line.duration_ms)
      const start = round.start ?? line.at - work
      const { at: end, messages, rows, bytes: read } = line
      const [fetch, decode, write] = [line.fetch_ms, line.decode_ms, line.write_ms].map((text) => (isNone(text) ? null : Number(text)))
      const commit = isNone(line.commit_ms) ? Math.max(0, end - start - work) : Number(line.commit_ms)
      Object.assign(round, { start, end, work, fetch, decode, write, commit, messages, rows, bytes: read, state: "done" })
      open.delete(consumer)
    }
  }
  return [...rounds.values()].filter((round) => round.start !== null)
}

/** Seconds of views by consumer and commit, collected while the page is open: the server has those of the last round. */
export function useViewSeconds(answer) {
  const seen = useRef([])
  for (const row of answer?.rows ?? []) {
    const at = millis(row.last_commit)
    const isKnown = seen.current.some((each) => each.consumer === row.consumer && each.at === at)
    if (at && row.view_seconds?.length && !isKnown)
      seen.current = [...seen.current, { consumer: row.consumer, at, views: numbersByName(row.view_seconds) }].slice(-SEEN_MAX)
  }
  return seen.current
}

const viewsOf = (round, seen) =>
  round.end === null
    ? null
    : (seen.find((each) => each.consumer === round.consumer && Math.abs(each.at - round.end) < SAME_COMMIT_MS)?.views ?? null)

const ROUND_TONES = { done: "good", running: "busy", failed: "bad", repeated: "warn", ended: "warn" }
const ROUND_WORDS = { done: "committed", running: "runs", failed: "failed", repeated: "not committed", ended: "ended" }
const iso = (at) => new Date(at).toISOString()
const clock = (at) => time(iso(at))
const SPANS = { 60: "1 minute", 300: "5 minutes", 900: "15 minutes", 3600: "1 hour" }
const SPAN_OPTIONS = Object.entries(SPANS).map(([key, words]) => [key, `the last ${words}`])
const TICKS = 4

/** Pieces of a round's box: fetch, decode and write in this order from its beginning, the commit at its end. */
function piecesOf(round, end) {
  let at = round.start
  const pieces = ["fetch", "decode", "write"].map((name) => {
    const begin = at
    at = Math.min(end - (round.commit ?? 0), begin + (round[name] ?? 0))
    return [name, begin, at]
  })
  return [...pieces, ["commit", end - (round.commit ?? 0), end]].filter(([, begin, until]) => until > begin)
}

/** One lane for each consumer, one box for each round, split by what it spent its time on. */
function Timeline({ rounds, from, to, chosen, onChoose }) {
  const consumers = [...new Set(rounds.map((round) => round.consumer))].sort((left, right) => left - right)
  const ticks = Array.from({ length: TICKS + 1 }, (_, index) => from + ((to - from) * index) / TICKS)
  const x = (at) => ((Math.min(to, Math.max(from, at)) - from) / (to - from)) * 100
  const width = (start, end) => `${Math.max(0.2, x(end) - x(start))}%`
  const box = (round) => {
    const end = round.end ?? to
    const words = [ROUND_WORDS[round.state], clock(round.start), milliseconds(end - round.start)]
    const title = `${words.join(", ")}, ${count(round.messages ?? round.offsets)} messages`
    const kind = `round ${round.state} ${round.key === chosen ? "chosen" : ""}`
    return html`<g key=${round.key} class=${kind} onClick=${() => onChoose(round.key)}>
      <title>${title}</title>
      <rect x=${`${x(round.start)}%`} width=${width(round.start, end)} y="3" height="18" rx="2" />
      ${piecesOf(round, end).map(
        ([name, begin, until]) =>
          html`<rect key=${name} class=${name} x=${`${x(begin)}%`} width=${width(begin, until)} y="3" height="18" />`,
      )}
    </g>`
  }
  return html`<div class="timeline">
    ${consumers.map(
      (consumer) =>
        html`<div class="lane" key=${consumer}>
          <span>consumer ${consumer}</span>
          <svg role="img" aria-label=${`Rounds of consumer ${consumer}; the table below lists them`} width="100%" height="24">
            ${rounds.filter((round) => round.consumer === consumer).map(box)}
          </svg>
        </div>`,
    )}
    <div class="lane axis">
      <span></span>
      <div>${ticks.map((at, index) => html`<small key=${index}>${clock(at)}</small>`)}</div>
    </div>
  </div>`
}

const Legend = () =>
  html`<p class="legend">
    <span class="box fetch">fetch</span><span class="box decode">decode</span><span class="box write">views, write</span>
    <span class="box work">Spark, waiting</span><span class="box commit">commit</span>
    <span class="box running">runs now</span><span class="box failed">failed</span>
    <span class="box repeated">not committed</span>
  </p>`

/** Phases of a round with their milliseconds; `write` contains the views that Spark computes, which are shown for themselves. */
function phasesOf(round, views) {
  if (round.state !== "done") return []
  const measured = Object.entries(views ?? {}).map(([name, value]) => [`view ${name}`, value * 1000, "view"])
  const ofViews = sum(measured.map(([, value]) => value))
  const known = [
    ["fetch", round.fetch, "fetch"],
    ["decode", round.decode, "decode"],
    ["write", Math.max(0, round.write - ofViews), "write"],
  ].filter(([, value]) => value !== null)
  const rest = Math.max(0, round.work - ofViews - sum(known.map(([, value]) => value)))
  return [...known, ...measured, ["Spark, waiting", rest, "work"], ["commit", round.commit, "commit"]]
}

const Phases = ({ phases }) => {
  const all = sum(phases.map(([, value]) => value))
  const words = phases.map(([name, value]) => `${name} ${milliseconds(value)}`)
  return html`<span class="phases" role="img" aria-label=${words.join(", ")}>
    ${phases.map(
      ([name, value, kind], index) =>
        html`<i key=${name} class=${kind} title=${words[index]} style=${{ flexGrow: all ? value / all : 0 }}></i>`,
    )}
  </span>`
}

const roundFacts = (round) => [
  ["state", stateOf(round)],
  ["began", fullTime(iso(round.start))],
  ["took", round.took === null ? null : seconds(round.took)],
  ...round.phases.map(([name, value]) => [name, milliseconds(value)]),
  ["offsets", isNone(round.offsets) ? null : exactly(round.offsets)],
  ["messages", round.messages === undefined ? null : `${exactly(round.messages)}, ${bytes(round.bytes)}`],
  ["rows of the Kafka table", round.rows === undefined ? null : exactly(round.rows)],
  ["written into tables", round.written === undefined ? null : `${exactly(round.written)} rows, ${bytes(round.files)} of files`],
  ["dead or refused", round.broken ? exactly(round.broken) : null],
  ["what happened", round.detail],
  ["transaction", String(round.txn)],
  ["server", round.server],
]

const stateOf = (row) => html`<${Badge} tone=${ROUND_TONES[row.state]} title=${row.detail}>${ROUND_WORDS[row.state]}<//>`

const roundColumns = (onChoose) => [
  {
    key: "start",
    title: "began",
    kind: "tight",
    show: (row) => html`<button type="button" class="fold" onClick=${() => onChoose(row.key)}><${Time} at=${iso(row.start)} /></button>`,
  },
  numberColumn("consumer", "consumer"),
  { key: "state", title: "state", show: stateOf },
  numberColumn("took", "took", seconds),
  {
    key: "phases",
    title: "of it",
    value: (row) => row.commit,
    about: "fetch, decode and write of its slowest tasks, views, and the commit",
    show: (row) => row.phases.length > 0 && html`<${Phases} phases=${row.phases} />`,
  },
  numberColumn("commit", "commit", milliseconds),
  numberColumn("messages", "messages", count, {
    value: (row) => row.messages ?? row.offsets,
    show: (row) => count(row.messages ?? row.offsets),
  }),
  numberColumn("rate", "rate", perSecond),
  numberColumn("rows", "rows"),
  numberColumn("bytes", "read", bytes),
  numberColumn("files", "written", bytes),
  someColumn("broken", "dead or refused"),
  lineColumn("detail", "what happened"),
]

const EVENT_TONES = { EXCEPTION: "bad", PARSE_ERROR: "warn" }

const EVENTS = [
  timeColumn("at", "when"),
  stateColumn((event) => EVENT_TONES[event] ?? "", { key: "event", title: "event" }),
  numberColumn("consumer", "consumer", count, { show: (row) => row.consumer ?? "all" }),
  someColumn("messages", "messages"),
  textColumn("detail", "what happened"),
]

/** A round that is open in the log although its consumer is in no round: it was stopped, or its worker is gone. */
const finished = (round, consumers) => {
  const owner = consumers.find((row) => row.consumer === round.consumer)
  const isGone = round.state === "running" && isNone(owner?.round_running_seconds) && owner?.activity !== "reading"
  return isGone ? { ...round, state: "ended", end: round.start } : round
}

export function Rounds({ found, seen, parameters, change }) {
  useTick()
  const span = parameters.get("span") in SPANS ? parameters.get("span") : "300"
  const consumers = found.consumers.rows
  const rounds = useMemo(
    () =>
      roundsOf(found.log?.rows ?? [])
        .map((round) => finished(round, consumers))
        .map((round) => {
          const isOver = round.end !== null && round.state !== "ended"
          const took = isOver ? (round.end - round.start) / 1000 : null
          const rate = took && round.state === "done" ? Number(round.messages) / took : null
          return { ...round, took, rate, phases: phasesOf(round, viewsOf(round, seen)) }
        })
        .reverse(),
    [found.log, found.consumers, seen],
  )
  const choose = (key) => change({ round: key === parameters.get("round") ? null : key })
  const columns = useMemo(() => roundColumns(choose), [parameters.toString()])
  if (!found.log) return html`<${Waiting} />`
  const to = serverNow()
  const from = to - Number(span) * 1000
  const chosen = rounds.find((round) => round.key === parameters.get("round"))
  const others = found.log.rows.filter((row) => row.detail)
  return html`
    <${Card} title="Rounds" about="each reads messages, runs the views, writes files, and commits rows and offsets together"
      actions=${html`<${Select} label="Time that is drawn" value=${span} options=${SPAN_OPTIONS}
        onChange=${(value) => change({ span: value })} />`}>
      <${Failure} error=${found.log.error} />
      <${Timeline} rounds=${rounds.filter((round) => (round.end ?? to) >= from)} from=${from} to=${to} chosen=${chosen?.key}
        onChoose=${choose} />
      <${Legend} />
      ${chosen && html`<div class="chosen-round"><${Facts} facts=${roundFacts(chosen)} /></div>`}
      <div class="bounded">
        <${Table} label="rounds" rows=${rounds} columns=${columns} keyOf=${(row) => row.key} height=${420}
          toneOf=${(row) => ({ failed: "bad", repeated: "warn" })[row.state] ?? ""}
          empty="There was no round since the server was started." />
      </div>
    <//>
    <${Card} title="Events" about=${`with a reason, of the newest ${count(LOG_MAX)} lines of the log`}>
      <${Table} label="events" rows=${others} columns=${EVENTS} empty="Nothing unusual." height=${360}
        keyOf=${(row) => `${row.at}/${row.consumer}/${row.event}/${row.txn}`} />
    <//>`
}
