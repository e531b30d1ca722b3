// The page: what keys, the mouse and the address do.

import { state, change, show, scope, listen, restore } from "./state.js";
import * as api from "./api.js";
import * as timeline from "./timeline.js";
import * as panel from "./panel.js";
import { readTheme } from "./colors.js";
import { byId, make } from "./dom.js";
import { duration, moment, grouped, setClockless } from "./format.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const say = (text) => { byId("status").textContent = text; };

// Themes

let chosenTheme = "";

function setTheme() {
  document.documentElement.dataset.theme = chosenTheme || (dark.matches ? "dark" : "light");
  readTheme();
  timeline.redraw();
  panel.retheme();
}

// The tip beside the pointer

function tip(ev, lines) {
  const box = byId("tip");
  box.hidden = !lines;
  if (!lines) return;
  box.replaceChildren(make("b", {}, lines[0]), ...lines.slice(1).filter(Boolean).map((l) => make("div", {}, l)));
  const room = document.documentElement.getBoundingClientRect();
  box.style.position = "fixed";
  const w = box.offsetWidth, h = box.offsetHeight;
  box.style.left = Math.max(4, Math.min(ev.clientX + 14, room.width - w - 6)) + "px";
  box.style.top = Math.max(4, ev.clientY + 18 + h > room.height ? ev.clientY - h - 10 : ev.clientY + 18) + "px";
}

function tipOf(hit) {
  if (!hit) return null;
  if (hit.note) return [hit.note.kind, hit.note.text, moment(hit.note.time), "Click: all of it"];
  const several = hit.calls !== 1;
  return [
    several ? `${grouped(hit.calls)} or more short calls, mostly of ${hit.fn.name}` : hit.fn.name,
    `${duration(hit.dur)}${several ? " together" : ""}`, `at ${moment(hit.start)}, depth ${hit.row + 1}`,
    several ? "Zoom in to see them"
      : { 3: "unwound: it did not return", 4: "unfinished: it was open at the end" }[hit.kind],
  ];
}

// Moving, at once or, where motion is wanted, in a few frames

let moving = 0;

function moveTo(from, to) {
  cancelAnimationFrame(moving);
  if (calm.matches) {
    show(from, to);
    return;
  }
  const begin = performance.now(), old = [state.from, state.to], time = 140;
  const frame = (now) => {
    const part = Math.min(1, (now - begin) / time), ease = 1 - (1 - part) ** 3;
    show(old[0] + (from - old[0]) * ease, old[1] + (to - old[1]) * ease);
    if (part < 1) moving = requestAnimationFrame(frame);
  };
  moving = requestAnimationFrame(frame);
}

// centre is the time around which keys zoom: below the pointer, or else that of what is selected, if it can be seen.
function centre() {
  if (pointerX !== null) return timeline.timeAt(Math.max(timeline.gutter, pointerX));
  const c = state.call, n = state.note, at = c ? c.start + c.dur / 2 : n ? n.time : -1;
  return at >= state.from && at <= state.to ? at : (state.from + state.to) / 2;
}

function zoomBy(factor) {
  const at = centre();
  moveTo(at - (at - state.from) * factor, at + (state.to - at) * factor);
}

function panBy(share) {
  const by = (state.to - state.from) * share;
  moveTo(state.from + by, state.to + by);
}

function zoomTo(from, to) {
  const margin = Math.max(5, (to - from) * 0.06);
  moveTo(from - margin, to + margin);
}

// Calls

const asCall = (c) => ({ task: c.task, row: c.row, start: c.start, dur: c.dur, id: c.id, name: c.name });

function describe(c) {
  const task = state.about.tasks[c.task];
  say(`${c.name}, ${duration(c.dur)}, at ${moment(c.start)}, ${task.name} ${task.tid}`);
}

function select(hit) {
  const c = asCall({ ...hit, id: hit.fn.id, name: hit.fn.name });
  change({ call: c, note: null });
  describe(c);
}

