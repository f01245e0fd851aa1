// States of servers, workers and what they hold, and the statements that drain and resume them.

import { html } from "../../vendor/preact-htm.js"
import { literal, named } from "../../core/api.js"
import { StatementDialog } from "../../core/dialog.js"
import { buttonColumn, stateColumn } from "../../core/table.js"

const TONES = {
  alive: "good", ok: "good", finished: "good", running: "busy", draining: "warn", drained: "warn", behind: "warn",
  restoring: "warn", aborted: "warn", silent: "bad", "without spark": "bad", away: "bad",
}

export const toneOf = (state) => TONES[state] ?? ""

export const STATE = stateColumn(toneOf)

// --- drains ----------------------------------------------------------------------------------------------------------

const isDrained = (row) => row.state === "draining" || row.state === "drained"

/** DRAIN or RESUME of a server or a worker. */
export function DrainDialog({ kind, row, onClose }) {
  const head = `ALTER ${kind.toUpperCase()} ${named(row.name)}`
  if (isDrained(row))
    return html`<${StatementDialog} title=${`Resume ${kind} ${row.name}`} action="Resume" onClose=${onClose}
      about=${row.reason} statement=${() => `${head} RESUME`} />`
  const about = {
    server: "It goes on answering statements and hosts no table: its services move to the others.",
    worker: "It finishes what runs and gets nothing new; its consumers go on elsewhere.",
  }
  return html`<${StatementDialog} title=${`Drain ${kind} ${row.name}`} action="Drain" danger onClose=${onClose}
    about=${`${about[kind]} It stays so, after a restart too, until it is resumed.`}
    fields=${[{ name: "because", label: "Because", hint: "others read this" }]}
    statement=${({ because }) => `${head} DRAIN${because ? ` BECAUSE ${literal(because)}` : ""}`} />`
}

export const drainColumn = (ask) =>
  buttonColumn((row) => (isDrained(row) ? "Resume" : "Drain"), (row) => `${isDrained(row) ? "Resume" : "Drain"} ${row.name}`, ask)
