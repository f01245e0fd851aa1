// One log of decisions: what was chosen, refused, placed and read, each with its reason.

import { html, useMemo, useState } from "../vendor/preact-htm.js"
import { chosenOf, useParameters } from "../core/address.js"
import { useWatch } from "../core/api.js"
import { RULES, ruleTone } from "../core/choices.js"
import { FULL_NAME, contains, useSettled, whereAll } from "../core/filters.js"
import { bytes, count, dateOf, milliseconds } from "../core/format.js"
import { TableName, nameOf, streamLink } from "../core/names.js"
import { Badge, Card, Empty, Failure, SearchBy, SelectBy, Time, Waiting } from "../core/ui.js"

/** Lines of each source, and lines that are drawn at first. */
const SOURCE_MAX = 300
const SHOWN_STEP = 150

const listed = (...words) => words.filter(Boolean).join(", ")

// --- sources ---------------------------------------------------------------------------------------------------------

const reasoned = (reason) => `${reason} IS NOT NULL AND ${reason} <> ''`

/**
 * Where decisions come from: {title, sql(table, text), line(row)}. A line is {at, tone, what, table, subject, reason,
 * more}; `what` stands in the badge.
 */
const SOURCES = {
  choices: {
    title: "choices of maintenance",
    sql: (table, text) =>
      `SELECT "at", op, "table", rule, reason, runnable, others, server FROM system.maintenance_choices
       ${whereAll("rule <> 'refused'", contains(['"table"'], table), contains(["op", "rule", "reason"], text))}
       ORDER BY "at" DESC LIMIT ${SOURCE_MAX}`,
    line: (row) => ({
      tone: ruleTone(row.rule),
      what: row.op ? "chosen" : "nothing chosen",
      table: row.table,
      subject: row.op ?? RULES[row.rule] ?? row.rule,
      reason: row.reason,
      more: listed(
        RULES[row.rule],
        Number(row.runnable) > 0 && `${count(row.runnable)} could have run`,
        row.others && `passed over: ${row.others}`,
      ),
    }),
  },
  refusals: {
    title: "refusals of maintenance",
    sql: (table, text) =>
      `SELECT "at", op, "table", reason, server FROM system.maintenance_choices
       ${whereAll("rule = 'refused'", contains(['"table"'], table), contains(["op", "reason"], text))}
       ORDER BY "at" DESC LIMIT ${SOURCE_MAX}`,
    line: (row) => ({ tone: "warn", what: "refused", table: row.table, subject: row.op, reason: row.reason, more: "" }),
  },
  parts: {
    title: "changes of parts",
    sql: (table, text) =>
      `SELECT "at", event, database, "table", part, "rows", bytes, sources, duration_ms, reason FROM system.part_log
       ${whereAll(reasoned("reason"), contains([FULL_NAME], table), contains(["event", "part", "reason"], text))}
       ORDER BY "at" DESC LIMIT ${SOURCE_MAX}`,
    line: (row) => ({
      tone: "good",
      what: row.event,
      table: nameOf(row),
      subject: row.part,
      reason: row.reason,
      more: listed(
        Number(row.sources) > 0 && `${count(row.sources)} sources`,
        `${count(row.rows)} rows`,
        bytes(row.bytes),
        Number(row.duration_ms) > 0 && milliseconds(row.duration_ms),
      ),
    }),
  },
  streams: {
    title: "events of streams",
    sql: (table, text) =>
      `SELECT "at", database, "table", consumer, event, messages, detail, server FROM system.kafka_log
       ${whereAll(reasoned("detail"), contains([FULL_NAME], table), contains(["event", "detail"], text))}
       ORDER BY "at" DESC LIMIT ${SOURCE_MAX}`,
    line: (row) => ({
      tone: { EXCEPTION: "bad", PARSE_ERROR: "warn" }[row.event] ?? "",
      what: row.event,
      table: nameOf(row),
      href: streamLink(row.database, row.table, "?tab=rounds"),
      subject: row.consumer === null ? "the service" : `consumer ${row.consumer}`,
      reason: row.detail,
      more: Number(row.messages) > 0 ? `${count(row.messages)} messages` : "",
    }),
  },
  placements: {
    title: "placements of tasks",
    sql: (table, text) =>
      `SELECT id, kind, state, worker, warehouse, "table", created, reason, placement_reason FROM system.tasks
       ${whereAll(reasoned("placement_reason"), contains(['"table"'], table), contains(["kind", "worker", "placement_reason"], text))}
       ORDER BY created DESC LIMIT ${SOURCE_MAX}`,
    at: "created",
    line: (row) => ({
      tone: "busy",
      what: "placed",
      table: row.table,
      subject: `${row.kind} on ${row.worker || "no worker"}`,
      reason: row.placement_reason,
      more: `warehouse ${row.warehouse}, ${row.state}`,
    }),
  },
  failures: {
    title: "tasks that failed",
    sql: (table, text) =>
      `SELECT id, kind, state, worker, "table", ended, reason FROM system.tasks
       ${whereAll(
         "state IN ('failed', 'lost', 'cancelled')",
         contains(['"table"'], table),
         contains(["kind", "state", "worker", "reason"], text),
       )} ORDER BY ended DESC LIMIT ${SOURCE_MAX}`,
    at: "ended",
    line: (row) => ({
      tone: row.state === "cancelled" ? "warn" : "bad",
      what: row.state,
      table: row.table,
      subject: `${row.kind} on ${row.worker || "no worker"}`,
      reason: row.reason,
      more: "",
    }),
  },
}

