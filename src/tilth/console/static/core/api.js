// The client of the public API: statements, and statements that are watched. Pages reach the server through this file
// only, and read nothing that a user cannot read by SQL.

import { useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js"
import { Counter } from "./counter.js"

class SqlError extends Error {
  constructor(body) {
    super(body.message)
    const { code, kind, hint = "", id, number, page = "" } = body
    Object.assign(this, { code, kind, hint, id, number, page })
  }
}

// Numbers beyond 2^53 keep all their digits.
const exact = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? BigInt(context.source)
    : value

/** Texts without such numbers, which are nearly all, are read faster without a function for each value. */
const parse = (text) => (/[[,:]-?\d{16}/.test(text) ? JSON.parse(text, exact) : JSON.parse(text))

async function refusal(response) {
  try {
    return new SqlError((await response.json()).error)
  } catch {
    const message = `the server answered ${response.status}`
    return new SqlError({ code: `HTTP_${response.status}`, kind: "unavailable", message })
  }
}

/** Send a request; throws SqlError for each answer that is none. */
async function post(path, headers, body, signal) {
  let response
  try {
    response = await fetch(path, { method: "POST", headers, body, signal })
  } catch (error) {
    if (error.name === "AbortError") throw error
    const message = "the server does not answer"
    throw new SqlError({ code: "NO_ANSWER", kind: "unavailable", message, hint: "is it running?" })
  }
  if (!response.ok) throw await refusal(response)
  return response
}

// --- statements ------------------------------------------------------------------------------------------------------

/** Rows as objects by the names of their columns. */
export const objects = ({ columns, rows }) =>
  rows.map((row) => Object.fromEntries(row.map((value, index) => [columns[index].name, value])))

const SQL = { "Content-Type": "application/sql", Accept: "application/json" }

const send = (sql, { database = "default", settings = {}, signal }) =>
  post("/v1/sql?" + new URLSearchParams({ ...settings, database }), SQL, sql, signal)

const idOf = (response) => response.headers.get("X-Tilth-Query-Id")

/** Run one statement; returns {columns, rows, summary, queryId}. Throws SqlError; aborting `signal` cancels it. */
export async function run(sql, options = {}) {
  const response = await send(sql, options)
  return { ...parse(await response.text()), queryId: idOf(response) }
}

/** Run a statement that only reads, which leaves no line in the query log; returns objects. */
export const read = async (sql, options = {}) =>
  objects(await run(sql, { ...options, settings: { readonly: "1", log_queries: "0", ...options.settings } }))

/** The error of the first answer that has one. */
export const errorIn = (answers) => Object.values(answers).find((answer) => answer?.error)?.error

/** A text as a literal of SQL. Queries over system tables take it as well, as long as it has no backslash. */
export const literal = (text) => `'${String(text).replaceAll("\\", "\\\\").replaceAll("'", "''")}'`

/** A name as it is written in SQL. */
export const named = (...parts) => parts.map((part) => "`" + String(part).replaceAll("`", "``") + "`").join(".")

// --- the beginning of an answer --------------------------------------------------------------------------------------

/** Answers in another format than JSON are shown up to this length. */
const TEXT_MAX = 1_000_000

/** The reason why an answer broke off, which the query log has. */
async function reasonOf(queryId) {
  const hint = "the rows that had arrived are not the whole result; run it again"
  const question = `SELECT error_code, error FROM system.query_log
    WHERE query_id = ${literal(queryId)} AND error_code IS NOT NULL`
  const [found] = await read(question).catch(() => [])
  const body = found
    ? { code: found.error_code, message: found.error ?? found.error_code }
    : { code: "ANSWER_BROKE_OFF", message: "the answer broke off" }
  return new SqlError({ ...body, kind: "internal", hint, id: queryId })
}

const summaryOf = (response) => {
  const empty = { rows: 0, message: "", notices: [], connection_settings: {}, elapsed_ms: 0 }
  return { ...empty, ...JSON.parse(response.headers.get("X-Tilth-Summary") ?? "{}") }
}

/** Text of the body, until `add(piece)` says that there is enough. */
async function collect(response, add) {
  const pieces = []
  const decoder = new TextDecoder()
  const reader = response.body.getReader()
  for (;;) {
    const { value, done } = await reader.read()
    const piece = done ? decoder.decode() : decoder.decode(value, { stream: true })
    pieces.push(piece)
    const isEnough = add(piece)
    if (done) break
    if (isEnough) {
      // The server ends a query whose client has left.
      reader.cancel().catch(() => {})
      break
    }
  }
  return pieces.join("")
}

async function firstRows(response, onRows) {
  const counter = new Counter()
  const text = await collect(response, (piece) => {
    counter.add(piece)
    onRows(counter.rows)
    return counter.isCut
  })
  if (!counter.isCut) return { ...parse(text), isCut: false }
  return { ...parse(text.slice(0, counter.end) + "]}"), summary: summaryOf(response), isCut: true }
}

async function textOf(response, mediaType) {
  const summary = summaryOf(response)
  if (/arrow/.test(mediaType)) {
    response.body.cancel().catch(() => {})
    const text = "Arrow is binary. Leave FORMAT out to see the rows."
    return { columns: [], rows: [], summary, text, mediaType, isCut: false }
  }
  let length = 0
  const text = await collect(response, (piece) => (length += piece.length) > TEXT_MAX)
  return { columns: [], rows: [], summary, text: text.slice(0, TEXT_MAX), mediaType, isCut: length > TEXT_MAX }
}

/**
 * Run one statement, and read as much of its answer as a page shows: the first rows of a large one, while the server
 * still computes others. Returns {columns, rows: lists, summary, queryId, isCut}, and {text, mediaType} where its FORMAT
 * is not JSON; `onRows` gets the number of rows received. Throws SqlError; aborting `signal` cancels the statement.
 */
export async function stream(sql, { onRows = () => {}, ...options }) {
  const response = await send(sql, options)
  const queryId = idOf(response)
  const mediaType = (response.headers.get("Content-Type") ?? "").split(";")[0].trim()
  try {
    const answer = mediaType === "application/json" ? await firstRows(response, onRows) : await textOf(response, mediaType)
    return { ...answer, queryId }
  } catch (error) {
    if (options.signal?.aborted || error.name === "AbortError") throw error
    throw await reasonOf(queryId)
  }
}

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
      if (kind) yield [kind, parse(data)]
    }
  }
}

