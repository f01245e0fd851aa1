// Components that all pages share.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js"
import { ago, cell, fullTime, isNone, time } from "./format.js"
import { link, run, serverNow } from "./api.js"

const classes = (...names) => names.filter(Boolean).join(" ")

/** Draw again every so many seconds, for ages. */
export function useTick(every = 1) {
  const [, setTurn] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((turn) => turn + 1), every * 1000)
    return () => clearInterval(timer)
  }, [every])
}

export function useLink() {
  const [state, setState] = useState(link.state)
  useEffect(() => {
    link.listeners.add(setState)
    return () => link.listeners.delete(setState)
  }, [])
  return state
}

/** Values of the address behind `?`, and a function that changes some of them; null removes one. */
export function useParameters(route) {
  const change = (values) => {
    const next = new URLSearchParams(route.parameters)
    for (const [name, value] of Object.entries(values))
      isNone(value) || value === "" ? next.delete(name) : next.set(name, value)
    const text = next.toString()
    history.replaceState(null, "", `#/${route.path.map(encodeURIComponent).join("/")}${text ? "?" + text : ""}`)
    dispatchEvent(new HashChangeEvent("hashchange"))
  }
  return [route.parameters, change]
}

export const tableLink = (database, table, more = "") =>
  `#/table/${encodeURIComponent(database)}/${encodeURIComponent(table)}${more}`

// --- small things ----------------------------------------------------------------------------------------------------

/** Tones: "good", "warn", "bad", "busy", "" (neutral). A sign stands beside the color, for who cannot see it. */
const SIGNS = { good: "●", warn: "▲", bad: "■", busy: "◐", "": "○" }

export const Badge = ({ tone = "", children, title }) =>
  html`<span class=${classes("badge", tone)} title=${title}><i aria-hidden="true">${SIGNS[tone]}</i>${children}</span>`

export const toneOfState = (state) =>
  ({ running: "busy", idle: "good", ok: "good", waiting: "", stopped: "warn", failed: "bad" })[state] ?? ""

export const Time = ({ at, relative = false }) =>
  html`<time datetime=${at ?? ""} title=${fullTime(at)}>${relative ? ago(at, serverNow()) : time(at, serverNow())}</time>`

export const Card = ({ title, about, actions, tone, wide, children, id }) =>
  html`<section class=${classes("card", tone, wide && "wide")} id=${id}>
    ${(title || actions) &&
    html`<header><h2>${title}</h2>${about && html`<p class="about">${about}</p>`}<div class="actions">${actions}</div></header>`}
    ${children}
  </section>`

/** One number with its unit, what it is, and a line below. */
export const Figure = ({ label, value, below, tone, href, children }) =>
  html`<${href ? "a" : "div"} class=${classes("figure", tone)} href=${href}>
    <span class="label">${label}</span><span class="value">${value}</span>
    ${below && html`<span class="below">${below}</span>`}${children}
  </${href ? "a" : "div"}>`