const KIND_OPTIONS = [["", "all decisions"], ...Object.entries(SOURCES).map(([key, { title }]) => [key, title])]

const linesOf = ([name, answer]) => {
  const { at = "at", line } = SOURCES[name]
  return answer.rows.map((row) => {
    const shown = line(row)
    const key = `${name}/${row[at]}/${row.id ?? `${row.server}/${shown.table}/${shown.subject}/${shown.reason}`}`
    return { ...shown, at: row[at], ms: dateOf(row[at])?.getTime() ?? 0, key }
  })
}

// --- the page --------------------------------------------------------------------------------------------------------

const Line = ({ line }) =>
  html`<li>
    <${Time} at=${line.at} />
    <span><${Badge} tone=${line.tone}>${line.what}<//></span>
    <span class="subject">
      ${line.table && (line.href ? html`<a href=${line.href}>${line.table}</a>` : html`<${TableName} name=${line.table} />`)}
      <small>${line.subject}</small>
    </span>
    <div><p>${line.reason}</p>${line.more && html`<small>${line.more}</small>`}</div>
  </li>`

function Lines({ lines }) {
  const [shown, setShown] = useState(SHOWN_STEP)
  const more = Math.min(SHOWN_STEP, lines.length - shown)
  return html`
    <ol class="decisions" aria-label="Decisions, the newest first">
      ${lines.slice(0, shown).map((line) => html`<${Line} key=${line.key} line=${line} />`)}
    </ol>
    ${more > 0 &&
    html`<button type="button" onClick=${() => setShown(shown + SHOWN_STEP)}>Show ${more} more of ${count(lines.length)}</button>`}`
}

export default function Decisions({ route }) {
  const [parameters, change] = useParameters(route)
  const kind = chosenOf(["", ...Object.keys(SOURCES)], parameters.get("kind"))
  const table = useSettled(parameters.get("table") ?? "")
  const text = useSettled(parameters.get("search") ?? "")
  const names = kind ? [kind] : Object.keys(SOURCES)
  const statements = Object.fromEntries(names.map((name) => [name, SOURCES[name].sql(table, text)]))
  const found = useWatch(statements, { every: 3 })
  const answers = Object.entries(found).filter(([name]) => names.includes(name))
  const lines = useMemo(() => answers.flatMap(linesOf).sort((left, right) => right.ms - left.ms), [found, kind])
  // A source with as many lines as are read may have older ones that belong between those of the others.
  const full = answers.filter(([, answer]) => answer.rows.length === SOURCE_MAX).map(([name]) => SOURCES[name].title)
  const missing = names.length - answers.length
  const waiting = missing && answers.length ? `, ${missing} more sources are being read` : ""
  const about = full.length
    ? `the newest ${SOURCE_MAX} of each kind; there are older ones of: ${full.join(", ")}`
    : "all that the servers remember and that fit"
  return html`
    <div class="head">
      <h1>Decisions</h1>
      <${SelectBy} name="kind" label="Kind of decision" options=${KIND_OPTIONS} parameters=${parameters} change=${change} />
      <${SearchBy} name="table" label="Table" parameters=${parameters} change=${change} />
      <${SearchBy} label="Search in reasons" parameters=${parameters} change=${change} />
      <span class="about">${count(lines.length)} decisions${waiting}</span>
    </div>
    ${answers.map(([name, answer]) => answer.error && html`<${Failure} key=${name} error=${answer.error} />`)}
    <${Card} title="What was decided, and why" about=${about}>
      ${!answers.length && html`<${Waiting} />`}
      ${answers.length > 0 && !lines.length && html`<${Empty}>No decision fits.<//>`}
      ${lines.length > 0 && html`<${Lines} lines=${lines} key=${kind} />`}
    <//>`
}
