// Small components that all pages share.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact-htm.js"
import { link, serverNow } from "./api.js"
import { ago, count, exactly, fullTime, isNone, percent, time } from "./format.js"

export const classes = (...names) => names.filter(Boolean).join(" ")

/** Draw again every so many seconds, for ages. */
export function useTick(every = 1) {
  const [, setTurn] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((turn) => turn + 1), every * 1000)
    return () => clearInterval(timer)
  }, [every])
}

export function useLink() {
  const [state, setState] = useState({ state: link.state, reason: link.reason })
  useEffect(() => {
    setState({ state: link.state, reason: link.reason })
    link.listeners.add(setState)
    return () => link.listeners.delete(setState)
  }, [])
  return state
}

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

/** Share of a limit from which on it is nearly reached. */
const NEARLY = 0.85

/** A number beside its limit. */
export const Share = ({ used, of, show }) => {
  if (isNone(used)) return "–"
  if (isNone(of)) return `${show(used)}, no limit`
  const part = Number(used) / Math.max(1, Number(of))
  const tone = part >= 1 ? "bad" : part >= NEARLY ? "warn" : ""
  return html`${show(used)} of ${show(of)} <${Bar} part=${part} tone=${tone} title=${percent(part)} />`
}

/** The part of a number that is done; nothing where the whole is not known. */
export const Done = ({ done, all, what, tone = "", show = count }) => {
  if (isNone(all) || !Number(all)) return ""
  const words = `${show(done)} of ${show(all)} ${what}`
  return html`<${Bar} part=${Number(done) / Number(all)} tone=${tone} title=${words} /> ${words}`
}

/** A part of 1. */
export const Percent = ({ part, tone = "", words = percent(part) }) =>
  html`<${Bar} part=${part} tone=${tone} title=${words} /> ${words}`

/** "123 in all", or that there are more than a page reads. */
export const shownOf = (rows, limit, which = "first") =>
  rows.length < limit ? `${exactly(rows.length)} in all` : `the ${which} ${exactly(limit)}; search to see others`

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`

export const Waiting = () => html`<p class="empty" role="status">Loading …</p>`

/** An error as the server tells it: what happened, what to do, and the page of the documentation on its code. */
export const Failure = ({ error }) =>
  error &&
  html`<div class="failure" role="alert">
    <strong>${error.message}</strong>${error.hint && html`<p>${error.hint}</p>`}
    <small>${error.code}${error.id ? html` · ${error.id}` : ""}${error.page ? html` · see ${error.page}` : ""}</small>
  </div>`

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

/** Names and values; those without a value are left out. */
export const Facts = ({ facts }) =>
  html`<dl class="facts">
    ${facts
      .filter(([, value]) => !isNone(value) && value !== "" && value !== false)
      .map(([name, value], index) => html`<dt key=${index}>${name}</dt><dd>${value}</dd>`)}
  </dl>`

/** An answer as it is drawn: not there yet, its error, or what is inside. */
export const Answer = ({ answer, children }) =>
  answer ? html`<${Failure} error=${answer.error} />${!answer.error && children}` : html`<${Waiting} />`

/** The same of something that is read once, by useRead; what was read before stays while it is read again. */
export const Reading = ({ reading, children }) => {
  if (reading.isLoading && !reading.rows.length) return html`<${Waiting} />`
  return html`<${Failure} error=${reading.error} />${!reading.error && children}`
}

// --- fields ----------------------------------------------------------------------------------------------------------

/** A field that filters what is below it. */
export const Search = ({ value, onChange, label }) =>
  html`<input class="search" type="search" value=${value} aria-label=${label} placeholder=${label}
    onInput=${(event) => onChange(event.target.value)} />`

/** options: [[value, words], ..]. */
export const Select = ({ label, value, options, onChange }) =>
  html`<select aria-label=${label} value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([key, words]) => html`<option key=${key} value=${key}>${words}</option>`)}
  </select>`

/** A search field, a choice and a box to tick that are kept in the address. */
export const SearchBy = ({ name = "search", label, parameters, change }) =>
  html`<${Search} label=${label} value=${parameters.get(name) ?? ""} onChange=${(value) => change({ [name]: value })} />`

export const SelectBy = ({ name, label, options, parameters, change }) =>
  html`<${Select} label=${label} value=${parameters.get(name) ?? ""} options=${options}
    onChange=${(value) => change({ [name]: value })} />`

export const TickBy = ({ name, label, parameters, change }) =>
  html`<label class="tick"><input type="checkbox" checked=${parameters.has(name)}
    onChange=${(event) => change({ [name]: event.target.checked ? "1" : null })} />${label}</label>`

// --- drawings --------------------------------------------------------------------------------------------------------

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
