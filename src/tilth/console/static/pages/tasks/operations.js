// What the maintenance manager weighs, what it chose and refused, and mutations.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { literal } from "../../core/api.js"
import { bytes, count, isNone } from "../../core/format.js"
import { Badge, Bar, Card, Failure, Search, StatementDialog, Table, Time, Waiting, tableLink } from "../../core/ui.js"
import { Select, TableName, holds, whereAll } from "./parts.js"

const OPS_MAX = 1000
const CHOICES_MAX = 300
const MUTATIONS_MAX = 500

// --- operations ------------------------------------------------------------------------------------------------------

const OP_KINDS = [
  "FLUSH", "FLUSH_DELTAS", "MERGE", "MINOR_DELTA", "MAJOR_DELTA", "MUTATE", "LOG_GC", "PART_GC", "HISTORY_GC",
  "DELETED_PART_GC", "REPLICATE", "SCRUB",
]
const OP_OPTIONS = [["", "all kinds"], ...OP_KINDS.map((kind) => [kind, kind])]
const SHOWN = {
  "": ["that could run", "(is_runnable OR running > 0)"],
  gain: ["that would gain something", "score > 0"],
  damaged: ["with damaged parts", "damaged IS NOT NULL"],
  all: ["all", ""],
}

export const operationStatements = (kind, shown, text) => ({
  ops: `SELECT name, kind, database, "table", is_runnable, running, score, perf_improvement, workload_score, priority,
    data_retained_bytes, logs_retained_bytes, ram_anchored_bytes, about, damaged, server FROM system.maintenance_ops
    ${whereAll(SHOWN[shown]?.[1], kind && `kind = '${kind}'`, holds(["name", "about"], text))}
    ORDER BY score DESC NULLS LAST, is_runnable DESC, name LIMIT ${OPS_MAX}`,
})

const digits = (value) => (Number(value) ? Number(value).toPrecision(3) : "")
const size = (value) => (Number(value) ? bytes(value) : "")

function stateOfOp(row) {
  const running = Number(row.running)
  if (running) return ["busy", running > 1 ? `runs × ${running}` : "runs"]
  return row.is_runnable ? ["good", "could run"] : ["", "cannot run"]
}

const OPS = [
  {
    key: "name",
    title: "operation",
    kind: "tight",
    show: (row) => html`${row.kind} <a href=${tableLink(row.database, row.table)}>${row.database}.${row.table}</a>`,
  },
  {
    key: "state",
    title: "state",
    value: (row) => (Number(row.running) ? 2 : row.is_runnable ? 1 : 0),
    show: (row) => {
      const [tone, words] = stateOfOp(row)
      return html`<${Badge} tone=${tone}>${words}<//>`
    },
  },
  {
    key: "score",
    title: "score",
    align: "right",
    about: "The gain with workload and priority; the largest one goes first",
    show: (row) => digits(row.score),
  },
  { key: "perf_improvement", title: "gain of readers", align: "right", show: (row) => digits(row.perf_improvement) },
  {
    key: "workload_score",
    title: "workload",
    align: "right",
    about: "How busy the table is, as far as that counts",
    show: (row) => digits(row.workload_score),
  },
  {
    key: "priority",
    title: "priority",
    align: "right",
    about: "maintenance_priority of the table",
    show: (row) => (Number(row.priority) ? row.priority : ""),
  },
  {
    key: "data_retained_bytes",
    title: "frees on the store",
    align: "right",
    show: (row) => size(row.data_retained_bytes),
  },
  {
    key: "logs_retained_bytes",
    title: "frees of the log",
    align: "right",
    show: (row) => size(row.logs_retained_bytes),
  },
  { key: "ram_anchored_bytes", title: "frees of memory", align: "right", show: (row) => size(row.ram_anchored_bytes) },
  {
    key: "about",
    title: "what it would do, or why it cannot",
    kind: "text",
    show: (row) => html`<span title=${row.about}>${row.about}</span>`,
  },
  {
    key: "damaged",
    title: "damaged",
    kind: "text",
    show: (row) => row.damaged && html`<${Badge} tone="bad" title=${row.damaged}>${row.damaged}<//>`,
  },
]

/** Columns that are left out where no operation has a value. */
const RARE = ["workload_score", "priority", "data_retained_bytes", "logs_retained_bytes", "ram_anchored_bytes", "damaged"]

const usedColumns = (rows) =>
  OPS.filter(({ key }) => !RARE.includes(key) || rows.some((row) => row[key] && row[key] !== "0"))

