// A graph of a value over the last minutes, with its limit.
import { el, svg, replace } from "./dom.js";

const kept = 90; // samples
const width = 300, height = 64;

export class Graph {
  constructor(name, format) {
    this.samples = [];
    this.format = format;
    this.value = el("output", "–");
    this.line = svg("path", { class: "line" });
    this.area = svg("path", { class: "area" });
    this.limit = svg("line", { class: "limit", x1: 0, x2: width, display: "none" });
    this.picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" }, this.area, this.line, this.limit);
    this.element = el("div.graph", el("header", el("h3", name), this.value), this.picture);
    this.name = name;
  }

  // add adds a sample. limit is 0 without a limit.
  add(value, limit) {
    this.samples.push(value);
    if (this.samples.length > kept) this.samples.shift();
    const peak = Math.max(...this.samples, 0);
    const near = limit > 0 && value > 0.9 * limit;
    // The limit is in the picture once the values come close to it: before, it would flatten them.
    const top = limit > 0 && peak > limit / 4 ? limit * 1.08 : peak * 1.3 || 1;
    const y = (v) => (height - (v / top) * height).toFixed(1);
    const from = kept - this.samples.length;
    const points = this.samples.map((v, i) => `${(((from + i) / (kept - 1)) * width).toFixed(1)} ${y(v)}`);
    this.line.setAttribute("d", `M${points.join("L")}`);
    this.area.setAttribute("d", `M${((from / (kept - 1)) * width).toFixed(1)} ${height}L${points.join("L")}L${width} ${height}Z`);
    const limited = limit > 0 && limit <= top;
    this.limit.setAttribute("display", limited ? "inline" : "none");
    if (limited) {
      this.limit.setAttribute("y1", y(limit));
      this.limit.setAttribute("y2", y(limit));
    }
    this.element.classList.toggle("near", near);
    replace(this.value, this.format(value), limit > 0 ? el("small", ` of ${this.format(limit)}`) : null);
    this.picture.setAttribute("aria-label", `${this.name}: ${this.format(value)}${limit > 0 ? ` of ${this.format(limit)}` : ""}`);
  }
}
