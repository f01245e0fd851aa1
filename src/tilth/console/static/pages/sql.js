// Statements: an editor, what they answer as tables, plots and trees, and those that were asked before.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js"
import { useParameters } from "../core/address.js"
import { useWatch } from "../core/api.js"
import { copied, note } from "../core/notes.js"
import { Card, Code, Failure } from "../core/ui.js"
import { Editor } from "./sql/editor.js"
import { Library, useSaved } from "./sql/library.js"
import { Results } from "./sql/results.js"
import { useRuns } from "./sql/runs.js"
import { firstWords, hasSecrets, isDestructive, isReading, lineAndColumn, placeOf } from "./sql/statements.js"
import { loadWords } from "./sql/words.js"

const DRAFT = "sql.draft"
/** Longer texts are not written into the address. */
const ADDRESS_CHARACTERS_MAX = 30_000
/** Safari refuses more than 100 changes of the address in 30 seconds. */
const WRITE_AFTER = 500
/** A statement that runs for longer than this, in milliseconds, shows its progress. */
const LONG_AFTER = 400
/** A statement is found among those under way by its beginning. */
const KNOWN_CHARACTERS = 1000

const PROCESSES = `SELECT substring(query, 1, ${KNOWN_CHARACTERS}) AS query, database, state, warehouse, read_rows,
  read_bytes, stages_done, stages_total, tasks_done, tasks_total FROM system.processes ORDER BY started DESC LIMIT 50`

const isMac = /Mac|iPhone|iPad/.test(navigator.platform)
const CONTROL = isMac ? "⌘" : "Ctrl"

// --- the text and the address ----------------------------------------------------------------------------------------

/** The text while other pages are open, and the one that a link has brought. */
const kept = { text: null, arrived: null }

/**
 * The text of the editor, which is `q` of the address and the draft of this browser. Returns {initial, write, isGiven}:
 * `isGiven(text)` says whether a link brought the text and nobody has edited it.
 */
function useDraft(given, change, editor) {
  const [initial] = useState(() => given ?? kept.text ?? localStorage.getItem(DRAFT) ?? "")
  const [missing, setMissing] = useState("")
  const written = useRef(given ?? "")
  const timer = useRef()
  const latest = useRef()
  latest.current = change
  const put = (text) => {
    const why = hasSecrets(text)
      ? "a statement may hold a password"
      : text.length > ADDRESS_CHARACTERS_MAX
        ? "the text is too long for a link"
        : ""
    setMissing(why)
    written.current = why ? "" : text
    hasSecrets(text) ? localStorage.removeItem(DRAFT) : localStorage.setItem(DRAFT, text)
    latest.current({ q: why ? null : text })
  }
  const write = (text) => {
    kept.text = text
    clearTimeout(timer.current)
    if (text === written.current && !missing) return
    timer.current = setTimeout(() => put(text), WRITE_AFTER)
  }
  useEffect(() => {
    if (given !== null && given !== kept.text && given !== localStorage.getItem(DRAFT)) kept.arrived = given
    kept.text = initial
    if (given === null && initial) put(initial)
    return () => clearTimeout(timer.current)
  }, [])
  useEffect(() => {
    // The menu's link to this page has no statement; the text stays.
    if (given === null) return void (written.current && latest.current({ q: written.current }))
    if (given === written.current) return undefined
    written.current = kept.arrived = given
    editor.current?.setText(given)
    return undefined
  }, [given])
  return {
    initial,
    write,
    missing,
    isGiven: (text) => text === kept.arrived,
    /** Somebody has seen the statements of the link, and wants them. */
    accept: () => (kept.arrived = null),
  }
}

// --- before something changes ----------------------------------------------------------------------------------------

