// Statements in a text: where each one begins and ends, what it does, and which place an error is about. Pure.
//
// The rules of the end of a statement are those of client/script.py: a `;` in a string, a quoted name or a comment ends
// nothing; data behind `INSERT .. FORMAT` ends at an empty line, or at a `;` that ends a line.

const PIECE = new RegExp(
  [
    String.raw`(?<space>\s+|--[^\n]*)`,
    String.raw`(?<comment>/\*)`,
    // A quote that is followed by one more does not end the text.
    String.raw`(?<quoted>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\[^]|'')*'(?!')|` +
      "`(?:[^`]|``)*`(?!`)" +
      String.raw`|"(?:[^"\\]|\\[^]|"")*"(?!"))`,
    "(?<open>['\"`])",
    String.raw`(?<word>[\p{L}_][\p{L}\p{N}_]*)`,
    String.raw`(?<symbol>[^])`,
  ].join("|"),
  "uy",
)
const DATA_END = /;[ \t\r]*(?:\n|$)|\n[ \t\r]*\n/g
/** Words after which a FORMAT in an INSERT is not the one that data follows. */
const NO_DATA = new Set(["SELECT", "WITH", "VALUES"])

/** The end of a comment; comments nest, as they do for the server. */
function commentEnd(text, start) {
  const edge = /\/\*|\*\//g
  edge.lastIndex = start
  let depth = 0
  for (let found; (found = edge.exec(text)); ) {
    depth += found[0] === "/*" ? 1 : -1
    if (depth === 0) return edge.lastIndex
  }
  return -1
}

/** Pieces of a text: {kind, from, to, text}; `open` is a string, a name or a comment that does not end. */
export function* pieces(text, start = 0) {
  for (let at = start; at < text.length; ) {
    PIECE.lastIndex = at
    const found = PIECE.exec(text)
    const kind = Object.keys(found.groups).find((name) => found.groups[name] !== undefined)
    const end = kind === "comment" ? commentEnd(text, at) : kind === "open" ? -1 : at + found[0].length
    const to = end < 0 ? text.length : end
    yield { kind: end < 0 ? "open" : kind, from: at, to, text: text.slice(at, to) }
    at = to
  }
}

function skipSpace(text, start) {
  for (const piece of pieces(text, start)) if (piece.kind !== "space" && piece.kind !== "comment") return piece.from
  return text.length
}

/** End of a statement, and start of what follows. */
function endOf(text, start) {
  let mayHaveData = text.slice(start, start + 6).toUpperCase() === "INSERT"
  let isFormat = false
  let depth = 0
  for (const piece of pieces(text, start)) {
    if (piece.kind === "space" || piece.kind === "comment") continue
    if (piece.kind === "open") break
    const word = piece.kind === "word" ? piece.text.toUpperCase() : ""
    if (piece.text === ";") return [piece.from, piece.to]
    if (piece.kind === "symbol") depth += (piece.text === "(") - (piece.text === ")")
    if (isFormat && (piece.kind === "quoted" || (word && word !== "VALUES"))) {
      DATA_END.lastIndex = piece.to
      const end = DATA_END.exec(text)
      return end ? [end.index, DATA_END.lastIndex] : [text.length, text.length]
    }
    mayHaveData &&= !NO_DATA.has(word)
    isFormat = mayHaveData && depth === 0 && word === "FORMAT"
  }
  return [text.length, text.length]
}

/** All statements of a text: {from, to, end, sql}; the `;` is at `to` or behind it, `end` is behind the `;`. */
export function statements(text) {
  const found = []
  for (let at = skipSpace(text, 0); at < text.length; ) {
    const [stop, end] = endOf(text, at)
    const sql = text.slice(at, stop).trimEnd()
    if (sql) found.push({ from: at, to: at + sql.length, end, sql })
    at = skipSpace(text, end)
  }
  return found
}

/** The statement at a position: the last one that begins before it, else the first. */
export function statementAt(text, position) {
  const all = statements(text)
  return all.findLast((one) => one.from <= position) ?? all[0]
}

// --- what a statement does -------------------------------------------------------------------------------------------

const READING = new Set("SELECT WITH VALUES FROM TABLE EXPLAIN SHOW DESCRIBE DESC EXISTS USE SET (".split(" "))
const DEFINING = new Set("CREATE DROP ALTER RENAME UNDROP".split(" "))

/** The first words in upper case; a bracket counts as one. */
export function firstWords(sql, count = 2) {
  const words = []
  for (const piece of pieces(sql)) {
    if (piece.kind === "space" || piece.kind === "comment") continue
    words.push(piece.text.toUpperCase())
    if (words.length === count) break
  }
  return words
}

export const isReading = (sql) => READING.has(firstWords(sql, 1)[0])
export const isDefinition = (sql) => DEFINING.has(firstWords(sql, 1)[0])

/** "MERGE" or "GC" for EXPLAIN of a table's background work, "PLAN" for EXPLAIN of a query, else nothing. */
export function explained(sql) {
  const [first, second, third] = firstWords(sql, 3)
  if (first !== "EXPLAIN") return ""
  return second === "GC" || (second === "MERGE" && third !== "INTO") ? second : "PLAN"
}

/** True if the statement removes rows, tables or offsets. */
export function isDestructive(sql) {
  const [first, second] = firstWords(sql)
  if (first === "DROP" || first === "TRUNCATE" || first === "DELETE") return true
  if (first === "SYSTEM") return second === "FORCE" || second === "RESET"
  if (first !== "ALTER") return false
  return [...pieces(sql)].some((piece) => piece.kind === "word" && /^(drop|delete|fastdelete)$/i.test(piece.text))
}

const SECRET = /pass?w|passphrase|secret|token|private.?key|access.?key|key\.pem|credential/i

