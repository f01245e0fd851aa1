// Switches of background services of all tables.

import { html, useState } from "../../vendor/preact-htm.js"
import { count } from "../../core/format.js"
import { nameOf } from "../../core/names.js"
import { SERVICES, ServiceCard, Stopped, SwitchDialog } from "../../core/services.js"
import { Table, ageColumn, stateColumn, tableColumn, textColumn, timeColumn, wordColumn } from "../../core/table.js"
import { Answer, Card, Time, shownOf, toneOfState } from "../../core/ui.js"

const LISTED_MAX = 300

export const switchStatements = () => ({
  services: `SELECT service, count(*) AS tables, sum(running_tasks) AS tasks, ${["running", "waiting", "failed"]
    .map((state) => `sum(CASE WHEN state = '${state}' THEN 1 ELSE 0 END) AS ${state}`)
    .join(", ")},
    sum(CASE WHEN switch = 'stopped' THEN 1 ELSE 0 END) AS stopped,
    max(CASE WHEN switch = 'stopped' THEN because END) AS because, max(CASE WHEN switch = 'stopped' THEN until END) AS until
    FROM system.bg_threads GROUP BY service`,
  listed: `SELECT database, "table", service, switch, because, until, asked_from, state, reason, next_attempt
    FROM system.bg_threads WHERE switch = 'stopped' OR state = 'failed'
    ORDER BY state, database, "table", service LIMIT ${LISTED_MAX}`,
})

const STOPPED = [
  tableColumn({ page: "?tab=services" }),
  wordColumn("service", "service"),
  stateColumn(toneOfState),
  textColumn("reason", "why"),
  textColumn("because", "stopped because"),
  { key: "asked_from", title: "by", show: (row) => (row.switch === "stopped" ? (row.asked_from ?? "") : "") },
  timeColumn("until", "until", {
    show: (row) => (row.until ? html`<${Time} at=${row.until} />` : row.switch === "stopped" ? "it is started" : ""),
  }),
  ageColumn("next_attempt", "next attempt"),
]

/** The badge of a service, of all tables together: its tone and words. */
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

function Service({ name, row, onAsk }) {
  const [word, words] = SERVICES[name]
  const [tone, state] = stateOf(row)
  const buttons = ["STOP", "START"].map((verb) => {
    const text = `${verb[0]}${verb.slice(1).toLowerCase()}`
    return [`${text} all`, `${text} all: ${word}`, () => onAsk({ verb, service: name })]
  })
  return html`<${ServiceCard} title=${word} tone=${tone} state=${state} buttons=${buttons}>
    <p>${words}${row ? `; ${factsOf(row)}` : ""}</p>
    ${Number(row?.stopped) > 0 && html`<${Stopped} row=${row} />`}
  <//>`
}

export function Switches({ found }) {
  const [asked, setAsked] = useState(null)
  const services = Object.fromEntries((found.services?.rows ?? []).map((row) => [row.service, row]))
  return html`
    <${Card} title="Switches of all tables" about="a switch survives a restart; one table is switched on its own page">
      <${Answer} answer=${found.services}>
        <div class="services">
          ${Object.keys(SERVICES).map((name) => html`<${Service} key=${name} name=${name} row=${services[name]} onAsk=${setAsked} />`)}
        </div>
      <//>
    <//>
    <${Card} title="Stopped or failed" about=${found.listed && shownOf(found.listed.rows, LISTED_MAX)}>
      <${Answer} answer=${found.listed}>
        <${Table} label="stopped or failed services" rows=${found.listed?.rows} columns=${STOPPED} height=${520}
          keyOf=${(row) => `${nameOf(row)}/${row.service}`} toneOf=${(row) => (row.state === "failed" ? "bad" : "")}
          empty="No service is stopped, and none fails." />
      <//>
    <//>
    ${asked && html`<${SwitchDialog} ...${asked} onClose=${() => setAsked(null)} />`}`
}