export function Operations({ found, kind, shown, text, change }) {
  const columns = useMemo(() => usedColumns(found.ops?.rows ?? []), [found.ops])
  if (!found.ops) return html`<${Waiting} />`
  const rows = found.ops.rows
  const number = `${count(rows.length)}${rows.length === OPS_MAX ? " or more" : ""}`
  const options = Object.entries(SHOWN).map(([key, [words]]) => [key, words])
  return html`<${Card} title="Operations" about=${`${number}, sorted by score: of those that only speed up reads, the first one runs next`}
    actions=${html`<${Search} label="Name, or what it would do" value=${text} onChange=${(value) => change({ search: value })} />
      <${Select} label="Which operations" value=${shown} options=${options} onChange=${(value) => change({ show: value })} />
      <${Select} label="Kind" value=${kind} options=${OP_OPTIONS} onChange=${(value) => change({ kind: value })} />`}>
    <${Failure} error=${found.ops.error} />
    <${Table} label="operations" rows=${rows} columns=${columns} keyOf=${(row) => `${row.name}/${row.server}`} height=${720}
      toneOf=${(row) => (row.damaged ? "bad" : "")} empty="No operation fits: nothing is to be done." />
  <//>`
}

// --- choices ---------------------------------------------------------------------------------------------------------

export const RULES = {
  read_gain: "the largest gain for readers",
  free_log: "it frees log, and costs little",
  memory_pressure: "memory is scarce",
  replay_size: "too much log would have to be replayed",
  free_data: "it frees the store",
  nothing_to_gain: "nothing to gain",
  no_free_worker: "no thread is free",
  refused: "refused",
}
const RULE_OPTIONS = [["", "all rules"], ...Object.entries(RULES)]

export const choiceStatements = (rule, text) => ({
  choices: `SELECT "at", op, "table", rule, reason, score, runnable, others, server FROM system.maintenance_choices
    ${whereAll(rule && `rule = '${rule}'`, holds(["op", '"table"', "reason"], text))} ORDER BY "at" DESC LIMIT ${CHOICES_MAX}`,
})

export const ruleTone = (rule) => ({ refused: "warn", nothing_to_gain: "", no_free_worker: "" })[rule] ?? "good"

/** "MERGE(a.b) 0.5, FLUSH(c.d) 0.2" as [name, score]. */
const othersOf = (text) => [...(text ?? "").matchAll(/(\S.*?) (-?\d+\.\d+)(?:, |$)/g)].map(([, name, score]) => [name, Number(score)])

function Weighed({ choice }) {
  const others = othersOf(choice.others)
  const scores = [...(choice.op && choice.score ? [[choice.op, Number(choice.score), true]] : []), ...others]
  const most = Math.max(1e-9, ...scores.map(([, score]) => score))
  return html`<p>${choice.reason}</p>
    <p class="about">
      ${RULES[choice.rule] ?? choice.rule}; ${count(choice.runnable)} operations could have run; decided by ${choice.server}
    </p>
    ${scores.length > 0 &&
    html`<div class="scores">
      ${scores.map(
        ([name, score, isChosen]) =>
          html`<span key=${name} class=${isChosen ? "chosen" : ""}>${name}${isChosen ? ", chosen" : ""}</span>
            <${Bar} part=${score / most} title=${`score ${score}`} /><span>${score.toPrecision(3)}</span>`,
      )}
    </div>`}`
}

const CHOICES = [
  { key: "at", title: "when", kind: "tight", show: (row) => html`<${Time} at=${row.at} />` },
  {
    key: "rule",
    title: "rule",
    show: (row) => html`<${Badge} tone=${ruleTone(row.rule)} title=${RULES[row.rule]}>${row.rule}<//>`,
  },
  { key: "op", title: "operation", kind: "tight", show: (row) => row.op ?? "none" },
  { key: "table", title: "table", kind: "tight", show: (row) => html`<${TableName} name=${row.table} />` },
  { key: "score", title: "score", align: "right", show: (row) => digits(row.score) },
  {
    key: "runnable",
    title: "could have run",
    align: "right",
    show: (row) => (Number(row.runnable) ? count(row.runnable) : ""),
  },
  { key: "reason", title: "why", kind: "text" },
  { key: "others", title: "passed over", kind: "text", show: (row) => row.others ?? "" },
]

export function Choices({ found, rule, text, change }) {
  if (!found.choices) return html`<${Waiting} />`
  const number = count(found.choices.rows.length)
  return html`<${Card} title="Choices and refusals" about=${`the newest ${number} that fit; a line opens with the scores`}
    actions=${html`<${Search} label="Operation, table or reason" value=${text} onChange=${(value) => change({ search: value })} />
      <${Select} label="Rule" value=${rule} options=${RULE_OPTIONS} onChange=${(value) => change({ rule: value })} />`}>
    <${Failure} error=${found.choices.error} />
    <${Table} label="choices" rows=${found.choices.rows} columns=${CHOICES}
      keyOf=${(row) => `${row.at}/${row.op}/${row.table}/${row.reason}`}
      expand=${(row) => html`<${Weighed} choice=${row} />`} toneOf=${(row) => (row.rule === "refused" ? "warn" : "")} empty="No choice fits." />
  <//>`
}

