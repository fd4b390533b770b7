// Runs the script of a page without a browser: node page_in_node.js PAGE EXPRESSION.
// Elements take everything and draw nothing; `saved` holds what was downloaded, `answers`
// what the server says to requests, and `hear` tells the page what came by WebSocket.
"use strict";
const fs = require("fs"), vm = require("vm");
const page = fs.readFileSync(process.argv[2], "utf-8");
const [, dataId, data] = /<script type="application\/json" id="(\w+)">(.*?)<\/script>/s.exec(page);
const script = /<script>\n(.*?)<\/script><\/body>/s.exec(page)[1];

const pen = new Proxy({}, { get: (known, name) => known[name] ?? (() => {}), set: () => true });
class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], style: {}, dataset: {}, heard: {}, classList: { toggle() {} }, scrollTop: 0, clientWidth: 1000, text: "" });
  }
  appendChild(child) { this.children.push(child); return child; }
  append(text) { this.children.push(text); }
  replaceChildren() { this.children = []; }
  setAttribute(name, value) { this[name] = value; }
  removeAttribute(name) { delete this[name]; }
  addEventListener(event, action) { this.heard[event] = action; }
  getBoundingClientRect() { return { left: 0, top: 0, width: 1000, height: 700 }; }
  getContext() { return pen; }
  contains(other) { return this === other || this.children.some(child => child.contains && child.contains(other)); }
  // A button acts; a link with a name downloads.
  click() { if (this.download) saved[this.download] = this.href; else this.heard.click({ target: this }); }
}
const saved = {}, charts = {}, elements = {}, answers = {};
for (const [, name] of page.matchAll(/data-chart=(\w+)/g)) charts[name] = new Element("div");
const document = new Element("document");
Object.assign(document, {
  body: new Element("body"), documentElement: new Element("html"),
  getElementById: id => id === dataId ? { textContent: data } : (elements[id] ??= new Element("div")),
  createElement: tag => new Element(tag),
  querySelector: wanted => charts[/=(\w+)/.exec(wanted)[1]],
});
const everything = element => [element, ...element.children.flatMap(child => child.children ? everything(child) : [])];
Object.assign(globalThis, {
  document, saved, charts, everything, elements, answers, window: globalThis, innerWidth: 1000, innerHeight: 700, devicePixelRatio: 1,
  addEventListener() {}, matchMedia: () => new Element(), requestAnimationFrame: action => action(),
  getComputedStyle: () => ({ getPropertyValue: () => "#123456", maxHeight: "1440px", gridTemplateColumns: "500px 500px" }),
  location: { search: "?token=x", href: "http://127.0.0.1:1/?token=x" },
  fetch: async url => ({ json: async () => answers[url] }),
  WebSocket: class extends Element { constructor() { super("socket"); globalThis.hear = message => this.heard.message({ data: JSON.stringify(message) }); } },
  Blob: class { constructor(parts) { this.content = parts.join(""); } },
  press: (chart, text) => everything(charts[chart]).find(one => one.textContent === text).click(),
});
URL.createObjectURL = blob => blob.content;
URL.revokeObjectURL = () => {};
vm.runInThisContext(script);
// Not console.log: what it has not written by the exit, beyond 64 kB, is lost.
Promise.resolve(vm.runInThisContext(process.argv[3])).then(found => { fs.writeFileSync(1, JSON.stringify(found)); process.exit(); });
