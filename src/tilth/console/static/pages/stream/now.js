// One Kafka table now: its consumers, its gaps, its topic partitions.

import { html, useMemo } from "../../vendor/preact-htm.js"
import { bytes, count, exactly, isNone, perSecond, seconds } from "../../core/format.js"
import { ACTIVITY_WORDS, GAPS, gapKey, partitionsOf } from "../../core/streams.js"
import { Table, ageColumn, lineColumn, numberColumn, someColumn, stateColumn, wordColumn } from "../../core/table.js"
import { Badge, Bar, Card, Facts, Time, toneOfState } from "../../core/ui.js"
import { Plots } from "./history.js"

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
  stateColumn(toneOfState),
  {
    key: "activity",
    title: "activity",
    kind: "tight",
    show: (row) =>
      row.activity &&
      html`${ACTIVITY_WORDS[row.activity] ?? row.activity} <small>since <${Time} at=${row.activity_since} /></small>`,
  },
  numberColumn("partitions", "partitions", count, {
    value: (row) => (row.partitions ?? []).length,
    show: (row) => (row.partitions ?? []).length,
  }),
  numberColumn("lag", "lag", (lag) => (isNone(lag) ? "not known" : count(lag))),
  numberColumn("rate", "rate", perSecond, { about: "Messages that are read in a second" }),
  wordColumn("bounded_by", "bounded by", { about: "The setting that bounds a round" }),
  numberColumn("seconds_left", "left", seconds, { about: "Time until the lag is read at this rate" }),
  numberColumn("round_running_seconds", "round runs for", seconds),
  numberColumn("last_round_seconds", "last round", seconds),
  numberColumn("rounds", "rounds"),
  numberColumn("messages", "messages"),
  numberColumn("bytes", "bytes", bytes),
  numberColumn("dead", "dead"),
  numberColumn("refused", "refused"),
  ageColumn("last_commit", "last commit"),
  lineColumn("reason", "why"),
]

const partitionColumns = (largest) => [
  { key: "name", title: "topic partition", kind: "tight" },
  numberColumn("offset", "stored offset", (offset) => (offset === null ? "none yet" : exactly(offset)), {
    about: "The next message to read",
  }),
  numberColumn("end", "end", (end) => (end === null ? "not seen" : exactly(end)), {
    about: "High watermark: the offset behind the last message",
  }),
  {
    key: "lag",
    title: "lag",
    kind: "tight",
    show: (row) =>
      row.lag === null
        ? "not known"
        : html`<${Bar} part=${row.lag / largest} tone=${row.gap ? "bad" : ""} title=${`${exactly(row.lag)} messages`} /> ${count(row.lag)}`,
  },
  someColumn("open", "in open transactions", count, {
    about: "Messages that cannot be read before their transaction ends",
  }),
  {
    key: "gap",
    title: "gap",
    value: (row) => row.gap?.start ?? null,
    show: (row) =>
      row.gap && html`<${Badge} tone="bad" title=${row.gap.reason}>from ${exactly(row.gap.start)} to ${row.gap.end ?? "?"}<//>`,
  },
  numberColumn("consumer", "consumer"),
]

/** Topic partitions of all consumers, with what is open in them. */
export function partitionRows(consumers, gaps) {
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

function Gaps({ gaps, onDecide }) {
  const isOpen = gaps.some((gap) => !gap.resolution)
  return html`<${Card} title="Gaps" tone=${isOpen ? "bad" : ""} about="offsets that could not be read"
    actions=${isOpen && html`<button type="button" class="main" onClick=${onDecide}>Decide …</button>`}>
    <${Table} label="gaps" rows=${gaps} columns=${GAPS} keyOf=${gapKey}
      empty="No message is missing." />
  <//>`
}

export function Now({ found, samples, onDecide }) {
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
