// Tables that other things name: by their uuids, by the address, by a field.

import { html, useEffect, useRef, useState } from "../../vendor/preact-htm.js"
import { literal, read, useRead } from "../../core/api.js"
import { contains, isOf, useSettled } from "../../core/filters.js"
import { nameOf, nameParts, streamLink, tableLink } from "../../core/names.js"

const TABLES_FOUND = 50
const NAME = "concat(database, '.', name)"

const linkOf = ({ database, name, engine }) => (engine === "Kafka" ? streamLink : tableLink)(database, name)

const IDS_AT_ONCE = 500

/** Tables by their uuids, read as they are needed: leases and transactions name tables by these. */
export function useTables(uuids) {
  const known = useRef(new Map())
  const [turn, setTurn] = useState(0)
  const missing = [...new Set(uuids)].filter((uuid) => /^[\w-]+$/.test(uuid) && !known.current.has(uuid)).sort().slice(0, IDS_AT_ONCE)
  const key = missing.join()
  useEffect(() => {
    if (!key) return
    const controller = new AbortController()
    const keep = (rows) => {
      // A table that is gone is not looked for again.
      missing.forEach((uuid) => known.current.set(uuid, null))
      rows.forEach((row) => known.current.set(row.uuid, row))
      setTurn((old) => old + 1)
    }
    const list = missing.map(literal).join(", ")
    read(`SELECT uuid, database, name, engine FROM system.tables WHERE uuid IN (${list})`, { signal: controller.signal }).then(
      keep,
      (error) => error.name !== "AbortError" && keep([]),
    )
    return () => controller.abort()
  }, [key])
  return [known.current, turn]
}

export const TableOf = ({ table, uuid }) =>
  table
    ? html`<a href=${linkOf(table)}>${nameOf(table)}</a>`
    : html`<span class="mono" title="No table has this uuid now">${uuid}</span>`

/** A field for the name of a table or Kafka table, which suggests names. */
export function TablePick({ value, onChange, label }) {
  const [text, setText] = useState(value)
  const search = useSettled(text)
  const { rows } = useRead(
    search &&
      `SELECT database, name FROM system.tables WHERE engine <> 'MaterializedView'
        AND ${contains([NAME], search)} ORDER BY database, name LIMIT ${TABLES_FOUND}`,
  )
  const names = rows.map(nameOf)
  const type = (event) => {
    setText(event.target.value)
    if (!event.target.value || names.includes(event.target.value)) onChange(event.target.value)
  }
  return html`<label class="pick">${label}
    <input class="search" type="search" list="tables-found" value=${text} placeholder="database.table" onInput=${type}
      onChange=${(event) => onChange(event.target.value.trim())} />
    <datalist id="tables-found">${names.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>
  </label>`
}

/** The table of this name: {uuid, engine, error, isLoading}; without a uuid there is none. */
export function useInfo(text) {
  const [database, table] = nameParts(text)
  const { rows, error, isLoading } = useRead(text && `SELECT uuid, engine FROM system.tables WHERE ${isOf(database, table, "name")}`)
  return { ...(isLoading ? {} : rows[0]), error, isLoading }
}

/** Uuids of tables whose names contain the text, for the search among leases. */
export function useUuids(search) {
  const { rows } = useRead(search && `SELECT uuid FROM system.tables WHERE ${contains([NAME], search)} LIMIT ${TABLES_FOUND}`)
  return rows.map((row) => row.uuid).sort()
}
