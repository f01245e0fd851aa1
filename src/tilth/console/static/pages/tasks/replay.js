// The merges of one table under each policy, side by side with what really happened.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { literal, named, useRead } from "../../core/api.js"
import { bytes, count, dateOf } from "../../core/format.js"
import { Badge, Card, Empty, Failure, StatementDialog, Table, Time, Waiting } from "../../core/ui.js"
import { Plot } from "../stream/plot.js"
import { systemText } from "./parts.js"

const POLICIES = {
  size_tiered: "neighbours of like size: least rewriting for the fewest files",
  key_range: "parts whose sort keys overlap: a key is looked up in fewer parts",
}
const NAMES_MAX = 500
const MERGES_MAX = 20_000

/** The policy that is in force, by the statement that makes the table. */
const policyOf = (info) =>
  /\bmerge_policy\s*=\s*'(\w+)'/.exec(info.create_statement)?.[1] ?? (info.unique_key?.length ? "key_range" : "size_tiered")

const numberIn = (pattern, text) => {
  const found = pattern.exec(text)
  return found ? Number(found[1]) : null
}

/** Sums of a history, from the line that EXPLAIN MERGE has for it. */
const sumsOf = (line) => ({
  bytes: Number(line.bytes),
  parts: Number(line.parts),
  merges: numberIn(/by (\d+) merges/, line.reason),
  times: numberIn(/([\d.]+) times written/, line.reason),
  most: numberIn(/(\d+) at most in a partition/, line.reason),
  reason: line.reason,
})

/** The answer of EXPLAIN MERGE .. POLICY in its three parts: candidates now, merges of the history, sums. */
function sideOf(rows) {
  const [policy, real] = rows.filter((row) => row.state === "summary")
  return {
    candidates: rows.filter((row) => row.state !== "summary" && row.state !== "replayed"),
    merges: rows.filter((row) => row.state === "replayed"),
    policy: policy && sumsOf(policy),
    real: real && sumsOf(real),
  }
}

// --- the plot --------------------------------------------------------------------------------------------------------

/** Bytes that merges have written up to each moment; the merges that are not listed come before the first one. */
function grown(merges, total) {
  const sorted = merges.map((each) => [dateOf(each.at).getTime() / 1000, Number(each.bytes)]).sort(([left], [right]) => left - right)
  let sum = Math.max(0, (total ?? 0) - sorted.reduce((all, [, size]) => all + size, 0))
  return sorted.map(([at, size]) => [at, (sum += size)])
}

/** Steps on one axis of times. */
function aligned(lines) {
  const times = [...new Set(lines.flatMap((line) => line.map(([at]) => at)))].sort((left, right) => left - right)
  const values = lines.map((line) => {
    let next = 0
    let value = null
    return times.map((at) => {
      for (; next < line.length && line[next][0] <= at; next += 1) value = line[next][1]
      return value
    })
  })
  return [times, ...values]
}

const LINES = [
  { label: "really", color: "--muted", dash: [5, 4] },
  { label: "size_tiered", color: "--accent" },
  { label: "key_range", color: "--busy" },
]

function Written({ name, real, sides }) {
  const data = useMemo(() => {
    const [tiered, ranged] = Object.keys(POLICIES).map((policy) =>
      grown(sides[policy].merges.map((row) => ({ at: row.next_attempt, bytes: row.bytes })), sides[policy].policy?.bytes),
    )
    return aligned([grown(real, sides.size_tiered.real?.bytes), tiered, ranged])
  }, [real, sides])
  if (data[0].length < 2) return html`<${Empty}>There are too few merges for a plot.<//>`
  return html`<${Plot} label=${`bytes written by merges of ${name}`} series=${LINES} data=${data} show=${bytes} isStepped />`
}

// --- the tables ------------------------------------------------------------------------------------------------------

const SUMS = [
  { key: "title", title: "history" },
  { key: "merges", title: "merges", align: "right", show: (row) => count(row.merges) },
  { key: "bytes", title: "written by them", align: "right", show: (row) => bytes(row.bytes) },
  {
    key: "times",
    title: "times written",
    align: "right",
    about: "Bytes written for each byte inserted",
    show: (row) => (row.times === null ? "–" : `${row.times.toFixed(2)} ×`),
  },
  { key: "parts", title: "parts at the end", align: "right", show: (row) => count(row.parts) },
  {
    key: "most",
    title: "most in a partition",
    align: "right",
    show: (row) => (row.most === null ? "–" : `${count(row.most)} parts`),
  },
]

const CANDIDATES = [
  { key: "partition", title: "partition", kind: "tight" },
  { key: "allowed", title: "merge", show: (row) => html`<${Badge} tone=${row.allowed ? "good" : ""}>${row.state}<//>` },
  { key: "parts", title: "parts", align: "right", show: (row) => count(row.parts) },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  { key: "reason", title: "why", kind: "text", show: (row) => html`<span title=${row.reason}>${row.reason}</span>` },
]

const MERGES = [
  { key: "next_attempt", title: "would have been", kind: "tight", show: (row) => html`<${Time} at=${row.next_attempt} />` },
  { key: "partition", title: "partition", kind: "tight" },
  { key: "parts", title: "parts", align: "right", show: (row) => count(row.parts) },
  { key: "rows", title: "rows", align: "right", show: (row) => count(row.rows) },
  { key: "bytes", title: "size", align: "right", show: (row) => bytes(row.bytes) },
  { key: "reason", title: "why", kind: "text", show: (row) => html`<span title=${row.reason}>${row.reason}</span>` },
]

const keyOf = (row) => `${row.partition}/${row.first_part}/${row.last_part}/${row.next_attempt}`

