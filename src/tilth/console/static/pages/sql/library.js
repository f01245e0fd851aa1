// The panel beside the editor: questions, saved statements, history.

import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js"
import { literal, useRead } from "../../core/api.js"
import { fitting, whereAll } from "../../core/filters.js"
import { count, seconds } from "../../core/format.js"
import { note } from "../../core/notes.js"
import { Badge, Empty, Failure, Search, Tabs, Time } from "../../core/ui.js"
import { QUESTIONS } from "./questions.js"
import { loadWords, tableNames } from "./words.js"

const SAVED = "sql.saved"
const HISTORY = "sql.history"
const SAVED_MAX = 500
const HISTORY_MAX = 200
/** Longer statements are not kept in the browser. */
const CHARACTERS_MAX = 50_000
const SUGGESTED_MAX = 200

// --- what the browser keeps ------------------------------------------------------------------------------------------

function stored(key) {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "[]")
    return Array.isArray(found) ? found : []
  } catch {
    return []
  }
}

function store(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value))
  } catch {
    note("The browser has no room to keep this.", "bad")
  }
}

/** Keep a statement that has run: {id, sql, database, at, seconds, rows, isCut, outcome, error}. */
export function remember(entry) {
  if (entry.sql.length > CHARACTERS_MAX) return
  store(HISTORY, [entry, ...stored(HISTORY)].slice(0, HISTORY_MAX))
}

/** Saved statements: {saved, save, rename, remove}. */
export function useSaved() {
  const [saved, setSaved] = useState(() => stored(SAVED))
  const change = (next) => {
    setSaved(next)
    store(SAVED, next)
  }
  const others = (name) => saved.filter((one) => one.name !== name)
  const sorted = (list) => list.sort((left, right) => left.name.localeCompare(right.name, "en", { numeric: true }))
  return {
    saved,
    save(one) {
      if (saved.length >= SAVED_MAX) return note(`At most ${SAVED_MAX} statements are saved: delete one.`, "bad")
      change(sorted([...others(one.name), one]))
      return note(`Saved: ${one.name}.`)
    },
    rename(from, to) {
      const one = saved.find(({ name }) => name === from)
      if (!to || to === from) return
      if (saved.some(({ name }) => name === to)) return void note(`There is a statement of the name ${to}.`, "bad")
      change(sorted([...others(from), { ...one, name: to }]))
    },
    remove: (name) => change(others(name)),
  }
}

// --- questions -------------------------------------------------------------------------------------------------------

function TableField({ value, onChange }) {
  const [names, setNames] = useState([])
  useEffect(() => void loadWords().then(() => setNames(tableNames())), [])
  const fits = fitting(value)
  const near = names.filter(fits).slice(0, SUGGESTED_MAX)
  return html`<label class="sql-field">The table of questions about one table
    <input list="sql-tables" value=${value} placeholder="database.table"
      onInput=${(event) => onChange(event.target.value)} />
    <datalist id="sql-tables">${near.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>
  </label>`
}

function Questions({ table, onTable, onOpen }) {
  const [filter, setFilter] = useState("")
  const fits = fitting(filter)
  const found = QUESTIONS.filter(({ title, about = "" }) => fits(`${title} ${about}`))
  const open = ({ sql }) => {
    if (!sql.includes("{table}")) return onOpen({ sql, isRun: true })
    if (!table) return note("Choose the table first, above the questions.", "bad")
    return onOpen({ sql: sql.replace("{table}", table), isRun: true })
  }
  return html`
    <${Search} label="Filter questions" value=${filter} onChange=${setFilter} />
    <${TableField} value=${table} onChange=${onTable} />
    <ol class="sql-list">
      ${found.map(
        (one) =>
          html`<li key=${one.number} value=${one.number}>
            <button type="button" title=${one.sql} onClick=${() => open(one)}>${one.title}</button>
            ${one.about && html`<small>${one.about}</small>`}
          </li>`,
      )}
    </ol>
    ${!found.length && html`<${Empty}>No question has these words.<//>`}`
}

// --- saved -----------------------------------------------------------------------------------------------------------

function SavedOne({ one, onOpen, onRename, onRemove }) {
  const field = useRef()
  const [name, setName] = useState(null)
  const [isSure, setSure] = useState(false)
  useEffect(() => field.current?.focus(), [name === null])
  const submit = (event) => {
    event.preventDefault()
    onRename(one.name, name.trim())
    setName(null)
  }
  if (name !== null)
    return html`<li><form class="sql-rename" onSubmit=${submit}>
      <input ref=${field} value=${name} aria-label="New name" onInput=${(event) => setName(event.target.value)} />
      <button type="submit" class="main">Rename</button>
      <button type="button" class="quiet" onClick=${() => setName(null)}>Cancel</button>
    </form></li>`
  return html`<li>
    <button type="button" title=${one.sql} onClick=${() => onOpen(one)}>${one.name}</button>
    <small class="mono">${one.sql.slice(0, 120)}</small>
    <span class="sql-acts">
      <button type="button" class="quiet" onClick=${() => onOpen({ ...one, isRun: true })}>Run</button>
      <button type="button" class="quiet" onClick=${() => setName(one.name)}>Rename</button>
      ${isSure
        ? html`<button type="button" class="danger" onClick=${() => onRemove(one.name)}>Delete it</button>
            <button type="button" class="quiet" onClick=${() => setSure(false)}>Keep</button>`
        : html`<button type="button" class="quiet" onClick=${() => setSure(true)}>Delete</button>`}
    </span>
  </li>`
}

