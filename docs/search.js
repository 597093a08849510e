// SPDX-License-Identifier: Apache-2.0
// The search takes a leading "-" for "without", so `--watch` would find nothing.
const query = document.querySelector("[data-md-component=search-query]");
const { get, set } = Object.getOwnPropertyDescriptor(
  HTMLInputElement.prototype, "value");
Object.defineProperty(query, "value", {
  get: () => get.call(query).replace(/(^|\s)--+|-+(?=\s|$)/g, "$1"),
  set: (text) => set.call(query, text),
});
