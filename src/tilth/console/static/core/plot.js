// Lines over time, with the values under the pointer.

import uPlot from "../vendor/uplot.js"
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js"
import { bytes, count, time } from "./format.js"

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
const clock = (second) => time(new Date(second * 1000).toISOString())

/** Distances of the lines of the grid: whole numbers, as labels have no fractions. */
const STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat()
const STEPS_OF_BYTES = Array.from({ length: 52 }, (_, power) => 2 ** power)

const optionsOf = ({ series, show, isStepped }, width, height, onCursor) => ({
  width,
  height,
  legend: { show: false },
  cursor: { y: false, drag: { x: false, y: false } },
  scales: { y: { range: (_, low, high) => [0, Math.max(1, (high ?? 0) * 1.1)] } },
  axes: [
    { values: (_, splits) => splits.map(clock), space: 90, size: 30 },
    { values: (_, splits) => splits.map(show), size: 76, incrs: show === bytes ? STEPS_OF_BYTES : STEPS },
  ].map((axis) => ({
    ...axis,
    stroke: () => color("--muted"),
    grid: { stroke: () => color("--line"), width: 1 },
    ticks: { stroke: () => color("--line"), width: 1 },
  })),
  series: [
    {},
    ...series.map((each) => ({
      label: each.label,
      stroke: () => color(each.color),
      width: 1.5,
      dash: each.dash,
      spanGaps: true,
      points: { show: false },
      ...(isStepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
    })),
  ],
  hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
})

/**
 * Lines over time. data: [seconds since 1970, values of the first line, ..]; series: [{label, color, dash}];
 * `show` writes a value with its unit.
 */
export function Plot({ label, series, data, show = count, height = 170, isStepped = false }) {
  const box = useRef()
  const plot = useRef()
  const [at, setAt] = useState(null)
  useEffect(() => {
    const width = box.current.clientWidth
    plot.current = new uPlot(optionsOf({ series, show, isStepped }, width, height, setAt), data, box.current)
    const resize = () => plot.current?.setSize({ width: Math.max(120, box.current.clientWidth), height })
    const observer = new ResizeObserver(resize)
    observer.observe(box.current)
    return () => {
      observer.disconnect()
      plot.current.destroy()
      plot.current = undefined
    }
  }, [label])
  useEffect(() => void plot.current?.setData(data), [data])
  const shown = at === null || at >= data[0].length ? data[0].length - 1 : at
  const values = series.map((each, index) => `${each.label} ${show(data[index + 1][shown] ?? null)}`)
  return html`<figure class="plot">
    <figcaption>
      ${series.map(
        (each, index) =>
          html`<span key=${each.label} class=${`line ${each.color.slice(2)} ${each.dash ? "dashed" : ""}`}>${values[index]}</span>`,
      )}
      <small>${shown >= 0 ? clock(data[0][shown]) : ""}</small>
    </figcaption>
    <div ref=${box} role="img" aria-label=${`${label}: ${values.join(", ")}`}></div>
  </figure>`
}
