// All settings: what holds, what was changed and by what, what each does, and how it is changed.

import { html, useState } from "../vendor/preact-htm.js"
import { chosenOf, useParameters } from "../core/address.js"
import { useRead } from "../core/api.js"
import { fitting } from "../core/filters.js"
import { exactly } from "../core/format.js"
import { nameOf, tableLink } from "../core/names.js"
import { Copy } from "../core/notes.js"
import { Badge, Card, Empty, Failure, SearchBy, Tabs, TickBy, Waiting } from "../core/ui.js"

const TABLES_MAX = 100

const SETTINGS = `SELECT name, scope, value, default_value, is_set, unit, allowed, aliases, doc, source FROM system.settings
  ORDER BY scope, name`

/** Scopes: their titles, when their settings hold, and how one of them is set. */
const SCOPES = {
  node: {
    title: "Node",
    about: () => html`Node settings are set at the start of a server, by <code>tilth serve --set name=value</code>, a variable of
      the environment or the config file. The values are those of the server that answers; a change needs a restart.`,
    how: (name) => [`--set ${name}=…`, `${variableOf(name)}=…`],
  },
  table: {
    title: "Tables",
    about: () => html`Each table has its own values, which stand on <a href="#/tables">its page</a>. Here are the defaults.`,
    how: (name) => [`ALTER TABLE t MODIFY SETTING ${name} = …`, `ALTER TABLE t RESET SETTING ${name}`],
  },
  kafka: {
    title: "Kafka tables",
    about: () => html`Each Kafka table has its own values, which stand on <a href="#/tables?engine=Kafka">its page</a>. Here are
      the defaults. Consumers restart by themselves when a value changes.`,
    how: (name) => [`ALTER TABLE t MODIFY SETTING ${name} = …`, `ALTER TABLE t RESET SETTING ${name}`],
  },
  warehouse: {
    title: "Warehouses",
    about: () => html`Each warehouse has its own values; they are changed on <a href="#/cluster?tab=warehouses">its page</a>.`,
    how: (name) => [`ALTER WAREHOUSE w SETTINGS ${name} = …`, `ALTER WAREHOUSE w RESET SETTING ${name}`],
  },
  session: {
    title: "Statements",
    about: () => html`Settings of one statement, or of a connection and the statements that follow.`,
    how: (name) => [`SET ${name} = …`, `SELECT … SETTINGS ${name} = …`],
  },
}

/** The environment variable of a setting: a dot is two underscores. */
const variableOf = (name) => `TILTH_${name.toUpperCase().replaceAll(".", "__").replaceAll("-", "_")}`

const scopeOf = (row) => SCOPES[row.scope] ?? { title: row.scope, about: () => "", how: () => [] }

/** A value that was written with a unit, as `5 MiB`, needs no other one. */
const Value = ({ text, unit }) =>
  text === "" || text === null
    ? html`<span class="about">empty</span>`
    : html`<code>${text}</code>${unit && /^-?[\d.]+$/.test(text) ? ` ${unit}` : ""}`

/** Tables that have a value of their own, found by their CREATE statements. */
function TablesThatSet({ name }) {
  const { rows, error, isLoading } = useRead(
    `SELECT database, name FROM system.tables WHERE create_statement LIKE '% ${name} = %'
      ORDER BY database, name LIMIT ${TABLES_MAX}`,
  )
  if (isLoading) return html`<${Waiting} />`
  if (error) return html`<${Failure} error=${error} />`
  if (!rows.length) return html`<${Empty}>No table has a value of its own.<//>`
  return html`<p class="own-values">
    ${rows.length < TABLES_MAX ? `${exactly(rows.length)} with a value of their own:` : `The first ${TABLES_MAX} with a value of their own:`}
    ${rows.map((row) => html` <a key=${nameOf(row)} href=${tableLink(row.database, row.name, "?tab=settings")}>${nameOf(row)}</a>`)}
  </p>`
}

function More({ row }) {
  const [isOpen, setOpen] = useState(false)
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>How it is set${row.scope === "table" || row.scope === "kafka" ? ", and which tables set it" : ""}</summary>
    ${isOpen &&
    html`<ul class="ways">
        ${scopeOf(row).how(row.name).map((text) => html`<li key=${text}><code>${text}</code><${Copy} text=${text} /></li>`)}
      </ul>
      ${(row.scope === "table" || row.scope === "kafka") && html`<${TablesThatSet} name=${row.name} />`}`}
  </details>`
}

const Setting = ({ row }) =>
  html`<article class=${`setting${row.is_set ? " changed" : ""}`} aria-label=${row.name}>
    <div>
      <strong class="mono">${row.name}</strong>
      ${row.aliases?.length > 0 && html`<small>also known as ${row.aliases.join(", ")}</small>`}
    </div>
    <div>
      <span><${Value} text=${row.value} unit=${row.unit} /></span>
      ${row.is_set &&
      html`<span><${Badge} tone="busy">set by ${row.source}<//></span>
        <small>default: <${Value} text=${row.default_value} unit=${row.unit} /></small>`}
      <small>allowed: ${row.allowed || "anything"}</small>
    </div>
    <div><p>${row.doc}</p><${More} row=${row} /></div>
  </article>`

const ORDER = Object.keys(SCOPES)
const rankOf = (scope) => (ORDER.indexOf(scope) + ORDER.length + 1) % (ORDER.length + 1)

export default function Settings({ route }) {
  const [parameters, change] = useParameters(route)
  const { rows, error, isLoading } = useRead(SETTINGS)
  if (isLoading && !rows.length) return html`<${Waiting} />`
  const isChangedOnly = parameters.has("changed")
  const hasWords = fitting(parameters.get("search") ?? "")
  const fits = (row) =>
    (!isChangedOnly || row.is_set) && hasWords(`${row.name} ${(row.aliases ?? []).join(" ")} ${row.doc} ${row.value}`)
  const shown = rows.filter(fits)
  const scopes = [...new Set(rows.map((row) => row.scope))].sort((left, right) => rankOf(left) - rankOf(right))
  const chosen = chosenOf(["all", ...scopes], parameters.get("scope"))
  const groups = scopes
    .filter((scope) => chosen === "all" || scope === chosen)
    .map((scope) => [scope, shown.filter((row) => row.scope === scope)])
    .filter(([, found]) => found.length)
  const changed = rows.filter((row) => row.is_set).length
  return html`
    <div class="head">
      <h1>Settings</h1>
      <${SearchBy} label="Search by name, alias or meaning" parameters=${parameters} change=${change} />
      <${TickBy} name="changed" label=${`changed ones only (${exactly(changed)})`} parameters=${parameters} change=${change} />
    </div>
    <${Failure} error=${error} />
    <${Tabs} label="Scopes" current=${chosen} onChange=${(key) => change({ scope: key === "all" ? null : key })}
      tabs=${[
        ["all", "All", exactly(shown.length)],
        ...scopes.map((scope) => [scope, scopeOf({ scope }).title, exactly(shown.filter((row) => row.scope === scope).length)]),
      ]} />
    ${groups.map(
      ([scope, found]) =>
        html`<${Card} key=${scope} title=${scopeOf({ scope }).title} about=${scopeOf({ scope }).about()} wide>
          ${found.map((row) => html`<${Setting} key=${row.name} row=${row} />`)}
        <//>`,
    )}
    ${!groups.length && !error && html`<${Empty}>${isChangedOnly && !changed
      ? "Every node setting has its default." : "No setting fits."}<//>`}`
}
