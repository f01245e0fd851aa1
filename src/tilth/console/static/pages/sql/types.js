// Values of results by their types: as they are shown, sorted, copied and written to files. Pure.

import { cell, clock, day, isNone } from "../../core/format.js"

const KINDS = [
  [/^(tinyint|smallint|int|integer|bigint|float|double|decimal)\b/, "number"],
  [/^timestamp_ntz\b/, "local"],
  [/^timestamp\b/, "time"],
  [/^date\b/, "date"],
  [/^boolean\b/, "flag"],
  [/^(array|map|struct|list)\b/, "nested"],
  [/^binary\b/, "bytes"],
]

/** "number", "time" (an instant), "local" (a time without a zone), "date", "flag", "nested", "bytes" or "text". */
export const kindOf = (type) => KINDS.find(([pattern]) => pattern.test(type.toLowerCase()))?.[1] ?? "text"

export const isTime = (kind) => kind === "time" || kind === "local" || kind === "date"

/** "2026-01-05 10:00:00.123" in the zone of the user, with all digits that the server sent. */
function localTime(text) {
  const date = new Date(text)
  if (Number.isNaN(date.getTime())) return text
  return `${day(date)} ${clock(date)}${/\.\d+/.exec(text)?.[0] ?? ""}`
}

/** A value as it is shown; `isUtc`: instants as the server has them. */
export function shown(value, kind, isUtc = false) {
  if (isNone(value)) return "NULL"
  if (kind === "time") return isUtc ? String(value).replace("T", " ") : localTime(String(value))
  if (kind === "local") return String(value).replace("T", " ")
  return cell(value)
}

// --- order -----------------------------------------------------------------------------------------------------------

const collator = new Intl.Collator("en", { numeric: true })

const numbers = (left, right) => {
  const [low, high] = [Number(left), Number(right)]
  if (Number.isNaN(low) || Number.isNaN(high)) return Number.isNaN(low) - Number.isNaN(high)
  // Numbers of many digits may be equal as floats and differ as texts.
  return low < high ? -1 : low > high ? 1 : typeof left === "string" ? collator.compare(left, right) : 0
}

const texts = (left, right) => (left < right ? -1 : left > right ? 1 : 0)

const compareOf = (kind) =>
  kind === "number" ? numbers : kind === "text" ? collator.compare : (left, right) => texts(cell(left), cell(right))

/** Rows by one of their columns; missing values stay at the end in both directions. */
export function sorted(rows, index, kind, direction) {
  const known = rows.filter((row) => !isNone(row[index]))
  const compare = compareOf(kind)
  known.sort((left, right) => compare(left[index], right[index]))
  if (direction === "desc") known.reverse()
  return [...known, ...rows.filter((row) => isNone(row[index]))]
}

// --- texts for elsewhere ---------------------------------------------------------------------------------------------

/** A value as it was sent: times in UTC with all digits, nothing for NULL. */
export const raw = (value) => cell(value)

const quoted = (text) => `"${text.replaceAll('"', '""')}"`

const tsvField = (text) => (/[\t\n\r"]/.test(text) ? quoted(text) : text)

/** Tab-separated values, which spreadsheets take from the clipboard. */
export const tsv = (names, rows) =>
  [names, ...rows].map((row) => row.map((value) => tsvField(raw(value))).join("\t")).join("\n")

const FLOATS = { NaN: "nan", Infinity: "inf", "-Infinity": "-inf" }

const csvField = (value, kind) => {
  if (isNone(value)) return "\\N"
  const text = raw(value)
  if (kind === "number") return FLOATS[text] ?? text
  return text === "" || text === "\\N" || /[",\n\r]/.test(text) ? quoted(text) : text
}

/** The format CSVWithNames, as the server writes it and INSERT reads it. */
export function csv(columns, rows) {
  const kinds = columns.map((column) => kindOf(column.type))
  const names = columns.map((column) => csvField(column.name, "text")).join(",")
  const line = (row) => row.map((value, index) => csvField(value, kinds[index])).join(",")
  return [names, ...rows.map(line), ""].join("\n")
}
