// Merges and tasks: what runs and has run, what maintenance weighs and chose, mutations, switches of all tables.

import { html, useState } from "../vendor/preact-htm.js"
import { useWatch } from "../core/api.js"
import { count } from "../core/format.js"
import { Badge, Card, Failure, Table, Tabs, Time, Waiting, toneOfState, useParameters } from "../core/ui.js"
import { SwitchDialog } from "./stream/switch.js"
import {
  Choices, Mutations, Operations, choiceStatements, mutationStatements, operationStatements,
} from "./tasks/operations.js"
import { TableName, useSettled } from "./tasks/parts.js"
import { Replay, replayStatements } from "./tasks/replay.js"
import { Now, Past, nowStatements, pastStatements } from "./tasks/running.js"

const LISTED_MAX = 300

// --- switches --------------------------------------------------------------------------------------------------------

/** Background services: the word of their switch, and what stops with them. */
const SERVICES = {
  consume: ["CONSUME", "topics are read"],
  flush: ["FLUSH", "row segments become sorted parts"],
  merge: ["MERGES", "parts are merged, and expired rows go"],
  delta: ["DELTAS", "changes of rows are compacted"],
  mutate: ["MUTATIONS", "parts are rewritten for ALTER"],
  gc: ["GC", "files that nobody needs are removed"],
  replicate: ["REPLICATION", "missing copies are made"],
  scrub: ["SCRUBS", "files are compared with their checksums"],
}

const switchStatements = () => ({
  services: `SELECT service, count(*) AS tables, sum(running_tasks) AS tasks, ${["running", "waiting", "failed"]
    .map((state) => `sum(CASE WHEN state = '${state}' THEN 1 ELSE 0 END) AS ${state}`)
    .join(", ")},
    sum(CASE WHEN switch = 'stopped' THEN 1 ELSE 0 END) AS stopped,
    max(CASE WHEN switch = 'stopped' THEN because END) AS because, max(CASE WHEN switch = 'stopped' THEN until END) AS until
    FROM system.bg_threads GROUP BY service`,
  listed: `SELECT database, "table", service, switch, because, until, asked_from, state, reason, failures, next_attempt
    FROM system.bg_threads WHERE switch = 'stopped' OR state = 'failed'
    ORDER BY state, database, "table", service LIMIT ${LISTED_MAX}`,
})

const STOPPED = [
  {
    key: "table",
    title: "table",
    kind: "tight",
    value: (row) => `${row.database}.${row.table}`,
    show: (row) => html`<${TableName} name=${`${row.database}.${row.table}`} more="?tab=services" />`,
  },
  { key: "service", title: "service", kind: "tight" },
  {
    key: "state",
    title: "state",
    show: (row) => html`<${Badge} tone=${toneOfState(row.state)} title=${row.reason}>${row.state}<//>`,
  },
  { key: "reason", title: "why", kind: "text", show: (row) => html`<span title=${row.reason}>${row.reason}</span>` },
  { key: "because", title: "stopped because", kind: "text", show: (row) => row.because ?? "" },
  { key: "asked_from", title: "by", show: (row) => (row.switch === "stopped" ? (row.asked_from ?? "") : "") },
  {
    key: "until",
    title: "until",
    kind: "tight",
    show: (row) => (row.until ? html`<${Time} at=${row.until} />` : row.switch === "stopped" ? "it is started" : ""),
  },
  {
    key: "next_attempt",
    title: "next attempt",
    show: (row) => row.next_attempt && html`<${Time} at=${row.next_attempt} relative />`,
  },
]

/** What the badge of a service says of all tables together. */
function stateOf(row) {
  if (!row) return ["", "no table"]
  if (Number(row.failed)) return ["bad", "fails somewhere"]
  if (Number(row.stopped) === Number(row.tables)) return ["warn", "stopped everywhere"]
  if (Number(row.stopped)) return ["warn", "stopped somewhere"]
  return Number(row.running) ? ["busy", "works"] : ["good", "nothing to do"]
}

function factsOf(row) {
  const states = ["running", "waiting", "failed", "stopped"].filter((state) => Number(row[state]))
  const words = states.map((state) => `${count(row[state])} ${state}`)
  return `${count(row.tables)} tables${words.length ? `: ${words.join(", ")}` : ""}; ${count(row.tasks)} tasks`
}

