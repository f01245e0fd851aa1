// Dead letters of one Kafka table: what is wrong with them, the messages themselves, and their replay.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { literal, named, useRead } from "../../core/api.js"
import { StatementDialog } from "../../core/dialog.js"
import { fitting } from "../../core/filters.js"
import { bytes, count, exactly, isNone } from "../../core/format.js"
import { nameOf } from "../../core/names.js"
import { Copy } from "../../core/notes.js"
import { Table, ageColumn, buttonColumn, numberColumn, textColumn, timeColumn } from "../../core/table.js"
import { Card, Code, Empty, Reading, SearchBy } from "../../core/ui.js"

const LETTERS_MAX = 200
/** Bytes of a message that are shown. */
const RAW_MAX = 8192
const HEX_MAX = 1024

const hexOf = (data) =>
  Array.from({ length: Math.ceil(Math.min(data.length, HEX_MAX) / 16) }, (_, line) => {
    const some = [...data.slice(line * 16, line * 16 + 16)]
    const hex = some.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")
    const letters = some.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")
    return `${(line * 16).toString(16).padStart(4, "0")}  ${hex.padEnd(47)}  ${letters}`
  }).join("\n")

/** Bytes, in base64, as a text where they are one, else in hexadecimal; the last character may be cut. */
function decoded(base64) {
  if (isNone(base64)) return { text: "", isText: true }
  const data = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: true }), isText: true }
  } catch {
    return { text: hexOf(data), isText: false }
  }
}

/** Stands in the address for letters that could not be decoded, so that no view has refused them. */
const NO_VIEW = "-"

const conditionOf = (name, value) => (value === NO_VIEW ? `${named(name)} IS NULL` : `${named(name)} = ${literal(value)}`)
const whereOf = (parameters) =>
  ["view", "reason"]
    .filter((name) => parameters.has(name))
    .map((name) => conditionOf(name, parameters.get(name)))
    .join(" AND ")
/** The condition for one letter. */
const whereIs = (row) =>
  [
    conditionOf("topic", row.topic),
    `${named("partition")} = ${row.partition}`,
    `${named("offset")} = ${row.offset}`,
    conditionOf("view", row.view ?? NO_VIEW),
  ].join(" AND ")

const refusedBy = { key: "view", title: "refused by", kind: "tight", show: (row) => row.view ?? "not decoded" }

const letterColumns = (onReplay) => [
  {
    key: "position",
    title: "message",
    kind: "tight",
    value: (row) => Number(row.offset),
    show: (row) => `${row.topic}/${row.partition} at ${row.offset}`,
  },
  timeColumn("timestamp", "sent"),
  refusedBy,
  textColumn("reason", "error"),
  numberColumn("size", "size", bytes),
  {
    key: "text",
    title: "raw message",
    kind: "code-cell",
    show: (row) => (row.isText ? row.text.slice(0, 80) : html`<small>binary</small>`),
  },
  buttonColumn("Replay", (row) => `Replay the letter at ${row.offset}`, onReplay),
]

const titleOf = (letter) => {
  const part = letter.size > RAW_MAX ? `, the first ${bytes(RAW_MAX)} of ${bytes(letter.size)}` : ""
  return `raw message${part}${letter.isText ? "" : ", in hexadecimal"}`
}