function selectNote(hit) {
  change({ note: { task: hit.task, time: hit.note.time, kind: hit.note.kind }, call: null });
  say(`${hit.note.kind}: ${hit.note.text}, at ${moment(hit.note.time)}`);
}

// nextNote selects the next note on the screen, or the one before.
function nextNote(sign) {
  const list = timeline.visibleNotes().sort((a, b) => sign * (a.note.time - b.note.time) || a.task - b.task);
  const n = state.note, at = n ? list.findIndex((b) => timeline.sameNote(b, n)) : -1;
  if (list.length === 0) say("No mark, signal or stack can be seen.");
  else selectNote(list[(at + 1) % list.length]);
}

// goTo selects a call, and zooms so that it can be seen.
async function goTo(call, keepZoom) {
  const c = asCall(call);
  if (c.dur < 0) {
    const d = await api.call({ ...c, dur: 0 });
    c.dur = Math.max(0, d.dur);
  }
  change({ call: c, note: null });
  const width = state.to - state.from, wide = c.dur / width * timeline.plotWidth();
  const middle = c.start + c.dur / 2;
  if (keepZoom && wide >= 3 && wide <= timeline.plotWidth()) moveTo(middle - width / 2, middle + width / 2);
  else zoomTo(c.start - c.dur * 0.4, c.start + c.dur * 1.4);
  timeline.reveal(c.task, c.row);
  describe(c);
}

// Search

let searching = null;

async function jump(back) {
  const text = byId("query").value.trim();
  if (!text && !state.fn) return;
  if (searching) searching.abort();
  const mine = searching = new AbortController();
  const { task, process } = scope(), c = state.call, end = state.about.end + 1;
  // From the selected call on, or else from where the screen begins or ends; once more around if there is none.
  const asks = back ? [[0, c ? c.start : Math.ceil(state.to)], [0, end]]
    : [[c ? c.start : Math.floor(state.from), end], [0, end]];
  const ask = ([from, to]) => api.find({
    task, process, from: Math.max(0, Math.min(from, end)), to: Math.max(0, to), fn: text ? undefined : state.fn.id,
  }, text, back, mine.signal);
  say("Searching\u2026");
  try {
    const found = await ask(asks[0]), around = !found && await ask(asks[1]);
    if (mine.signal.aborted) return;
    if (!found && !around) {
      say("No call of such a function.");
      return;
    }
    await goTo(found || around, true);
    if (around) say(`${back ? "From the end" : "From the beginning"}: ${byId("status").textContent}`);
  } catch (error) {
    if (!mine.signal.aborted) say(String(error.message || error));
  }
}

// The mouse

let pointerX = null, pressed = null;