/** True if a text may hold a password or a key. Such texts stay out of addresses and of the browser's storage. */
export const hasSecrets = (text) =>
  SECRET.test(text) && statements(text).some(({ sql }) => SECRET.test(sql) && !isReading(sql))

/** The database of a USE. */
export function usedDatabase(sql) {
  const found = /^\s*USE\s+(?:`((?:[^`]|``)+)`|"((?:[^"]|"")+)"|(\w+))\s*$/i.exec(sql)
  return found && (found[1]?.replaceAll("``", "`") ?? found[2]?.replaceAll('""', '"') ?? found[3])
}

// --- tables that a statement names -----------------------------------------------------------------------------------

/** Words before the name of a table. */
export const BEFORE_TABLE = new Set("FROM JOIN INTO UPDATE TABLE VIEW DESCRIBE DESC MERGE GC FILES VERIFY".split(" "))
const NO_ALIAS = new Set(
  `WHERE GROUP ORDER HAVING LIMIT OFFSET UNION INTERSECT EXCEPT JOIN LEFT RIGHT FULL INNER CROSS SEMI ANTI NATURAL ON
  USING SET VALUES SELECT SETTINGS FORMAT VERSION TIMESTAMP FOR WINDOW LATERAL PREWHERE ADD DROP MODIFY RENAME UPDATE
  DELETE TO ENGINE PARTITION FINAL QUALIFY CLUSTER DISTRIBUTE SORT TABLESAMPLE PIVOT UNPIVOT POLICY`.split(/\s+/),
)

/** A name without its quotes. */
export const plain = (text) =>
  /^[`"]/.test(text) ? text.slice(1, -1).replaceAll(text[0] + text[0], text[0]) : text

export const isName = (piece) => piece?.kind === "word" || (piece?.kind === "quoted" && /^[`"]/.test(piece.text))

/** Tables that a statement names: {path: ["database", "table"] or ["table"], alias}. */
export function relations(sql) {
  const all = [...pieces(sql)].filter((piece) => piece.kind !== "space" && piece.kind !== "comment")
  const found = []
  const readOne = (at) => {
    // The DESC of an ORDER BY names no table.
    if (NO_ALIAS.has(all[at]?.text.toUpperCase())) return at
    const path = []
    while (isName(all[at])) {
      path.push(plain(all[at].text))
      at += 1
      if (all[at]?.text !== ".") break
      at += 1
    }
    if (!path.length) return at
    if (all[at]?.text.toUpperCase() === "AS") at += 1
    const hasAlias = isName(all[at]) && !NO_ALIAS.has(all[at].text.toUpperCase())
    found.push({ path, alias: hasAlias ? plain(all[at].text) : "" })
    return hasAlias ? at + 1 : at
  }
  for (let at = 0; at < all.length; at++) {
    const word = all[at].kind === "word" ? all[at].text.toUpperCase() : ""
    if (!BEFORE_TABLE.has(word)) continue
    let next = at + 1
    while (/^(IF|NOT|EXISTS|TABLE|ONLY)$/i.test(all[next]?.text ?? "")) next += 1
    next = readOne(next)
    while (word === "FROM" && all[next]?.text === ",") next = readOne(next + 1)
    at = Math.max(at, next - 1)
  }
  return found
}

// --- errors ----------------------------------------------------------------------------------------------------------

/** Facts of a message that name something in the statement, the most telling ones first. */
const NAMING = "column function setting table database view warehouse storage name".split(" ")
const PLACES = [/\bline=(\d+) column=(\d+)/g, /\bat=(\d+):(\d+)/g]

/** Offset of a line and a column, which the server counts from 1 in characters, not in halves of them. */
function offsetOf(text, line, column) {
  const lines = text.split("\n")
  if (line > lines.length) return text.length
  const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0)
  return before + [...lines[line - 1]].slice(0, column - 1).join("").length
}

function tokenAt(sql, from) {
  if (from >= sql.length) return [Math.max(0, sql.length - 1), sql.length]
  const found = /^(?:[\p{L}\p{N}_$]+|`[^`]*`|"[^"]*"|'[^']*'|[^])/u.exec(sql.slice(from))
  return [from, from + found[0].length]
}

function named(message, sql) {
  for (const fact of NAMING) {
    const value = new RegExp(String.raw`\b${fact}=(\S+)`).exec(message)?.[1]
    const last = value?.replaceAll(/[`"']/g, "").split(".").at(-1).toLowerCase()
    if (!last) continue
    for (const { kind, from, to, text } of pieces(sql)) {
      const isWord = kind === "word" || kind === "quoted"
      if (isWord && text.replaceAll(/[`"']/g, "").toLowerCase() === last) return [from, to]
    }
  }
  return null
}

/** The place in a statement that an error is about: [from, to], or null. */
export function placeOf(error, sql) {
  // Positions in an expression of a statement are counted in the expression.
  const expression = / expression=([^]*)$/.exec(error.message)?.[1]
  const base = expression ? sql.indexOf(expression) : 0
  const facts = expression ? error.message.slice(0, error.message.length - expression.length) : error.message
  const place = PLACES.flatMap((pattern) => [...facts.matchAll(pattern)]).at(-1)
  if (place && base >= 0)
    return tokenAt(sql, base + offsetOf(expression ?? sql, Number(place[1]), Number(place[2])))
  return named(facts, sql) ?? (expression && base >= 0 ? [base, base + expression.length] : null)
}

/** Line and column of an offset, counted from 1. */
export const lineAndColumn = (text, offset) => {
  const before = text.slice(0, offset)
  return [before.split("\n").length, [...before.slice(before.lastIndexOf("\n") + 1)].length + 1]
}
