// State of a page that its address keeps: its tab, filters and orders.

import { isNone } from "./format.js"

/** The address of the page with some parameters changed; null or an empty text removes one. */
export function pageLink(route, values) {
  const next = new URLSearchParams(route.parameters)
  for (const [name, value] of Object.entries(values))
    isNone(value) || value === "" ? next.delete(name) : next.set(name, value)
  const text = next.toString()
  return `#/${route.path.map(encodeURIComponent).join("/")}${text ? "?" + text : ""}`
}

/** Values of the address behind `?`, and a function that changes some of them; null removes one. */
export function useParameters(route) {
  const change = (values) => {
    history.replaceState(null, "", pageLink(route, values))
    dispatchEvent(new HashChangeEvent("hashchange"))
  }
  return [route.parameters, change]
}

/** The value of the address if it is one of those that are possible, else the first of them. */
export const chosenOf = (possible, value) => (possible.includes(value) ? value : possible[0])

/** Properties of a Table that keep its order in the address, as `key-asc`. */
export const sorting = (parameters, change, name = "order", initial = "") => ({
  order: (parameters.get(name) ?? initial).split("-"),
  onOrder: (order) => change({ [name]: order.join("-") }),
})

/** Open another tab; filters of the former one end, but for those that mean the same on each. */
export const openTab = (parameters, change, tab, kept = []) => {
  const ended = [...parameters.keys()].filter((name) => !kept.includes(name))
  change({ ...Object.fromEntries(ended.map((name) => [name, null])), tab })
}
