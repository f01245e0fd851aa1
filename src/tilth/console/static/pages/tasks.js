// Merges and tasks: what runs and has run, what maintenance weighs and chose, mutations, switches of all tables.

import { html } from "../vendor/preact-htm.js"
import { chosenOf, openTab, useParameters } from "../core/address.js"
import { useWatch } from "../core/api.js"
import { useSettled } from "../core/filters.js"
import { Tabs } from "../core/ui.js"
import {
  AllMutations, Choices, Operations, choiceStatements, mutationStatements, operationStatements,
} from "./tasks/operations.js"
import { Replay, replayStatements } from "./tasks/replay.js"
import { Now, Past, nowStatements, pastStatements } from "./tasks/running.js"
import { Switches, switchStatements } from "./tasks/switches.js"

const TABS = {
  now: { title: "Now", View: Now, statements: nowStatements, every: 2 },
  past: { title: "Past", View: Past, statements: pastStatements },
  operations: { title: "Operations", View: Operations, statements: operationStatements },
  choices: { title: "Choices", View: Choices, statements: choiceStatements },
  mutations: { title: "Mutations", View: AllMutations, statements: mutationStatements },
  replay: { title: "Replay", View: Replay, statements: replayStatements },
  switches: { title: "Switches", View: Switches, statements: switchStatements },
}

export default function Tasks({ route }) {
  const [parameters, change] = useParameters(route)
  const tab = chosenOf(Object.keys(TABS), parameters.get("tab"))
  const search = useSettled(parameters.get("search") ?? "")
  const { statements, View, every = 3 } = TABS[tab]
  const found = useWatch(statements({ parameters, search }), { every })
  return html`
    <div class="head"><h1>Merges and tasks</h1></div>
    <${Tabs} label="Parts of the page" current=${tab} tabs=${Object.entries(TABS).map(([key, { title }]) => [key, title])}
      onChange=${(next) => openTab(parameters, change, next, ["of"])} />
    <${View} key=${tab} found=${found} parameters=${parameters} change=${change} />`
}
