// All Kafka tables: what each one does, its lag, and what stops it.

import { html } from "../vendor/preact-htm.js"
import { chosenOf, sorting, useParameters } from "../core/address.js"
import { errorIn, useWatch } from "../core/api.js"
import { fitting } from "../core/filters.js"
import { count, isNone, perSecond, seconds, sum } from "../core/format.js"
import { nameOf, streamLink } from "../core/names.js"
import {
  ACTIVITIES, ACTIVITY_WORDS, Age, GAPS, GAP_COLUMNS, GAP_ORDER, POSITIONS_MAX, STALE_SECONDS, ageOf, gapKey, lagText,
  useOldest,
} from "../core/streams.js"
import { Table, ageColumn, lineColumn, numberColumn, tableColumn, wordColumn } from "../core/table.js"
import {
  Badge, Card, Failure, Figure, Percent, SearchBy, SelectBy, Time, Waiting, toneOfState, useTick,
} from "../core/ui.js"

const STREAMS_MAX = 5000
const GAPS_MAX = 200

const STATEMENTS = {
  consumers: `SELECT database, "table", count(*) AS consumers,
    sum(CASE WHEN state = 'running' THEN 1 ELSE 0 END) AS running,
    min(CASE activity ${ACTIVITIES.map((name, rank) => `WHEN '${name}' THEN ${rank}`).join(" ")} END) AS activity,
    sum(lag) AS lag, sum(CASE WHEN lag IS NULL THEN 1 ELSE 0 END) AS unknown,
    max(lag_age) AS lag_age, sum(rate) AS rate, max(bounded_by) AS bounded_by,
    max(seconds_left) AS seconds_left, sum(dead) AS dead, sum(refused) AS refused, max(last_commit) AS last_commit,
    max(CASE WHEN slowest_view IS NOT NULL
      THEN concat(CAST(CAST(1000 + 1000 * slowest_view_share AS BIGINT) AS STRING), ' ', slowest_view) END) AS slowest
    FROM system.kafka_tables GROUP BY database, "table" ORDER BY database, "table" LIMIT ${STREAMS_MAX}`,
  services: `SELECT database, "table", switch, state, reason, last_exception, last_exception_time
    FROM system.bg_threads WHERE service = 'consume'`,
  positions: `SELECT database, "table", consumer, offsets, high_watermarks FROM system.kafka_tables
    WHERE lag > 0 ORDER BY lag DESC LIMIT ${POSITIONS_MAX}`,
  gaps: `SELECT database, "table", ${GAP_COLUMNS} FROM system.ingest_gaps ORDER BY ${GAP_ORDER} LIMIT ${GAPS_MAX}`,
}

const NAME = { ...tableColumn({ title: "Kafka table", isLink: false }), key: "name" }

const COLUMNS = [
  NAME,
  {
    key: "state",
    title: "state",
    show: (row) => html`<${Badge} tone=${row.hasGap ? "bad" : toneOfState(row.state)} title=${row.reason}>
      ${row.hasGap ? "gap" : row.state}
    <//>`,
  },
  {
    key: "activity",
    title: "activity",
    kind: "tight",
    show: (row) => html`<span title=${row.reason}>${ACTIVITY_WORDS[row.activity] ?? ""}</span>`,
  },
  lineColumn("reason", "why"),
  numberColumn("consumers", "consumers", count, {
    about: "Consumers that run, of all",
    show: (row) => `${row.running} of ${row.consumers}`,
  }),
  numberColumn("lag", "lag", count, {
    about: "Messages that are not read yet",
    show: (row) => lagText(row.lag, row.unknown, row.consumers),
  }),
  numberColumn("age", "oldest", seconds, {
    about: "For how long the oldest unread message has been in its topic, as seen since this page was opened",
    show: (row) => html`<${Age} oldest=${row.oldest} />`,
  }),
  numberColumn("rate", "rate", perSecond, { about: "Messages that are read in a second" }),
  wordColumn("bounded_by", "bounded by", { about: "The setting that bounds a round, and so the rate" }),
  numberColumn("seconds_left", "left", seconds, { about: "Time until the lag is read at this rate" }),
  numberColumn("dead", "dead", count, { about: "Messages that could not be decoded" }),
  numberColumn("refused", "refused", count, { about: "Messages that a view could not take" }),
  {
    key: "slowest",
    title: "slowest view",
    kind: "tight",
    value: (row) => row.share,
    show: (row) => row.view && html`${row.view} <${Percent} part=${row.share} />`,
  },
  ageColumn("last_commit", "last commit"),
  {
    key: "last_exception_time",
    title: "last exception",
    kind: "line",
    show: (row) =>
      row.last_exception &&
      html`<span title=${row.last_exception}><${Time} at=${row.last_exception_time} relative />: ${row.last_exception}</span>`,
  },
]
const GAPS_OF_ALL = [NAME, ...GAPS]

/** The share of the slowest view, in thousandths behind a 1, and its name: "1640 shop.v". */
const slowestOf = (text) =>
  text ? { view: text.slice(5), share: (Number(text.slice(0, 4)) - 1000) / 1000 } : { view: "", share: null }

