// The editor of statements: CodeMirror in a shadow root, where its styles are adopted style sheets, which the strict
// Content-Security-Policy allows.

import { html, useEffect, useRef } from "../../vendor/preact-htm.js"
import {
  Decoration,
  EditorView,
  HighlightStyle,
  Prec,
  SQLDialect,
  basicSetup,
  keymap,
  lintGutter,
  placeholder,
  setDiagnostics,
  sql,
  syntaxHighlighting,
  tags,
} from "../../vendor/codemirror.js"
import { statementAt, statements } from "./statements.js"
import { completions } from "./words.js"

/** The statement under the cursor is marked in texts up to this length. */
const MARKED_TEXT_MAX = 200_000

const KEYWORDS = `add after alias all alter analyze and anti any array as asc async backup because before between by cascade case cast
  catalog check clear cluster column columns comment consume copy create cross cube current database databases default
  delete desc describe distinct distribute distributed drain drill drop else end engine escape every except exists
  explain export extended failover false fastdelete files filter final first flush following for force format
  formatted from full functions gc group grouping having if ilike in inner insert intersect interval into is join key
  kill last lateral left like limit logs materialized merge merges minus modify mutation mutations natural not null
  nulls of offset on only optimize options or order outer over partition partitions pattern pipe pipes pivot policy
  preceding prewhere primary processlist qualify query queue quorum range recursive refresh remove rename repair
  replace replay replica replicas reset restart restore resume right rlike rollup root row rows schema scrub scrubs
  select semi server set sets setting settings show sort start stop storage storages sync system table tables
  tablesample temporary test then timestamp to top trash true truncate ttl undrop union unique unpivot update use
  using validate values verify version view warehouse warehouses when where window with within worker`
const TYPES = `bigint binary boolean byte char date datetime datetime64 decimal double enum enum8 enum16 fixedstring
  float float32 float64 int int8 int16 int32 int64 integer long map nullable real short smallint string struct
  timestamp_ltz timestamp_ntz tinyint uint8 uint16 uint32 uint64 uuid varchar`

const words = (text) => text.split(/\s+/).join(" ")

const dialect = SQLDialect.define({
  keywords: words(KEYWORDS),
  types: words(TYPES),
  backslashEscapes: true,
  identifierQuotes: "`\"",
  caseInsensitiveIdentifiers: true,
  operatorChars: "*+-%<>!=&|~^/:",
})

const colors = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.typeName, tags.bool, tags.null], color: "var(--busy)" },
  { tag: [tags.string, tags.number], color: "var(--warn)" },
  { tag: tags.special(tags.string), color: "var(--text)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.operator, tags.punctuation], color: "var(--muted)" },
])

const SELECTED = "var(--accent-soft)"
const raised = { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)" }

const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "transparent", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", minHeight: "9.5em", maxHeight: "45vh" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: SELECTED },
  ".cm-selectionBackground, .cm-content ::selection": { backgroundColor: SELECTED },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-line.cm-current": { boxShadow: "inset 2px 0 var(--accent)" },
  ".cm-placeholder": { color: "var(--muted)" },
  ".cm-selectionMatch": { backgroundColor: "var(--busy-soft)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: SELECTED },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-soft)" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--raised)", color: "var(--muted)", border: "1px solid var(--line)" },
  ".cm-tooltip": { ...raised, borderRadius: "6px", maxWidth: "min(640px, 90vw)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12.5px", maxHeight: "15em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: SELECTED, color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionInfo": { whiteSpace: "pre-wrap" },
  ".cm-diagnostic": { whiteSpace: "pre-wrap" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
  ".cm-panels.cm-panels-bottom": { borderTop: "1px solid var(--line)" },
  ".cm-searchMatch": { backgroundColor: "var(--warn-soft)" },
  ".cm-searchMatch.cm-searchMatch-selected": { backgroundColor: SELECTED },
  ".cm-button": { ...raised, backgroundImage: "none", borderRadius: "6px" },
  ".cm-textfield": { ...raised, borderRadius: "6px" },
})

const line = Decoration.line({ class: "cm-current" })

/** Mark the lines of the statement that would run, where there are several. */
const current = EditorView.decorations.compute(["doc", "selection"], (state) => {
  if (state.doc.length > MARKED_TEXT_MAX) return Decoration.none
  const text = state.doc.toString()
  const one = statements(text).length > 1 ? statementAt(text, state.selection.main.head) : undefined
  if (!one) return Decoration.none
  const lines = []
  for (let at = one.from; at <= one.to; at = state.doc.lineAt(at).to + 1)
    lines.push(line.range(state.doc.lineAt(at).from))
  return Decoration.set(lines)
})

/** `calls.current` has {onChange, onRun, onCancel, databaseOf}; it is read when something happens. */
const extensions = (calls) => [
  Prec.highest(
    keymap.of([
      { key: "Mod-Enter", run: () => (calls.current.onRun("statement"), true) },
      { key: "Shift-Mod-Enter", run: () => (calls.current.onRun("all"), true) },
      { key: "Mod-.", run: () => (calls.current.onCancel(), true) },
    ]),
  ),
  basicSetup,
  sql({ dialect, upperCaseKeywords: true }),
  dialect.language.data.of({ autocomplete: completions(() => calls.current.databaseOf()) }),
  lintGutter(),
  theme,
  syntaxHighlighting(colors),
  current,
  placeholder("SELECT … — Ctrl+Space completes, Ctrl+Enter runs"),
  EditorView.lineWrapping,
  EditorView.contentAttributes.of({ "aria-label": "Statements" }),
  EditorView.updateListener.of((update) => update.docChanged && calls.current.onChange(update.state.doc.toString())),
]

/** The functions of an editor for its page. */
const handleOf = (view) => ({
  text: () => view.state.doc.toString(),
  setText(text) {
    // The editor counts a line's end as one character.
    const insert = text.replaceAll("\r\n", "\n")
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert }, selection: { anchor: insert.length } })
  },
  /** Statements that are selected, else the one under the cursor; `all`: all of them. */
  chosen(what) {
    const text = view.state.doc.toString()
    const { from, to, head } = view.state.selection.main
    if (what === "all") return statements(text)
    if (from === to) return [statementAt(text, head)].filter(Boolean)
    const move = (one) => ({ ...one, from: one.from + from, to: one.to + from, end: one.end + from })
    return statements(text.slice(from, to)).map(move)
  },
  /** Show errors at their places: [{from, to, message}]. */
  mark(problems) {
    view.dispatch(setDiagnostics(view.state, problems.map((problem) => ({ ...problem, severity: "error" }))))
  },
  show(from, to = from) {
    view.dispatch({ selection: { anchor: from, head: to }, scrollIntoView: true })
    view.focus()
  },
  focus: () => view.focus(),
})

/** An editor that begins with `initial`; `handle.current` holds its functions while it is there. */
export function Editor({ initial, databaseOf, onChange, onRun, onCancel, handle }) {
  const host = useRef()
  const calls = useRef()
  calls.current = { databaseOf, onChange, onRun, onCancel }
  useEffect(() => {
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" })
    const view = new EditorView({ doc: initial, extensions: extensions(calls), parent: root, root })
    handle.current = handleOf(view)
    return () => {
      handle.current = undefined
      view.destroy()
    }
  }, [])
  return html`<div class="sql-editor" ref=${host}></div>`
}
