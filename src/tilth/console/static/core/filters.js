// Texts that filter: in SQL, and in rows that are here already.

import { useEffect, useState } from "../vendor/preact-htm.js"
import { literal } from "./api.js"
import { isNone } from "./format.js"

// --- in SQL ----------------------------------------------------------------------------------------------------------

const SETTLE_MS = 300

/** The text once it has not changed for a moment, so that not each key starts a statement. */
export function useSettled(text) {
  const value = text.trim()
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLE_MS)
    return () => clearTimeout(timer)
  }, [value])
  return value === "" ? "" : settled
}

/** A text in a query over system tables, where a backslash is a letter like others; in statements `literal` is right. */
const plain = (text) => {
  const pieces = String(text).split("\\").map(literal)
  return pieces.length > 1 ? `concat(${pieces.join(", chr(92), ")})` : pieces[0]
}

const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean)

/** A condition: each word of the text is in one of the columns, in small or capital letters; nothing without a word. */
export const contains = (columns, text) =>
  wordsOf(text)
    .map((word) => `(${columns.map((column) => `contains(lower(${column}), ${plain(word)})`).join(" OR ")})`)
    .join(" AND ")

/** A condition: the column has this value, or its text begins with it; nothing for an empty one. */
export const equals = (column, value) => (isNone(value) || value === "" ? "" : `${column} = ${plain(value)}`)
export const begins = (column, text) => `starts_with(${column}, ${plain(text)})`

/** A condition: the row is about one table; `column` has its name. */
export const isOf = (database, table, column = '"table"') => `${equals("database", database)} AND ${equals(column, table)}`

/** Names of tables in two columns, as `database.table`. */
export const FULL_NAME = `concat(database, '.', "table")`

/** A WHERE clause of conditions, without those that are empty. */
export const whereAll = (...conditions) => {
  const given = conditions.filter(Boolean)
  return given.length ? `WHERE ${given.join(" AND ")}` : ""
}

// --- in rows ---------------------------------------------------------------------------------------------------------

/** A function that says whether a text has each word of the filter, in small or capital letters. */
export const fitting = (filter) => {
  const words = wordsOf(filter)
  return (text) => {
    const found = words.length ? text.toLowerCase() : ""
    return words.every((word) => found.includes(word))
  }
}
