// The rows of a result: sorted, filtered, copied. Only rows that are seen are drawn.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js"
import { fitting } from "../../core/filters.js"
import { ZONE, exactly, isNone, json } from "../../core/format.js"
import { copied, download } from "../../core/notes.js"
import { Code, Empty, SearchBy } from "../../core/ui.js"
import { csv, kindOf, raw, shown, sorted, tsv } from "./types.js"

const ROW_HEIGHT = 28
const HEAD_HEIGHT = 44
const HEIGHT_MAX = 600
const MARGIN_ROWS = 12
/** Rows that decide how wide a column is. */
const WIDTH_ROWS = 200
const [WIDTH_MIN, WIDTH_MAX] = [6, 48]
/** Width of the column of row numbers. */
const NUMBER_WIDTH = 8
/** A longer text is cut in its cell; Enter shows all of it. */
const CELL_CHARACTERS_MAX = 300

const clipped = (text) => (text.length > CELL_CHARACTERS_MAX ? text.slice(0, CELL_CHARACTERS_MAX) + "…" : text)

/** Widths in letters; rows that come into view later change none of them. */
const widthsOf = (columns, rows, isUtc) =>
  columns.map((column, index) => {
    const kind = kindOf(column.type)
    const longest = rows.slice(0, WIDTH_ROWS).reduce((most, row) => {
      const text = shown(row[index], kind, isUtc)
      return Math.max(most, Math.min(text.length, WIDTH_MAX))
    }, Math.max(column.name.length + 2, Math.min(column.type.length, 24)))
    return Math.max(WIDTH_MIN, Math.min(longest, WIDTH_MAX)) + 2
  })

/** Rows in which each word is somewhere. */
function useFiltered(rows, kinds, isUtc, filter) {
  const texts = useMemo(() => new Map(), [rows, isUtc])
  return useMemo(() => {
    if (!filter.trim()) return rows
    const fits = fitting(filter)
    const textOf = (row) => {
      let text = texts.get(row)
      if (text === undefined) {
        text = row.map((value, index) => shown(value, kinds[index], isUtc)).join("\n")
        texts.set(row, text)
      }
      return text
    }
    return rows.filter((row) => fits(textOf(row)))
  }, [rows, isUtc, filter])
}

const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-15, 0],
  PageDown: [15, 0],
}

const within = (value, most) => Math.max(0, Math.min(most, value))

/** The cell that a key moves to; undefined: the key moves nothing. */
function moved(event, [row, column], rows, columns) {
  const step = STEPS[event.key]
  if (step) return [within(row + step[0], rows - 1), within(column + step[1], columns - 1)]
  const isFar = event.ctrlKey || event.metaKey
  if (event.key === "Home") return [isFar ? 0 : row, 0]
  if (event.key === "End") return [isFar ? rows - 1 : row, columns - 1]
  return undefined
}