function Saved({ library, onOpen }) {
  const [filter, setFilter] = useState("")
  const fits = fitting(filter)
  const found = library.saved.filter(({ name, sql }) => fits(`${name} ${sql}`))
  const empty = library.saved.length
    ? "None has these words."
    : "Save keeps the text of the editor under a name, in this browser."
  return html`
    <${Search} label="Filter saved statements" value=${filter} onChange=${setFilter} />
    <ul class="sql-list">
      ${found.map(
        (one) =>
          html`<${SavedOne} key=${one.name} one=${one} onOpen=${onOpen}
            onRename=${library.rename} onRemove=${library.remove} />`,
      )}
    </ul>
    ${!found.length && html`<${Empty}>${empty}<//>`}`
}

// --- history ---------------------------------------------------------------------------------------------------------

/** The query log names a client by its address and the beginning of what the browser calls itself. */
const AGENT_CHARACTERS = 60

const isOfThisBrowser = () => `contains(client, ${literal(`(${navigator.userAgent.slice(0, AGENT_CHARACTERS)}`)})`

const logStatement = (isAll) => `SELECT query_id, text, database, started, elapsed_ms, rows, error_code, error
  FROM system.query_log ${whereAll(!isAll && isOfThisBrowser())} ORDER BY started DESC LIMIT ${HISTORY_MAX}`

const fromLog = (row) => ({
  id: row.query_id,
  sql: row.text,
  database: row.database,
  at: row.started,
  seconds: row.elapsed_ms / 1000,
  rows: row.rows,
  outcome: row.error_code === "QUERY_WAS_CANCELLED" ? "cancelled" : row.error_code ? "failed" : "done",
  error: row.error ?? row.error_code,
})

/** Lines of the browser and of the log; where both have one, the browser's, which has the text as it was written. */
const merged = (local, logged) => {
  const ids = new Set(local.map(({ id }) => id).filter(Boolean))
  const all = [...local, ...logged.filter(({ id }) => !ids.has(id))]
  return all.sort((left, right) => (left.at < right.at ? 1 : -1)).slice(0, HISTORY_MAX)
}

const OUTCOMES = { done: ["good", "done"], failed: ["bad", "failed"], cancelled: ["warn", "cancelled"] }

const Entry = ({ one, onOpen }) => {
  const [tone, words] = OUTCOMES[one.outcome] ?? ["", one.outcome]
  return html`<li>
    <button type="button" class="mono" title=${one.sql} onClick=${() => onOpen(one)}>${one.sql.slice(0, 240)}</button>
    <small>
      <${Badge} tone=${tone} title=${one.error ?? ""}>${words}<//> <${Time} at=${one.at} /> · ${seconds(one.seconds)}
      ${one.outcome === "done" && ` · ${one.isCut ? "first " : ""}${count(one.rows)} rows`} · ${one.database}
    </small>
    ${one.error && one.outcome === "failed" && html`<small>${one.error.slice(0, 200)}</small>`}
  </li>`
}

/** `turn` changes when a statement has ended. */
function History({ turn, onOpen }) {
  const [filter, setFilter] = useState("")
  const [isAll, setAll] = useState(false)
  const log = useRead(logStatement(isAll))
  useEffect(() => void (turn && log.again()), [turn])
  const fits = fitting(filter)
  const all = useMemo(() => merged(stored(HISTORY), log.rows.map(fromLog)), [log.rows, turn])
  const entries = all.filter(({ sql }) => fits(sql))
  return html`
    <${Search} label="Filter history" value=${filter} onChange=${setFilter} />
    <label>
      <input type="checkbox" checked=${isAll} onChange=${() => setAll(!isAll)} /> of all clients of this server
    </label>
    <${Failure} error=${log.error} />
    <ul class="sql-list">
      ${entries.map((one) => html`<${Entry} key=${`${one.id}/${one.at}`} one=${one} onOpen=${onOpen} />`)}
    </ul>
    ${!entries.length && html`<${Empty}>${log.isLoading ? "Loading …" : "No statement yet."}<//>`}
    <p class="about">From system.query_log, which is empty after a restart, and from this browser, without statements
      that may hold passwords.</p>`
}

// --- all of it -------------------------------------------------------------------------------------------------------

/** `onOpen({sql, database, isRun})` puts a statement into the editor. */
export function Library({ side, onSide, library, table, onTable, turn, onOpen }) {
  const tabs = [
    ["questions", "Questions", QUESTIONS.length],
    ["saved", "Saved", library.saved.length],
    ["history", "History"],
  ]
  const current = tabs.some(([key]) => key === side) ? side : "questions"
  return html`<aside class="card sql-library" aria-label="Questions, saved statements, history">
    <${Tabs} label="Statements" tabs=${tabs} current=${current} onChange=${onSide} />
    ${current === "questions" && html`<${Questions} table=${table} onTable=${onTable} onOpen=${onOpen} />`}
    ${current === "saved" && html`<${Saved} library=${library} onOpen=${onOpen} />`}
    ${current === "history" && html`<${History} turn=${turn} onOpen=${onOpen} />`}
  </aside>`
}
