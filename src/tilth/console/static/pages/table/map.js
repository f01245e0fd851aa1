// Parts as rectangles on a canvas: one band for each partition, the width of a part by its size, its age or its keys.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js"
import { bytes, count, fullTime } from "../../core/format.js"
import { Empty, Facts } from "../../core/ui.js"

const BAND_MIN = 26
const LABEL_WIDTH = 150
const PAD = 6
const BRACKET = 7
const LANE = 11
const LANES_MAX = 14
const HEIGHT_MAX = 640

export const LAYOUTS = {
  size: ["Size", "Width by bytes, in the order of their inserts"],
  age: ["Age", "From the first to the last insert in it"],
  keys: ["Key range", "From the smallest to the largest first key"],
}

const rangeOf = (part, column) => {
  try {
    const [low, high] = JSON.parse(part.ranges)[column] ?? []
    const numbers = [low, high].map((value) => (typeof value === "number" ? value : Date.parse(value)))
    return numbers.every(Number.isFinite) ? numbers : null
  } catch {
    return null
  }
}

/** Start and end of each part on a common axis; null where it is not known. */
const spans = (parts, layout, column) => {
  if (layout === "age") return parts.map((part) => [Date.parse(part.first_insert), Date.parse(part.last_insert)])
  if (layout === "keys") return parts.map((part) => rangeOf(part, column))
  let at = 0
  return parts.map((part) => [at, (at += Math.max(1, Number(part.bytes)))])
}

/** The first lane of a band in which nothing overlaps, for each part. */
function lanesOf(boxes) {
  const ends = []
  return boxes.map(([left, right]) => {
    let lane = ends.findIndex((end) => end <= left)
    if (lane < 0) lane = Math.min(ends.length, LANES_MAX - 1)
    ends[lane] = Math.max(right + 1, ends[lane] ?? 0)
    return lane
  })
}

/** Places everything once; drawing and pointing read the result. */
function placed(partitions, candidates, layout, column, width) {
  const inner = Math.max(80, width - LABEL_WIDTH - PAD)
  const all = partitions.map(([, parts]) => spans(parts, layout, column))
  const known = all.flat().filter(Boolean)
  const isCommon = layout !== "size"
  const [low, high] = isCommon
    ? known.reduce(([first, last], [from, to]) => [Math.min(first, from), Math.max(last, to)], [Infinity, -Infinity])
    : [0, Math.max(1, ...all.map((each) => each.at(-1)?.[1] ?? 0))]
  const scale = inner / Math.max(1e-9, high - low)
  const boxes = []
  const bands = []
  const brackets = []
  let top = PAD
  partitions.forEach(([partition, parts], index) => {
    const mine = all[index].map((span) =>
      span ? [LABEL_WIDTH + (span[0] - low) * scale, LABEL_WIDTH + Math.max((span[1] - low) * scale, (span[0] - low) * scale + 2)] : null,
    )
    const shown = parts.map((part, at) => ({ part, box: mine[at] })).filter((each) => each.box)
    const lanes = isCommon ? lanesOf(shown.map((each) => each.box)) : shown.map(() => 0)
    const laneHeight = isCommon ? LANE : BAND_MIN - 8
    const height = Math.max(BAND_MIN, (Math.max(0, ...lanes) + 1) * laneHeight + 6)
    bands.push({ partition, parts, top, height })
    shown.forEach(({ part, box }, at) =>
      boxes.push({ part, left: box[0], width: Math.max(1, box[1] - box[0] - 1), top: top + lanes[at] * laneHeight, height: laneHeight - 2 }),
    )
    const byName = new Map(shown.map(({ part, box }) => [part.name, box]))
    const before = brackets.length
    for (const candidate of candidates.filter((each) => each.partition === partition)) {
      const first = byName.get(candidate.first_part)
      const last = byName.get(candidate.last_part)
      if (first && last)
        brackets.push({ candidate, left: Math.min(first[0], last[0]), right: Math.max(first[1], last[1]), top: top + height - 5 })
    }
    top += height + (brackets.length > before ? BRACKET : 4)
  })
  return { boxes, bands, brackets, height: top + PAD, low, high }
}

const HUES = [205, 165, 130, 95, 60, 35, 15, 345]
const colorOf = (level, isDark) => `hsl(${HUES[Math.min(level, HUES.length - 1)]} ${isDark ? "42% 52%" : "48% 46%"})`