function setupPointer(canvas) {
  const place = (ev) => {
    const r = canvas.getBoundingClientRect();
    return [ev.clientX - r.left, ev.clientY - r.top];
  };
  canvas.addEventListener("wheel", (ev) => {
    ev.preventDefault();
    const [x] = place(ev);
    const size = ev.deltaMode === 1 ? 30 : 1;
    if (ev.ctrlKey || ev.metaKey) timeline.zoom(Math.exp(Math.max(-1, Math.min(1, ev.deltaY * size / 240))), x);
    else if (ev.shiftKey || Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) {
      timeline.pan((ev.deltaX || ev.deltaY) * size / timeline.plotWidth());
    } else change({ top: Math.max(0, state.top + ev.deltaY * size) });
  }, { passive: false });
  canvas.addEventListener("pointerdown", (ev) => {
    if (ev.button > 1) return;
    const [x, y] = place(ev);
    pressed = { x, y, pan: ev.shiftKey || ev.button === 1, from: state.from, to: state.to, top: state.top,
      moved: false };
    canvas.setPointerCapture(ev.pointerId);
  });
  canvas.addEventListener("pointermove", (ev) => {
    const [x, y] = place(ev);
    pointerX = x;
    if (!pressed) {
      const hit = timeline.hitAt(x, y);
      tip(ev, tipOf(hit));
      canvas.style.cursor = hit ? "pointer" : x < timeline.gutter ? "default" : "crosshair";
      byId("clock").textContent = x >= timeline.gutter
        ? moment(Math.max(0, timeline.timeAt(x)), timeline.nsPerPixel()) : "";
      return;
    }
    if (Math.abs(x - pressed.x) + Math.abs(y - pressed.y) > 4) pressed.moved = true;
    if (!pressed.moved || pressed.x < timeline.gutter) return;
    tip(ev, null);
    if (pressed.pan) {
      const by = (pressed.x - x) * (pressed.to - pressed.from) / timeline.plotWidth();
      show(pressed.from + by, pressed.to + by);
      change({ top: Math.max(0, pressed.top + pressed.y - y) });
    } else {
      timeline.drag.from = Math.max(0, timeline.timeAt(Math.max(timeline.gutter, pressed.x)));
      timeline.drag.to = Math.max(0, timeline.timeAt(Math.max(timeline.gutter, x)));
      timeline.redraw();
      say(duration(Math.abs(timeline.drag.to - timeline.drag.from)));
    }
  });
  const release = (ev) => {
    if (!pressed) return;
    const [x, y] = place(ev), was = pressed;
    pressed = null;
    if (timeline.drag.from !== null) {
      const { from, to } = timeline.drag;
      timeline.drag.from = timeline.drag.to = null;
      const first = timeline.trackAt(was.y), last = timeline.trackAt(y);
      const one = first && first === last && first.task !== undefined;
      change({ range: { from: Math.min(from, to), to: Math.max(from, to) }, task: one ? first.task : -1, process: -1 });
      return;
    }
    if (was.moved || ev.type === "pointercancel") return;
    if (x < timeline.gutter) {
      const track = timeline.trackAt(y);
      if (track && track.task !== undefined) timeline.fold(track.task);
      else if (track) change({ process: track.process, task: -1 });
      return;
    }
    const hit = timeline.hitAt(x, y);
    if (!hit) change({ call: null, note: null, range: null });
    else if (hit.note) {
      selectNote(hit);
      change({ tab: "call" });
    }
    else if (hit.calls !== 1) timeline.zoom(0.25, x);
    else select(hit);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (ev) => { pointerX = null; tip(ev, null); });
  canvas.addEventListener("dblclick", (ev) => {
    const hit = timeline.hitAt(...place(ev));
    if (hit && hit.calls === 1) zoomTo(hit.start, hit.start + hit.dur);
  });
}

function setupDivider() {
  const divider = byId("divider"), body = byId("panel");
  const set = (h) => {
    body.style.height = Math.max(60, Math.min(h, document.documentElement.clientHeight - 200)) + "px";
  };
  divider.addEventListener("pointerdown", (ev) => {
    divider.setPointerCapture(ev.pointerId);
    const begin = body.offsetHeight + ev.clientY;
    divider.onpointermove = (move) => set(begin - move.clientY);
  });
  divider.addEventListener("pointerup", () => { divider.onpointermove = null; });
  divider.addEventListener("keydown", (ev) => {
    const by = { ArrowUp: 30, ArrowDown: -30 }[ev.key];
    if (by) set(body.offsetHeight + by);
  });
}

// Keys

// step selects the call around, inside, before or behind the selected one, of those on the screen.
function step(key) {
  const c = state.call;
  if (!c) return;
  const boxes = timeline.visible(c.task), end = c.start + c.dur;
  const near = {
    ArrowUp: boxes.filter((b) => b.row === c.row - 1 && b.start <= c.start && b.start + b.dur >= end),
    ArrowDown: boxes.filter((b) => b.row === c.row + 1 && b.start >= c.start && b.start < Math.max(end, c.start + 1)),
    ArrowRight: boxes.filter((b) => b.row === c.row && b.start > c.start).sort((a, b) => a.start - b.start),
    ArrowLeft: boxes.filter((b) => b.row === c.row && b.start < c.start).sort((a, b) => b.start - a.start),
  }[key];
  if (near.length > 0) {
    select(near[0]);
    timeline.reveal(near[0].task, near[0].row);
  }
}

