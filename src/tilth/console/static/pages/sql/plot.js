// A result as a plot: lines over times and numbers, bars over texts, points where both axes are numbers.

import uPlot from "../../vendor/uplot.js"
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js"
import { ZONE, cell, clock, count, day, exactly, isNone } from "../../core/format.js"
import { Empty } from "../../core/ui.js"
import { isTime, kindOf, shown } from "./types.js"

const SERIES_MAX = 12
/** Bars and texts beside each other; more rows of times or numbers are bars on a continuous axis. */
const SLOTS_MAX = 200
/** The row's number as the x axis. */
const ROW = "#"
const KINDS = ["line", "bar", "scatter"]
const COLORS = {
  light: ["#2a6a4a", "#2457a6", "#b3261e", "#8f5b00", "#6b3fa0", "#00708a", "#a03f6b", "#5a645c", "#7a8b00", "#004c99"],
  dark: ["#6fc596", "#8db6f5", "#ff8a7f", "#e0ac4d", "#c3a1f0", "#63c9de", "#f09ac0", "#aab5ac", "#c4d35a", "#7fb2e8"],
}

// --- what to plot ----------------------------------------------------------------------------------------------------

const isNumber = (column) => kindOf(column.type) === "number"
const isCategory = (column) => ["text", "flag"].includes(kindOf(column.type))

/** True if the values of a column only rise. */
function rises(rows, index) {
  let before = -Infinity
  for (const row of rows) {
    if (isNone(row[index])) continue
    const value = Number(row[index])
    if (!(value > before)) return false
    before = value
  }
  return true
}

const hasTime = (column) => isTime(kindOf(column.type))

/** Column of the x axis: the first one if it fits, else the first time, else the first text; -1: the row's number. */
function xOf(columns) {
  const numbers = columns.filter(isNumber).length
  if (hasTime(columns[0]) || isCategory(columns[0]) || (isNumber(columns[0]) && numbers > 1)) return 0
  const time = columns.findIndex(hasTime)
  return time >= 0 ? time : columns.findIndex(isCategory)
}

/** True if the result has numbers to plot. */
export const isPlottable = (columns, rows) => rows.length > 1 && columns.some(isNumber)

const indexOf = (columns, name) => columns.findIndex((column) => column.name === name)

/** The choices of the address where they fit, else those that the types suggest. */
function chosen(columns, rows, parameters) {
  const wanted = parameters.get("x")
  const found = wanted === ROW ? -1 : indexOf(columns, wanted)
  const x = wanted === ROW || found >= 0 ? found : xOf(columns)
  const named = (parameters.get("y") ?? "").split(",").map((name) => indexOf(columns, name))
  const fitting = named.filter((index) => index >= 0 && index !== x && isNumber(columns[index]))
  const numbers = columns.flatMap((column, index) => (isNumber(column) && index !== x ? [index] : []))
  const ys = (fitting.length ? fitting : numbers).slice(0, SERIES_MAX)
  const split = indexOf(columns, parameters.get("by"))
  const kinds = KINDS.filter((kind) => kind !== "scatter" || x < 0 || !isCategory(columns[x]))
  const isRising = x < 0 || (!isCategory(columns[x]) && (hasTime(columns[x]) || rises(rows, x)))
  const suggested = x >= 0 && isCategory(columns[x]) ? "bar" : isRising ? "line" : "scatter"
  const kind = kinds.includes(parameters.get("plot")) ? parameters.get("plot") : suggested
  return { x, ys, by: split >= 0 && split !== x && isCategory(columns[split]) ? split : -1, kind, kinds }
}

// --- data ------------------------------------------------------------------------------------------------------------

const numberOf = (value) => {
  const number = isNone(value) ? NaN : Number(value)
  return Number.isFinite(number) ? number : null
}

/** Seconds since 1970; dates and times without a zone are those of the user's clock. */
function secondsOf(value, kind) {
  const time = isNone(value) ? NaN : Date.parse(kind === "date" ? `${value}T00:00:00` : value)
  return Number.isNaN(time) ? null : time / 1000
}