/** One row for each Kafka table: its consumers together, its service, its gaps. */
function rowsOf(found, oldest) {
  const services = new Map((found.services?.rows ?? []).map((row) => [nameOf(row), row]))
  const open = new Set((found.gaps?.rows ?? []).filter((row) => !row.resolution).map(nameOf))
  return found.consumers.rows.map((row) => {
    const key = nameOf(row)
    const service = services.get(key) ?? {}
    return {
      ...service,
      ...row,
      ...slowestOf(row.slowest),
      state: service.state ?? "",
      last_exception_time: service.last_exception_time ?? null,
      activity: isNone(row.activity) ? null : ACTIVITIES[row.activity],
      hasGap: open.has(key),
      oldest: oldest.get(key),
      age: ageOf(oldest.get(key)),
    }
  })
}

const isStale = (row) => row.lag_age > STALE_SECONDS && row.switch !== "stopped"
const isLost = (row) => row.dead > 0 || row.refused > 0
const toneOf = (row) => (row.state === "failed" || row.hasGap ? "bad" : row.state === "stopped" || isStale(row) ? "warn" : "")

const CHOICES = {
  "": ["all", () => true],
  troubles: ["with troubles", (row) => toneOf(row) !== "" || isLost(row)],
  lagging: ["with a lag", (row) => row.lag > 0],
  stopped: ["stopped", (row) => row.switch === "stopped"],
  lost: ["with dead or refused messages", isLost],
}

const OPTIONS = Object.entries(CHOICES).map(([key, [words]]) => [key, words])

const total = (rows, name) => sum(rows.map((row) => row[name]))

function Figures({ rows, gaps }) {
  const ages = rows.filter((row) => row.age !== null)
  const oldest = ages.reduce((most, row) => (row.age > (most?.age ?? -1) ? row : most), null)
  const [dead, refused] = [total(rows, "dead"), total(rows, "refused")]
  const open = gaps.filter((row) => !row.resolution).length
  const running = `${count(total(rows, "running"))} of ${count(total(rows, "consumers"))} consumers run`
  return html`<div class="figures">
    <${Figure} label="Kafka tables" value=${count(rows.length)} below=${running} />
    <${Figure} label="lag" value=${count(total(rows, "lag"))} below="messages" />
    <${Figure} label="oldest unread message" value=${html`<${Age} oldest=${oldest?.oldest} />`}
      below=${oldest ? `of ${nameOf(oldest)}` : "nothing waits"} />
    <${Figure} label="rate" value=${perSecond(total(rows, "rate"))} below="messages, of consumers that read" />
    <${Figure} label="dead and refused" value=${count(dead + refused)} tone=${dead + refused ? "warn" : ""}
      below=${`${count(dead)} not decoded, ${count(refused)} not taken by a view`} />
    <${Figure} label="open gaps" value=${count(open)} tone=${open ? "bad" : ""}
      below=${open ? "each stops a consumer" : "no message is missing"} />
  </div>`
}

export default function Streams({ route }) {
  const found = useWatch(STATEMENTS, { every: 2 })
  const [parameters, change] = useParameters(route)
  const oldest = useOldest(found.positions)
  useTick(2)
  if (!found.consumers) return html`<${Waiting} />`
  const [, isChosen] = CHOICES[chosenOf(Object.keys(CHOICES), parameters.get("show"))]
  const hasWords = fitting(parameters.get("search") ?? "")
  const rows = rowsOf(found, oldest)
  const shown = rows.filter((row) => isChosen(row) && hasWords(`${nameOf(row)} ${row.reason ?? ""}`))
  const gaps = found.gaps?.rows ?? []
  const href = (row) => streamLink(row.database, row.table)
  return html`
    <div class="head">
      <h1>Streams</h1>
      <${SearchBy} label="Search by name or reason" parameters=${parameters} change=${change} />
      <${SelectBy} name="show" label="Which Kafka tables" options=${OPTIONS} parameters=${parameters} change=${change} />
      <span class="about">${count(shown.length)} of ${count(rows.length)}</span>
    </div>
    <${Failure} error=${errorIn(found)} />
    <${Figures} rows=${rows} gaps=${gaps} />
    <${Card}>
      <${Table} label="Kafka tables" columns=${COLUMNS} rows=${shown} keyOf=${nameOf} height=${720} href=${href} toneOf=${toneOf}
        ...${sorting(parameters, change, "order", "lag-desc")}
        empty=${rows.length ? "No Kafka table fits." : "There are no Kafka tables yet: CREATE TABLE .. ENGINE = Kafka makes one."} />
    <//>
    <${Card} title="Gaps" about="offsets that could not be read; an open one stops its consumer until somebody decides">
      <${Table} label="gaps" columns=${GAPS_OF_ALL} rows=${gaps} empty="No message is missing." href=${href}
        keyOf=${(row) => `${nameOf(row)}/${gapKey(row)}`} toneOf=${(row) => (row.resolution ? "" : "bad")} />
    <//>`
}
