// One statement, and its answer as far as a page can show it: the first rows of a large one, while the server still
// computes others. `run` of core/api.js collects whole answers.

import { SqlError, literal, read } from "../../core/api.js"

export const ROWS_MAX = 10_000
/** Rows end sooner where they are large. */
export const CHARACTERS_MAX = 64_000_000
/** Answers in another format than JSON are shown up to this length. */
const TEXT_MAX = 1_000_000

const [QUOTE, BACKSLASH] = ['"', "\\"].map((letter) => letter.charCodeAt(0))
const [LIST, LIST_END, OBJECT, OBJECT_END] = [..."[]{}"].map((letter) => letter.charCodeAt(0))

/**
 * Counts the rows of an answer `{"columns": [..], "rows": [[..], ..], "summary": {..}}` piece by piece, and finds where
 * the last row ends that is shown.
 */
class Counter {
  rows = 0
  /** Position behind the last row. */
  end = 0
  characters = 0
  /** True if there are more rows than a page shows. */
  isCut = false
  #depth = 0
  #listsDone = 0
  #isText = false
  #isEscaped = false

  add(piece) {
    for (let at = 0; at < piece.length && !this.isCut; at++) this.#see(piece.charCodeAt(at), this.characters + at)
    this.characters += piece.length
  }

  #see(code, position) {
    if (this.#isEscaped) this.#isEscaped = false
    else if (this.#isText) {
      if (code === BACKSLASH) this.#isEscaped = true
      else if (code === QUOTE) this.#isText = false
    } else if (code === QUOTE) this.#isText = true
    else if (code === LIST || code === OBJECT) {
      const isRow = code === LIST && this.#depth === 2 && this.#listsDone === 1
      if (isRow && (this.rows === ROWS_MAX || position > CHARACTERS_MAX)) this.isCut = true
      this.#depth += 1
    } else if (code === LIST_END || code === OBJECT_END) {
      this.#depth -= 1
      if (code === OBJECT_END) return
      if (this.#depth === 1) this.#listsDone += 1
      else if (this.#depth === 2 && this.#listsDone === 1) {
        this.rows += 1
        this.end = position + 1
      }
    }
  }
}

// Numbers beyond 2^53 keep all their digits.
const exact = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? BigInt(context.source)
    : value

const parse = (text) => (/[[,:]-?\d{16}/.test(text) ? JSON.parse(text, exact) : JSON.parse(text))

async function refusal(response) {
  try {
    return new SqlError((await response.json()).error)
  } catch {
    const message = `the server answered ${response.status}`
    return new SqlError({ code: `HTTP_${response.status}`, kind: "unavailable", message })
  }
}

/** The reason why an answer broke off, which the query log has. */
async function reasonOf(queryId) {
  const hint = "the rows so far are not the whole result; run it again"
  const question = `SELECT error_code, error FROM system.query_log
    WHERE query_id = ${literal(queryId)} AND error_code IS NOT NULL`
  const [found] = await read(question).catch(() => [])
  const body = found
    ? { code: found.error_code, message: found.error ?? found.error_code }
    : { code: "ANSWER_BROKE_OFF", message: "the answer broke off" }
  return new SqlError({ ...body, kind: "internal", hint, id: queryId })
}

async function send(sql, { database, settings, signal }) {
  try {
    return await fetch("/v1/sql?" + new URLSearchParams({ ...settings, database }), {
      method: "POST",
      headers: { "Content-Type": "application/sql", Accept: "application/json" },
      body: sql,
      signal,
    })
  } catch (error) {
    if (error.name === "AbortError") throw error
    const message = "the server does not answer"
    throw new SqlError({ code: "NO_ANSWER", kind: "unavailable", message, hint: "is it running?" })
  }
}

const summaryOf = (response) => {
  const empty = { rows: 0, message: "", notices: [], connection_settings: {}, elapsed_ms: 0 }
  return { ...empty, ...JSON.parse(response.headers.get("X-Tilth-Summary") ?? "{}") }
}

/** Texts of the body, until `isEnough` says that there are enough. */
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

async function rowsOf(response, onRows) {
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
 * Run one statement. Returns {columns, rows: lists, summary, queryId, isCut}, and {text, mediaType} where its FORMAT is
 * not JSON; `onRows` gets the number of rows so far. Throws SqlError; aborting `signal` cancels the statement.
 */
export async function stream(sql, { database, settings = {}, signal, onRows = () => {} }) {
  const response = await send(sql, { database, settings, signal })
  if (!response.ok) throw await refusal(response)
  const queryId = response.headers.get("X-Tilth-Query-Id")
  const mediaType = (response.headers.get("Content-Type") ?? "").split(";")[0].trim()
  try {
    const answer = mediaType === "application/json" ? await rowsOf(response, onRows) : await textOf(response, mediaType)
    return { ...answer, queryId }
  } catch (error) {
    if (signal?.aborted || error.name === "AbortError") throw error
    throw await reasonOf(queryId)
  }
}

const DETAILS = "elapsed_ms, rows, rows_written, result_bytes, parts_read, parts_pruned, sent_again"

/** Details of a statement that has ended, from the query log; undefined: it has none, as after a restart. */
export async function detailsOf(queryId) {
  const question = `SELECT ${DETAILS} FROM system.query_log WHERE query_id = ${literal(queryId)}`
  for (const wait of [0, 200, 1000]) {
    if (wait) await new Promise((done) => setTimeout(done, wait))
    const [found] = await read(question).catch(() => [])
    if (found) return found
  }
  return undefined
}
