// Notes of what was done, and texts out of the page: into the clipboard, into a file.

import { html, useEffect, useState } from "../vendor/preact-htm.js"
import { classes } from "./ui.js"

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

// --- out of the page -------------------------------------------------------------------------------------------------

/** Put a text into the clipboard, also on pages that are served without TLS, which lack the clipboard API. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const field = document.createElement("textarea")
  field.value = text
  field.setAttribute("readonly", "")
  // Behind an open dialog nothing can be selected.
  const parent = document.querySelector("dialog[open]") ?? document.body
  parent.append(field)
  field.select()
  const isDone = document.execCommand("copy")
  field.remove()
  if (!isDone) throw new Error("the browser refuses access to the clipboard")
}

/** Copy a text, and say so. */
export const copied = (text, what) => copy(text).then(() => note(`Copied: ${what}.`), noteError)

export const Copy = ({ text, label = "Copy" }) => {
  const [done, setDone] = useState(false)
  useEffect(() => {
    if (!done) return undefined
    const timer = setTimeout(() => setDone(false), 1500)
    return () => clearTimeout(timer)
  }, [done])
  const press = () => copy(text).then(() => setDone(true), noteError)
  return html`<button class="quiet" onClick=${press} type="button">${done ? "Copied" : label}</button>`
}

/** Hand a file to the browser, which saves it or shows a dialog. */
export function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }))
  const link = document.createElement("a")
  link.href = address
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(address), 60_000)
}
