// Completion: names of databases, tables, columns, functions and settings, as the server knows them.

import { named, read } from "../../core/api.js"
import { isOf } from "../../core/filters.js"
import { BEFORE_TABLE, isName, pieces, plain, relations, statementAt } from "./statements.js"

/** Columns of more tables are read when a statement names the table. */
const TABLES_WITH_COLUMNS_MAX = 500
const TABLES_MAX = 20_000

const known = { databases: [], tables: [], systemTables: [], functions: [], settings: [], columns: new Map() }
let loading

const key = (database, table) => `${database}\n${table}`.toLowerCase()
const isSystem = (database) => database.toLowerCase() === "system"

const READS = {
  databases: "SHOW DATABASES",
  tables: `SELECT database, name, engine FROM system.tables ORDER BY database, name LIMIT ${TABLES_MAX}`,
  systemTables: "SHOW TABLES FROM system",
  functions: "SHOW FUNCTIONS",
  settings: `SELECT name, scope, default_value, allowed, doc FROM system.settings
    WHERE scope IN ('session', 'table', 'kafka') ORDER BY name`,
}

async function readColumns() {
  known.columns.clear()
  if (known.tables.length > TABLES_WITH_COLUMNS_MAX) return
  const rows = await read(
    `SELECT database, "table", name, type, comment FROM system.columns ORDER BY database, "table", position`,
  )
  for (const { database, table, ...column } of rows) {
    const columns = known.columns.get(key(database, table)) ?? []
    if (!columns.length) known.columns.set(key(database, table), columns)
    columns.push(column)
  }
}

/** Load the names: once, and again after a statement that changes definitions. Returns a promise. */
export function loadWords({ again = false } = {}) {
  if (again || !loading) {
    const reads = Object.entries(READS).map(([name, sql]) =>
      // Completion lacks names that cannot be read; a statement that names them shows the error.
      read(sql).then((rows) => (known[name] = rows), () => {}),
    )
    loading = Promise.all(reads).then(readColumns).catch(() => {})
  }
  return loading
}

/** Names of tables, as `database.table`. */
export const tableNames = () => known.tables.map(({ database, name }) => `${database}.${name}`)

const isTable = (database, table) =>
  (isSystem(database) ? known.systemTables : known.tables.filter((one) => one.database === database)).some(
    ({ name }) => name.toLowerCase() === table.toLowerCase(),
  )

/** Columns of one table: [{name, type, comment}]. */
async function columnsOf([database, table]) {
  const found = known.columns.get(key(database, table))
  if (found) return found
  if (!isTable(database, table)) return []
  const sql = isSystem(database)
    ? `DESCRIBE ${named("system", table)}`
    : `SELECT name, type, comment FROM system.columns
       WHERE ${isOf(database, table)} ORDER BY position`
  const columns = await read(sql).catch(() => [])
  known.columns.set(key(database, table), columns)
  return columns
}

// --- where the cursor is ---------------------------------------------------------------------------------------------

