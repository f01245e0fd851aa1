// Names of tables, and links to what has a page.

import { html } from "../vendor/preact-htm.js"

/** `database.table` of a row about a table. */
export const nameOf = (row) => `${row.database}.${row.table ?? row.name}`

/** `database.table` as a pair; a name alone is of the default database. */
export const nameParts = (text) => {
  const dot = text.indexOf(".")
  return dot < 0 ? ["default", text] : [text.slice(0, dot), text.slice(dot + 1)]
}

const pathOf = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`

export const tableLink = (database, table, more = "") => pathOf("table", database, table) + more
export const streamLink = (database, table, more = "") => pathOf("stream", database, table) + more

/** A statement in the editor. */
export const sqlLink = (text, database = "default") =>
  `#/sql?${new URLSearchParams({ q: text, ...(database && database !== "default" ? { db: database } : {}) })}`

/** A link to a table that is named as `database.table`; other texts are no links. */
export const TableName = ({ name, more = "" }) =>
  String(name ?? "").includes(".") ? html`<a href=${tableLink(...nameParts(name), more)}>${name}</a>` : (name ?? "")
