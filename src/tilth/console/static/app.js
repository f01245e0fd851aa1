// The frame around all pages: where one is, how the server is, and the way to everything else.

import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js"
import { read } from "./core/api.js"
import { fitting } from "./core/filters.js"
import { clock } from "./core/format.js"
import { nameOf, streamLink, tableLink } from "./core/names.js"
import { Notes } from "./core/notes.js"
import { Badge, Failure, Waiting, useLink, useTick } from "./core/ui.js"

/** Pages by the first part of the address; a page is loaded when it is opened. */
const PAGES = [
  ["overview", "Overview", () => import("./pages/overview.js")],
  ["tables", "Tables", () => import("./pages/tables.js")],
  ["streams", "Streams", () => import("./pages/streams.js")],
  ["tasks", "Merges and tasks", () => import("./pages/tasks.js")],
  ["cluster", "Cluster", () => import("./pages/cluster.js")],
  ["sql", "SQL", () => import("./pages/sql.js")],
  ["decisions", "Decisions", () => import("./pages/decisions.js")],
  ["audit", "Audit", () => import("./pages/audit.js")],
  ["settings", "Settings", () => import("./pages/settings.js")],
]
/** Pages that stand in no menu, with the menu's entry that they belong to. */
const INNER = {
  table: ["tables", () => import("./pages/table.js")],
  stream: ["streams", () => import("./pages/stream.js")],
}

/** A part of the address; one that nobody has encoded is taken as it is. */
const decoded = (part) => {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

const parse = () => {
  const [, path, query] = /^#?\/?([^?]*)\??([^]*)$/.exec(location.hash)
  const parts = path.split("/").filter(Boolean).map(decoded)
  return { path: parts.length ? parts : ["overview"], parameters: new URLSearchParams(query) }
}

function useRoute() {
  const [route, setRoute] = useState(parse)
  useEffect(() => {
    const follow = () => setRoute(parse())
    addEventListener("hashchange", follow)
    return () => removeEventListener("hashchange", follow)
  }, [])
  return route
}

// --- the frame -------------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"]

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto")
  useLayoutEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)")
    const apply = () => {
      document.documentElement.dataset.theme = theme !== "auto" ? theme : system.matches ? "dark" : "light"
    }
    apply()
    localStorage.setItem("theme", theme)
    system.addEventListener("change", apply)
    return () => system.removeEventListener("change", apply)
  }, [theme])
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])]
}

const LIVE = "Answers arrive by themselves while this page is visible"
const STILL = "This page has what there was when it was opened"

const LINKS = {
  live: ["good", "live"],
  connecting: ["", "connecting"],
  away: ["bad", "no answer, trying again"],
  paused: ["", "paused"],
  still: ["", "read once"],
}

function Link() {
  const { state, reason } = useLink()
  const [tone, words] = LINKS[state]
  return html`<${Badge} tone=${tone} title=${reason || (state === "still" ? STILL : LIVE)}>${words}<//>`
}

const Clock = () => {
  useTick()
  return html`<span class="clock">${clock(new Date())}</span>`
}

const NAMES = "SELECT database, name, engine FROM system.tables ORDER BY database, name LIMIT 20000"
const FOUND_MAX = 12

const linkOf = ({ database, name, engine }) => (engine === "Kafka" ? streamLink : tableLink)(database, name)

