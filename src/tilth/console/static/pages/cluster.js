// Servers, workers, warehouses, storages, leases and transactions; rehearsals of a failover, backups, stored files.

import { html } from "../vendor/preact-htm.js"
import { chosenOf, openTab, useParameters } from "../core/address.js"
import { useWatch } from "../core/api.js"
import { useSettled } from "../core/filters.js"
import { exactly } from "../core/format.js"
import { Badge, Tabs, useTick } from "../core/ui.js"
import { Backup, backupStatements } from "./cluster/backup.js"
import { Drill, drillStatements } from "./cluster/drill.js"
import { Files, fileStatements } from "./cluster/files.js"
import { LeasesAndReaders, leaseStatements } from "./cluster/leases.js"
import { Servers, serverStatements } from "./cluster/servers.js"
import { Storages, storageStatements } from "./cluster/storages.js"
import { useInfo, useUuids } from "./cluster/tables.js"
import { Transactions, transactionStatements } from "./cluster/transactions.js"
import { Warehouses, warehouseStatements } from "./cluster/warehouses.js"
import { Workers, workerStatements } from "./cluster/workers.js"

const troubles = (table, well) =>
  `SELECT count(*) AS n, sum(CASE WHEN state = '${well}' THEN 0 ELSE 1 END) AS troubles FROM system.${table}`

const SUMMARY = {
  nServers: troubles("servers", "alive"),
  nWorkers: troubles("workers", "alive"),
  nStorages: troubles("storages", "ok"),
  nLost: "SELECT count(*) AS n, count(*) AS troubles FROM system.lost_transactions",
}

const TABS = {
  servers: { title: "Servers", number: "nServers", statements: serverStatements, View: Servers },
  workers: { title: "Workers", number: "nWorkers", statements: workerStatements, View: Workers },
  warehouses: { title: "Warehouses", statements: warehouseStatements, View: Warehouses },
  storages: { title: "Storages and replicas", number: "nStorages", statements: storageStatements, View: Storages, every: 5 },
  leases: { title: "Leases and readers", statements: leaseStatements, View: LeasesAndReaders },
  transactions: { title: "Transactions", number: "nLost", statements: transactionStatements, View: Transactions },
  drill: { title: "Drill", statements: drillStatements, View: Drill, every: 0.5 },
  backup: { title: "Backup", statements: backupStatements, View: Backup, every: 5 },
  files: { title: "Files", statements: fileStatements, View: Files, every: 5 },
}

const wordsOf = (key, { n, troubles: bad }) =>
  key === "nLost" ? (n ? `${exactly(n)} lost` : null) : Number(bad) ? `${exactly(n)}, ${exactly(bad)} with trouble` : exactly(n)

const numberOf = (found, key) => {
  const row = key && found[key]?.rows[0]
  return row ? wordsOf(key, row) : null
}

export default function Cluster({ route }) {
  const [parameters, change] = useParameters(route)
  const tab = chosenOf(Object.keys(TABS), parameters.get("tab"))
  const search = useSettled(parameters.get("search") ?? "")
  const uuids = useUuids(tab === "servers" || tab === "leases" ? search : "")
  const info = useInfo(tab === "drill" || tab === "files" ? (parameters.get("table") ?? "") : "")
  const { statements, View, every = 2 } = TABS[tab]
  const found = useWatch({ ...SUMMARY, ...statements({ parameters, search, uuids, uuid: info.uuid }) }, { every })
  useTick()
  const lost = Number(found.nLost?.rows[0]?.n ?? 0)
  return html`
    <div class="head"><h1>Cluster</h1>
      ${lost > 0 && tab !== "transactions" &&
      html`<a href="#/cluster?tab=transactions"><${Badge} tone="bad">lost transactions: ${exactly(lost)}<//></a>`}
    </div>
    <${Tabs} label="Parts of the cluster" current=${tab} onChange=${(key) => openTab(parameters, change, key)}
      tabs=${Object.entries(TABS).map(([key, { title, number }]) => [key, title, numberOf(found, number)])} />
    <${View} key=${tab} found=${found} parameters=${parameters} change=${change} info=${info} />`
}