const Why = ({ row }) =>
  html`<p>
    ${row.because ? `Stopped because: ${row.because}` : "Stopped without a reason"}${row.until && html`, until <${Time} at=${row.until} />`}
  </p>`

function Service({ name, row, onAsk }) {
  const [word, words] = SERVICES[name]
  const [tone, state] = stateOf(row)
  return html`<section class="service">
    <header><strong>${word}</strong><${Badge} tone=${tone}>${state}<//></header>
    <p>${words}${row ? `; ${factsOf(row)}` : ""}</p>
    ${row && Number(row.stopped) > 0 && html`<${Why} row=${row} />`}
    <footer>
      <button type="button" onClick=${() => onAsk(["STOP", word])} aria-label=${`Stop ${word} of all tables`}>Stop all …</button>
      <button type="button" onClick=${() => onAsk(["START", word])} aria-label=${`Start ${word} of all tables`}>Start all …</button>
    </footer>
  </section>`
}

const SWITCH_ABOUTS = {
  STOP: "Nothing new begins on any table, nor on tables that come later. What runs goes on to its end; rounds of consumers are cancelled.",
  START: "The service runs on every table again, also on those that were stopped one by one.",
}

function Switches({ found }) {
  const [asked, setAsked] = useState(null)
  if (!found.services) return html`<${Waiting} />`
  const services = Object.fromEntries(found.services.rows.map((row) => [row.service, row]))
  return html`
    <${Card} title="Switches of all tables" about="a switch survives a restart; one table is switched on its own page">
      <${Failure} error=${found.services.error} />
      <div class="services">
        ${Object.keys(SERVICES).map((name) => html`<${Service} key=${name} name=${name} row=${services[name]} onAsk=${setAsked} />`)}
      </div>
    <//>
    <${Card} title="Stopped or failed" about=${`the first ${LISTED_MAX}`}>
      <${Failure} error=${found.listed?.error} />
      <${Table} label="stopped or failed services" rows=${found.listed?.rows ?? []} columns=${STOPPED}
        keyOf=${(row) => `${row.database}.${row.table}/${row.service}`} toneOf=${(row) => (row.state === "failed" ? "bad" : "")} empty="No service is stopped, and none fails." height=${520} />
    <//>
    ${asked &&
    html`<${SwitchDialog} verb=${asked[0]} word=${asked[1]} about=${SWITCH_ABOUTS[asked[0]]} danger=${asked[0] === "STOP"}
      onClose=${() => setAsked(null)} />`}`
}

// --- the page --------------------------------------------------------------------------------------------------------

const TITLES = {
  now: "Now", past: "Past", operations: "Operations", choices: "Choices", mutations: "Mutations", replay: "Replay",
  switches: "Switches",
}
const VIEWS = {
  now: Now, past: Past, operations: Operations, choices: Choices, mutations: Mutations, replay: Replay,
  switches: Switches,
}
/** Filters of one tab mean nothing on another. */
const NO_FILTERS = { kind: null, event: null, search: null, show: null, rule: null }

/** A word of the address that goes into a statement. */
const word = (text) => (/^\w+$/.test(text ?? "") ? text : "")

export default function Tasks({ route }) {
  const [parameters, change] = useParameters(route)
  const tab = parameters.get("tab") in TITLES ? parameters.get("tab") : "now"
  const [kind, event, shown, rule] = ["kind", "event", "show", "rule"].map((name) => word(parameters.get(name)))
  const text = parameters.get("search") ?? ""
  const settled = useSettled(text)
  const statements = {
    now: () => nowStatements(kind),
    past: () => pastStatements(kind, event, settled),
    operations: () => operationStatements(kind, shown, settled),
    choices: () => choiceStatements(rule, settled),
    mutations: () => mutationStatements(settled),
    replay: () => replayStatements(parameters.get("of") ?? ""),
    switches: switchStatements,
  }[tab]()
  const found = useWatch(statements, { every: tab === "now" ? 2 : 3 })
  const View = VIEWS[tab]
  return html`
    <div class="head"><h1>Merges and tasks</h1></div>
    <${Tabs} label="Parts of the page" current=${tab} tabs=${Object.entries(TITLES)}
      onChange=${(next) => change({ ...NO_FILTERS, tab: next })} />
    <${View} found=${found} kind=${kind} event=${event} shown=${shown} rule=${rule} text=${text} parameters=${parameters}
      change=${change} />`
}
