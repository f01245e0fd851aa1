// Readers: snapshots that queries hold, and changes that streams have not read; garbage collection waits for them.

import { html } from "../vendor/preact-htm.js"
import { whereAll } from "./filters.js"
import { seconds } from "./format.js"
import { secondsSince } from "./api.js"
import { nameOf, tableLink } from "./names.js"
import { Table, timeColumn } from "./table.js"
import { Time } from "./ui.js"

export const READERS_MAX = 500

/** The statement that reads them, the oldest first. */
export const readersStatement = (condition) =>
  `SELECT id, database, "table", snapshot, holder, client, name, opened FROM system.readers ${whereAll(condition)}
    ORDER BY opened LIMIT ${READERS_MAX}`

const COLUMNS = [
  {
    key: "client", title: "reader",
    show: (row) => html`${row.client ?? "not known"}${row.name && html` <small>stream ${row.name}</small>`}`,
  },
  {
    key: "opened", title: "since",
    show: (row) => html`<${Time} at=${row.opened} /> <small>${seconds(secondsSince(row.opened))}</small>`,
  },
  timeColumn("snapshot", "snapshot of", { about: "Of a stream: the version up to which it has read the changes" }),
  { key: "holder", title: "opened by", about: "The server that opened it" },
  { key: "id", title: "lease", kind: "mono" },
]
const TABLE = { key: "table", title: "table", value: nameOf, show: (row) => (row.table ? nameOf(row) : "gone") }
const ALL = [TABLE, ...COLUMNS]

/** Readers of one table; with `hasTables` of all, each with a link to its table. */
export const Readers = ({ rows, hasTables = false, ...more }) =>
  html`<${Table} label="readers" rows=${rows} columns=${hasTables ? ALL : COLUMNS} keyOf=${(row) => row.id}
    empty="Nobody holds a snapshot." ...${more}
    href=${(row) => hasTables && row.table && tableLink(row.database, row.table, "?tab=gc")} />`
