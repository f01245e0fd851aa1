// What all tabs of the page share: names as links, texts that filter in SQL, estimates beside measures.

import { html, useEffect, useState } from "../../vendor/preact-htm.js"
import { tableLink } from "../../core/ui.js"

/** A value that follows another one once that has not changed for a while, as while somebody types. */
export function useSettled(value, milliseconds = 400) {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds)
    return () => clearTimeout(timer)
  }, [value, milliseconds])
  return settled
}

/** A text in a query over system tables: unlike Spark, DataFusion knows no backslashes in texts. */
export const systemText = (text) => `'${String(text).replaceAll("'", "''")}'`

/** A condition over system tables: one of the columns holds every word of the text. A backslash parts words, too. */
export const holds = (columns, text) =>
  text
    .toLowerCase()
    .split(/[\s\\]+/)
    .filter(Boolean)
    .map((word) => `(${columns.map((column) => `contains(lower(${column}), ${systemText(word)})`).join(" OR ")})`)
    .join(" AND ")

/** WHERE with those of the conditions that say something. */
export const whereAll = (...conditions) => {
  const given = conditions.filter(Boolean)
  return given.length ? `WHERE ${given.join(" AND ")}` : ""
}

/** A link to a table that is named as `database.table`. */
export const TableName = ({ name, more = "" }) => {
  const cut = String(name ?? "").indexOf(".")
  return cut < 0 ? (name ?? "") : html`<a href=${tableLink(name.slice(0, cut), name.slice(cut + 1), more)}>${name}</a>`
}

/** A measure beside what was estimated; a measure of 0 is none yet. */
export function Beside({ actual, estimate, show }) {
  const [isMeasured, isEstimated] = [Number(actual) > 0, Number(estimate) > 0]
  if (!isEstimated) return isMeasured ? show(actual) : "–"
  return isMeasured ? html`${show(actual)} <small>of ~${show(estimate)}</small>` : html`<small>~${show(estimate)}</small>`
}

export const Select = ({ label, value, options, onChange }) =>
  html`<select aria-label=${label} value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([key, words]) => html`<option key=${key} value=${key}>${words}</option>`)}
  </select>`