const keys = {
  w: () => zoomBy(0.65), s: () => zoomBy(1 / 0.65), a: () => panBy(-0.2), d: () => panBy(0.2),
  W: () => zoomBy(0.3), S: () => zoomBy(1 / 0.3), A: () => panBy(-0.8), D: () => panBy(0.8),
  f: () => {
    if (state.call) zoomTo(state.call.start, state.call.start + state.call.dur);
    else if (state.note) {
      const around = (state.to - state.from) / 20;
      zoomTo(state.note.time - around, state.note.time + around);
    } else if (state.range) zoomTo(state.range.from, state.range.to);
  },
  0: () => zoomTo(state.about.begin, state.about.end),
  v: () => change({ range: { from: Math.max(0, state.from), to: state.to } }),
  "/": () => { byId("query").focus(); byId("query").select(); },
  n: () => jump(false), N: () => jump(true),
  m: () => nextNote(1), M: () => nextNote(-1),
  "?": () => byId("help").showModal(),
  Escape: () => change({ call: null, note: null, range: null, fn: null }),
  PageDown: () => change({ top: state.top + 300 }), PageUp: () => change({ top: Math.max(0, state.top - 300) }),
};

function setupKeys() {
  document.addEventListener("keydown", (ev) => {
    if (ev.ctrlKey || ev.metaKey || ev.altKey || byId("help").open) return;
    const inField = ["INPUT", "SELECT", "TEXTAREA"].includes(ev.target.tagName);
    if (inField) {
      if (ev.key === "Escape") byId("tracks").focus();
      return;
    }
    if (ev.key.startsWith("Arrow") && ev.target === byId("tracks")) {
      ev.preventDefault();
      step(ev.key);
      return;
    }
    const tab = panel.tabs[Number(ev.key) - 1];
    if (ev.key.length === 1 && ev.key >= "1" && tab) change({ tab });
    else if (keys[ev.key]) {
      ev.preventDefault();
      keys[ev.key]();
    }
  });
  const query = byId("query");
  query.addEventListener("input", () => change({ query: query.value.trim() }));
  query.addEventListener("keydown", (ev) => {
    if (ev.key === "Enter" && ev.shiftKey) {
      ev.preventDefault();
      jump(true);
    }
  });
  byId("search").addEventListener("submit", (ev) => {
    ev.preventDefault();
    jump(false);
  });
  byId("previous").addEventListener("click", () => jump(true));
  byId("zoom-in").addEventListener("click", keys.w);
  byId("zoom-out").addEventListener("click", keys.s);
  byId("fit").addEventListener("click", keys[0]);
  byId("take").addEventListener("click", keys.v);
  byId("help-button").addEventListener("click", keys["?"]);
  byId("theme").addEventListener("click", () => {
    chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    setTheme();
  });
  dark.addEventListener("change", setTheme);
}

async function start() {
  setTheme();
  timeline.setup(byId("tracks"));
  const about = await api.about();
  setClockless(about.clockless);
  document.title = `${about.command || about.dir} \u2013 fentry`;
  const tasks = `${grouped(about.tasks.length)} task${about.tasks.length === 1 ? "" : "s"}`;
  const what = `${about.command || ""}  (${about.dir}, ${duration(about.end)}, ${tasks})`;
  byId("what").textContent = byId("what").title = what;
  byId("notes").textContent = byId("notes").title = about.notes.join(" ");
  state.about = about;
  panel.fillTasks();
  panel.setup({ goTo, tip });
  listen((names) => {
    if (names.has("query")) {
      timeline.setMatches(state.query);
      if (byId("query").value.trim() !== state.query) byId("query").value = state.query;
    }
    if (names.has("from") || names.has("top")) byId("tip").hidden = true;
    timeline.redraw();
  });
  setupPointer(byId("tracks"));
  setupDivider();
  setupKeys();
  restore();
  panel.update();
  timeline.redraw();
  addEventListener("hashchange", restore);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => say(`The trace cannot be shown: ${error.message || error}`));
