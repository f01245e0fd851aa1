// Operations that the maintenance manager weighs, its choices and refusals, and mutations.

import { html, useMemo } from "../../vendor/preact-htm.js"
import { chosenOf } from "../../core/address.js"
import { RULES, ruleTone } from "../../core/choices.js"
import { FULL_NAME, contains, equals, whereAll } from "../../core/filters.js"
import { bytes, count, score } from "../../core/format.js"
import { Mutations, isOver, mutationsStatement } from "../../core/mutations.js"
import { TableName, nameOf } from "../../core/names.js"
import { Table, someColumn, stateColumn, textColumn, timeColumn } from "../../core/table.js"
import { Answer, Badge, Bar, Card, SearchBy, SelectBy } from "../../core/ui.js"

const OPS_MAX = 1000
const CHOICES_MAX = 300

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

const SHOWN_OPTIONS = Object.entries(SHOWN).map(([key, [words]]) => [key, words])
const conditionOf = (parameters) => SHOWN[chosenOf(Object.keys(SHOWN), parameters.get("show"))][1]

export const operationStatements = ({ parameters, search }) => ({
  ops: `SELECT name, kind, database, "table", is_runnable, running, score, perf_improvement, workload_score, priority,
    data_retained_bytes, logs_retained_bytes, ram_anchored_bytes, about, damaged, server FROM system.maintenance_ops
    ${whereAll(conditionOf(parameters), equals("kind", parameters.get("kind")), contains(["name", "about"], search))}
    ORDER BY score DESC NULLS LAST, is_runnable DESC, name LIMIT ${OPS_MAX}`,
})

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
    show: (row) => html`${row.kind} <${TableName} name=${nameOf(row)} />`,
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
  someColumn("score", "score", score, { about: "The gain with workload and priority; the largest one goes first" }),
  someColumn("perf_improvement", "gain of readers", score),
  someColumn("workload_score", "workload", score, { about: "What reads and writes of the table add to the gain; at most workload_score_upper_bound" }),
  someColumn("priority", "priority", String, { about: "maintenance_priority of the table" }),
  someColumn("data_retained_bytes", "frees on the store", bytes),
  someColumn("logs_retained_bytes", "frees of the log", bytes),
  someColumn("ram_anchored_bytes", "frees of memory", bytes),
  textColumn("about", "what it would do, or why it cannot"),
  textColumn("damaged", "damaged", {
    show: (row) => row.damaged && html`<${Badge} tone="bad" title=${row.damaged}>${row.damaged}<//>`,
  }),
]

/** Columns that are left out where no operation has a value. */
const RARE = ["workload_score", "priority", "data_retained_bytes", "logs_retained_bytes", "ram_anchored_bytes", "damaged"]

const usedColumns = (rows) =>
  OPS.filter(({ key }) => !RARE.includes(key) || rows.some((row) => row[key] && row[key] !== "0"))

const orMore = (rows, limit) => `${count(rows.length)}${rows.length === limit ? " or more" : ""}`

export function Operations({ found, parameters, change }) {
  const by = { parameters, change }
  const columns = useMemo(() => usedColumns(found.ops?.rows ?? []), [found.ops])
  const about = "sorted by score: of those that only speed up reads, the first one runs next"
  return html`<${Card} title="Operations" about=${found.ops && `${orMore(found.ops.rows, OPS_MAX)}, ${about}`}
    actions=${html`<${SearchBy} label="Name, or what it would do" ...${by} />
      <${SelectBy} name="show" label="Which operations" options=${SHOWN_OPTIONS} ...${by} />
      <${SelectBy} name="kind" label="Kind" options=${OP_OPTIONS} ...${by} />`}>
    <${Answer} answer=${found.ops}>
      <${Table} label="operations" rows=${found.ops?.rows} columns=${columns} keyOf=${(row) => `${row.name}/${row.server}`} height=${720}
        toneOf=${(row) => (row.damaged ? "bad" : "")} empty="No operation fits: nothing is to be done." />
    <//>
  <//>`
}

// --- choices ---------------------------------------------------------------------------------------------------------

const RULE_OPTIONS = [["", "all rules"], ...Object.entries(RULES)]

export const choiceStatements = ({ parameters, search }) => ({
  choices: `SELECT "at", op, "table", rule, reason, score, runnable, others, server FROM system.maintenance_choices
    ${whereAll(equals("rule", parameters.get("rule")), contains(["op", '"table"', "reason"], search))}
    ORDER BY "at" DESC LIMIT ${CHOICES_MAX}`,
})

/** "MERGE(a.b) 0.5, FLUSH(c.d) 0.2" as [name, score]. */
const othersOf = (text) => [...(text ?? "").matchAll(/(\S.*?) (-?\d+\.\d+)(?:, |$)/g)].map(([, name, value]) => [name, Number(value)])

function Weighed({ choice }) {
  const others = othersOf(choice.others)
  const scores = [...(choice.op && choice.score ? [[choice.op, Number(choice.score), true]] : []), ...others]
  const most = Math.max(1e-9, ...scores.map(([, value]) => value))
  return html`<p>${choice.reason}</p>
    <p class="about">
      ${RULES[choice.rule] ?? choice.rule}; ${count(choice.runnable)} operations could have run; decided by ${choice.server}
    </p>
    ${scores.length > 0 &&
    html`<div class="scores">
      ${scores.map(
        ([name, value, isChosen]) =>
          html`<span class=${isChosen ? "chosen" : ""}>${name}${isChosen ? ", chosen" : ""}</span>
            <${Bar} part=${value / most} title=${`score ${value}`} /><span>${score(value)}</span>`,
      )}
    </div>`}`
}

const CHOICES = [
  timeColumn("at", "when"),
  stateColumn(ruleTone, { key: "rule", title: "rule" }),
  { key: "op", title: "operation", kind: "tight", show: (row) => row.op ?? "none" },
  { key: "table", title: "table", kind: "tight", show: (row) => html`<${TableName} name=${row.table} />` },
  someColumn("score", "score", score),
  someColumn("runnable", "could have run"),
  textColumn("reason", "why"),
  textColumn("others", "passed over"),
]

export function Choices({ found, parameters, change }) {
  const by = { parameters, change }
  return html`<${Card} title="Choices and refusals"
    about=${found.choices && `the newest ${count(found.choices.rows.length)} that fit; a line opens with the scores`}
    actions=${html`<${SearchBy} label="Operation, table or reason" ...${by} />
      <${SelectBy} name="rule" label="Rule" options=${RULE_OPTIONS} ...${by} />`}>
    <${Answer} answer=${found.choices}>
      <${Table} label="choices" rows=${found.choices?.rows} columns=${CHOICES} empty="No choice fits."
        keyOf=${(row) => `${row.at}/${row.server}/${row.op}/${row.table}/${row.reason}`}
        expand=${(row) => html`<${Weighed} choice=${row} />`} toneOf=${(row) => (row.rule === "refused" ? "warn" : "")} />
    <//>
  <//>`
}

// --- mutations -------------------------------------------------------------------------------------------------------

export const mutationStatements = ({ search }) => ({ mutations: mutationsStatement(contains([FULL_NAME, "command"], search)) })

export function AllMutations({ found, parameters, change }) {
  const rows = found.mutations?.rows ?? []
  const over = rows.filter(isOver).length
  return html`<${Card} title="Mutations" about=${`${count(rows.length - over)} under way, ${count(over)} ended`}
    actions=${html`<${SearchBy} label="Table or command" parameters=${parameters} change=${change} />`}>
    <${Answer} answer=${found.mutations}><${Mutations} rows=${rows} hasTables height=${720} /><//>
  <//>`
}
