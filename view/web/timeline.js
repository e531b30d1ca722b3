// The timeline: a ruler, and below it a track for each task, with a row for each depth of calls. Only what is visible
// is drawn, and only what is visible is asked for. While a tile is on its way, those of other zooms stand in for it.

import { state, change, show } from "./state.js";
import { color, ofFunction } from "./colors.js";
import { duration, moment, grouped } from "./format.js";
import * as tiles from "./tiles.js";

export const gutter = 190, ruler = 26, heading = 18, rowHeight = 18, laneGap = 4;
const font = "12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";

let canvas, g, cssWidth = 0, cssHeight = 0, drawn = 0, layout = [];
let hits = []; // boxes on the screen: {x, y, w, h, box...}
let matches = null; // names that the search is for, or null
const folded = new Set();
export const drag = { from: null, to: null };

export function setup(element) {
  canvas = element;
  g = canvas.getContext("2d", { alpha: false });
  new ResizeObserver(redraw).observe(canvas);
  tiles.onArrival(redraw);
}

export function redraw() {
  if (!drawn) drawn = requestAnimationFrame(() => { drawn = 0; draw(); });
}

export const plotWidth = () => Math.max(10, cssWidth - gutter);
export const nsPerPixel = () => (state.to - state.from) / plotWidth();
export const timeAt = (x) => state.from + (x - gutter) * nsPerPixel();
export const xOf = (ns) => gutter + (ns - state.from) / nsPerPixel();

export function setMatches(text) { matches = text ? text.toLowerCase() : null; }

const isMatch = (name) => matches !== null && name.toLowerCase().includes(matches);

// arrange says where each task is, from 0 down.
function arrange() {
  const about = state.about;
  let y = 0, process = -1;
  layout = [];
  const order = about.order || (about.order = about.tasks.map((_, i) => i).sort((a, b) =>
    about.tasks[a].process - about.tasks[b].process || a - b));
  for (const i of order) {
    const task = about.tasks[i];
    if (about.processes.length > 1 && task.process !== process) {
      process = task.process;
      layout.push({ process, y, h: heading + 2 });
      y += heading + 2;
    }
    const lanes = [];
    let h = heading;
    if (!folded.has(i)) {
      for (const n of tiles.rowsOf(i)) {
        lanes.push(h);
        h += Math.max(n || 0, lanes.length === 1 ? 1 : 0) * rowHeight + (n ? laneGap : 0);
      }
    }
    layout.push({ task: i, y, h, lanes });
    y += h + 3;
  }
  return y;
}