/** Listen to answers of statements until `signal` is aborted; connects again by itself. */
async function listen(body, signal, tell) {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10_000)) {
    try {
      const response = await post("/v1/watch", { "Content-Type": "application/json" }, body, signal)
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

/**
 * Latest state of the connection, for the header: "live", "connecting", "away" (with its reason), "paused", or "still"
 * where nothing is watched.
 */
export const link = { state: "still", reason: "", offset: 0, listeners: new Set() }
/** Pages and parts of them that watch; between two pages none does for a moment. */
let watching = 0
const STILL_AFTER_MS = 1000
const setLink = (state, reason = "") => {
  if (link.state === state && link.reason === reason) return
  Object.assign(link, { state, reason })
  link.listeners.forEach((each) => each({ state, reason }))
}

/** Milliseconds since 1970 by the server's clock. */
export const serverNow = () => Date.now() + link.offset

/** Seconds that have passed since a time of the server; null where there is none. */
export const secondsSince = (time) => (time ? Math.max(0, (serverNow() - new Date(time)) / 1000) : null)

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
      if (kind === "away") return setLink("away", data.message)
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
    watching += 1
    follow()
    document.addEventListener("visibilitychange", follow)
    return () => {
      watching -= 1
      setTimeout(() => watching || setLink("still"), STILL_AFTER_MS)
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