/** Rows of each series: {label, rows, y}; one for each y, and for each value of the column that splits them. */
function seriesOf(columns, rows, { ys, by }) {
  if (by < 0) return ys.map((y) => ({ label: columns[y].name, rows, y }))
  const groups = new Map()
  for (const row of rows) {
    const name = isNone(row[by]) ? "NULL" : cell(row[by])
    groups.has(name) ? groups.get(name).push(row) : groups.set(name, [row])
  }
  return ys.flatMap((y) =>
    [...groups].map(([name, own]) => ({ label: ys.length > 1 ? `${name}: ${columns[y].name}` : name, rows: own, y })),
  )
}

/** Series over one sorted axis. Several rows of one series with the same x stay apart. */
function overNumbers(columns, rows, choice) {
  const kind = choice.x < 0 ? "row" : kindOf(columns[choice.x].type)
  const positions = new Map(rows.map((row, index) => [row, index + 1]))
  const xOfRow = (row) =>
    kind === "row" ? positions.get(row) : isTime(kind) ? secondsOf(row[choice.x], kind) : numberOf(row[choice.x])
  const all = seriesOf(columns, rows, choice)
  const points = all.slice(0, SERIES_MAX).flatMap((one, series) =>
    one.rows.map((row) => ({ x: xOfRow(row), y: numberOf(row[one.y]), series })).filter(({ x }) => x !== null),
  )
  points.sort((left, right) => left.x - right.x)
  const xs = []
  const lists = all.slice(0, SERIES_MAX).map(() => [])
  for (const { x, y, series } of points) {
    // A point joins the last x if its series has none there.
    if (xs.at(-1) !== x || lists[series][xs.length - 1] !== undefined) xs.push(x)
    lists[series][xs.length - 1] = y
  }
  lists.forEach((list) => (list.length = xs.length))
  const series = lists.map((values, index) => ({ label: all[index].label, values: Array.from(values) }))
  return { xs, series, left: all.length - series.length, isTime: isTime(kind) }
}

/** One slot for each text, at 0, 1, ..; in a bar plot the series of a slot stand beside each other. */
function overSlots(columns, rows, choice) {
  const all = seriesOf(columns, rows, choice)
  const kept = all.slice(0, SERIES_MAX)
  const kind = choice.x < 0 ? "row" : kindOf(columns[choice.x].type)
  const positions = new Map(rows.map((row, index) => [row, index]))
  const name = (row) => (kind === "row" ? String(positions.get(row) + 1) : shown(row[choice.x], kind))
  // Without a split each row has a slot, so that rows of the same text stay apart.
  const labels = choice.by < 0 ? rows.map(name) : [...new Set(rows.map(name))]
  const slots = new Map(labels.map((label, at) => [label, at]))
  const slotOf = (row) => (choice.by < 0 ? positions.get(row) : slots.get(name(row)))
  const seen = labels.slice(0, SLOTS_MAX)
  const places = choice.kind === "bar" ? kept.length : 1
  const width = 0.8 / places
  const placesAt = (at) => Array.from({ length: places }, (_, place) => at + (place - (places - 1) / 2) * width)
  const xs = seen.flatMap((_, at) => placesAt(at))
  const series = kept.map((one, index) => {
    // Undefined, unlike null, is no gap: bars are as wide as the distance to the next one of their series.
    const values = Array(xs.length).fill(undefined)
    for (const row of one.rows) {
      const slot = slotOf(row)
      if (slot < seen.length) values[slot * places + (places > 1 ? index : 0)] = numberOf(row[one.y])
    }
    return { label: one.label, values }
  })
  return { xs, series, labels: seen, width, left: all.length - kept.length, cut: labels.length - seen.length }
}