// --- mutations -------------------------------------------------------------------------------------------------------

export const mutationStatements = (text) => ({
  mutations: `SELECT mutation_id, database, "table", command, kind, create_time, commit_time, is_done, is_killed, end_time,
    parts_to_do, parts_done, running, latest_failed_part, latest_fail_time, latest_fail_reason, next_attempt, state_reason
    FROM system.mutations ${whereAll(holds(['"table"', "command"], text))}
    ORDER BY CASE WHEN is_done OR is_killed THEN 1 ELSE 0 END, create_time DESC LIMIT ${MUTATIONS_MAX}`,
})

const isOver = (row) => row.is_done || row.is_killed

function stateOfMutation(row) {
  if (row.is_done) return ["good", "done"]
  if (row.is_killed) return ["warn", "killed"]
  if (row.latest_fail_reason) return ["bad", "fails"]
  return Number(row.running) ? ["busy", `runs × ${row.running}`] : ["", "waits"]
}

const Failing = ({ row }) =>
  html`<span title=${row.latest_fail_reason}>
    ${row.latest_failed_part}: ${row.latest_fail_reason}${row.next_attempt && html`; next attempt <${Time} at=${row.next_attempt} relative />`}
  </span>`

function Progress({ row }) {
  if (row.is_done) return "all parts"
  if (isNone(row.parts_to_do)) return `${count(row.parts_done)} parts done`
  const all = Number(row.parts_done) + Number(row.parts_to_do)
  const words = `${count(row.parts_done)} of ${count(all)} parts`
  return html`<${Bar} part=${all ? row.parts_done / all : 0} tone=${row.latest_fail_reason ? "bad" : ""} title=${words} /> ${words}`
}

const mutationColumns = (onKill) => [
  {
    key: "table",
    title: "table",
    kind: "tight",
    value: (row) => `${row.database}.${row.table}`,
    show: (row) =>
      html`<a href=${tableLink(row.database, row.table, "?tab=mutations")}>${row.database}.${row.table}</a>`,
  },
  {
    key: "command",
    title: "command",
    kind: "code-cell",
    show: (row) => html`<span title=${row.command}>${row.command}</span>`,
  },
  {
    key: "state",
    title: "state",
    value: (row) => stateOfMutation(row)[1],
    show: (row) => {
      const [tone, words] = stateOfMutation(row)
      return html`<${Badge} tone=${tone} title=${row.state_reason}>${words}<//>`
    },
  },
  { key: "parts_done", title: "parts", kind: "tight", show: (row) => html`<${Progress} row=${row} />` },
  {
    key: "create_time",
    title: "sent",
    align: "right",
    show: (row) => html`<${Time} at=${row.create_time} relative />`,
  },
  {
    key: "end_time",
    title: "ended",
    align: "right",
    show: (row) => row.end_time && html`<${Time} at=${row.end_time} relative />`,
  },
  {
    key: "reason",
    title: "why",
    kind: "text",
    value: (row) => row.latest_fail_reason ?? row.state_reason,
    show: (row) =>
      row.latest_fail_reason && !isOver(row)
        ? html`<${Failing} row=${row} />`
        : html`<span title=${row.state_reason}>${row.state_reason}</span>`,
  },
  {
    key: "kill",
    title: "",
    kind: "tight",
    value: () => 0,
    show: (row) =>
      !isOver(row) &&
      html`<button type="button" onClick=${() => onKill(row)} aria-label=${`Kill the mutation ${row.mutation_id}`}>Kill …</button>`,
  },
]

export function Mutations({ found, text, change }) {
  const [killed, setKilled] = useState(null)
  const [columns] = useState(() => mutationColumns(setKilled))
  if (!found.mutations) return html`<${Waiting} />`
  const rows = found.mutations.rows
  const over = rows.filter(isOver).length
  return html`<${Card} title="Mutations" about=${`${count(rows.length - over)} under way, ${count(over)} ended`}
    actions=${html`<${Search} label="Table or command" value=${text} onChange=${(value) => change({ search: value })} />`}>
    <${Failure} error=${found.mutations.error} />
    <${Table} label="mutations" rows=${rows} columns=${columns} keyOf=${(row) => row.mutation_id} height=${720}
      toneOf=${(row) => (row.latest_fail_reason && !isOver(row) ? "bad" : "")} empty="No mutation: an ALTER that rewrites parts makes one." />
    ${killed &&
    html`<${StatementDialog} title=${`Kill the mutation of ${killed.database}.${killed.table}`} danger action="Kill"
      about=${`${killed.command}: parts that are rewritten already stay as they are.`} onClose=${() => setKilled(null)}
      statement=${() => `KILL MUTATION ${literal(killed.mutation_id)}`} />`}
  <//>`
}