/** A part of a whole; `tone` when it is too much. */
export const Bar = ({ part, tone = "", title }) =>
  html`<span class=${classes("bar", tone)} title=${title} role="img" aria-label=${title}>
    <i style=${{ width: `${Math.max(0, Math.min(1, part || 0)) * 100}%` }}></i>
  </span>`

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`

export const Waiting = () => html`<p class="empty" role="status">Loading …</p>`

/** An error as the server tells it: what happened, and what to do. */
export const Failure = ({ error }) =>
  error &&
  html`<div class="failure" role="alert">
    <strong>${error.message}</strong>${error.hint && html`<p>${error.hint}</p>`}
    <small>${error.code}${error.id ? html` · ${error.id}` : ""}</small>
  </div>`

export const Copy = ({ text, label = "Copy" }) => {
  const [done, setDone] = useState(false)
  const copy = async () => {
    await navigator.clipboard.writeText(text)
    setDone(true)
    setTimeout(() => setDone(false), 1500)
  }
  return html`<button class="quiet" onClick=${copy} type="button">${done ? "Copied" : label}</button>`
}

export const Code = ({ children }) => html`<pre class="code" tabindex="0"><code>${children}</code></pre>`

export const Tabs = ({ tabs, current, onChange, label }) =>
  html`<div class="tabs" role="tablist" aria-label=${label}>
    ${tabs.map(
      ([key, title, number]) =>
        html`<button key=${key} role="tab" type="button" aria-selected=${key === current} onClick=${() => onChange(key)}>
          ${title}${!isNone(number) && html`<small>${number}</small>`}
        </button>`,
    )}
  </div>`

// --- asking and doing ------------------------------------------------------------------------------------------------

const notes = new Set()
/** Show a note for a few seconds: what was done, or the error. */
export const note = (text, tone = "good") => notes.forEach((each) => each({ text, tone, key: Math.random() }))

export function Notes() {
  const [shown, setShown] = useState([])
  useEffect(() => {
    const add = (one) => {
      setShown((old) => [...old.slice(-3), one])
      setTimeout(() => setShown((old) => old.filter((each) => each !== one)), one.tone === "bad" ? 12_000 : 5_000)
    }
    notes.add(add)
    return () => notes.delete(add)
  }, [])
  return html`<div class="notes" aria-live="polite">
    ${shown.map((one) => html`<div key=${one.key} class=${classes("note", one.tone)}>${one.text}</div>`)}
  </div>`
}

export const noteError = (error) => note(`${error.message}${error.hint ? ` (${error.hint})` : ""}`, "bad")

/**
 * A dialog that shows the statement before it runs. `statement(values)` makes it from the fields
 * [{name, label, type, value, hint}].
 */
export function StatementDialog({ title, about, fields = [], statement, action = "Run", danger, onClose, onDone }) {
  const dialog = useRef()
  const [values, setValues] = useState(Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""])))
  const [state, setState] = useState({})
  useEffect(() => dialog.current.showModal(), [])
  const text = statement(values)
  const submit = async (event) => {
    event.preventDefault()
    setState({ isRunning: true })
    try {
      const answer = await run(text)
      note(answer.summary?.message || "done")
      onDone?.(answer)
      onClose()
    } catch (error) {
      setState({ error })
    }
  }
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label=${title}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${about && html`<p class="about">${about}</p>`}
      ${fields.map(
        (field) =>
          html`<label key=${field.name}>${field.label}
            ${field.options
              ? html`<select value=${values[field.name]} onChange=${(event) => setValues({ ...values, [field.name]: event.target.value })}>
                  ${field.options.map(([value, shown]) => html`<option value=${value}>${shown}</option>`)}
                </select>`
              : html`<input type=${field.type ?? "text"} value=${values[field.name]} placeholder=${field.hint ?? ""}
                  onInput=${(event) => setValues({ ...values, [field.name]: event.target.value })} />`}
          </label>`,
      )}
      <${Code}>${text}<//>
      <${Failure} error=${state.error} />
      <footer>
        <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${danger ? "danger" : "main"} disabled=${state.isRunning}>${action}</button>
      </footer>
    </form>
  </dialog>`
}

// --- tables ----------------------------------------------------------------------------------------------------------

const ROW_HEIGHT = 34
const MARGIN_ROWS = 12
const VIRTUAL_FROM = 150

const compare = (left, right) => {
  if (isNone(left) || isNone(right)) return isNone(left) - isNone(right)
  return typeof left === "number" || typeof left === "bigint"
    ? left < right ? -1 : left > right ? 1 : 0
    : String(left).localeCompare(String(right), "en", { numeric: true })
}

/**
 * A table of objects. columns: [{key, title, about, value(row), show(row), align: "right", width}]; `value` is what is
 * sorted, `show` what is drawn. Long tables draw the rows that are seen. `onRow(row)` makes rows clickable, `href(row)`
 * makes the first cell a link; `order`: [key, "asc" | "desc"], kept by the page through `onOrder`.
 */