function dataOf(columns, rows, choice) {
  const isOverTexts = choice.x >= 0 && isCategory(columns[choice.x])
  const isSlotted = isOverTexts || (choice.kind === "bar" && rows.length <= SLOTS_MAX)
  const data = isSlotted ? overSlots(columns, rows, choice) : overNumbers(columns, rows, choice)
  return { ...data, hasZone: choice.x >= 0 && kindOf(columns[choice.x].type) === "time" }
}

// --- the drawing -----------------------------------------------------------------------------------------------------

/** A time in the zone of the user, as fine as the distance of two marks. */
function mark(seconds, distance) {
  const date = new Date(seconds * 1000)
  if (distance >= 86_400) return day(date)
  if (distance >= 60) return date.getHours() + date.getMinutes() === 0 ? day(date) : clock(date).slice(0, 5)
  const fraction = distance < 1 ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : ""
  return `${clock(date)}${fraction}`
}

const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 })
const shownNumber = (value) => (isNone(value) ? "–" : Math.abs(value) >= 10_000 ? count(value) : fine.format(value))
const exactNumber = (value) => (isNone(value) ? "–" : Number.isInteger(value) ? exactly(value) : fine.format(value))

const clipped = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text)

function xAxis({ labels, isTime: hasTimes }) {
  if (labels) {
    const label = (at) => (Number.isInteger(at) && labels[at] !== undefined ? clipped(labels[at], 14) : "")
    return { values: (_, splits) => splits.map(label), space: 100, incrs: [1, 2, 5, 10, 20, 50, 100] }
  }
  if (hasTimes) return { values: (_, splits, __, ___, distance) => splits.map((at) => mark(at, distance)), space: 90 }
  return { values: (_, splits) => splits.map(shownNumber), space: 70 }
}

const shownX = ({ labels, isTime: hasTimes }) => (_, value) => {
  if (isNone(value)) return "–"
  if (labels) return clipped(labels[Math.round(value)] ?? "", 60)
  return hasTimes ? `${day(new Date(value * 1000))} ${mark(value, 1)}` : exactNumber(value)
}

const LOOKS = {
  line: (color) => ({ stroke: color, width: 1.5, points: { fill: color } }),
  scatter: (color) => ({ stroke: color, paths: () => null, points: { show: true, size: 5, fill: color } }),
  bar: (color, data) => ({
    stroke: color,
    fill: `${color}b0`,
    width: 0,
    paths: uPlot.paths.bars({ size: [data.labels ? data.width : 0.8, 90] }),
    points: { show: false },
  }),
}

const padded = (_, least, most) => (isNone(least) ? [0, 1] : [least - 0.6, most + 0.6])
const fromZero = (_, least, most) =>
  isNone(least) ? [0, 1] : uPlot.rangeNum(Math.min(0, least), Math.max(0, most), 0.1, true)

function options({ data, kind, title, width, height, isDark, style }) {
  const axis = {
    stroke: style.getPropertyValue("--muted"),
    grid: { stroke: style.getPropertyValue("--line"), width: 1 },
    ticks: { stroke: style.getPropertyValue("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  }
  const colors = COLORS[isDark ? "dark" : "light"]
  return {
    width,
    height,
    cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: Boolean(data.isTime), ...(data.labels ? { range: padded } : {}) },
      y: kind === "bar" ? { range: fromZero } : {},
    },
    axes: [
      { ...axis, ...xAxis(data) },
      { ...axis, size: 64, values: (_, splits) => splits.map(shownNumber) },
    ],
    series: [
      { label: title, value: shownX(data) },
      ...data.series.map(({ label }, index) => ({
        label: clipped(label, 40),
        value: (_, value) => exactNumber(value),
        ...LOOKS[kind](colors[index % colors.length], data),
      })),
    ],
  }
}

/** Changes when the colors of the page do. */
function useColors() {
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    const observer = new MutationObserver(() => setTurn((old) => old + 1))
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] })
    return () => observer.disconnect()
  }, [])
  return turn
}

