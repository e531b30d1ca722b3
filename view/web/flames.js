// A flame graph, the outermost calls on top: each box is a call path, as wide as its part of the time. A click makes
// a box the whole width.

import { color, ofFunction } from "./colors.js";
import { duration, grouped, percent } from "./format.js";
import { state } from "./state.js";

const rowHeight = 19;

// show shows a flame graph in a canvas inside of element, zoomed to a path of names if there is such a one; choose gets
// the function of a box that is clicked twice.
export function show(element, data, path, tip, choose) {
  const canvas = document.createElement("canvas");
  canvas.id = "flames";
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Flame graph; the tab Functions has the same numbers as a table.");
  element.replaceChildren(canvas);
  let zoomed = data.root, hits = [];
  const depthOf = (n) => 1 + Math.max(0, ...(n.k || []).map(depthOf));
  const parents = new Map();
  const link = (n) => (n.k || []).forEach((k) => { parents.set(k, n); link(k); });
  link(data.root);
  const name = (n) => n.f < 0 ? "all" : data.funcs[n.f].name;
  for (const step of path || []) zoomed = (zoomed.k || []).find((n) => name(n) === step) || zoomed;

  function draw() {
    const path = [];
    for (let n = parents.get(zoomed); n; n = parents.get(n)) path.unshift(n);
    const ratio = window.devicePixelRatio || 1, w = element.clientWidth;
    const h = Math.max(element.clientHeight - 4, (path.length + depthOf(zoomed)) * rowHeight + 4);
    canvas.style.height = h + "px";
    canvas.width = w * ratio;
    canvas.height = h * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
    g.textBaseline = "middle";
    hits = [];
    const box = (n, x, width, row) => {
      if (width < 0.5) return;
      const y = row * rowHeight + 2, text = name(n);
      const match = state.query && text.toLowerCase().includes(state.query.toLowerCase());
      g.globalAlpha = state.query && !match ? 0.4 : 1;
      g.fillStyle = n.f < 0 ? color("raised") : ofFunction(data.funcs[n.f]);
      g.fillRect(x, y, Math.max(0.5, width - 0.75), rowHeight - 1);
      g.globalAlpha = 1;
      if (match) {
        g.strokeStyle = color("match");
        g.strokeRect(x + 1, y + 1, Math.max(1, width - 2.5), rowHeight - 3);
      }
      if (width > 28) {
        g.fillStyle = color("box-text");
        let shown = text;
        const room = width - 8, full = g.measureText(text).width;
        if (full > room) shown = text.slice(0, Math.max(1, Math.floor(text.length * (room - 8) / full))) + "\u2026";
        g.fillText(shown, x + 4, y + rowHeight / 2);
      }
      hits.push({ x, y, w: width, n });
    };
    path.forEach((n, row) => box(n, 0, w, row));
    const down = (n, x, width, row) => {
      box(n, x, width, row);
      if (width < 0.5) return;
      for (const k of n.k || []) {
        const part = n.t > 0 ? width * k.t / n.t : 0;
        down(k, x, part, row + 1);
        x += part;
      }
    };
    down(zoomed, 0, w, path.length);
  }

  const at = (ev) => {
    const r = canvas.getBoundingClientRect(), x = ev.clientX - r.left, y = ev.clientY - r.top;
    return hits.find((b) => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + rowHeight);
  };
  canvas.addEventListener("pointermove", (ev) => {
    const hit = at(ev);
    tip(ev, hit && [name(hit.n), `${duration(hit.n.t)} total, ${percent(hit.n.t, data.root.t)} %`,
      `${duration(hit.n.s)} self` + (data.samples ? "" : `, ${grouped(hit.n.n)} calls`),
        "Click: its part; twice: the function"]);
  });
  canvas.addEventListener("pointerleave", (ev) => tip(ev, null));
  canvas.addEventListener("click", (ev) => {
    const hit = at(ev);
    if (!hit) return;
    zoomed = hit.n;
    draw();
    if (hit.n.f >= 0 && (ev.altKey || ev.detail === 2)) choose(data.funcs[hit.n.f]);
  });
  canvas.addEventListener("keydown", (ev) => {
    const first = (zoomed.k || [])[0], up = parents.get(zoomed);
    const next = { ArrowDown: first, ArrowUp: up, Escape: data.root }[ev.key];
    const beside = (by) => up && up.k[up.k.indexOf(zoomed) + by];
    const to = next || ev.key === "ArrowRight" && beside(1) || ev.key === "ArrowLeft" && beside(-1);
    if (!to) return;
    ev.preventDefault();
    ev.stopPropagation();
    zoomed = to;
    const text = `${name(to)}: ${duration(to.t)} total, ${duration(to.s)} self, ${grouped(to.n)} calls`;
    canvas.setAttribute("aria-label", text);
    draw();
  });
  new ResizeObserver(() => { if (canvas.isConnected) draw(); }).observe(element);
  draw();
  const names = () => {
    const list = [];
    for (let n = zoomed; n && n.f >= 0; n = parents.get(n)) list.unshift(name(n));
    return list;
  };
  return { draw, path: names };
}