export function draw() {
  if (!state.about || !canvas.clientWidth) return;
  const ratio = window.devicePixelRatio || 1;
  cssWidth = canvas.clientWidth;
  cssHeight = canvas.clientHeight;
  const w = Math.round(cssWidth * ratio), h = Math.round(cssHeight * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const height = arrange();
  const top = Math.max(0, Math.min(state.top, height - (cssHeight - ruler) + 40));
  if (top !== state.top) change({ top });
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.fillStyle = color("ground");
  g.fillRect(0, 0, cssWidth, cssHeight);
  g.font = font;
  g.textBaseline = "middle";
  hits = [];
  const step = drawGrid();
  const wanted = [];
  g.save();
  g.beginPath();
  g.rect(0, ruler, cssWidth, cssHeight - ruler);
  g.clip();
  for (const part of layout) {
    const y = ruler + part.y - state.top;
    if (y > cssHeight || y + part.h < ruler) continue;
    if (part.task === undefined) drawProcess(part, y);
    else drawTask(part, y, wanted);
  }
  drawOver();
  g.restore();
  drawRuler(step);
  tiles.want(wanted);
  canvas.dataset.waiting = String(tiles.waiting()); // for whoever looks from outside whether all is there
}

// drawGrid draws lines behind everything, and returns the time between two.
function drawGrid() {
  const least = nsPerPixel() * 120;
  let step = 10 ** Math.floor(Math.log10(least));
  for (const m of [1, 2, 5, 10]) {
    if (step * m >= least) { step *= m; break; }
  }
  step = Math.max(1, step);
  g.fillStyle = color("grid");
  for (let t = Math.ceil(state.from / step) * step; t < state.to; t += step) {
    g.fillRect(Math.round(xOf(t)), ruler, 1, cssHeight);
  }
  return step;
}

function drawRuler(step) {
  g.fillStyle = color("raised");
  g.fillRect(0, 0, cssWidth, ruler);
  g.fillStyle = color("line");
  g.fillRect(0, ruler - 1, cssWidth, 1);
  g.fillRect(gutter - 1, 0, 1, cssHeight);
  for (let t = Math.max(0, Math.ceil(state.from / step) * step); t < state.to; t += step) {
    const x = Math.round(xOf(t));
    if (x < gutter) continue;
    g.fillStyle = color("line");
    g.fillRect(x, ruler - 8, 1, 8);
    g.fillStyle = color("faint");
    g.fillText(moment(t, step), x + 4, ruler / 2);
  }
  g.fillStyle = color("raised");
  g.fillRect(0, 0, gutter - 1, ruler - 1);
  g.fillStyle = color("faint");
  g.fillText(`${duration(state.to - state.from)} visible`, 10, ruler / 2);
}

function drawProcess(part, y) {
  const p = state.about.processes[part.process];
  g.fillStyle = color("raised");
  g.fillRect(0, y, cssWidth, part.h);
  g.fillStyle = color("text");
  const ended = p.exit && p.exit !== "0" ? `  ended with ${p.exit}` : "";
  label(`process ${p.pid}  ${p.command || ""}${ended}`, 10, y + part.h / 2, cssWidth - 20);
}

function drawTask(part, y, wanted) {
  const task = state.about.tasks[part.task];
  g.fillStyle = color("line");
  g.fillRect(0, y + part.h + 1, cssWidth, 1);
  const mine = state.task === part.task || state.process === task.process && state.process >= 0;
  if (mine) {
    g.fillStyle = color("range");
    g.fillRect(0, y, gutter - 1, part.h);
  }
  g.fillStyle = color("text");
  label(`${folded.has(part.task) ? "\u25b8" : "\u25be"} ${task.name} ${task.tid}`, 10, y + heading / 2, gutter - 18);
  g.fillStyle = color("faint");
  for (const [lane, at] of part.lanes.entries()) {
    if (lane > 0 && tiles.rowsOf(part.task)[lane]) label("  another stack", 16, y + at + rowHeight / 2, gutter - 26);
  }
  if (tiles.isCut(part.task) && part.h > 3 * heading) {
    label("not all calls are drawn", 10, y + part.h - 10, gutter - 18);
  }
  g.save();
  g.beginPath();
  g.rect(gutter, ruler, cssWidth - gutter, cssHeight);
  g.clip();
  // When the task was there.
  const x0 = Math.max(gutter, xOf(task.start)), x1 = Math.min(cssWidth, xOf(task.end));
  g.fillStyle = color("line");
  if (x1 >= gutter && x0 <= cssWidth) g.fillRect(x0, y + heading / 2, Math.max(1, x1 - x0), 1);
  if (!folded.has(part.task)) drawTiles(part, y, task, wanted);
  g.restore();
}

// drawTiles draws what is visible of a task, from the tiles that there are, and says which there should be.
function drawTiles(part, y, task, wanted) {
  const level = tiles.levelFor(nsPerPixel(), state.about.levels), width = tiles.width(level);
  const last = Math.floor(Math.min(state.to, task.end, state.about.end) / width);
  let before = false; // the tile to the left has been drawn
  for (let i = Math.max(0, Math.floor(Math.max(state.from, task.start) / width)); i <= last; i++) {
    const tile = tiles.peek(part.task, level, i);
    if (tile) {
      if (tile.partial) wanted.push([part.task, level, i]);
      drawTile(part, y, tile, before, null);
      before = true;
      continue;
    }
    wanted.push([part.task, level, i]);
    before = false;
    standIn(part, y, level, i);
  }
}

// standIn draws what other zooms know of a tile.
function standIn(part, y, level, index) {
  const from = index * tiles.width(level), to = from + tiles.width(level);
  for (let up = 1; up <= 12 && level + up < state.about.levels; up++) {
    const tile = tiles.peek(part.task, level + up, Math.floor(index / 2 ** up));
    if (tile) {
      drawTile(part, y, tile, false, [from, to]);
      return;
    }
  }
  for (let down = 1; down <= 3 && level >= down; down++) {
    let any = false;
    for (let i = index * 2 ** down; i < (index + 1) * 2 ** down; i++) {
      const tile = tiles.peek(part.task, level - down, i);
      if (tile) {
        drawTile(part, y, tile, false, null);
        any = true;
      }
    }
    if (any) return;
  }
}

function drawTile(part, y, tile, before, clip) {
  if (clip) {
    g.save();
    g.beginPath();
    g.rect(xOf(clip[0]), ruler, xOf(clip[1]) - xOf(clip[0]), cssHeight);
    g.clip();
  }
  const scale = 1 / nsPerPixel();
  for (const [lane, row, start, dur, fn, calls, kind] of tile.boxes) {
    if (before && start < tile.start) continue; // the tile to the left has drawn it
    if (start > state.to || start + dur < state.from) continue;
    const at = part.lanes[lane];
    if (at === undefined) continue;
    const by = y + at + row * rowHeight;
    if (by > cssHeight || by + rowHeight < ruler) continue;
    drawBox(part, tile.funcs[fn], gutter + (start - state.from) * scale, by, dur * scale,
      { lane, row, start, dur, calls, kind });
  }
  for (const note of tile.notes) drawNote(part, y, note);
  if (clip) g.restore();
}

function drawBox(part, fn, x, y, w, box) {
  const right = Math.min(x + Math.max(w, 1), cssWidth + 5);
  x = Math.max(x, gutter - 5);
  w = Math.max(right - x, 1);
  const single = box.calls === 1, match = isMatch(fn.name), focus = state.fn && state.fn.id === fn.id;
  const dim = matches !== null && !match;
  g.globalAlpha = dim ? 0.3 : single ? 1 : 0.75;
  g.fillStyle = match && w < 6 ? color("match") : ofFunction(fn);
  g.fillRect(x, y, w > 3 ? w - 0.75 : w, rowHeight - 1);
  g.globalAlpha = 1;
  if (w > 26) {
    g.fillStyle = color(dim ? "faint" : "box-text");
    const text = single ? fn.name : `${grouped(box.calls)} \u00d7 ${fn.name}`;
    label(text, Math.max(x, gutter) + 4, y + rowHeight / 2, right - Math.max(x, gutter) - 8);
  }
  if ((match || focus) && w > 3) {
    g.strokeStyle = color(match ? "match" : "select");
    g.lineWidth = 1.5;
    g.strokeRect(x + 1, y + 1, w - 2.5, rowHeight - 3);
  }
  hits.push({ x, y, w, h: rowHeight, task: part.task, fn, ...box });
}

function drawNote(part, y, note) {
  if (note.time < state.from || note.time > state.to) return;
  const x = xOf(note.time), mid = y + heading / 2;
  const hit = { x: x - 6, y: mid - 7, w: 12, h: 14, task: part.task, note };
  g.fillStyle = color(note.kind === "lost" ? "match" : note.kind === "signal" ? "warn" : "accent");
  g.beginPath();
  g.moveTo(x - 5, mid - 5);
  g.lineTo(x + 5, mid - 5);
  g.lineTo(x, mid + 5);
  g.closePath();
  g.fill();
  if (state.note && sameNote(hit, state.note)) {
    g.strokeStyle = color("select");
    g.lineWidth = 2.5;
    g.stroke();
  }
  hits.push(hit);
}

// drawOver draws the selection.
function drawOver() {
  const range = drag.from !== null ? { from: Math.min(drag.from, drag.to), to: Math.max(drag.from, drag.to) }
    : state.range;
  if (range) {
    const x0 = Math.max(gutter, xOf(range.from)), x1 = Math.min(cssWidth + 2, xOf(range.to));
    if (x1 >= gutter && x0 <= cssWidth) {
      g.fillStyle = color("range");
      g.fillRect(x0, ruler, x1 - x0, cssHeight);
      g.fillStyle = color("accent");
      g.fillRect(x0, ruler, 1, cssHeight);
      g.fillRect(x1 - 1, ruler, 1, cssHeight);
    }
  }
  const c = state.call;
  if (!c) return;
  const hit = hits.find((b) => !b.note && same(b, c));
  if (!hit) return;
  g.strokeStyle = color("select");
  g.lineWidth = 2.5;
  const left = Math.max(hit.x, gutter);
  g.strokeRect(left + 1, hit.y + 1, Math.max(2, hit.x + hit.w - left - 2), rowHeight - 3);
}

export const same = (b, c) =>
  b.task === c.task && b.row === c.row && b.fn.id === c.id && Math.abs(b.start - c.start) <= 2 && b.calls === 1;

export const sameNote = (b, n) => b.task === n.task && b.note.time === n.time && b.note.kind === n.kind;

// label draws as much of a text as there is room for.
const widths = new Map();

function label(text, x, y, room) {
  if (room < 12) return;
  let w = widths.get(text);
  if (w === undefined) {
    w = g.measureText(text).width;
    if (widths.size > 20000) widths.clear();
    widths.set(text, w);
  }
  if (w > room) {
    const n = Math.floor(text.length * (room - 8) / w);
    if (n < 2) return;
    text = text.slice(0, n) + "\u2026";
  }
  g.fillText(text, x, y);
}

// hitAt returns what is at a place on the screen.
export function hitAt(x, y) {
  if (y < ruler || x < gutter) return null;
  for (let i = hits.length - 1; i >= 0; i--) {
    const b = hits[i];
    if (x >= b.x - 0.5 && x <= b.x + b.w + 0.5 && y >= b.y && y < b.y + b.h) return b;
  }
  return null;
}

// trackAt returns the track at a height: {task} or {process}.
export function trackAt(y) {
  const at = y - ruler + state.top;
  return y < ruler ? null : layout.find((p) => at >= p.y && at < p.y + p.h + 3) || null;
}

export function fold(task) {
  if (!folded.delete(task)) folded.add(task);
  redraw();
}

// visible are the boxes of a task on the screen.
export const visible = (task) => hits.filter((b) => !b.note && b.task === task && b.calls === 1);

// visibleNotes are the notes on the screen.
export const visibleNotes = () => hits.filter((b) => b.note);

// reveal scrolls so that a row of a task can be seen.
export function reveal(task, row) {
  arrange();
  const part = layout.find((p) => p.task === task);
  if (!part) return;
  const y = part.y + (part.lanes[0] || heading) + Math.min(row, 12) * rowHeight, room = cssHeight - ruler;
  if (y - state.top < heading || y - state.top > room - 3 * rowHeight) change({ top: Math.max(0, part.y - 10) });
}

// zoom changes the visible time around a place of the screen.
export function zoom(factor, x = gutter + plotWidth() / 2) {
  const at = timeAt(Math.max(gutter, x)), width = (state.to - state.from) * factor;
  const from = at - (Math.max(gutter, x) - gutter) / plotWidth() * width;
  show(from, from + width);
}

export function pan(share) {
  const by = (state.to - state.from) * share;
  show(state.from + by, state.to + by);
}
