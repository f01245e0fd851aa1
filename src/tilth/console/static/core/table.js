// Tables of objects, sorted by any column; long ones draw the rows that are seen. Columns of common kinds.

import { html, useMemo, useState } from "../vendor/preact-htm.js"
import { cell, count, isNone } from "./format.js"
import { TableName, nameOf } from "./names.js"
import { Badge, Empty, Time, classes } from "./ui.js"

const ROW_HEIGHT = 34
const MARGIN_ROWS = 12
const VIRTUAL_FROM = 150

const compare = (left, right) => {
  if (isNone(left) || isNone(right)) return isNone(left) - isNone(right)
  return typeof left === "number" || typeof left === "bigint"
    ? left < right ? -1 : left > right ? 1 : 0
    : String(left).localeCompare(String(right), "en", { numeric: true })
}

/** Keys of rows; a key that repeats, as of two equal lines of a log, gets a number. */
function keysOf(rows, keyOf, first) {
  const seen = new Map()
  return rows.map((row, index) => {
    const key = keyOf ? String(keyOf(row)) : String(first + index)
    const before = seen.get(key) ?? 0
    seen.set(key, before + 1)
    return before ? `${key} ${before}` : key
  })
}

/** Rows in the order of one column; missing values stay at the end in both directions. */
function inOrder(rows, column, direction) {
  if (!column) return rows
  const value = column.value ?? ((row) => row[column.key])
  const found = [...rows].sort((left, right) => compare(value(left), value(right)))
  if (direction !== "desc") return found
  return [...found.filter((row) => !isNone(value(row))).reverse(), ...found.filter((row) => isNone(value(row)))]
}

const DIRECTIONS = { asc: ["↑", "ascending"], desc: ["↓", "descending"] }

function Head({ columns, order: [key, direction = "asc"], onOrder }) {
  const next = (column) => {
    const isDown = key === column.key ? direction !== "desc" : column.align === "right"
    return [column.key, isDown ? "desc" : "asc"]
  }
  return html`<thead><tr>
    ${columns.map((column) => {
      if (!column.title) return html`<td key=${column.key}></td>`
      const [sign, words] = key === column.key ? (DIRECTIONS[direction] ?? DIRECTIONS.asc) : []
      return html`<th key=${column.key} class=${column.align ?? ""} title=${column.about} aria-sort=${words}>
        <button type="button" onClick=${() => onOrder(next(column))}>${column.title}<i aria-hidden="true">${sign}</i></button>
      </th>`
    })}
  </tr></thead>`
}

/** Part of a long list that is seen: its first and last rows, and a function for the position of the box. */
function useWindow(length, height, isLong) {
  const [top, setTop] = useState(0)
  const seen = Math.ceil(height / ROW_HEIGHT)
  if (!isLong) return [0, length]
  const first = Math.max(0, Math.min(Math.floor(top / ROW_HEIGHT), length - seen) - MARGIN_ROWS)
  return [first, Math.min(length, first + seen + 2 * MARGIN_ROWS), (event) => setTop(event.target.scrollTop)]
}

const gap = (key, columns, rows) =>
  rows > 0 &&
  html`<tr key=${key} class="gap" aria-hidden="true">
    <td colspan=${columns.length} style=${{ height: `${rows * ROW_HEIGHT}px` }}></td>
  </tr>`

/**
 * A table of objects. columns: [{key, title, about, value(row), show(row), align: "right", kind}]; `value` is what is
 * sorted, `show` what is drawn. Long tables draw the rows that are seen. `href(row)` makes the first cell a link,
 * `expand(row)` a button that opens what it returns; `order`: [key, "asc" | "desc"], kept by the page through `onOrder`.
 */
