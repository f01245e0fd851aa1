// The statements that this page runs, one after the other. They go on, and their answers stay, while other pages are
// open.

import { useEffect, useState } from "../../vendor/preact-htm.js"
import { literal, read, stream } from "../../core/api.js"
import { remember } from "./library.js"
import { hasSecrets, isDefinition, usedDatabase } from "./statements.js"
import { loadWords } from "./words.js"

/** Rows that have arrived are counted on the page so often, in milliseconds. */
const COUNT_EVERY = 250

/**
 * Each run: {key, sql, sent, from, state, database, begun, seconds, rowsReceived, answer, error, details}. `sent` is what
 * the server gets, `from` where the statement is in the editor. States: waiting, running, done, failed, cancelled,
 * skipped (a statement before it did not end well).
 */
const now = { runs: [], controller: undefined, listeners: new Set(), handlers: {} }

const set = (runs) => {
  now.runs = runs
  now.listeners.forEach((listener) => listener(runs))
}
const patch = (key, values) => set(now.runs.map((one) => (one.key === key ? { ...one, ...values } : one)))

const counter = (key) => {
  let last = 0
  return (rowsReceived) => {
    if (Date.now() - last < COUNT_EVERY) return
    last = Date.now()
    patch(key, { rowsReceived })
  }
}

function log(run, { database, begun, seconds, answer, error, state }) {
  if (hasSecrets(run.sent)) return
  remember({
    id: answer?.queryId ?? "",
    sql: run.sent,
    database,
    at: new Date(begun).toISOString(),
    seconds,
    rows: answer ? answer.rows.length : null,
    isCut: Boolean(answer?.isCut),
    outcome: state,
    error: error && state === "failed" ? error.message : null,
  })
}

const DETAILS = "elapsed_ms, rows, rows_written, result_bytes, parts_read, parts_pruned, sent_again"
/** The query log has a statement a moment after its answer, in milliseconds. */
const DETAILS_AFTER = [0, 200, 1000]

/** Details of a statement that has ended, from the query log; undefined: it has none, as after a restart. */
async function detailsOf(queryId) {
  const question = `SELECT ${DETAILS} FROM system.query_log WHERE query_id = ${literal(queryId)}`
  for (const wait of DETAILS_AFTER) {
    if (wait) await new Promise((done) => setTimeout(done, wait))
    const [found] = await read(question).catch(() => [])
    if (found) return found
  }
  return undefined
}

/** Run one statement; returns the session of the next one, undefined if it did not end well. */
async function perform(run, { database, settings }, signal) {
  const begun = Date.now()
  patch(run.key, { state: "running", begun, database })
  const end = (values) => {
    const ended = { database, begun, seconds: (Date.now() - begun) / 1000, ...values }
    patch(run.key, ended)
    log(run, ended)
    now.handlers.onEnd?.()
  }
  try {
    const answer = await stream(run.sent, { database, settings, signal, onRows: counter(run.key) })
    end({ state: "done", answer })
    if (isDefinition(run.sent)) loadWords({ again: true })
    detailsOf(answer.queryId).then((details) => patch(run.key, { details }))
    return {
      database: usedDatabase(run.sql) ?? database,
      settings: { ...settings, ...answer.summary.connection_settings },
    }
  } catch (error) {
    end({ state: signal.aborted ? "cancelled" : "failed", error })
    return undefined
  }
}

/** Run statements [{sql, sent, from}] one after the other, until one of them fails. */
async function start(list, session) {
  if (now.controller) return
  const controller = (now.controller = new AbortController())
  const first = Date.now()
  set(list.map(({ sql, sent = sql, from }, index) => ({ key: `${first}-${index}`, sql, sent, from, state: "waiting" })))
  try {
    for (const run of now.runs) {
      session = await perform(run, session, controller.signal)
      if (!session) break
      now.handlers.onSession?.(session)
    }
  } finally {
    set(now.runs.map((one) => (one.state === "waiting" ? { ...one, state: "skipped" } : one)))
    now.controller = undefined
  }
}

const cancel = () => now.controller?.abort()

/** {runs, start, cancel}; handlers: onEnd(), onSession({database, settings}). */
export function useRuns(handlers) {
  const [runs, setRuns] = useState(now.runs)
  now.handlers = handlers
  useEffect(() => {
    now.listeners.add(setRuns)
    setRuns(now.runs)
    return () => {
      now.listeners.delete(setRuns)
      now.handlers = {}
    }
  }, [])
  return { runs, start, cancel }
}