/** The name under way at the end of a text: {from, quote, partial, parents, tokens}; null in a string or a comment. */
function nameBefore(sql) {
  const all = [...pieces(sql)]
  const last = all.at(-1)
  const isOpenName = last?.kind === "open" && /^[`"]/.test(last.text)
  if (last?.kind === "open" && !isOpenName) return null
  if (last?.kind === "space" && last.text.startsWith("--")) return null
  const tokens = all.filter((piece) => piece.kind !== "space" && piece.kind !== "comment")
  const isUnderWay = isOpenName || (last?.kind === "word" && last === tokens.at(-1))
  const partial = isUnderWay ? tokens.pop() : undefined
  const parents = []
  while (tokens.at(-1)?.text === "." && isName(tokens.at(-2))) parents.unshift(plain(tokens.splice(-2)[0].text))
  return { from: partial?.from ?? sql.length, quote: isOpenName ? last.text[0] : "", partial, parents, tokens }
}

/** Scopes of the setting whose name the cursor is at; null: it is elsewhere. */
function settingScopes(tokens) {
  const [first] = tokens
  const word = first?.kind === "word" ? first.text.toUpperCase() : ""
  const isClause = (piece, index) => /^settings?$/i.test(piece.text) && tokens[index - 1]?.text !== "."
  const at = word === "SET" ? 0 : tokens.findLastIndex(isClause)
  if (at < 0) return null
  const rest = tokens.slice(at + 1)
  // A clause of settings holds names, values, `=`, `,` and `.`, and a name follows it or a comma.
  const isOpen = rest.every((piece) => piece.kind !== "symbol" || /[=,.\d-]/.test(piece.text))
  if (!isOpen || (rest.length && rest.at(-1).text !== ",")) return null
  return word === "CREATE" || word === "ALTER" ? ["table", "kafka"] : ["session"]
}

// --- options ---------------------------------------------------------------------------------------------------------

const spelled = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : named(name))

const columnOption = ({ name, type, comment }) => ({
  label: name,
  apply: spelled(name),
  type: "property",
  detail: type,
  info: comment || undefined,
  boost: 3,
})

const tableOption = ({ name, engine }) => ({
  label: name,
  apply: spelled(name),
  type: "class",
  detail: engine,
  boost: 1,
})
const databaseOption = ({ name }) => ({ label: name, apply: spelled(name), type: "namespace", detail: "database" })

const settingOption = ({ name, scope, default_value, allowed, doc }) => ({
  label: name,
  apply: spelled(name),
  type: "constant",
  detail: `${scope}; default: ${default_value || "empty"}`,
  info: `${doc} Allowed: ${allowed}.`,
})

const applyFunction = (view, completion, from, to) =>
  view.dispatch({
    changes: { from, to, insert: `${completion.label}()` },
    selection: { anchor: from + completion.label.length + 1 },
  })

const functionOption = ({ name }) => ({ label: name, type: "function", apply: applyFunction })

const tablesIn = (database) =>
  isSystem(database) ? known.systemTables : known.tables.filter((one) => one.database === database)

const resolved = (path, database) => (path.length === 1 ? [database, path[0]] : path.slice(-2))

async function columnOptions(mentioned, database) {
  const paths = new Map(mentioned.map(({ path }) => resolved(path, database)).map((path) => [path.join("\n"), path]))
  const lists = await Promise.all([...paths.values()].map(columnsOf))
  const options = new Map()
  for (const option of lists.flat().map(columnOption)) options.has(option.label) || options.set(option.label, option)
  return [...options.values()]
}

async function innerOptions(parents, mentioned, database) {
  if (parents.length > 1) return (await columnsOf(parents.slice(0, 2))).map(columnOption)
  const [parent] = parents
  const isMeant = ({ path, alias }) => [alias, path.at(-1)].some((name) => name.toLowerCase() === parent.toLowerCase())
  const options = await columnOptions(mentioned.filter(isMeant), database)
  if (options.length) return options
  const tables = tablesIn(parent).map(tableOption)
  return tables.length ? tables : (await columnsOf([database, parent])).map(columnOption)
}

async function outerOptions(tokens, mentioned, database) {
  const scopes = settingScopes(tokens)
  if (scopes) return known.settings.filter(({ scope }) => scopes.includes(scope)).map(settingOption)
  const before = tokens.at(-1)
  const names = [...tablesIn(database).map(tableOption), ...known.databases.map(databaseOption)]
  if (before?.kind === "word" && BEFORE_TABLE.has(before.text.toUpperCase())) return names
  if (before?.kind === "word" && before.text.toUpperCase() === "USE") return known.databases.map(databaseOption)
  const aliases = mentioned
    .filter(({ alias }) => alias)
    .map(({ alias }) => ({ label: alias, apply: spelled(alias), type: "variable", boost: 2 }))
  const columns = await columnOptions(mentioned, database)
  return [...columns, ...aliases, ...known.functions.map(functionOption), ...names]
}

/** A source of completions; `databaseOf()` returns the database of names without one. */
export const completions = (databaseOf) => async (context) => {
  const text = context.state.doc.toString()
  const statement = statementAt(text, context.pos)
  // Behind the end of a statement the next one begins.
  const start = statement && context.pos <= statement.end ? statement.from : (statement?.end ?? 0)
  const found = nameBefore(text.slice(start, context.pos))
  if (!found || (!found.partial && !found.parents.length && !context.explicit)) return null
  await loadWords()
  const tables = relations(text.slice(start, statement && start === statement.from ? statement.end : context.pos))
  const database = databaseOf()
  const options = found.parents.length
    ? await innerOptions(found.parents, tables, database)
    : await outerOptions(found.tokens, tables, database)
  const from = start + found.from
  if (!found.quote) return { from, options, validFor: /^[\w$]*$/ }
  // In a quoted name the quotes belong to the option; one that the editor has closed already is replaced.
  const isClosed = context.state.sliceDoc(context.pos, context.pos + 1) === found.quote
  const begun = found.partial.text.slice(1).toLowerCase()
  const names = options.filter(({ label, type }) => type !== "function" && label.toLowerCase().includes(begun))
  const quoted = names.map((option) => ({ ...option, label: named(option.label), apply: undefined }))
  return { from, to: isClosed ? context.pos + 1 : undefined, options: quoted, filter: false }
}