export function Table({ columns, rows, keyOf, order, onOrder, href, empty = "Nothing.", toneOf, label, height = 560, expand }) {
  const [ownOrder, setOwnOrder] = useState(order ?? [])
  const [key, direction] = onOrder ? (order ?? []) : ownOrder
  const [opened, setOpened] = useState(null)
  const sorted = useMemo(() => {
    const column = columns.find((each) => each.key === key)
    if (!column) return rows
    const value = column.value ?? ((row) => row[column.key])
    const found = [...rows].sort((left, right) => compare(value(left), value(right)))
    // Missing values stay at the end in both directions.
    if (direction !== "desc") return found
    const known = found.filter((row) => !isNone(value(row)))
    return [...known.reverse(), ...found.filter((row) => isNone(value(row)))]
  }, [rows, key, direction, columns])
  const sortBy = (column) => {
    const next = [column.key, key === column.key && direction !== "desc" ? "desc" : key === column.key ? "asc" : column.align === "right" ? "desc" : "asc"]
    onOrder ? onOrder(next) : setOwnOrder(next)
  }
  const box = useRef()
  const [top, setTop] = useState(0)
  const isLong = sorted.length > VIRTUAL_FROM && !expand
  const first = isLong ? Math.max(0, Math.floor(top / ROW_HEIGHT) - MARGIN_ROWS) : 0
  const last = isLong ? Math.min(sorted.length, first + Math.ceil(height / ROW_HEIGHT) + 2 * MARGIN_ROWS) : sorted.length
  const shown = sorted.slice(first, last)
  if (!rows.length) return html`<${Empty}>${empty}<//>`
  return html`<div class=${classes("table-box", isLong && "long")} ref=${box} style=${isLong ? { maxHeight: `${height}px` } : {}}
    onScroll=${isLong ? (event) => setTop(event.target.scrollTop) : undefined} tabindex="0" role="region" aria-label=${label ?? "table"}>
    <table aria-rowcount=${sorted.length}>
      <thead><tr>
        ${columns.map(
          (column) =>
            !column.title
            ? html`<td key=${column.key}></td>`
            : html`<th key=${column.key} class=${column.align ?? ""} title=${column.about} aria-sort=${key === column.key ? (direction === "desc" ? "descending" : "ascending") : undefined}>
              <button type="button" onClick=${() => sortBy(column)}>${column.title}<i aria-hidden="true">${key === column.key ? (direction === "desc" ? "↓" : "↑") : ""}</i></button>
            </th>`,
        )}
      </tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="gap" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${first * ROW_HEIGHT}px` }}></td></tr>`}
        ${shown.map((row, index) => {
          const id = keyOf ? keyOf(row) : first + index
          const cells = columns.map((column, at) => {
            const content = column.show ? column.show(row) : cell(row[column.key])
            return html`<td key=${column.key} class=${classes(column.align, column.kind)} data-title=${column.title}>
              ${at === 0 && href ? html`<a href=${href(row)}>${content}</a>` : at === 0 && expand
                ? html`<button type="button" class="fold" aria-expanded=${opened === id} onClick=${() => setOpened(opened === id ? null : id)}>${content}</button>`
                : content}
            </td>`
          })
          return html`<tr key=${id} class=${toneOf?.(row) ?? ""} style=${isLong ? { height: `${ROW_HEIGHT}px` } : {}}>${cells}</tr>
            ${expand && opened === id && html`<tr class="opened"><td colspan=${columns.length}>${expand(row)}</td></tr>`}`
        })}
        ${last < sorted.length && html`<tr class="gap" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${(sorted.length - last) * ROW_HEIGHT}px` }}></td></tr>`}
      </tbody>
    </table>
  </div>`
}

/** A field that filters what is below it. */
export const Search = ({ value, onChange, label }) =>
  html`<input class="search" type="search" value=${value} aria-label=${label} placeholder=${label}
    onInput=${(event) => onChange(event.target.value)} />`

/** A line of small bars or a line plot of numbers, without axes. */
export function Sparkline({ values, label, width = 120, height = 28 }) {
  const canvas = useRef()
  useLayoutEffect(() => {
    const scale = devicePixelRatio || 1
    const own = canvas.current
    own.width = width * scale
    own.height = height * scale
    const pen = own.getContext("2d")
    pen.scale(scale, scale)
    pen.clearRect(0, 0, width, height)
    const known = values.filter((value) => !isNone(value))
    if (known.length < 2) return
    const most = Math.max(...known, 1e-9)
    pen.beginPath()
    values.forEach((value, index) => {
      const x = (index / (values.length - 1)) * (width - 2) + 1
      const y = height - 2 - ((value ?? 0) / most) * (height - 4)
      index ? pen.lineTo(x, y) : pen.moveTo(x, y)
    })
    const style = getComputedStyle(own)
    pen.strokeStyle = style.getPropertyValue("--accent")
    pen.lineWidth = 1.5
    pen.stroke()
    pen.lineTo(width - 1, height)
    pen.lineTo(1, height)
    pen.fillStyle = style.getPropertyValue("--accent-soft")
    pen.fill()
  })
  return html`<canvas class="spark" ref=${canvas} style=${{ width: `${width}px`, height: `${height}px` }} role="img" aria-label=${label}></canvas>`
}
