// The dialog that stops and starts a background service, of one table or of all.

import { html } from "../../vendor/preact-htm.js"
import { literal } from "../../core/api.js"
import { StatementDialog } from "../../core/ui.js"

const VERBS = { STOP: "Stop", START: "Start", RESTART: "Restart" }

/** SYSTEM STOP, START or RESTART of a service; without a name, of all tables. */
export function SwitchDialog({ verb, word, name = "", about, danger, onClose, onDone }) {
  const because = { name: "because", label: "Reason, which others can read", hint: "a benchmark runs" }
  const time = { name: "time", label: "For how long; empty: until it is switched again", hint: "30 minutes" }
  return html`<${StatementDialog} title=${`${VERBS[verb]} ${word}${name ? "" : " of all tables"}`} about=${about}
    action=${VERBS[verb]} danger=${danger} onClose=${onClose} onDone=${onDone}
    fields=${verb === "RESTART" ? [because] : [time, because]}
    statement=${(values) =>
      [
        `SYSTEM ${verb} ${word}`,
        name,
        values.time?.trim() && `FOR ${values.time.trim()}`,
        values.because?.trim() && `BECAUSE ${literal(values.because.trim())}`,
      ]
        .filter(Boolean)
        .join(" ")} />`
}
