// Views that read one Kafka table, and what each costs of a round.

import { html } from "../../vendor/preact-htm.js"
import { isNone, most, seconds } from "../../core/format.js"
import { TableName, nameOf } from "../../core/names.js"
import { numbersByName } from "../../core/streams.js"
import { Table, numberColumn } from "../../core/table.js"
import { Answer, Badge, Card, Code, Percent } from "../../core/ui.js"

/** Views with the time of the last round that ran them. */
function viewRows(views, consumers) {
  return views.map((view) => {
    const name = nameOf(view)
    const shares = consumers.map((row) => {
      const value = numbersByName(row.view_seconds)[name] ?? null
      const isKnown = value !== null && row.last_round_seconds > 0
      return { value, share: isKnown ? Math.min(1, value / row.last_round_seconds) : null }
    })
    return {
      ...view,
      fullName: name,
      seconds: most(shares.map((each) => each.value)),
      share: most(shares.map((each) => each.share)),
      isSlowest: consumers.some((row) => row.slowest_view === name),
    }
  })
}

const VIEWS = [
  { key: "fullName", title: "view" },
  { key: "target", title: "writes into", show: (row) => html`<${TableName} name=${row.target} />` },
  numberColumn("seconds", "time", (value) => (isNone(value) ? "" : seconds(value)), {
    about: "SQL and writing in the last round, of the slowest consumer",
  }),
  {
    key: "share",
    title: "share of the round",
    kind: "tight",
    show: (row) =>
      row.share === null
        ? html`<small>not measured: it only picks columns, or has not run yet</small>`
        : html`<${Percent} part=${row.share} tone=${row.share > 0.5 ? "warn" : ""} />`,
  },
  { key: "isSlowest", title: "slowest", show: (row) => row.isSlowest && html`<${Badge} tone="warn">slowest<//>` },
  { key: "comment", title: "comment", kind: "text" },
]

export function Views({ found }) {
  const rows = viewRows(found.views?.rows ?? [], found.consumers.rows)
  return html`<${Card} title="Views" about="a line opens with the statement">
    <${Answer} answer=${found.views}>
      <${Table} label="views" rows=${rows} columns=${VIEWS} keyOf=${(row) => row.fullName}
        expand=${(row) => html`<${Code}>${row.create_statement}<//>`}
        empty="No view reads this Kafka table, so that no consumer runs: CREATE MATERIALIZED VIEW makes one." />
    <//>
  <//>`
}
