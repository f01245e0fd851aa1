// The client of the public API: statements, and statements that are watched. Pages reach the server through this file
// only, and read nothing that a user cannot read by SQL.

import { useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js"

export class SqlError extends Error {
  constructor(body) {
    super(body.message)
    Object.assign(this, { code: body.code, kind: body.kind, hint: body.hint ?? "", id: body.id, number: body.number })
  }
}

// Numbers beyond 2^53 keep all their digits.
const exact = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? BigInt(context.source)
    : value

const failure = async (response) => {
  try {
    return new SqlError((await response.json()).error)
  } catch {
    return new SqlError({ code: "HTTP_" + response.status, kind: "unavailable", message: "the server answered " + response.status })
  }
}

/** Rows as objects by the names of their columns. */
export const objects = ({ columns, rows }) =>
  rows.map((row) => Object.fromEntries(row.map((value, index) => [columns[index].name, value])))

/** Run one statement; returns {columns, rows, summary, queryId}. Throws SqlError; aborting `signal` cancels it. */
export async function run(sql, { database = "default", settings = {}, signal } = {}) {
  const parameters = new URLSearchParams({ ...settings, database })
  let response
  try {
    response = await fetch("/v1/sql?" + parameters, {
      method: "POST",
      headers: { "Content-Type": "application/sql", Accept: "application/json" },
      body: sql,
      signal,
    })
  } catch (error) {
    if (error.name === "AbortError") throw error
    throw new SqlError({ code: "NO_ANSWER", kind: "unavailable", message: "the server does not answer", hint: "is it running?" })
  }
  if (!response.ok) throw await failure(response)
  return { ...JSON.parse(await response.text(), exact), queryId: response.headers.get("X-Tilth-Query-Id") }
}

/** Run a statement that only reads, which leaves no line in the query log; returns objects. */
export const read = async (sql, options = {}) =>
  objects(await run(sql, { ...options, settings: { readonly: "1", log_queries: "0", ...options.settings } }))

/** A text as a literal of SQL. */
export const literal = (text) => `'${String(text).replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`

/** A name as it is written in SQL. */
export const named = (...parts) => parts.map((part) => "`" + String(part).replaceAll("`", "``") + "`").join(".")

// --- watching --------------------------------------------------------------------------------------------------------

async function* events(response) {
  const decoder = new TextDecoder()
  let text = ""
  for (const reader = response.body.getReader(); ; ) {
    const { value, done } = await reader.read()
    if (done) return
    text += decoder.decode(value, { stream: true })
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const [, kind, data] = /^event: (\w+)\ndata: ([^]*)$/.exec(text.slice(0, end)) ?? []
      if (kind) yield [kind, JSON.parse(data, exact)]
    }
  }
}

/** Listen to answers of statements until `signal` is aborted; connects again by itself. */
async function listen(body, signal, tell) {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10_000)) {
    try {
      const response = await fetch("/v1/watch", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body,
        signal,
      })
      if (!response.ok) throw await failure(response)
      for await (const [kind, data] of events(response)) {
        wait = 500
        tell(kind, data)
      }
    } catch (error) {
      if (signal.aborted) return
      tell("away", error)
    }
    await new Promise((done) => setTimeout(done, wait))
  }
}

/** Latest state of the connection, for the header: "live", "connecting", "away", "paused". */
export const link = { state: "connecting", since: Date.now(), offset: 0, listeners: new Set() }
const setLink = (state) => {
  if (link.state === state) return
  Object.assign(link, { state, since: Date.now() })
  link.listeners.forEach((each) => each(state))
}

/** Milliseconds since 1970 by the server's clock. */
export const serverNow = () => Date.now() + link.offset

/**
 * Watch statements while the page is visible: {name: sql}. Returns {name: {rows: objects, columns, error, at}}; a name
 * is missing until its first answer. Answers that have changed arrive by themselves.
 */
export function useWatch(statements, { every = 2, database = "default" } = {}) {
  const body = JSON.stringify({ statements, every, database })
  const [answers, setAnswers] = useState({})
  const known = useRef("")
  useEffect(() => {
    const wanted = JSON.parse(body).statements
    if (!Object.keys(wanted).length) return
    if (known.current !== body) setAnswers((old) => Object.fromEntries(Object.entries(old).filter(([name]) => name in wanted)))
    known.current = body
    let controller
    // Many answers arrive together; the page is drawn once for all of them.
    let waiting = {}
    let frame = 0
    const flush = () => {
      const fresh = waiting
      waiting = {}
      frame = 0
      setAnswers((old) => ({ ...old, ...fresh }))
    }
    const tell = (kind, data) => {
      if (kind === "away") return setLink("away")
      setLink("live")
      if (kind === "time") return void (link.offset = data.now_ms - Date.now())
      waiting[data.name] =
        kind === "rows"
          ? { rows: objects(data), columns: data.columns, at: serverNow() }
          : { rows: [], columns: [], error: new SqlError(data.error), at: serverNow() }
      frame ||= requestAnimationFrame(flush)
    }
    const follow = () => {
      controller?.abort()
      controller = undefined
      if (document.hidden) return setLink("paused")
      if (link.state !== "live") setLink("connecting")
      controller = new AbortController()
      listen(body, controller.signal, tell)
    }
    follow()
    document.addEventListener("visibilitychange", follow)
    return () => {
      document.removeEventListener("visibilitychange", follow)
      controller?.abort()
      cancelAnimationFrame(frame)
    }
  }, [body])
  return answers
}

/** Run a reading statement once, and again when it changes; returns {rows, error, isLoading, again}. */
export function useRead(sql, options = {}) {
  const [state, setState] = useState({ rows: [], isLoading: true })
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    if (!sql) return setState({ rows: [], isLoading: false })
    const controller = new AbortController()
    setState((old) => ({ ...old, isLoading: true }))
    read(sql, { ...options, signal: controller.signal }).then(
      (rows) => setState({ rows, isLoading: false }),
      (error) => error.name !== "AbortError" && setState({ rows: [], error, isLoading: false }),
    )
    return () => controller.abort()
  }, [sql, turn])
  return { ...state, again: useMemo(() => () => setTurn((old) => old + 1), []) }
}