const Letter = ({ letter }) =>
  html`<p class="failure">${letter.reason}</p>
    ${letter.keyText && html`<h3>key</h3><${Code}>${letter.keyText}<//>`}
    <h3>${titleOf(letter)}</h3>
    <${Code}>${letter.text}<//>
    ${letter.isText && html`<${Copy} text=${letter.text} label="Copy the message" />`}`

const errorColumns = (onChoose) => [
  numberColumn("letters", "letters"),
  refusedBy,
  textColumn("reason", "error", {
    show: (row) => html`<button type="button" class="fold" onClick=${() => onChoose(row)}>${row.reason}</button>`,
  }),
  ageColumn("last", "last one sent"),
]

/** Dead letters and their errors. Spark reads them, so they are read once and not watched. */
function useLetters(table, where, isThere) {
  const columns = ["topic", "partition", "offset", "timestamp", "view", "reason", "key"].map((name) => named(name)).join(", ")
  const condition = where && ` WHERE ${where}`
  const raw = named("raw")
  const letters = useRead(
    isThere &&
      `SELECT ${columns}, octet_length(${raw}) AS size, substring(${raw}, 1, ${RAW_MAX}) AS raw FROM ${table}${condition}
       ORDER BY ${named("timestamp")} DESC, ${named("offset")} DESC LIMIT ${LETTERS_MAX}`,
  )
  const groups = useRead(
    isThere &&
      `SELECT ${named("view")}, ${named("reason")}, count(*) AS letters, max(${named("timestamp")}) AS last FROM ${table}
       GROUP BY ${named("view")}, ${named("reason")} ORDER BY letters DESC LIMIT 100`,
  )
  const rows = useMemo(
    () => letters.rows.map((row) => ({ ...row, ...decoded(row.raw), keyText: isNone(row.key) ? "" : decoded(row.key).text })),
    [letters.rows],
  )
  return [letters, groups, rows]
}

const NoTable = () =>
  html`<${Card} title="Dead letters">
    <${Empty}>There is no table for dead letters. The setting kafka_handle_error_mode decides what becomes of a broken message.<//>
  <//>`

/** `info`: the table of the letters, a row of system.tables; undefined: there is none. */
export function Letters({ database, table, info, parameters, change }) {
  const [asked, setAsked] = useState(null)
  const where = whereOf(parameters)
  const isThere = Boolean(info) && Number(info.rows) > 0
  const [letters, groups, rows] = useLetters(info && named(info.database, info.name), where, isThere)
  const columns = useMemo(() => letterColumns((row) => setAsked(whereIs(row))), [])
  const choose = (row) => change({ view: row.view ?? NO_VIEW, reason: row.reason })
  if (!info) return html`<${NoTable} />`
  const hasWords = fitting(parameters.get("text") ?? "")
  const shown = rows.filter((row) => hasWords(`${row.topic}/${row.partition} ${row.offset} ${row.view} ${row.reason} ${row.text}`))
  const again = () => (letters.again(), groups.again())
  return html`
    <${Card} title="By error" about=${`${exactly(info.rows)} letters in ${nameOf(info)}; choose an error to see its letters`}
      actions=${html`<button type="button" onClick=${again}>Read again</button>
        <button type="button" class="main" disabled=${!isThere} onClick=${() => setAsked("")}>Replay all …</button>`}>
      <${Reading} reading=${groups}>
        <${Table} label="errors" rows=${groups.rows} columns=${errorColumns(choose)} empty="There is no dead letter."
          keyOf=${(row) => `${row.view}/${row.reason}`} />
      <//>
    <//>
    ${isThere &&
    html`<${Card} title="Letters" about=${`the newest ${LETTERS_MAX}${where ? " that fit" : ""}; a line opens with the raw message`}
      actions=${html`<${SearchBy} name="text" label="Filter what is shown" parameters=${parameters} change=${change} />
        ${where &&
        html`<button type="button" onClick=${() => setAsked(where)}>Replay these …</button>
          <button type="button" class="quiet" onClick=${() => change({ view: null, reason: null })}>Show all</button>`}`}>
      <${Reading} reading=${letters}>
        <${Table} label="dead letters" rows=${shown} columns=${columns}
          keyOf=${(row) => `${row.topic}/${row.partition}/${row.offset}/${row.view}`}
          expand=${(row) => html`<${Letter} letter=${row} />`} empty="No letter fits." />
      <//>
    <//>`}
    ${asked !== null &&
    html`<${StatementDialog} title="Replay dead letters" action="Replay" onClose=${() => setAsked(null)} onDone=${again}
      about="The letters go through their views again. What fails again is a dead letter again, with the new error."
      fields=${[{ name: "where", label: "Which letters; empty: all", value: asked, hint: "view = 'shop.orders_view'" }]}
      statement=${(values) =>
        [`SYSTEM REPLAY DEAD LETTERS ${named(database, table)}`, values.where.trim()].filter(Boolean).join(" WHERE ")} />`}`
}
