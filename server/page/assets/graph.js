// A graph of a value over the last minutes. Its top is the limit, or a round number above the values.
import { el, svg, replace } from "./dom.js";

const span = 300; // seconds
const gap = 45; // seconds without a sample, after which the line begins again
const most = 400; // samples
const width = 300, height = 72;

// above returns a round number that is not below n: for bytes a power of two, otherwise 1, 2 or 5 with zeros.
function above(n, binary) {
  if (!(n > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(n));
  const unit = 10 ** Math.floor(Math.log10(n));
  return unit * [1, 2, 5, 10].find((m) => m * unit >= n * 0.999999);
}

export class Graph {
  constructor(name, format, binary = false) {
    this.samples = []; // [time in seconds, value]
    this.format = format;
    this.binary = binary;
    this.value = el("output", "–");
    this.line = svg("path", { class: "line" });
    this.area = svg("path", { class: "area" });
    this.middle = svg("line", { class: "grid", x1: 0, x2: width, y1: height / 2, y2: height / 2 });
    this.edge = svg("line", { class: "limit", x1: 0, x2: width, y1: 0, y2: 0 });
    this.picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" }, this.middle, this.edge, this.area, this.line);
    this.top = el("span.top");
    this.element = el("div.graph", el("header", el("h3", name), this.value), el("div.plot", this.top, this.picture, el("span.zero", "0")), el("div.axis", { "aria-hidden": "true" }, el("span", "5 min ago"), el("span", "now")));
    this.name = name;
  }

  // before puts samples that the server kept in front of those that are here.
  before(samples) {
    const first = this.samples[0]?.[0] ?? Infinity;
    this.samples = [...samples.filter(([t]) => t < first), ...this.samples];
  }

  // add adds a sample of now, in seconds. limit is 0 without a limit.
  add(value, limit, now) {
    this.samples.push([now, value]);
    while (this.samples.length > most || this.samples[0][0] < now - span) this.samples.shift();
    this.draw(value, limit, now);
  }

  draw(value, limit, now) {
    const top = limit > 0 ? limit : above(Math.max(...this.samples.map(([, v]) => v)), this.binary);
    const x = (t) => (width - ((now - t) / span) * width).toFixed(1);
    const y = (v) => (height - (Math.min(v, top) / top) * height).toFixed(1);
    let line = "", area = "", from = 0;
    this.samples.forEach(([t, v], i) => {
      const begins = i === 0 || t - this.samples[i - 1][0] > gap;
      if (begins) from = t;
      line += `${begins ? "M" : "L"}${x(t)} ${y(v)}`;
      area += `${begins ? `M${x(t)} ${height}L` : "L"}${x(t)} ${y(v)}`;
      const ends = i + 1 === this.samples.length || this.samples[i + 1][0] - t > gap;
      if (ends) area += `L${x(t)} ${height}L${x(from)} ${height}Z`;
    });
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
    this.edge.classList.toggle("limited", limit > 0);
    this.element.classList.toggle("near", limit > 0 && value > 0.9 * limit);
    replace(this.top, this.format(top), limit > 0 ? " limit" : null);
    replace(this.value, this.format(value), limit > 0 ? el("small", ` of ${this.format(limit)}`) : null);
    this.picture.setAttribute("aria-label", `${this.name} in the last 5 minutes: now ${this.format(value)}${limit > 0 ? ` of ${this.format(limit)}` : ""}`);
  }
}
