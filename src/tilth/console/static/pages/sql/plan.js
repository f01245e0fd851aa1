// The plan of a query, as EXPLAIN answers it, as a tree that can be folded.

import { html, useMemo, useState } from "../../vendor/preact-htm.js"
import { Code } from "../../core/ui.js"

// --- reading a plan --------------------------------------------------------------------------------------------------

/** The branches before a node are pieces of three characters: `:- `, `+- `, `:  ` or blanks. */
const NODE = /^((?:[:+ ][- ] )*)(.+)$/
const SECTION = /^=+ (.+?) =+$/
/** `(3) Filter`, above the facts of node 3. */
const FACTS = /^\((\d+)\) (.+?)\s*$/
const NUMBER = / \((\d+)\)$/
/** Parts of a text that hold a tree; others, such as damaged parts, are texts. */
const TREE = /plan|subqueries|optimized/i

/** `* HashAggregate (5)`, `*(2) Filter (a > 1)`, `FileScan parquet [a#1] ..`: name and rest. */
function nodeOf(text) {
  const [, mark, rest] = /^((?:\*(?:\s?\(\d+\))?\s*)?)([^]*)$/.exec(text)
  const name = /^(?:(?:File|Batch)?Scan \w+|[\w.$]+)/.exec(rest)?.[0] ?? rest
  return { name, detail: rest.slice(name.length).trim(), isCompiled: mark !== "", children: [], facts: [] }
}

function treeOf(lines) {
  const root = { children: [] }
  const stack = [root]
  for (const line of lines) {
    const [, branches, text] = NODE.exec(line) ?? ["", "", "", line]
    const depth = branches.length / 3
    // A line deeper than its parent allows is the rest of the line before it.
    const above = stack[Math.min(depth, stack.length - 1)]
    const node = nodeOf(text)
    above.children.push(node)
    stack.length = Math.min(depth, stack.length - 1) + 1
    stack.push(node)
  }
  return root.children
}

/** Blocks of lines between empty lines. */
const blocksOf = (lines) =>
  lines
    .join("\n")
    .split(/\n\s*\n/)
    .map((block) => block.split("\n").filter((line) => line.trim()))
    .filter((block) => block.length)

function withFacts(nodes, facts) {
  for (const node of nodes) {
    const number = NUMBER.exec(` ${node.detail}`)?.[1]
    if (number && facts.has(number)) {
      node.facts = facts.get(number)
      node.detail = node.detail.replace(/\s*\(\d+\)$/, "")
    }
    withFacts(node.children, facts)
  }
}

/** Sections of Spark's text: {title, nodes} with trees, or {title, text}. */
function parsePlan(text) {
  const sections = []
  for (const line of text.split("\n")) {
    const title = SECTION.exec(line.trim())?.[1]
    if (title || !sections.length) sections.push({ title: title ?? "", lines: [] })
    if (!title) sections.at(-1).lines.push(line)
  }
  const facts = new Map()
  const parsed = sections
    .filter(({ lines, title }) => title || lines.some((line) => line.trim()))
    .map(({ title, lines }) => {
      if (title && !TREE.test(title)) return { title, text: lines.join("\n").trim() }
      const blocks = blocksOf(lines)
      const isFacts = (block) => FACTS.test(block[0])
      for (const block of blocks.filter(isFacts)) facts.set(FACTS.exec(block[0])[1], block.slice(1))
      return { title, nodes: blocks.filter((block) => !isFacts(block)).flatMap(treeOf) }
    })
  for (const { nodes } of parsed) if (nodes) withFacts(nodes, facts)
  return parsed.filter(({ nodes, text: own }) => nodes?.length || own)
}

// --- the tree --------------------------------------------------------------------------------------------------------