function Drawing({ data, kind, title, label }) {
  const box = useRef()
  const turn = useColors()
  useLayoutEffect(() => {
    const own = box.current
    const style = getComputedStyle(document.documentElement)
    const size = () => ({ width: own.clientWidth, height: Math.max(240, Math.min(560, innerHeight * 0.45)) })
    const isDark = style.colorScheme === "dark"
    const lists = [data.xs, ...data.series.map(({ values }) => values)]
    const plot = new uPlot(options({ data, kind, title, isDark, style, ...size() }), lists, own)
    const observer = new ResizeObserver(() => own.clientWidth !== plot.width && plot.setSize(size()))
    observer.observe(own)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [data, kind, title, turn])
  return html`<div class="sql-plot" ref=${box} role="figure" aria-label=${label}></div>`
}

// --- the choices -----------------------------------------------------------------------------------------------------

function Choices({ columns, choice, change }) {
  const name = (index) => (index < 0 ? ROW : columns[index].name)
  const categories = columns.filter((column, index) => isCategory(column) && index !== choice.x)
  const numbers = columns.flatMap((column, index) => (isNumber(column) && index !== choice.x ? [index] : []))
  const turn = (index) => {
    const next = choice.ys.includes(index) ? choice.ys.filter((one) => one !== index) : [...choice.ys, index]
    change({ y: next.sort((left, right) => left - right).map(name).join(",") })
  }
  return html`<div class="sql-tools">
    <label>plot <select value=${choice.kind} onChange=${(event) => change({ plot: event.target.value })}>
      ${choice.kinds.map((kind) => html`<option key=${kind} value=${kind}>${kind}</option>`)}
    </select></label>
    <label>x <select value=${name(choice.x)} onChange=${(event) => change({ x: event.target.value })}>
      <option value=${ROW}>number of the row</option>
      ${columns
        .filter((column) => hasTime(column) || isNumber(column) || isCategory(column))
        .map((column) => html`<option key=${column.name} value=${column.name}>${column.name}</option>`)}
    </select></label>
    ${categories.length > 0 &&
    html`<label>a series for each <select value=${choice.by < 0 ? "" : name(choice.by)}
      onChange=${(event) => change({ by: event.target.value })}>
      <option value="">–</option>
      ${categories.map((column) => html`<option key=${column.name} value=${column.name}>${column.name}</option>`)}
    </select></label>`}
    <fieldset><legend>y</legend>
      ${numbers.map(
        (index) =>
          html`<label key=${index}>
            <input type="checkbox" checked=${choice.ys.includes(index)} onChange=${() => turn(index)} /> ${name(index)}
          </label>`,
      )}
    </fieldset>
  </div>`
}

/** Choices of the plot are in the address: `plot`, `x`, `y`, `by`. */
export function Plot({ columns, rows, parameters, change }) {
  const wanted = ["plot", "x", "y", "by"].map((name) => parameters.get(name)).join("\n")
  const choice = useMemo(() => chosen(columns, rows, parameters), [columns, rows, wanted])
  const data = useMemo(() => dataOf(columns, rows, choice), [columns, rows, choice])
  const title = choice.x < 0 ? "row" : columns[choice.x].name
  const label = `${choice.kind} plot of ${choice.ys.map((y) => columns[y].name).join(", ")} by ${title}`
  return html`<div>
    <${Choices} columns=${columns} choice=${choice} change=${change} />
    ${choice.ys.length
      ? html`<${Drawing} data=${data} kind=${choice.kind} title=${title} label=${label} />`
      : html`<${Empty}>Choose a column of numbers for the y axis.<//>`}
    <p class="about">
      ${data.hasZone ? `Times in ${ZONE}. ` : ""}Drag over the plot to see a part of it, double-click to see all.
      ${data.cut > 0 && ` The first ${SLOTS_MAX} values of x are shown, ${exactly(data.cut)} are not.`}
      ${data.left > 0 && ` The first ${SERIES_MAX} series are shown, ${exactly(data.left)} are not.`}</p>
  </div>`
}