/** Ctrl+K: type a part of a name, go there. */
function Palette({ onClose }) {
  const dialog = useRef()
  const [text, setText] = useState("")
  const [tables, setTables] = useState([])
  const [chosen, setChosen] = useState(0)
  useEffect(() => {
    dialog.current.showModal()
    const controller = new AbortController()
    read(NAMES, { signal: controller.signal }).then(setTables, () => {})
    return () => controller.abort()
  }, [])
  const fits = fitting(text)
  const found = [
    ...PAGES.filter(([, title]) => fits(title)).map(([key, title]) => ({ title, href: `#/${key}`, about: "page" })),
    ...tables
      .filter((table) => fits(nameOf(table)))
      .map((table) => ({ title: nameOf(table), href: linkOf(table), about: table.engine })),
  ].slice(0, FOUND_MAX)
  const go = (one) => {
    if (!one) return
    location.hash = one.href
    onClose()
  }
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step) {
      event.preventDefault()
      setChosen((old) => Math.max(0, Math.min(found.length - 1, old + step)))
    } else if (event.key === "Enter") {
      event.preventDefault()
      go(found[chosen])
    }
  }
  return html`<dialog class="palette" ref=${dialog} onClose=${onClose} aria-label="Go to">
    <input autofocus type="search" value=${text} placeholder="Go to a page or a table" aria-label="Go to a page or a table"
      onInput=${(event) => (setText(event.target.value), setChosen(0))} onKeyDown=${press} />
    <ul role="listbox" aria-label="Found">
      ${found.map(
        (one, index) =>
          html`<li key=${one.href} role="option" aria-selected=${index === chosen}>
            <a href=${one.href} tabindex="-1" onClick=${onClose}>${one.title}<small>${one.about}</small></a>
          </li>`,
      )}
      ${!found.length && html`<li class="empty">Nothing has this name.</li>`}
    </ul>
  </dialog>`
}

function Page({ load, route }) {
  const [page, setPage] = useState({})
  const [error, reset] = useErrorBoundary((thrown) => console.error(thrown))
  useEffect(() => {
    let isHere = true
    load().then(
      (found) => isHere && setPage({ load, View: found.default }),
      (failed) => isHere && setPage({ load, error: failed }),
    )
    return () => (isHere = false)
  }, [load])
  // Another address may be drawn where this one failed.
  const address = route.path.join("/")
  useEffect(() => reset(), [address])
  if (error || page.error) return html`<${Failure} error=${{ message: String(error ?? page.error), code: "PAGE", hint: "load the page again" }} />`
  return page.load === load ? html`<${page.View} route=${route} key=${address} />` : html`<${Waiting} />`
}

function App() {
  const route = useRoute()
  const [theme, turnTheme] = useTheme()
  const [isPaletteOpen, setPalette] = useState(false)
  const [isMenuOpen, setMenu] = useState(false)
  const main = useRef()
  const [name] = route.path
  const [menu, load] = INNER[name] ?? [name, PAGES.find(([key]) => key === name)?.[2]]
  const title = [...route.path.slice(1), PAGES.find(([key]) => key === menu)?.[1]].filter(Boolean).join(" · ")
  useEffect(() => {
    document.title = `${title || "Not found"} · Tilth`
    setMenu(false)
  }, [title])
  useEffect(() => {
    const press = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault()
        setPalette(true)
      }
    }
    addEventListener("keydown", press)
    return () => removeEventListener("keydown", press)
  }, [])
  const skip = (event) => {
    event.preventDefault()
    main.current.focus()
  }
  return html`
    <a class="skip" href="#main" onClick=${skip}>To the content</a>
    <header class="top">
      <button class="menu quiet" type="button" aria-expanded=${isMenuOpen} aria-controls="menu" onClick=${() => setMenu(!isMenuOpen)}>Menu</button>
      <a class="brand" href="#/overview"><img src="/console/icon.svg" alt="" width="24" height="24" />Tilth</a>
      <button class="goto" type="button" onClick=${() => setPalette(true)}>Go to a table …<kbd>Ctrl K</kbd></button>
      <span class="grow"></span>
      <${Link} /><${Clock} />
      <button class="quiet" type="button" onClick=${turnTheme} title="Colors: as the system has them, light, dark">${theme}</button>
    </header>
    <nav id="menu" class=${isMenuOpen ? "open" : ""} aria-label="Pages">
      ${PAGES.map(([key, shown]) => html`<a key=${key} href=${`#/${key}`} aria-current=${key === menu ? "page" : undefined}>${shown}</a>`)}
    </nav>
    <main id="main" ref=${main} tabindex="-1">
      ${load ? html`<${Page} load=${load} route=${route} />` : html`<p class="empty">There is no such page.</p>`}
    </main>
    <${Notes} />
    ${isPaletteOpen && html`<${Palette} onClose=${() => setPalette(false)} />`}
  `
}

render(html`<${App} />`, document.getElementById("app"))
