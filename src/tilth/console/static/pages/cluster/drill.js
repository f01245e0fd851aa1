// A drill: the rehearsal of a failover of one table.

import { html, useRef, useState } from "../../vendor/preact-htm.js"
import { named, objects, serverNow } from "../../core/api.js"
import { AuditLines, auditLines } from "../../core/audit.js"
import { StatementDialog } from "../../core/dialog.js"
import { contains } from "../../core/filters.js"
import { exactly, seconds } from "../../core/format.js"
import { nameParts } from "../../core/names.js"
import { Answer, Badge, Card, Empty, Failure, Time } from "../../core/ui.js"
import { TablePick } from "./tables.js"

const RIGHTS_MAX = 500
const MOVES_MAX = 100
const DRILL_SECONDS = 5
const DRILL_SECONDS_MAX = 3600
const DRILL_ABOUT =
  "It takes as long as the services stay away, and the two moves. You may close this dialog to watch: the drill goes " +
  "on, and its protocol comes."
const AWAY = { name: "seconds", label: `Seconds that they stay away, up to ${DRILL_SECONDS_MAX}`, type: "number" }

/** The answer about leases is named by the table, so that none of another one is taken for a move. */
export const drillStatements = ({ uuid }) => ({
  drills: auditLines("DRILL FAILOVER"),
  ...(uuid
    ? { [`rights ${uuid}`]: `SELECT name, holder FROM system.leases WHERE ${contains(["name"], `/${uuid}`)}
        ORDER BY name LIMIT ${RIGHTS_MAX}` }
    : {}),
})

const rightName = (name) => {
  const [kind, , index] = name.split("/")
  return index ? `consumer ${index}` : kind
}

/** Changes of holders since the table was chosen, as the leases have shown them. */
function useMoves(answer) {
  const seen = useRef({ at: null, holders: null, moves: [] })
  if (answer && !answer.error && answer.at !== seen.current.at) {
    const holders = new Map(answer.rows.map((row) => [row.name, row.holder]))
    const before = seen.current.holders
    const moves = !before ? [] : [...new Set([...before.keys(), ...holders.keys()])]
      .filter((name) => before.get(name) !== holders.get(name))
      .map((name) => ({ at: answer.at, right: rightName(name), from: before.get(name), to: holders.get(name) }))
    seen.current = { at: answer.at, holders, moves: [...seen.current.moves, ...moves].slice(-MOVES_MAX) }
  }
  return seen.current.moves
}

const Step = ({ at, tone = "", children }) =>
  html`<li class=${tone}><span class="at">${at}</span><div>${children}</div></li>`

const clock = (ms) => html`<${Time} at=${new Date(ms).toISOString()} />`

const moveSteps = (row, title) => {
  const isLossless = row.lost === "nothing"
  return [
    html`<${Step} at=${`+ ${seconds(row.seconds)}`}>
      <b>${title}: ${row.from_server} → ${row.to_server}.</b> ${row.to_server} has all services after ${seconds(row.seconds)}.
    <//>`,
    html`<${Step} at="there" tone=${isLossless ? "good" : "bad"}>
      ${exactly(row.rounds)} rounds committed${Number(row.rounds) ? html`, at most ${seconds(row.gap_seconds)} between two of them` : ""};
      ${isLossless ? html`<${Badge} tone="good">nothing lost<//>` : html`<${Badge} tone="bad">lost<//> ${row.lost}`}
    <//>`,
  ]
}

/** The answer of a drill as steps. `ended` is the time of the answer, in milliseconds since 1970. */
function Protocol({ drill }) {
  const elapsed = drill.elapsed_ms
  const [away, back] = drill.rows
  return html`<${Card} title="Protocol" about=${drill.message}>
    <ol class="steps">
      <${Step} at=${clock(drill.ended - elapsed)}>The drill of ${drill.table} begins on ${away.from_server}.<//>
      ${moveSteps(away, "Away")}
      ${moveSteps(back, "Back")}
      <${Step} at=${clock(drill.ended)}>The table is where it was, ${seconds(elapsed / 1000)} after the beginning.<//>
    </ol>
  <//>`
}

function Observed({ answer }) {
  const moves = useMoves(answer)
  const rows = answer?.rows ?? []
  return html`<${Card} title="Its leases" about="as they are now, and each move since the table was chosen">
    <${Answer} answer=${answer}>
      ${rows.length
        ? html`<p>${rows.map((row) => html`<${Badge} key=${row.name}>${rightName(row.name)}: ${row.holder}<//> `)}</p>`
        : html`<${Empty}>No lease: nothing of it runs.<//>`}
      <ol class="steps">
        ${moves.map((move, index) => html`<${Step} key=${index} at=${clock(move.at)}>${move.right}:
          ${move.from ?? "nobody"} → <b>${move.to ?? "nobody"}</b><//>`)}
      </ol>
    <//>
  <//>`
}

const drillStatement = (name, text) => {
  const wanted = Math.round(Number(text))
  return `DRILL FAILOVER ${named(...nameParts(name))}${wanted > 0 ? ` FOR SECONDS ${Math.min(wanted, DRILL_SECONDS_MAX)}` : ""}`
}

export function Drill({ found, parameters, change, info }) {
  const [isAsked, setAsked] = useState(false)
  const [drill, setDrill] = useState(null)
  const table = parameters.get("table") ?? ""
  const servers = found.nServers?.rows[0]
  const isAlone = servers && servers.n - servers.troubles < 2
  const done = (answer) => setDrill({
    rows: objects(answer), table, ended: serverNow(), elapsed_ms: answer.summary?.elapsed_ms ?? 0, message: answer.summary?.message,
  })
  return html`
    <${Card} title="Drill of a failover" wide
      about="A rehearsal: the services of a table move to another server, stay there for a while and move back, while everything goes on.">
      <div class="head">
        <${TablePick} label="Table or Kafka table" value=${table} onChange=${(value) => change({ table: value })} />
        <button type="button" class="main" disabled=${!info.uuid || isAlone} onClick=${() => setAsked(true)}>Drill …</button>
        ${table && !info.isLoading && !info.uuid && html`<${Badge} tone="warn">no table of this name<//>`}
      </div>
      ${isAlone && html`<p class="remark">With one server alone it is refused: start a second one over the same catalog.</p>`}
      <${Failure} error=${info.error} />
    <//>
    <div class="grid">
      ${drill && html`<${Protocol} drill=${drill} />`}
      ${info.uuid && html`<${Observed} key=${info.uuid} answer=${found[`rights ${info.uuid}`]} />`}
    </div>
    <${Card} title="Past drills" wide>
      <${AuditLines} answer=${found.drills} label="past drills" empty="There was none." />
    <//>
    ${isAsked &&
    html`<${StatementDialog} title=${`Drill a failover of ${table}`} danger action="Begin" onClose=${() => setAsked(false)} onDone=${done}
      about=${DRILL_ABOUT} fields=${[{ ...AWAY, value: String(DRILL_SECONDS) }]}
      statement=${({ seconds: text }) => drillStatement(table, text)} />`}`
}
