// Background services and their switches, of one table or of all.

import { html } from "../vendor/preact-htm.js"
import { literal } from "./api.js"
import { StatementDialog } from "./dialog.js"
import { count } from "./format.js"
import { Badge, Time } from "./ui.js"

/** Services: the word of their switch, and what each does. */
export const SERVICES = {
  consume: ["CONSUME", "topics are read"],
  flush: ["FLUSH", "row segments become sorted parts"],
  merge: ["MERGES", "parts are merged, and expired rows go"],
  delta: ["DELTAS", "changes of rows are compacted"],
  mutate: ["MUTATIONS", "parts are rewritten for ALTER"],
  gc: ["GC", "files that nobody needs are removed"],
  replicate: ["REPLICATION", "missing copies are made"],
  scrub: ["SCRUBS", "files are compared with their checksums"],
}

const VERBS = { STOP: "Stop", START: "Start", RESTART: "Restart" }
/** A pause that somebody forgets ends by itself. */
const PAUSE = "30 minutes"

const ABOUTS = {
  STOP: "What runs goes on to its end; nothing new begins.",
  START: "It works again at once.",
}
const ABOUTS_OF_CONSUME = {
  STOP:
    "A round under way is cancelled, and its messages are read again later. Offsets stay: nothing is lost as long as " +
    "the topic keeps its messages.",
  START: "The consumers go on at their stored offsets.",
  RESTART: "All consumers end and start anew. A round under way is cancelled, and its messages are read again.",
}
const ABOUTS_OF_ALL = {
  STOP:
    "Nothing new begins on any table, nor on tables that come later. What runs goes on to its end; rounds of consumers " +
    "are cancelled.",
  START: "The service runs on every table again, also on those that were stopped one by one.",
}

const aboutOf = (verb, service, name) => {
  if (!name) return ABOUTS_OF_ALL[verb]
  return (service === "consume" ? ABOUTS_OF_CONSUME : ABOUTS)[verb]
}

/** The statement of a switch; without a name it is about all tables. */
const switchStatement = (verb, word, name) => ({ time = "", because = "" }) =>
  [
    `SYSTEM ${verb} ${word}`,
    name,
    time.trim() && `FOR ${time.trim()}`,
    because.trim() && `BECAUSE ${literal(because.trim())}`,
  ]
    .filter(Boolean)
    .join(" ")

/** SYSTEM STOP, START or RESTART of a service; `name`: of one table, as it is written in SQL. */
export function SwitchDialog({ verb, service, name = "", onClose, onDone }) {
  const [word] = SERVICES[service]
  const time = { name: "time", label: "For how long; empty: until somebody starts it", value: PAUSE }
  const because = { name: "because", label: "Because", hint: "others read this" }
  return html`<${StatementDialog} title=${`${VERBS[verb]} ${word}${name ? "" : " of all tables"}`} action=${VERBS[verb]}
    about=${aboutOf(verb, service, name)} danger=${verb === "STOP"} onClose=${onClose} onDone=${onDone}
    fields=${verb === "STOP" ? [time, because] : [because]} statement=${switchStatement(verb, word, name)} />`
}

/** Who stopped a service, why, and until when; a row of system.bg_threads, or what is known of several. */
export const Stopped = ({ row }) =>
  html`<p>
    Stopped${row.because ? `: ${row.because}` : " without a reason"}${row.asked_from ? `, by ${row.asked_from}` : ""}${row.until
      ? html`, until <${Time} at=${row.until} />`
      : ""}
  </p>`

/** The last failure, and the time of the next attempt. */
const Failed = ({ row }) => {
  const times = Number(row.failures) > 1 ? ` ${count(row.failures)} times in a row, last` : ""
  const next = row.next_attempt ? html`; next attempt <${Time} at=${row.next_attempt} relative />` : ""
  return html`<p>Failed${times} <${Time} at=${row.last_exception_time} relative />: ${row.last_exception}${next}</p>`
}

/** Columns of system.bg_threads that `Why` shows. */
export const WHY_COLUMNS =
  "switch, because, until, asked_from, state, reason, failures, last_exception, last_exception_time, next_attempt"

/** Why a service is in its state; a row with WHY_COLUMNS. */
export const Why = ({ row }) =>
  html`<p>${row.reason}</p>
    ${row.switch === "stopped" && html`<${Stopped} row=${row} />`}
    ${row.last_exception && html`<${Failed} row=${row} />`}`

/** One service with its state and its switches; buttons: [[words, label, onClick], ..]. */
export const ServiceCard = ({ title, tone, state, buttons, children }) =>
  html`<section class="service">
    <header><strong>${title}</strong><${Badge} tone=${tone}>${state}<//></header>
    ${children}
    <footer>
      ${buttons.map(
        ([words, label, onClick]) =>
          html`<button key=${words} type="button" onClick=${onClick} aria-label=${label}>${words} …</button>`,
      )}
    </footer>
  </section>`