/** Operators: pattern of the name, tone by their cost, and a sentence. */
const MEANINGS = [
  [/^BroadcastExchange/, "warn", "The rows are sent whole to all tasks."],
  [/Exchange/, "warn", "Shuffle: rows move between tasks, by a hash, by ranges or into one task."],
  [/Scan/, "busy", "Reads files or memory."],
  [/^SortMergeJoin/, "bad", "Joins two inputs that are both shuffled and sorted."],
  [/^(BroadcastNestedLoopJoin|CartesianProduct)/, "bad", "Compares each row of one input with each of the other."],
  [/Join/, "", "Joins two inputs."],
  [/Aggregate/, "", "Computes groups; twice where rows move between: first within tasks, then of all."],
  [/^(TakeOrderedAndProject|CollectLimit|GlobalLimit|LocalLimit)/, "", "Keeps the first rows."],
  [/^Sort\b/, "warn", "Sorts rows."],
  [/^Filter/, "", "Keeps rows for which the condition is true."],
  [/^Project/, "", "Computes columns."],
  [/^Window/, "", "Computes values over neighbouring rows."],
  [/^AdaptiveSparkPlan/, "", "Spark may change this plan while the query runs."],
  [/^(AQEShuffleRead|ShuffleQueryStage|BroadcastQueryStage)/, "", "Reads what was shuffled or broadcast."],
  [/^(ColumnarToRow|InputAdapter|WholeStageCodegen)/, "", "Passes rows on in another form."],
]
const MEANING_NONE = [/^/, "", ""]
const DETAIL_CHARACTERS_MAX = 160

const meaningOf = (name) => MEANINGS.find(([pattern]) => pattern.test(name)) ?? MEANING_NONE

function Words({ node }) {
  const [, tone, meaning] = meaningOf(node.name)
  const { detail } = node
  const words = detail.length > DETAIL_CHARACTERS_MAX ? detail.slice(0, DETAIL_CHARACTERS_MAX) + "…" : detail
  return html`<span class=${`node ${tone}`} title=${meaning}>
    <strong>${node.name}</strong>${" "}<code>${words}</code>
  </span>`
}

/** The whole detail of a node, and its facts. */
function More({ node }) {
  const lines = [...(node.detail.length > DETAIL_CHARACTERS_MAX ? [node.detail] : []), ...node.facts]
  const [, , meaning] = meaningOf(node.name)
  if (!lines.length) return null
  return html`<details class="facts-of"><summary>details</summary>
    ${meaning && html`<p class="about">${meaning}</p>`}<${Code}>${lines.join("\n")}<//>
  </details>`
}

const Node = ({ node, isOpen }) =>
  html`<li>
    ${node.children.length
      ? html`<details open=${isOpen}>
          <summary><${Words} node=${node} /></summary>
          <${More} node=${node} />
          <ul>${node.children.map((child, index) => html`<${Node} key=${index} node=${child} isOpen=${isOpen} />`)}</ul>
        </details>`
      : html`<${Words} node=${node} /><${More} node=${node} />`}
  </li>`

/** The answer of EXPLAIN of a query. The last operator is on top: rows flow upwards. */
export function Plan({ text }) {
  const [isOpen, setOpen] = useState(true)
  // Another key makes the tree anew, so that all of it is folded or opened.
  const [turn, setTurn] = useState(0)
  const sections = useMemo(() => parsePlan(text), [text])
  const fold = (next) => () => {
    setOpen(next)
    setTurn(turn + 1)
  }
  return html`<div class="sql-plan">
    <div class="sql-tools">
      <button type="button" onClick=${fold(true)}>Open all</button>
      <button type="button" onClick=${fold(false)}>Fold all</button>
      <span class="about">Rows flow upwards. Point at an operator to see what it does.</span>
    </div>
    ${sections.map(
      (section, index) =>
        html`<div key=${`${index}/${turn}`}>
          ${section.title && html`<h2>${section.title}</h2>`}
          ${section.nodes
            ? html`<ul class="plan-tree">
                ${section.nodes.map((node, at) => html`<${Node} key=${at} node=${node} isOpen=${isOpen} />`)}
              </ul>`
            : html`<${Code}>${section.text}<//>`}
        </div>`,
    )}
  </div>`
}
