// The definition of a table or Kafka table: the statement that makes it, and its settings, edited in place.

import { html, useState } from "../vendor/preact-htm.js"
import { literal, named, useRead } from "./api.js"
import { StatementDialog } from "./dialog.js"
import { equals, fitting } from "./filters.js"
import { nameOf } from "./names.js"
import { Copy } from "./notes.js"
import { Table } from "./table.js"
import { Card, Code, Reading, Search } from "./ui.js"

const SCOPES = { MergeTree: "table", Kafka: "kafka" }

/** Settings in a CREATE statement: {name: text}. Texts may hold doubled or escaped quotes. */
export function settingsIn(statement) {
  const tail = /\bSETTINGS\s+([^]*)$/i.exec(statement ?? "")?.[1] ?? ""
  const found = {}
  const one = /\s*`?([A-Za-z_][\w.]*)`?\s*=\s*('(?:[^'\\]|\\.|'')*'|[^,\s]+)\s*(,|$)/gy
  for (let match; (match = one.exec(tail)); ) {
    const [, name, text] = match
    found[name] = text.startsWith("'") ? text.slice(1, -1).replaceAll("''", "'").replace(/\\(.)/g, "$1") : text
  }
  return found
}

/** The statement that makes a row of system.tables as it is now. */
export const Definition = ({ row }) =>
  html`<${Card} title=${nameOf(row)} about=${`${row.engine}: the statement that makes it`}
    actions=${html`<${Copy} text=${row.create_statement} />`}>
    <${Code}>${row.create_statement}<//>
  <//>`

const isNumber = (text) => /^-?\d+(\.\d+)?$/.test(text)

/** Sets one setting of a table, or lets it have its default again. */
function SettingDialog({ name, setting, isReset, onClose }) {
  const { name: key, allowed, doc, own, default_value: byDefault } = setting
  const fields = [{ name: "value", label: `Value: ${allowed}`, value: own ?? byDefault ?? "" }]
  const change = ({ value }) => `ALTER TABLE ${name} MODIFY SETTING ${key} = ${isNumber(value) ? value : literal(value)}`
  return html`<${StatementDialog} title=${isReset ? `${key} as by default` : key} about=${doc} action="Change"
    onClose=${onClose} fields=${isReset ? [] : fields}
    statement=${isReset ? () => `ALTER TABLE ${name} RESET SETTING ${key}` : change} />`
}

const settingColumns = (ask) => [
  { key: "name", title: "setting" },
  {
    key: "own", title: "value", kind: "mono",
    show: (row) => (row.isChanged ? html`<b>${row.own}</b>` : html`<span class="about">${row.default_value}</span>`),
  },
  { key: "unit", title: "unit" },
  { key: "default_value", title: "default", kind: "mono" },
  {
    key: "edit", title: "",
    show: (row) => html`<button type="button" onClick=${() => ask({ setting: row, isReset: false })}
        aria-label=${`Change ${row.name}`}>Change …</button>
      ${row.isChanged &&
      html` <button type="button" class="quiet" onClick=${() => ask({ setting: row, isReset: true })}
        aria-label=${`Default of ${row.name}`}>Default …</button>`}`,
  },
]

/** Settings of one row of system.tables; those that were changed come first. */
export function TableSettings({ row: relation }) {
  const [text, setText] = useState("")
  const [asked, setAsked] = useState(null)
  const [columns] = useState(() => settingColumns(setAsked))
  const scope = SCOPES[relation.engine]
  const settings = useRead(
    `SELECT name, default_value, unit, allowed, doc FROM system.settings WHERE ${equals("scope", scope)} ORDER BY name`,
  )
  const own = settingsIn(relation.create_statement)
  const fits = fitting(text)
  const rows = settings.rows
    .filter((row) => fits(`${row.name} ${row.doc}`))
    .map((row) => ({ ...row, own: own[row.name], isChanged: row.name in own }))
    .sort((left, right) => right.isChanged - left.isChanged || left.name.localeCompare(right.name))
  return html`<${Card} title="Settings" about=${`${Object.keys(own).length} are set; the others have their defaults`}
    actions=${html`<${Search} label="Search by name or meaning" value=${text} onChange=${setText} />`}>
    <${Reading} reading=${settings}>
      <${Table} label="settings" rows=${rows} columns=${columns} keyOf=${(row) => row.name} empty="No setting fits."
        toneOf=${(row) => (row.isChanged ? "changed" : "")}
        expand=${(row) => html`<p class="about">${row.doc}</p><p class="about">allowed: ${row.allowed}</p>`} />
    <//>
    ${asked &&
    html`<${SettingDialog} name=${named(relation.database, relation.name)} ...${asked} onClose=${() => setAsked(null)} />`}
  <//>`
}
