// The merges of one table under each policy, side by side with what really happened.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { literal, named, useRead } from "../../core/api.js"
import { settingsIn } from "../../core/definition.js"
import { StatementDialog } from "../../core/dialog.js"
import { MERGE, Merges } from "../../core/explain.js"
import { isOf } from "../../core/filters.js"
import { bytes, count, dateOf, sum } from "../../core/format.js"
import { nameOf, nameParts } from "../../core/names.js"
import { Plot } from "../../core/plot.js"
import { Table, numberColumn, timeColumn } from "../../core/table.js"
import { Badge, Card, Empty, Failure, Waiting } from "../../core/ui.js"

const POLICIES = {
  size_tiered: "neighbours of like size: least rewriting for the fewest files",
  key_range: "parts whose sort keys overlap: a key is looked up in fewer parts",
}
const NAMES_MAX = 500
const MERGES_MAX = 20_000

/** The policy that is in force, by the statement that makes the table. */
const policyOf = (info) =>
  settingsIn(info.create_statement).merge_policy || (info.unique_key?.length ? "key_range" : "size_tiered")

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
  let written = Math.max(0, (total ?? 0) - sum(sorted.map(([, size]) => size)))
  return sorted.map(([at, size]) => [at, (written += size)])
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
  numberColumn("merges", "merges"),
  numberColumn("bytes", "written by them", bytes),
  numberColumn("times", "times written", (times) => (times === null ? "–" : `${times.toFixed(2)} ×`), {
    about: "Bytes written for each byte inserted",
  }),
  numberColumn("parts", "parts at the end"),
  numberColumn("most", "most in a partition", (most) => (most === null ? "–" : `${count(most)} parts`)),
]

const CANDIDATES = ["partition", "state", "parts", "bytes", "reason"].map((key) => MERGE[key])
const MERGES = [
  timeColumn("next_attempt", "would have been"),
  ...["partition", "parts", "rows", "bytes", "reason"].map((key) => MERGE[key]),
]

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
      <${Merges} label=${`${policy}: candidates`} rows=${side.candidates} columns=${CANDIDATES} height=${300} />
    </div>
    <h3>in the history of the part log, newest first</h3>
    <div class="bounded">
      <${Merges} label=${`${policy}: replayed merges`} rows=${newest} columns=${MERGES} height=${460}
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
    `SELECT "at", bytes FROM system.part_log WHERE event = 'merge' AND ${isOf(database, table)}
     ORDER BY "at" DESC LIMIT ${MERGES_MAX}`,
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

export const replayStatements = ({ parameters }) => {
  const of = parameters.get("of") ?? ""
  const names = `SELECT database, name FROM system.tables WHERE engine = 'MergeTree' ORDER BY database, name LIMIT ${NAMES_MAX}`
  const info = `SELECT unique_key, create_statement FROM system.tables
    WHERE ${isOf(...nameParts(of), "name")} AND engine = 'MergeTree'`
  return of ? { names, info } : { names }
}

export function Replay({ found, parameters, change }) {
  const chosen = parameters.get("of") ?? ""
  const [draft, setDraft] = useState(chosen)
  const [database, table] = nameParts(chosen)
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
          ${names.map((row) => html`<option key=${nameOf(row)} value=${nameOf(row)}></option>`)}
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
