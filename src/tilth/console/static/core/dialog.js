// A dialog for statements that change something: it shows them before they run.

import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js"
import { run } from "./api.js"
import { note, noteError } from "./notes.js"
import { Code, Failure } from "./ui.js"

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
      // Somebody may have closed it, and opened another one, while the statement ran.
      if (dialog.current) onClose()
    } catch (error) {
      dialog.current ? setState({ error }) : noteError(error)
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
                  ${field.options.map(([value, shown]) => html`<option key=${value} value=${value}>${shown}</option>`)}
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