export function Table(properties) {
  const { columns, rows, keyOf, order, onOrder, href, expand, toneOf, label, empty = "Nothing.", height = 560 } = properties
  const [ownOrder, setOwnOrder] = useState(order ?? [])
  const [opened, setOpened] = useState(null)
  const [key, direction] = onOrder ? (order ?? []) : ownOrder
  const column = columns.find((each) => each.key === key)
  const sorted = useMemo(() => inOrder(rows, column, direction), [rows, column, direction])
  const isLong = sorted.length > VIRTUAL_FROM && !expand
  const [first, last, onScroll] = useWindow(sorted.length, height, isLong)
  const shown = sorted.slice(first, last)
  const keys = keysOf(shown, keyOf, first)
  if (!rows.length) return html`<${Empty}>${empty}<//>`
  const inCell = (row, id, at, content) => {
    if (at > 0) return content
    const address = href?.(row)
    if (address) return html`<a href=${address}>${content}</a>`
    if (!expand) return content
    return html`<button type="button" class="fold" aria-expanded=${opened === id}
      onClick=${() => setOpened(opened === id ? null : id)}>${content}</button>`
  }
  const lines = shown.flatMap((row, index) => {
    const id = keys[index]
    const cells = columns.map((each, at) => {
      const content = each.show ? each.show(row) : cell(row[each.key])
      return html`<td key=${each.key} class=${classes(each.align, each.kind)} data-title=${each.title}>
        ${inCell(row, id, at, content)}
      </td>`
    })
    const line = html`<tr key=${id} class=${toneOf?.(row) ?? ""} style=${isLong ? { height: `${ROW_HEIGHT}px` } : {}}>${cells}</tr>`
    if (!expand || opened !== id) return [line]
    return [line, html`<tr key=${`${id} opened`} class="opened"><td colspan=${columns.length}>${expand(row)}</td></tr>`]
  })
  return html`<div class=${classes("table-box", isLong && "long")} style=${isLong ? { maxHeight: `${height}px` } : {}}
    onScroll=${onScroll} tabindex="0" role="region" aria-label=${label}>
    <table aria-rowcount=${sorted.length}>
      <${Head} columns=${columns} order=${[key, direction]} onOrder=${onOrder ?? setOwnOrder} />
      <tbody>${gap("above", columns, first)}${lines}${gap("below", columns, sorted.length - last)}</tbody>
    </table>
  </div>`
}

// --- columns of common kinds -----------------------------------------------------------------------------------------

/** A number at the right edge; `show` writes it with its unit. */
export const numberColumn = (key, title, show = count, more = {}) => ({
  key, title, align: "right", show: (row) => show(row[key]), ...more,
})

/** The same, where 0 says nothing. */
export const someColumn = (key, title, show = count, more = {}) => ({
  key, title, align: "right", show: (row) => (Number(row[key]) ? show(row[key]) : ""), ...more,
})

/** A moment, and how long ago it was, or will be; nothing where there is none. */
export const timeColumn = (key, title, more = {}) => ({
  key, title, kind: "tight", show: (row) => row[key] && html`<${Time} at=${row[key]} />`, ...more,
})
export const ageColumn = (key, title, more = {}) => ({
  key, title, align: "right", show: (row) => row[key] && html`<${Time} at=${row[key]} relative />`, ...more,
})

/** A long text, which the pointer shows as a whole where a table cuts it. */
export const textColumn = (key, title, more = {}) => ({
  key, title, kind: "text", show: (row) => html`<span title=${row[key]}>${row[key] ?? ""}</span>`, ...more,
})

/** The same in one line, for what has more columns than a screen. */
export const lineColumn = (key, title, more = {}) => textColumn(key, title, { kind: "line", ...more })

/** A short text that does not break. */
export const wordColumn = (key, title, more = {}) => ({ key, title, kind: "tight", show: (row) => row[key] ?? "", ...more })

/** A state with its tone and its reason. */
export const stateColumn = (toneOf, { key = "state", title = "state", reason = "reason", ...more } = {}) => ({
  key, title, show: (row) => row[key] && html`<${Badge} tone=${toneOf(row[key], row)} title=${row[reason]}>${row[key]}<//>`, ...more,
})

/** The table that a row is about: a link, or the mere name in a table whose first column is a link already. */
export const tableColumn = ({ title = "table", page = "", isLink = true } = {}) => ({
  key: "table", title, kind: "tight", value: nameOf, show: (row) => (isLink ? html`<${TableName} name=${nameOf(row)} more=${page} />` : nameOf(row)),
})

/** A column of buttons, which is not sorted by anything; `labelOf(row)` names each for those who cannot see its row. */
export const buttonColumn = (words, labelOf, onClick, { isShown = () => true, key = "do" } = {}) => ({
  key, title: "", kind: "tight", value: () => 0,
  show: (row) => {
    const text = typeof words === "function" ? words(row) : words
    return isShown(row) && html`<button type="button" onClick=${() => onClick(row)} aria-label=${labelOf(row)}>${text} …</button>`
  },
})
