// Streams: what consumers do, their positions in topic partitions, how old unread messages are, gaps.

import { html, useRef } from "../vendor/preact-htm.js"
import { serverNow } from "./api.js"
import { count, exactly, isNone, seconds } from "./format.js"
import { nameOf } from "./names.js"
import { ageColumn, numberColumn, textColumn } from "./table.js"
import { Badge } from "./ui.js"

/** Activities, the most telling one first, as the server orders them. */
export const ACTIVITIES = ["waiting", "reading", "flush_interval", "open_transaction", "starting", "idle"]
export const ACTIVITY_WORDS = {
  waiting: "waits for a worker",
  reading: "reads",
  flush_interval: "collects messages",
  open_transaction: "waits for an open transaction",
  starting: "starts",
  idle: "idle",
}

/** Ends of topics that were seen longer ago than this say nothing about the lag now. */
export const STALE_SECONDS = 60

/** Lag of several consumers together; `unknown`: how many of them say nothing about theirs. */
export const lagText = (lag, unknown, all) =>
  unknown && unknown === all ? "not known" : `${unknown ? "≥ " : ""}${count(lag)}`

// --- positions -------------------------------------------------------------------------------------------------------

/** Consumers whose unread messages are followed; the others have no age. */
export const POSITIONS_MAX = 300
const SAMPLES_MAX = 200

/** ["topic/0=12"] as {"topic/0": 12}. */
export const numbersByName = (texts) =>
  Object.fromEntries(
    (texts ?? []).map((text) => {
      const cut = text.lastIndexOf("=")
      return [text.slice(0, cut), Number(text.slice(cut + 1))]
    }),
  )

const known = (value) => (isNone(value) || value < 0 ? null : value)

/** Topic partitions of one consumer, a row of system.kafka_tables; what is not known is null. */
export function partitionsOf(row) {
  const [offsets, stable, ends] = [row.offsets, row.stable_offsets, row.high_watermarks].map(numbersByName)
  return Object.keys(offsets).map((name) => {
    const [offset, end] = [known(offsets[name]), known(ends[name])]
    const cut = name.lastIndexOf("/")
    return {
      name,
      topic: name.slice(0, cut),
      partition: Number(name.slice(cut + 1)),
      consumer: row.consumer,
      offset,
      stable: known(stable[name]),
      end,
      lag: offset === null || end === null ? null : Math.max(0, end - offset),
    }
  })
}

const thinned = (samples) => (samples.length > SAMPLES_MAX ? samples.filter((_, index) => index % 2 === 0) : samples)

/** Ends that were seen of each topic partition with unread messages, those before the next unread message left out. */
function followed(before, answer, isFirst) {
  const now = new Map()
  for (const row of answer.rows)
    for (const { name, offset, end, lag } of partitionsOf(row)) {
      if (!lag) continue
      const key = `${nameOf(row)}/${name}`
      const old = before.get(key) ?? { samples: [], isOlder: isFirst }
      const kept = old.samples.filter((sample) => sample.end > offset)
      const isOlder = old.isOlder && kept.length === old.samples.length
      const samples = kept.at(-1)?.end === end ? kept : thinned([...kept, { at: answer.at, end }])
      now.set(key, { table: nameOf(row), samples, isOlder })
    }
  return now
}

/**
 * Since when the oldest unread message of each table has been in its topic, as this page has seen the ends grow:
 * Map of "database.table" to {since, isOlder}; `isOlder`: it was there before the page was opened.
 */
export function useOldest(answer) {
  const seen = useRef({ at: 0, partitions: new Map() })
  const state = seen.current
  if (answer && !answer.error && answer.at !== state.at) {
    const isFirst = state.at === 0 || answer.rows.length === POSITIONS_MAX
    seen.current = { at: answer.at, partitions: followed(state.partitions, answer, isFirst) }
  }
  const oldest = new Map()
  for (const { table, samples, isOlder } of seen.current.partitions.values()) {
    const other = oldest.get(table)
    const since = Math.min(other?.since ?? Infinity, samples[0].at)
    oldest.set(table, { since, isOlder: isOlder || Boolean(other?.isOlder) })
  }
  return oldest
}

export const ageOf = (oldest) => (oldest ? Math.max(0, (serverNow() - oldest.since) / 1000) : null)

export const Age = ({ oldest }) =>
  oldest
    ? html`<span title=${oldest.isOlder ? "It was in the topic before this page was opened" : "Measured while this page is open"}>
        ${oldest.isOlder ? "≥ " : ""}${seconds(ageOf(oldest))}
      </span>`
    : "–"

// --- gaps ------------------------------------------------------------------------------------------------------------

export const GAP_COLUMNS = "topic, \"partition\", \"start\", \"end\", reason, \"at\", resolution"
/** Open ones first. */
export const GAP_ORDER = `CASE WHEN resolution IS NULL THEN 0 ELSE 1 END, "at" DESC`

export const gapKey = (row) => `${row.topic}/${row.partition}/${row.start}`

const missing = (row) => (isNone(row.end) ? null : row.end - row.start)

const topicPartition = (row) => `${row.topic}/${row.partition}`
export const topicColumn = { key: "partition", title: "topic partition", value: topicPartition, show: topicPartition }
export const offsetColumn = (key, title, more) => numberColumn(key, title, exactly, more)

export const GAPS = [
  {
    key: "state",
    title: "state",
    value: (row) => row.resolution ?? "",
    show: (row) => html`<${Badge} tone=${row.resolution ? "good" : "bad"}>${row.resolution ? "closed" : "open"}<//>`,
  },
  topicColumn,
  offsetColumn("start", "from offset"),
  offsetColumn("end", "to", {
    about: "The first offset that is there again",
    show: (row) => (isNone(row.end) ? "not known" : exactly(row.end)),
  }),
  numberColumn("missing", "missing", count, {
    value: missing,
    show: (row) => (isNone(row.end) ? "–" : `${count(missing(row))} offsets`),
  }),
  ageColumn("at", "found"),
  textColumn("reason", "why"),
  {
    key: "resolution",
    title: "what was decided",
    kind: "text",
    show: (row) => row.resolution ?? "nothing yet; its consumer waits",
  },
]
