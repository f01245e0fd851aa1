// Settings of one table: those that were changed are marked; each is edited where it stands.

import { html, useState } from "../../vendor/preact-htm.js"
import { literal, named, useRead } from "../../core/api.js"
import { Card, Empty, Failure, Search, StatementDialog, Table, Waiting } from "../../core/ui.js"

const SCOPES = { MergeTree: "table", Kafka: "kafka" }

/** Settings in a CREATE statement: {name: text}. Texts may hold doubled or escaped quotes. */
export function settingsIn(statement) {
  const tail = /\bSETTINGS\s+([^]*)$/i.exec(statement ?? "")?.[1] ?? ""
  const found = {}
  const one = /\s*`?([A-Za-z_][\w.]*)`?\s*=\s*('(?:[^'\\]|\\.|'')*'|[^,\s]+)\s*(,|$)/gy
  for (let match; (match = one.exec(tail)); ) {
    const [, name, text] = match
    found[name] = text.startsWith("'") ? text.slice(1, -1).replaceAll("''", "'").replaceAll("\\'", "'") : text
  }
  return found
}

export function Settings({ database, table, info }) {
  const scope = SCOPES[info.engine]
  const [text, setText] = useState("")
  const [edited, setEdited] = useState(null)
  const settings = useRead(`SELECT name, default_value, unit, allowed, doc FROM system.settings WHERE scope = ${literal(scope)} ORDER BY name`)
  if (settings.isLoading && !settings.rows.length) return html`<${Waiting} />`
  const own = settingsIn(info.create_statement)
  const name = named(database, table)
  const rows = settings.rows
    .map((row) => ({ ...row, own: own[row.name], isChanged: row.name in own }))
    .filter((row) => `${row.name} ${row.doc}`.toLowerCase().includes(text.toLowerCase()))
    .sort((left, right) => right.isChanged - left.isChanged || left.name.localeCompare(right.name))
  return html`<${Card} title="Settings" about=${`${Object.keys(own).length} are set; the others have their defaults`}
    actions=${html`<${Search} label="Search by name or meaning" value=${text} onChange=${setText} />`}>
    <${Failure} error=${settings.error} />
    ${rows.length
      ? html`<${Table} label="settings" rows=${rows} keyOf=${(row) => row.name} toneOf=${(row) => (row.isChanged ? "changed" : "")}
          expand=${(row) => html`<p class="about">${row.doc}</p><p class="about">allowed: ${row.allowed}</p>`}
          columns=${[
            { key: "name", title: "setting" },
            { key: "own", title: "value", kind: "mono", show: (row) => (row.isChanged ? html`<b>${row.own}</b>` : html`<span class="about">${row.default_value}</span>`) },
            { key: "unit", title: "unit" },
            { key: "default_value", title: "default", kind: "mono" },
            {
              key: "edit", title: "",
              show: (row) => html`<button type="button" onClick=${() => setEdited({ ...row, isReset: false })} aria-label=${`Change ${row.name}`}>Change …</button>
                ${row.isChanged && html` <button type="button" class="quiet" onClick=${() => setEdited({ ...row, isReset: true })}>Default …</button>`}`,
            },
          ]} />`
      : html`<${Empty}>No setting fits.<//>`}
    ${edited &&
    html`<${StatementDialog} title=${edited.isReset ? `${edited.name} as by default` : edited.name} about=${edited.doc} action="Change"
      onClose=${() => setEdited(null)}
      fields=${edited.isReset ? [] : [{ name: "value", label: `Value: ${edited.allowed}`, value: edited.own ?? edited.default_value ?? "" }]}
      statement=${({ value }) =>
        edited.isReset
          ? `ALTER TABLE ${name} RESET SETTING ${edited.name}`
          : `ALTER TABLE ${name} MODIFY SETTING ${edited.name} = ${/^-?\d+(\.\d+)?$/.test(value) ? value : literal(value)}`} />`}
  <//>`
}