function CellDialog({ column, value, onClose }) {
  const dialog = useRef()
  useEffect(() => dialog.current.showModal(), [])
  const text = isNone(value) ? "NULL" : typeof value === "object" ? json(value, 2) : raw(value)
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label=${`Value of ${column.name}`}>
    <div class="sql-cell">
      <h2>${column.name} <small>${column.type}</small></h2>
      <${Code}>${text}<//>
      <footer>
        <button type="button" class="quiet" onClick=${() => copied(text, "the value")}>Copy</button>
        <button type="button" class="main" onClick=${() => dialog.current.close()}>Close</button>
      </footer>
    </div>
  </dialog>`
}

const ARROWS = { asc: "↑", desc: "↓" }

function Head({ columns, kinds, order, onOrder, isUtc }) {
  return html`<thead><tr>
    <th class="number" scope="col"><span class="hidden">row</span></th>
    ${columns.map((column, index) => {
      const isOrdered = order.index === index
      const next = !isOrdered ? "asc" : order.direction === "asc" ? "desc" : null
      const zone = kinds[index] === "time" ? ` · ${isUtc ? "UTC" : ZONE}` : ""
      return html`<th key=${index} scope="col" class=${kinds[index] === "number" ? "right" : ""}
        aria-sort=${isOrdered ? `${order.direction}ending` : undefined}>
        <button type="button" title=${`${column.name}: ${column.type}`}
          onClick=${() => onOrder(next && [column.name, next])}>
          ${column.name}<i aria-hidden="true">${isOrdered ? ARROWS[order.direction] : ""}</i>
          <small>${column.type}${zone}</small>
        </button>
      </th>`
    })}
  </tr></thead>`
}

/** Rows first to last of a long list, between two gaps. */
function Body({ rows, kinds, isUtc, first, last, chosen, onChoose, onOpen, id }) {
  const span = kinds.length + 1
  const gap = (height) =>
    height > 0 &&
    html`<tr class="gap" aria-hidden="true"><td colspan=${span} style=${{ height: `${height}px` }}></td></tr>`
  return html`<tbody>
    ${gap(first * ROW_HEIGHT)}
    ${rows.slice(first, last).map((row, offset) => {
      const at = first + offset
      return html`<tr key=${at} aria-rowindex=${at + 2} style=${{ height: `${ROW_HEIGHT}px` }}>
        <th scope="row" class="number">${exactly(at + 1)}</th>
        ${row.map((value, index) => {
          const isChosen = chosen[0] === at && chosen[1] === index
          const text = shown(value, kinds[index], isUtc)
          const title = text.length > 24 || kinds[index] === "time" ? clipped(raw(value)) : undefined
          const tone = isNone(value) ? "null" : kinds[index] === "number" ? "right" : ""
          return html`<td key=${index} id=${isChosen ? id : undefined} class=${`${tone} ${isChosen ? "chosen" : ""}`}
            aria-selected=${isChosen ? "true" : undefined} title=${title}
            onClick=${() => onChoose([at, index])} onDblClick=${() => onOpen([at, index])}>${clipped(text)}</td>`
        })}
      </tr>`
    })}
    ${gap((rows.length - last) * ROW_HEIGHT)}
  </tbody>`
}

/** The position of the scrolled box, and a function that brings a cell into it. */
function useWindow(rows, chosen, id) {
  const box = useRef()
  const [top, setTop] = useState(0)
  const shownRows = Math.ceil(HEIGHT_MAX / ROW_HEIGHT)
  const first = Math.max(0, Math.min(Math.floor(top / ROW_HEIGHT), rows - shownRows) - MARGIN_ROWS)
  const last = Math.min(rows, first + shownRows + 2 * MARGIN_ROWS)
  useLayoutEffect(() => {
    const own = box.current
    if (!own || chosen[0] < 0) return
    const at = chosen[0] * ROW_HEIGHT
    if (at < own.scrollTop) own.scrollTop = at
    const lowest = own.clientHeight - HEAD_HEIGHT - ROW_HEIGHT
    if (at > own.scrollTop + lowest) own.scrollTop = at - lowest
    const cell = own.querySelector(`#${id}`)
    if (!cell) return
    const numbers = own.querySelector("tbody th")?.offsetWidth ?? 0
    if (cell.offsetLeft - numbers < own.scrollLeft) own.scrollLeft = cell.offsetLeft - numbers
    const right = cell.offsetLeft + cell.offsetWidth
    if (right > own.scrollLeft + own.clientWidth) own.scrollLeft = right - own.clientWidth
  }, [chosen])
  return { box, first, last, onScroll: (event) => setTop(event.target.scrollTop) }
}

function Tools({ columns, rows, chosen, filtered, isUtc, hasTimes, parameters, change }) {
  const [at, index] = chosen
  const row = filtered[at]
  const names = columns.map((column) => column.name)
  const save = () => download("result.csv", csv(columns, filtered), "text/csv;charset=utf-8")
  const all = exactly(rows.length)
  const counted = filtered.length === rows.length ? all : `${exactly(filtered.length)} of ${all}`
  const [cellText, rowText] = row ? [() => raw(row[index]), () => tsv(names, [row])] : []
  return html`<div class="sql-tools">
    <${SearchBy} name="filter" label="Filter rows" parameters=${parameters} change=${change} />
    <small role="status">${counted} ${rows.length === 1 ? "row" : "rows"}</small>
    ${hasTimes &&
    html`<label>times in <select value=${isUtc ? "utc" : ""}
      onChange=${(event) => change({ times: event.target.value })}>
      <option value="">${ZONE}</option><option value="utc">UTC</option>
    </select></label>`}
    <span class="grow"></span>
    <button type="button" disabled=${!row} onClick=${() => copied(cellText(), "the cell")}>Copy cell</button>
    <button type="button" disabled=${!row} onClick=${() => copied(rowText(), "the row with its head")}>Copy row</button>
    <button type="button" disabled=${!filtered.length}
      onClick=${() => copied(tsv(names, filtered), `${exactly(filtered.length)} rows, with tabs between values`)}>
      Copy all
    </button>
    <button type="button" onClick=${save}>Download CSV</button>
  </div>`
}