function Side({ policy, side, isOwn, onUse }) {
  const newest = useMemo(() => [...side.merges].reverse(), [side])
  return html`<section class=${`card ${isOwn ? "own" : ""}`}>
    <header><h2>${policy}</h2><p class="about">${POLICIES[policy]}</p>
      <div class="actions">
        ${isOwn ? html`<${Badge} tone="good">in force<//>` : html`<button type="button" onClick=${onUse}>Use it …</button>`}
      </div>
    </header>
    <p>${side.policy?.reason}</p>
    <h3>now</h3>
    <div class="bounded">
      <${Table} label=${`${policy}: candidates`} rows=${side.candidates} columns=${CANDIDATES} keyOf=${keyOf} height=${300}
        empty="There is nothing to merge." />
    </div>
    <h3>in the history of the part log, newest first</h3>
    <div class="bounded">
      <${Table} label=${`${policy}: replayed merges`} rows=${newest} columns=${MERGES} keyOf=${keyOf} height=${460}
        empty="It would have merged nothing." />
    </div>
  </section>`
}

function Sides({ database, table, info }) {
  const name = named(database, table)
  const [asked, setAsked] = useState(null)
  const answers = {
    size_tiered: useRead(`EXPLAIN MERGE ${name} POLICY size_tiered`),
    key_range: useRead(`EXPLAIN MERGE ${name} POLICY key_range`),
  }
  const real = useRead(
    `SELECT "at", bytes FROM system.part_log WHERE event = 'merge' AND database = ${systemText(database)}
     AND "table" = ${systemText(table)} ORDER BY "at" DESC LIMIT ${MERGES_MAX}`,
  )
  const sides = useMemo(
    () => Object.fromEntries(Object.entries(answers).map(([policy, answer]) => [policy, sideOf(answer.rows)])),
    [answers.size_tiered.rows, answers.key_range.rows],
  )
  const error = answers.size_tiered.error ?? answers.key_range.error ?? real.error
  if (error) return html`<${Failure} error=${error} />`
  if (answers.size_tiered.isLoading || answers.key_range.isLoading || real.isLoading) return html`<${Waiting} />`
  const own = policyOf(info)
  const titles = { real: "what really happened", ...Object.fromEntries(Object.keys(POLICIES).map((policy) => [policy, policy])) }
  const sums = { real: sides.size_tiered.real, size_tiered: sides.size_tiered.policy, key_range: sides.key_range.policy }
  const rows = Object.entries(sums).filter(([, each]) => each).map(([key, each]) => ({ ...each, title: titles[key], key }))
  const again = () => [answers.size_tiered, answers.key_range, real].forEach((answer) => answer.again())
  return html`
    <${Card} title="Bytes written by merges" about="the more, the more work; the fewer parts at the end, the faster are queries"
      actions=${html`<button type="button" onClick=${again}>Compare again</button>`}>
      <${Written} name=${`${database}.${table}`} real=${real.rows} sides=${sides} />
      <${Table} label="sums" rows=${rows} columns=${SUMS} keyOf=${(row) => row.key} />
    <//>
    <div class="sides">
      ${Object.keys(POLICIES).map(
        (policy) =>
          html`<${Side} key=${policy} policy=${policy} side=${sides[policy]} isOwn=${policy === own}
            onUse=${() => setAsked(policy)} />`,
      )}
    </div>
    ${asked &&
    html`<${StatementDialog} title=${`Merge ${database}.${table} by ${asked}`} about=${POLICIES[asked]} action="Change"
      onClose=${() => setAsked(null)} statement=${() => `ALTER TABLE ${name} MODIFY SETTING merge_policy = ${literal(asked)}`} />`}`
}

// --- the tab ---------------------------------------------------------------------------------------------------------

/** "database.table" in its parts; a name alone is of the default database. */
const nameOf = (text) => {
  const cut = text.indexOf(".")
  return cut < 0 ? ["default", text] : [text.slice(0, cut), text.slice(cut + 1)]
}

export const replayStatements = (of) => {
  const [database, table] = nameOf(of)
  const names = `SELECT database, name FROM system.tables WHERE engine = 'MergeTree' ORDER BY database, name LIMIT ${NAMES_MAX}`
  const info = `SELECT unique_key, create_statement FROM system.tables
    WHERE database = ${systemText(database)} AND name = ${systemText(table)} AND engine = 'MergeTree'`
  return of ? { names, info } : { names }
}

export function Replay({ found, parameters, change }) {
  const chosen = parameters.get("of") ?? ""
  const [draft, setDraft] = useState(chosen)
  const [database, table] = nameOf(chosen)
  const names = found.names?.rows ?? []
  const info = found.info?.rows[0]
  const submit = (event) => {
    event.preventDefault()
    change({ of: draft.trim() })
  }
  return html`
    <${Card} title="Replay" about="the history of a table's parts under each merge policy; nothing is changed">
      <form class="head" onSubmit=${submit}>
        <input type="search" list="replayed-tables" value=${draft} placeholder="database.table" aria-label="Table, as database.table"
          onInput=${(event) => setDraft(event.target.value)} />
        <datalist id="replayed-tables">
          ${names.map((row) => html`<option key=${`${row.database}.${row.name}`} value=${`${row.database}.${row.name}`}></option>`)}
        </datalist>
        <button type="submit" class="main" disabled=${!draft.trim()}>Compare</button>
      </form>
      <${Failure} error=${found.names?.error ?? found.info?.error} />
      ${!chosen && html`<${Empty}>Choose a table.<//>`}
      ${chosen && !found.info && html`<${Waiting} />`}
      ${chosen && found.info && !found.info.error && !info && html`<${Empty}>There is no table ${database}.${table}.<//>`}
    <//>
    ${chosen && info && html`<${Sides} key=${chosen} database=${database} table=${table} info=${info} />`}`
}
