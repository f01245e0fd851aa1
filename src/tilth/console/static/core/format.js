// Numbers with their units, times in the user's zone, and ages by the server's clock.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
const COUNTS = ["", " k", " M", " G", " T"]
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
const NONE = "–"

const scaled = (value, step, units) => {
  let power = 0
  let size = Math.abs(value)
  while (size >= step * 0.9995 && power < units.length - 1) {
    size /= step
    power += 1
  }
  const digits = power === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2
  return `${value < 0 ? "-" : ""}${power === 0 ? whole.format(size) : size.toFixed(digits)}${units[power]}`
}

export const isNone = (value) => value === null || value === undefined

/** 1536 -> "1.50 KiB". */
export const bytes = (value) => (isNone(value) ? NONE : scaled(Number(value), 1024, SIZES.map((unit) => " " + unit)))

/** 1234567 -> "1.23 M"; small ones as they are. */
export const count = (value) =>
  isNone(value) ? NONE : Math.abs(Number(value)) < 10_000 ? whole.format(Number(value)) : scaled(Number(value), 1000, COUNTS)

/** 0.123456 -> "0.123". */
export const score = (value) => (isNone(value) ? NONE : Number(value).toPrecision(3))

/** 1234567 -> "1,234,567". */
export const exactly = (value) => (isNone(value) ? NONE : whole.format(value))

export const perSecond = (value, unit) => (isNone(value) ? NONE : `${unit === "bytes" ? bytes(value) : count(value)}/s`)

/** Seconds as people say them: "120 ms", "4.2 s", "3 min", "5 h 10 min", "12 d". */
export function seconds(value) {
  if (isNone(value)) return NONE
  const size = Math.abs(Number(value))
  const sign = value < 0 ? "-" : ""
  if (size === 0) return "0 s"
  if (size < 1) return `${sign}${Math.max(1, Math.round(size * 1000))} ms`
  if (size < 10) return `${sign}${size.toFixed(1)} s`
  if (size < 100) return `${sign}${Math.round(size)} s`
  if (size < 6000) return `${sign}${Math.round(size / 60)} min`
  if (size < 172_800) {
    const minutes = Math.round(size / 60)
    return `${sign}${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`
  }
  return `${sign}${Math.round(size / 86_400)} d`
}

/** Milliseconds, likewise. */
export const milliseconds = (value) => (isNone(value) ? NONE : seconds(Number(value) / 1000))

export const percent = (part) => (isNone(part) ? NONE : `${(100 * part).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`)

/** The server's times are ISO 8601 in UTC. */
export const dateOf = (text) => (isNone(text) ? null : new Date(text))

const two = (number) => String(number).padStart(2, "0")

/** "2026-11-25" and "14:03:22" of a Date, in the zone of the user. */
export const day = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`
export const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`

/** "14:03:22" today, else "11-25 14:03"; in the zone of the user. */
export function time(text, now = Date.now()) {
  const date = dateOf(text)
  if (!date || Number.isNaN(date.getTime())) return isNone(text) ? NONE : String(text)
  const today = new Date(now)
  if (day(date) === day(today)) return clock(date)
  return date.getFullYear() === today.getFullYear() ? `${day(date).slice(5)} ${clock(date).slice(0, 5)}` : day(date)
}

export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone

/** The whole time with its zone, for titles. */
export function fullTime(text) {
  const date = dateOf(text)
  if (!date || Number.isNaN(date.getTime())) return isNone(text) ? "" : String(text)
  return `${date.toLocaleString("sv-SE")} ${ZONE} (${date.toISOString()})`
}

/** "4 s ago", "in 3 min". */
export function ago(text, now) {
  const date = dateOf(text)
  if (!date) return NONE
  const passed = (now - date.getTime()) / 1000
  if (Math.abs(passed) < 1) return "now"
  return passed > 0 ? `${seconds(passed)} ago` : `in ${seconds(-passed)}`
}

const bigAsText = (_, inner) => (typeof inner === "bigint" ? String(inner) : inner)

/** Lists and structs as JSON. */
export const json = (value, indent) => JSON.stringify(value, bigAsText, indent)

/** Any cell of a result, as a text. */
export const cell = (value) => (isNone(value) ? "" : typeof value === "object" ? json(value) : String(value))

// --- numbers of many rows --------------------------------------------------------------------------------------------

export const sum = (values) => values.reduce((total, value) => total + Number(value ?? 0), 0)

/** The largest one that is known; null where none is. */
export const most = (values) =>
  values.filter((value) => !isNone(value)).reduce((left, right) => (left === null || right > left ? right : left), null)