let grids = 0

/** columns: [{name, type}], rows: lists of values; order, filter and zone are in the address. */
export function Grid({ columns, rows, parameters, change }) {
  const [id] = useState(() => `grid-cell-${(grids += 1)}`)
  const [chosen, setChosen] = useState([-1, 0])
  const [opened, setOpened] = useState(null)
  const isUtc = parameters.get("times") === "utc"
  const filter = parameters.get("filter") ?? ""
  const kinds = useMemo(() => columns.map((column) => kindOf(column.type)), [columns])
  const [, name, direction] = /^(.*)\.(asc|desc)$/.exec(parameters.get("order") ?? "") ?? []
  const order = { index: columns.findIndex((column) => column.name === name), direction }
  const filtered = useFiltered(rows, kinds, isUtc, filter)
  const ordered = useMemo(
    () => (order.index < 0 ? filtered : sorted(filtered, order.index, kinds[order.index], direction)),
    [filtered, order.index, direction],
  )
  const widths = useMemo(() => [NUMBER_WIDTH, ...widthsOf(columns, rows, isUtc)], [columns, rows, isUtc])
  const { box, first, last, onScroll } = useWindow(ordered.length, chosen, id)
  useEffect(() => setChosen([-1, 0]), [ordered])
  const press = (event) => {
    const next = moved(event, [Math.max(0, chosen[0]), chosen[1]], ordered.length, columns.length)
    if (next && ordered.length) {
      event.preventDefault()
      setChosen(chosen[0] < 0 ? [0, 0] : next)
    } else if (event.key === "Enter" && event.target === event.currentTarget && ordered[chosen[0]]) setOpened(chosen)
    else if (event.key === "c" && (event.ctrlKey || event.metaKey) && ordered[chosen[0]] && !String(getSelection())) {
      event.preventDefault()
      copied(raw(ordered[chosen[0]][chosen[1]]), "the cell")
    }
  }
  const tools = { columns, rows, chosen, filtered: ordered, isUtc, hasTimes: kinds.includes("time"), parameters, change }
  return html`<div>
    <${Tools} ...${tools} />
    <div class="sql-grid" ref=${box} onScroll=${onScroll} style=${{ maxHeight: `${HEIGHT_MAX}px` }}>
      <table role="grid" tabindex="0" aria-label="Rows of the result"
        aria-rowcount=${ordered.length + 1} aria-colcount=${columns.length + 1}
        aria-activedescendant=${chosen[0] >= 0 ? id : undefined} onKeyDown=${press}
        style=${{ width: `${widths.reduce((sum, width) => sum + width)}ch` }}>
        <colgroup>
          ${widths.map((width, index) => html`<col key=${index} style=${{ width: `${width}ch` }} />`)}
        </colgroup>
        <${Head} columns=${columns} kinds=${kinds} order=${order} isUtc=${isUtc}
          onOrder=${(next) => change({ order: next ? next.join(".") : null })} />
        <${Body} rows=${ordered} kinds=${kinds} isUtc=${isUtc} first=${first} last=${last} chosen=${chosen}
          onChoose=${setChosen} onOpen=${setOpened} id=${id} />
      </table>
    </div>
    ${!ordered.length && html`<${Empty}>${rows.length ? "No row fits the filter." : "No rows."}<//>`}
    ${opened &&
    html`<${CellDialog} column=${columns[opened[1]]} value=${ordered[opened[0]]?.[opened[1]]}
      onClose=${() => setOpened(null)} />`}
  </div>`
}