/** Asks before statements that remove something, and before all that change something if a link brought them. */
function Confirm({ list, isFromLink, onYes, onClose }) {
  const dialog = useRef()
  useEffect(() => dialog.current.showModal(), [])
  const submit = (event) => {
    event.preventDefault()
    dialog.current.close()
    onYes()
  }
  const about = isFromLink ? "The link that you opened brought these statements, which change something." : ""
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label="Run statements that change something">
    <form onSubmit=${submit}>
      <h2>${list.length === 1 ? "Run this statement?" : `Run these ${list.length} statements?`}</h2>
      ${about && html`<p class="about">${about}</p>`}
      <${Code}>${list.map(({ sql }) => sql).join(";\n\n")}<//>
      <footer>
        <button type="button" class="quiet" onClick=${() => dialog.current.close()}>Cancel</button>
        <button type="submit" class=${list.some(({ sql }) => isDestructive(sql)) ? "danger" : "main"}>Run</button>
      </footer>
    </form>
  </dialog>`
}

const questionable = (list, isFromLink) =>
  list.filter(({ sql, sent = sql }) => isDestructive(sent) || (isFromLink && !isReading(sent)))

// --- errors at their places ------------------------------------------------------------------------------------------

/** Range in the editor that the error of a run is about; null: the text has changed, or the error names none. */
function placeInText(run, text) {
  if (run.error?.message === undefined || text.slice(run.from, run.from + run.sql.length) !== run.sql) return null
  const place = placeOf(run.error, run.sent)
  const shift = run.from - (run.sent.length - run.sql.length)
  return place && place[0] + shift >= run.from ? place.map((at) => at + shift) : null
}

function useMarks(runs, editor) {
  const failed = runs.filter(({ state }) => state === "failed")
  const key = failed.map((run) => run.key).join()
  useEffect(() => {
    const text = editor.current?.text() ?? ""
    const problems = failed.flatMap((run) => {
      const place = placeInText(run, text)
      const message = `${run.error.message}${run.error.hint ? `\n${run.error.hint}` : ""}`
      return place ? [{ from: place[0], to: place[1], message }] : []
    })
    editor.current?.mark(problems)
  }, [key, runs[0]?.key])
}

// --- parts of the page -----------------------------------------------------------------------------------------------

function SaveForm({ onSave, onClose }) {
  const field = useRef()
  const [name, setName] = useState("")
  useEffect(() => field.current.focus(), [])
  const submit = (event) => {
    event.preventDefault()
    if (!name.trim()) return
    onSave(name.trim())
    onClose()
  }
  return html`<form class="sql-rename" onSubmit=${submit}>
    <input ref=${field} value=${name} placeholder="Name" aria-label="Name of the saved statement"
      onInput=${(event) => setName(event.target.value)} />
    <button type="submit" class="main">Save</button>
    <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
  </form>`
}

/** Settings of SET, which are sent with every statement. */
const Session = ({ settings, onRemove }) =>
  Object.entries(settings).map(
    ([name, value]) =>
      html`<button key=${name} type="button" class="quiet sql-setting" onClick=${() => onRemove(name)}
        title="It is sent with every statement. Click to leave it out.">${name} = ${value} ✕</button>`,
  )

function Database({ names, database, onChange }) {
  const all = names.includes(database) ? names : [...names, database]
  return html`<label>database <select value=${database} onChange=${(event) => onChange(event.target.value)}>
    ${all.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
  </select></label>`
}

/** True once something has run for so long that its progress is worth showing. */
function useIsLong(isRunning) {
  const [isLong, setLong] = useState(false)
  useEffect(() => {
    if (!isRunning) return setLong(false)
    const timer = setTimeout(() => setLong(true), LONG_AFTER)
    return () => clearTimeout(timer)
  }, [isRunning])
  return isLong
}

/** The line of system.processes of a run: the newest one with its text. */
const processOf = (rows, run) =>
  run && rows?.find(({ query, database }) => database === run.database && run.sent.startsWith(query))

const sessionText = (settings) => new URLSearchParams(settings).toString()

export default function Sql({ route }) {
  const [parameters, change] = useParameters(route)
  const [chosen, setChosen] = useState(null)
  const [asking, setAsking] = useState(null)
  const [isSaving, setSaving] = useState(false)
  const [turn, setTurn] = useState(0)
  const editor = useRef()
  const library = useSaved()
  const database = parameters.get("db") || "default"
  const given = parameters.get("set") ?? ""
  const settings = useMemo(() => Object.fromEntries(new URLSearchParams(given)), [given])
  const draft = useDraft(parameters.get("q"), change, editor)
  const { runs, start, cancel } = useRuns({
    onEnd: () => setTurn((old) => old + 1),
    onSession(next) {
      if (next.database === database && sessionText(next.settings) === given) return
      change({ db: next.database === "default" ? null : next.database, set: sessionText(next.settings) })
    },
  })
  const running = runs.find(({ state }) => state === "running")
  const isBusy = Boolean(running)
  const isLong = useIsLong(isBusy)
  const found = useWatch(
    { databases: "SHOW DATABASES", ...(isLong && { processes: PROCESSES }) },
    { every: isLong ? 1 : 5 },
  )
  useMarks(runs, editor)
  useEffect(() => void loadWords(), [])

  const begin = (list, session = { database, settings }) => {
    setChosen(null)
    draft.accept()
    start(list, session)
  }
  const ask = (list) => {
    if (running) return note("A statement runs. Cancel it, or wait for its end.", "bad")
    if (!list.length) return note("There is no statement to run.", "bad")
    const isFromLink = draft.isGiven(editor.current.text())
    const doubtful = questionable(list, isFromLink)
    return doubtful.length ? setAsking({ list, doubtful, isFromLink }) : begin(list)
  }
  const run = (what) => ask(editor.current.chosen(what))
  const explain = () => {
    const [one] = editor.current.chosen("statement")
    if (!one) return note("There is no statement to explain.", "bad")
    return ask([{ ...one, sent: firstWords(one.sql, 1)[0] === "EXPLAIN" ? one.sql : `EXPLAIN FORMATTED ${one.sql}` }])
  }
  /** Put a statement of the library into the editor, and run it if that was wanted. */
  const open = ({ sql, database: wanted, isRun }) => {
    const before = editor.current.text()
    if (wanted && wanted !== database) change({ db: wanted === "default" ? null : wanted })
    if (before !== sql) editor.current.setText(sql)
    if (before.trim() && before !== sql) note(`${CONTROL}+Z in the editor brings back the text before.`)
    editor.current.focus()
    if (!isRun || running) return
    const list = editor.current.chosen("all")
    const doubtful = questionable(list, false)
    const session = { database: wanted ?? database, settings }
    doubtful.length ? setAsking({ list, doubtful, session, isFromLink: false }) : begin(list, session)
  }
  const save = (name) => library.save({ name, sql: editor.current.text(), database })
  const copyLink = () => copied(location.href, "the link to this statement")
  const removeSetting = (name) =>
    change({ set: sessionText(Object.fromEntries(Object.entries(settings).filter(([key]) => key !== name))) })
  const place = (one) => {
    const text = editor.current?.text() ?? ""
    const at = placeInText(one, text)
    if (!at) return undefined
    const [line, column] = lineAndColumn(text, at[0])
    return { line, column, go: () => editor.current.show(...at) }
  }
  const process = processOf(found.processes?.rows, running)
  const names = found.databases?.rows.map(({ name }) => name) ?? []

  return html`
    <div class="head">
      <h1>SQL</h1>
      <${Database} names=${names} database=${database}
        onChange=${(name) => change({ db: name === "default" ? null : name })} />
      <${Session} settings=${settings} onRemove=${removeSetting} />
      <div class="actions">
        ${isSaving
          ? html`<${SaveForm} onSave=${save} onClose=${() => setSaving(false)} />`
          : html`<button type="button" onClick=${() => setSaving(true)}>Save …</button>`}
        <button type="button" disabled=${Boolean(draft.missing)} onClick=${copyLink}
          title=${draft.missing && `There is no link: ${draft.missing}.`}>Copy link</button>
      </div>
    </div>
    <div class="sql-page">
      <div class="sql-work">
        <${Card}>
          <${Editor} initial=${draft.initial} handle=${editor} databaseOf=${() => database} onChange=${draft.write}
            onRun=${run} onCancel=${cancel} />
          <div class="sql-tools">
            <button type="button" class="main" disabled=${isBusy} onClick=${() => run("statement")}>Run</button>
            <button type="button" disabled=${isBusy} onClick=${() => run("all")}>Run all</button>
            <button type="button" disabled=${isBusy} onClick=${explain}>Explain</button>
            <small>
              <kbd>${CONTROL}+Enter</kbd> runs the selection or the statement under the cursor,${" "}
              <kbd>${CONTROL}+Shift+Enter</kbd> all, <kbd>${CONTROL}+.</kbd> cancels;${" "}
              <kbd>Ctrl+Space</kbd> completes, <kbd>F8</kbd> goes to an error.
            </small>
          </div>
          <${Failure} error=${found.databases?.error} />
        <//>
        <${Results} runs=${runs} chosen=${chosen} onChoose=${setChosen} process=${process}
          onCancel=${cancel} placeOf=${place} parameters=${parameters} change=${change} />
      </div>
      <${Library} side=${parameters.get("side")} onSide=${(side) => change({ side })} library=${library} turn=${turn}
        table=${parameters.get("table") ?? ""} onTable=${(table) => change({ table })} onOpen=${open} />
    </div>
    ${asking &&
    html`<${Confirm} list=${asking.doubtful} isFromLink=${asking.isFromLink}
      onYes=${() => begin(asking.list, asking.session)} onClose=${() => setAsking(null)} />`}`
}
