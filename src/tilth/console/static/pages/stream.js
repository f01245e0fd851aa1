// One Kafka table: its consumers and topic partitions, its rounds, views and dead letters, its ledger and settings.

import { html, useState } from "../vendor/preact-htm.js"
import { chosenOf, openTab, useParameters } from "../core/address.js"
import { errorIn, named, useWatch } from "../core/api.js"
import { Definition, TableSettings, settingsIn } from "../core/definition.js"
import { equals, isOf } from "../core/filters.js"
import { bytes, count, isNone, most, perSecond, seconds, sum } from "../core/format.js"
import { nameOf, streamLink, tableLink } from "../core/names.js"
import { WHY_COLUMNS, Why } from "../core/services.js"
import { Age, GAP_COLUMNS, GAP_ORDER, ageOf, lagText, useOldest } from "../core/streams.js"
import { Badge, Empty, Failure, Figure, Tabs, Time, Waiting, toneOfState, useTick } from "../core/ui.js"
import { Dialogs } from "./stream/dialogs.js"
import { ratesOf, useHistory } from "./stream/history.js"
import { Ledger, Verified, ledgerStatement } from "./stream/ledger.js"
import { Letters } from "./stream/letters.js"
import { Now, partitionRows } from "./stream/now.js"
import { Rounds, logStatement, useViewSeconds } from "./stream/rounds.js"
import { Views } from "./stream/views.js"

const GAPS_MAX = 200
/** Age of the oldest unread message from which on it is marked. */
const OLD_SECONDS = 60

// --- what is read ----------------------------------------------------------------------------------------------------

function statementsOf(database, table, letters, tab) {
  const where = isOf(database, table)
  const isView = `engine = 'MaterializedView' AND ${equals("source", `${database}.${table}`)}`
  return {
    consumers: `SELECT * FROM system.kafka_tables WHERE ${where} ORDER BY consumer`,
    service: `SELECT ${WHY_COLUMNS} FROM system.bg_threads WHERE ${where} AND service = 'consume'`,
    // Definitions and rows of one table are cheap, those of all tables are not.
    info: `SELECT database, name, engine, create_statement FROM system.tables WHERE ${isOf(database, table, "name")}`,
    letters: `SELECT database, name, engine, rows, create_statement FROM system.tables
      WHERE ${isOf(database, letters, "name")}`,
    number: `SELECT count(*) AS views FROM system.tables WHERE ${isView}`,
    ...(tab === "views" || tab === "ddl"
      ? { views: `SELECT database, name, engine, target, comment, create_statement FROM system.tables WHERE ${isView}` }
      : {}),
    gaps: `SELECT ${GAP_COLUMNS} FROM system.ingest_gaps WHERE ${where} ORDER BY ${GAP_ORDER} LIMIT ${GAPS_MAX}`,
    ...(tab === "rounds" ? { log: logStatement(where) } : {}),
    ...(tab === "ledger" ? { ledger: ledgerStatement(where) } : {}),
  }
}

/** Name of the table for dead letters: a setting of the Kafka table, or its own name with an ending. */
const lettersOf = (table, statement) => settingsIn(statement).kafka_dead_letter_table || `${table}_dead_letters`

// --- the page --------------------------------------------------------------------------------------------------------

function Actions({ database, table, service, onAsk }) {
  const isStopped = service?.switch === "stopped"
  return html`<div class="actions">
    <a href=${tableLink(database, table)}>Table …</a>
    <button type="button" onClick=${() => onAsk(isStopped ? "START" : "STOP")}>${isStopped ? "Start" : "Stop"} …</button>
    <button type="button" onClick=${() => onAsk("RESTART")}>Restart …</button>
    <button type="button" onClick=${() => onAsk("RESET")}>Reset offsets …</button>
    <button type="button" onClick=${() => onAsk("VERIFY")}>Verify …</button>
  </div>`
}