function draw(canvas, places, width, chosen) {
  const scale = devicePixelRatio || 1
  canvas.width = width * scale
  canvas.height = places.height * scale
  const pen = canvas.getContext("2d")
  pen.scale(scale, scale)
  const style = getComputedStyle(canvas)
  const color = (name) => style.getPropertyValue(name).trim()
  const isDark = style.colorScheme === "dark"
  pen.font = `12px ${style.fontFamily}`
  pen.textBaseline = "middle"
  for (const band of places.bands) {
    pen.fillStyle = color("--muted")
    const text = band.partition === "all" ? "all rows" : band.partition
    pen.fillText(text.length > 20 ? `${text.slice(0, 19)}…` : text, 2, band.top + 9, LABEL_WIDTH - 10)
    pen.fillStyle = color("--line")
    pen.fillRect(0, band.top + band.height + 1, width, 1)
  }
  for (const box of places.boxes) {
    pen.fillStyle = box.part.damaged ? color("--bad") : colorOf(Number(box.part.level), isDark)
    pen.fillRect(box.left, box.top, box.width, box.height)
    const gone = Number(box.part.deleted_rows) / Math.max(1, Number(box.part.rows) + Number(box.part.deleted_rows))
    if (gone > 0) {
      pen.fillStyle = color("--bg")
      pen.fillRect(box.left, box.top, box.width, Math.max(1, box.height * gone))
    }
    if (box.part === chosen?.part) {
      pen.strokeStyle = color("--text")
      pen.lineWidth = 2
      pen.strokeRect(box.left - 1, box.top - 1, box.width + 2, box.height + 2)
    }
  }
  for (const bracket of places.brackets) {
    pen.fillStyle = bracket.candidate.allowed ? color("--good") : color("--warn")
    pen.fillRect(bracket.left, bracket.top, Math.max(2, bracket.right - bracket.left), 3)
  }
}

const factsOf = (part, candidates) => [
  ["part", html`<span class="mono">${part.name}</span>`],
  ["rows", `${count(part.rows)}${Number(part.deleted_rows) ? `, deleted ${count(part.deleted_rows)}` : ""}`],
  ["size", `${bytes(part.bytes)}, level ${part.level}${Number(part.deltas) ? `, deltas ${part.deltas}` : ""}`],
  ["inserts", `${fullTime(part.first_insert)} – ${fullTime(part.last_insert)}`],
  ["key range", Number(part.cut) ? `of merge ${part.cut}, whose ranges count as one part` : null],
  ["damaged", part.damaged],
  ...candidates.map((each) => [
    each.allowed ? "would be merged" : "not merged",
    `${each.state}: ${each.reason} (${count(each.parts)} parts, ${bytes(each.bytes)})`,
  ]),
]

const isWithin = (part, candidate, order) => {
  const [from, to, at] = [candidate.first_part, candidate.last_part, part.name].map((name) => order.get(name))
  return from !== undefined && to !== undefined && from <= at && at <= to
}

/** parts: rows of system.parts that readers see, by partition and block; candidates: rows of EXPLAIN MERGE. */
export function PartMap({ parts, candidates, layout, column, onChoose, chosenName }) {
  const box = useRef()
  const canvas = useRef()
  const [width, setWidth] = useState(900)
  const [pointed, setPointed] = useState(null)
  const partitions = useMemo(() => [...Map.groupBy(parts, (part) => part.partition)], [parts])
  const order = useMemo(() => new Map(parts.map((part, index) => [part.name, index])), [parts])
  const places = useMemo(() => placed(partitions, candidates, layout, column, width), [partitions, candidates, layout, column, width])
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)))
    watcher.observe(box.current)
    return () => watcher.disconnect()
  }, [])
  const chosen = places.boxes.find((each) => each.part.name === (pointed ?? chosenName))
  useLayoutEffect(() => {
    if (canvas.current) draw(canvas.current, places, width, chosen)
  })
  const find = (event) => {
    const { left, top } = canvas.current.getBoundingClientRect()
    const [x, y] = [event.clientX - left, event.clientY - top]
    return places.boxes.find((each) => x >= each.left - 1 && x <= each.left + each.width + 1 && y >= each.top && y <= each.top + each.height)
  }
  const press = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (!step) return
    event.preventDefault()
    const at = places.boxes.indexOf(chosen)
    const next = places.boxes[Math.max(0, Math.min(places.boxes.length - 1, at + step))]
    if (next) (setPointed(next.part.name), onChoose(next.part.name))
  }
  const about = chosen && candidates.filter((each) => each.partition === chosen.part.partition && isWithin(chosen.part, each, order))
  return html`<div ref=${box}>
    ${parts.length
      ? html`<div class="map" style=${{ maxHeight: `${HEIGHT_MAX}px` }} tabindex="0" role="application" onKeyDown=${press}
            aria-label=${`${parts.length} parts in ${partitions.length} partitions; arrow keys go from part to part`}>
          <canvas ref=${canvas} style=${{ width: `${width}px`, height: `${places.height}px` }}
            onMouseMove=${(event) => setPointed(find(event)?.part.name ?? null)} onMouseLeave=${() => setPointed(null)}
            onClick=${(event) => onChoose(find(event)?.part.name ?? null)}></canvas>
        </div>
        <div class="map-facts" aria-live="polite">
          ${chosen
            ? html`<${Facts} facts=${factsOf(chosen.part, about)} />`
            : html`<p class="about">Point at a part. Colors are levels, from inserts to parts that were merged often; a lighter
                top is deleted rows; a green line is a merge that would be done, a yellow one that is not, and why.</p>`}
        </div>`
      : html`<${Empty}>No parts.<//>`}
  </div>`
}