function Figures({ consumers, samples, oldest, letters, hrefOf }) {
  const lags = consumers.map((row) => row.lag)
  const unknown = lags.filter(isNone).length
  const left = most(consumers.map((row) => row.seconds_left))
  const [dead, refused] = [sum(consumers.map((row) => row.dead)), sum(consumers.map((row) => row.refused))]
  const last = most(consumers.map((row) => row.last_commit))
  // Consumers that are not behind have no rate of their own.
  const rate = sum(consumers.map((row) => row.rate)) || ratesOf(samples, "read").at(-1)
  const bounded = [...new Set(consumers.map((row) => row.bounded_by).filter(Boolean))].join(", ")
  const read = ["messages", "bytes", "rounds"].map((name) => sum(consumers.map((row) => row[name])))
  return html`<div class="figures">
    <${Figure} label="lag" value=${lagText(sum(lags), unknown, lags.length)}
      below=${left === null ? "messages" : `messages; read in ${seconds(left)}`} />
    <${Figure} label="oldest unread message" value=${html`<${Age} oldest=${oldest} />`}
      below=${oldest ? "in the topic" : "nothing waits"} tone=${ageOf(oldest) > OLD_SECONDS ? "warn" : ""} />
    <${Figure} label="rate" value=${perSecond(rate)} below=${bounded ? `messages; bounded by ${bounded}` : "messages"} />
    <${Figure} label="read since the consumers started" value=${count(read[0])}
      below=${`messages, ${bytes(read[1])}, ${count(read[2])} rounds`} />
    <${Figure} label="dead and refused" href=${hrefOf("letters")} value=${count(dead + refused)}
      tone=${dead + refused ? "warn" : ""} below=${letters ? `${count(letters.rows)} letters are kept` : "no table for dead letters"} />
    <${Figure} label="last commit" value=${last ? html`<${Time} at=${last} relative />` : "–"}
      below=${last ? html`<${Time} at=${last} />` : "no round yet"} />
  </div>`
}

const TITLES = {
  now: "Now", rounds: "Rounds", views: "Views", letters: "Dead letters", ledger: "Ledger", settings: "Settings",
  ddl: "DDL",
}

export default function Stream({ route }) {
  const [, database, table] = route.path
  const [parameters, change] = useParameters(route)
  const [asked, setAsked] = useState(null)
  const [verified, setVerified] = useState(null)
  const [lettersName, setLettersName] = useState(`${table}_dead_letters`)
  useTick(2)
  const tab = chosenOf(Object.keys(TITLES), parameters.get("tab"))
  const found = useWatch(statementsOf(database, table, lettersName, tab), { every: 2 })
  const samples = useHistory(found.consumers)
  const seen = useViewSeconds(found.consumers)
  const oldest = useOldest(found.consumers).get(nameOf({ database, table }))
  const title = html`<h1>${nameOf({ database, table })}</h1>`
  if (!found.consumers || !found.info) return html`${title}<${Waiting} />`
  const info = found.info.rows[0]
  const wanted = lettersOf(table, info?.create_statement)
  if (info && wanted !== lettersName) setLettersName(wanted)
  const letters = found.letters?.rows.find((row) => row.name === lettersName && row.engine === "MergeTree")
  if (info?.engine !== "Kafka")
    return html`${title}<${Failure} error=${errorIn(found)} /><${Empty}>There is no Kafka table of this name.<//>`
  const consumers = found.consumers.rows
  const service = found.service?.rows[0]
  const name = named(database, table)
  const partitions = partitionRows(consumers, found.gaps?.rows ?? [])
  const hasGap = partitions.some((each) => each.gap)
  const hrefOf = (next) => streamLink(database, table, `?tab=${next}`)
  const defined = [info, letters, ...(found.views?.rows ?? [])].filter(Boolean)
  const numbers = { views: found.number?.rows[0]?.views, letters: letters ? count(letters.rows) : null }
  const close = () => setAsked(null)
  return html`
    <div class="head">
      ${title}
      ${service &&
      html`<${Badge} tone=${hasGap ? "bad" : toneOfState(service.state)} title=${service.reason}>${hasGap ? "gap" : service.state}<//>`}
      <${Actions} database=${database} table=${table} service=${service} onAsk=${setAsked} />
    </div>
    ${service && html`<div class="reasons"><${Why} row=${service} /></div>`}
    <${Failure} error=${errorIn(found)} />
    <${Figures} consumers=${consumers} samples=${samples} oldest=${oldest} letters=${letters} hrefOf=${hrefOf} />
    ${verified && html`<${Verified} verified=${verified} onClose=${() => setVerified(null)} />`}
    <${Tabs} label="Parts of the page" current=${tab} tabs=${Object.entries(TITLES).map(([key, title]) => [key, title, numbers[key]])}
      onChange=${(next) => openTab(parameters, change, next, ["span"])} />
    ${tab === "now" && html`<${Now} found=${found} samples=${samples} onDecide=${() => setAsked("RESET")} />`}
    ${tab === "rounds" && html`<${Rounds} found=${found} seen=${seen} parameters=${parameters} change=${change} />`}
    ${tab === "views" && html`<${Views} found=${found} />`}
    ${tab === "letters" && html`<${Letters} database=${database} table=${table} info=${letters}
      parameters=${parameters} change=${change} />`}
    ${tab === "ledger" && html`<${Ledger} answer=${found.ledger} />`}
    ${tab === "settings" && html`<${TableSettings} row=${info} />`}
    ${tab === "ddl" && defined.map((row) => html`<${Definition} key=${nameOf(row)} row=${row} />`)}
    ${asked &&
    html`<${Dialogs} asked=${asked} name=${name} partitions=${partitions} onClose=${close} onVerified=${setVerified} />`}`
}
