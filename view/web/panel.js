// The panel below the timeline: what was called in the time and the tasks that are selected.

import { state, change, scope, listen } from "./state.js";
import * as api from "./api.js";
import * as flames from "./flames.js";
import { byId, make, link, table } from "./dom.js";
import { duration, grouped, moment, percent } from "./format.js";

export const tabs = ["functions", "flames", "slowest", "around", "call"];
const sortedBy = { functions: { by: 3, up: false }, callers: { by: 2, up: false }, callees: { by: 2, up: false } };
let asked = null, shownFor = "", goTo = () => {}, tip = () => {}, shownFlames = null;

export function setup(actions) {
  goTo = actions.goTo;
  tip = actions.tip;
  for (const name of tabs) {
    const tab = byId("tab-" + name);
    tab.addEventListener("click", () => change({ tab: name }));
    tab.addEventListener("keydown", (ev) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[ev.key];
      if (!by) return;
      const next = tabs[(tabs.indexOf(name) + by + tabs.length) % tabs.length];
      change({ tab: next });
      byId("tab-" + next).focus();
    });
  }
  byId("whose").addEventListener("change", (ev) => {
    const [kind, i] = ev.target.value.split(" ");
    change({ task: kind === "task" ? Number(i) : -1, process: kind === "process" ? Number(i) : -1 });
  });
  listen((names) => {
    if (["range", "task", "process", "fn", "call", "note", "tab", "query"].some((n) => names.has(n))) update();
  });
}

// fillTasks offers tasks and processes.
export function fillTasks() {
  const about = state.about, most = 2000;
  const options = [make("option", { value: "all" }, "all tasks")];
  const add = (value, text) => options.push(make("option", { value }, text));
  if (about.processes.length > 1) {
    about.processes.slice(0, most).forEach((p, i) => {
      add(`process ${i}`, `process ${p.pid} ${(p.command || "").slice(0, 60)}`);
    });
  }
  about.tasks.slice(0, most).forEach((k, i) => add(`task ${i}`, `task ${k.name} ${k.tid}`));
  byId("whose").replaceChildren(...options);
}

function chip(text, clear) {
  return make("span", { class: "chip" }, make("span", { title: text }, text),
    make("button", { type: "button", title: "Clear", "aria-label": `Clear ${text}`, on: { click: clear } }, "\u2715"));
}

export function update() {
  for (const name of tabs) {
    const tab = byId("tab-" + name), is = state.tab === name;
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    if (is) byId("body").setAttribute("aria-labelledby", tab.id);
  }
  byId("whose").value = state.task >= 0 ? `task ${state.task}` : state.process >= 0 ? `process ${state.process}`
    : "all";
  const chips = [];
  if (state.range) {
    const step = (state.range.to - state.range.from) / 100;
    chips.push(chip(`${moment(state.range.from, step)}, ${duration(state.range.to - state.range.from)}`,
      () => change({ range: null })));
  }
  if (state.fn) chips.push(chip(state.fn.name, () => change({ fn: null })));
  byId("chips").replaceChildren(...chips);
  load();
}

// centre is the function whose callers are shown: the one in focus, or else that of the selected call.
const centre = () => state.fn || state.call;

const shows = {
  functions: { ask: (signal) => api.functions(scope(), signal), show: showFunctions,
    needs: () => [scope(), state.query, state.fn] },
  flames: {
    ask: (signal, quick) => api.flames({ ...scope(), fn: state.fn && state.fn.id }, quick, signal), show: showFlames,
    needs: () => [scope(), state.fn, state.query],
  },
  slowest: {
    ask: (signal) => api.slowest({ ...scope(), fn: state.fn && state.fn.id }, 200, signal), show: showSlowest,
    needs: () => [scope(), state.fn, state.call],
  },
  around: {
    ask: (signal) => centre() ? api.around({ ...scope(), fn: centre().id }, signal) : null, show: showAround,
    needs: () => [scope(), centre()],
  },
  call: {
    ask: (signal) => state.call ? api.call(state.call, signal) : state.note ? api.note(state.note, signal) : null,
    show: (body, d) => state.note && !state.call ? showNote(body, d) : showCall(body, d),
    needs: () => [state.call, state.note],
  },
};

let cached = { key: "", data: null };

// load asks for what the tab shows, unless it is shown already.
async function load() {
  const what = shows[state.tab], body = byId("body");
  const key = state.tab + JSON.stringify(what.needs());
  if (key === shownFor) return;
  shownFor = key;
  if (asked) asked.abort();
  const mine = asked = new AbortController();
  body.classList.add("busy");
  body.setAttribute("aria-busy", "true");
  const slow = setTimeout(() => { byId("status").textContent = "Counting\u2026"; }, 400);
  try {
    const question = state.tab + JSON.stringify([scope(), {
      functions: null, flames: state.fn, slowest: state.fn, around: centre(),
      call: [state.call, state.note],
    }[state.tab]]);
    let data = question === cached.key ? cached.data : await what.ask(mine.signal, true);
    if (mine.signal.aborted) return;
    shownFlames = null;
    what.show(body, data);
    if (data && data.samples) { // of which there is more to know
      data = await what.ask(mine.signal, false);
      if (mine.signal.aborted) return;
      what.show(body, data, shownFlames && shownFlames.path());
    }
    cached = { key: question, data };
  } catch (error) {
    if (mine.signal.aborted) return;
    shownFor = "";
    body.replaceChildren(make("p", {}, String(error.message || error)));
  } finally {
    clearTimeout(slow);
    if (!mine.signal.aborted) {
      body.classList.remove("busy");
      body.setAttribute("aria-busy", "false");
      if (byId("status").textContent === "Counting\u2026") byId("status").textContent = "";
    }
  }
}

// retheme draws again what does not follow the style sheet.
export function retheme() { if (shownFlames) shownFlames.draw(); }

const focusOn = (fn, tab) => change({ fn: { id: fn.id, name: fn.name }, ...(tab ? { tab } : {}) });

function showFunctions(body, data) {
  const query = state.query.toLowerCase();
  const rows = data.rows.filter((r) => !query || r.name.toLowerCase().includes(query));
  const all = data.rows.reduce((sum, r) => sum + Math.max(0, r.self), 0);
  if (rows.length === 0) {
    body.replaceChildren(make("p", {}, query ? "No function that was called there has that in its name."
      : "Nothing was called there."));
    return;
  }
  const number = (title, key, show = duration) => ({ title, value: (r) => r[key], cell: (r) => show(r[key]) });
  body.replaceChildren(table([
    { title: "Function", name: true, value: (r) => r.name,
      cell: (r) => link(r.name, r.name, () => focusOn(r, "around")) },
    number("Calls", "calls", grouped),
    { title: "Self %", value: (r) => r.self, cell: (r) => percent(r.self, all) },
    number("Total", "total"), number("Self", "self"), number("Average", "avg"), number("Min", "min"),
    number("P99", "p99"), number("Max", "max"),
  ], rows, sortedBy.functions, (r) => state.fn && state.fn.id === r.id, data.more
    ? `${data.more} functions of less time are not listed` : ""));
}

function showFlames(body, data, path) {
  if (!data.root.k) {
    body.replaceChildren(make("p", {}, "Nothing was called there."));
    return;
  }
  shownFlames = flames.show(body, data, path, tip, (fn) => focusOn(fn, "around"));
  body.dataset.samples = String(data.samples || 0);
  if (data.samples) byId("status").textContent = `From ${grouped(data.samples)} samples; counting all calls\u2026`;
  else if (path) byId("status").textContent = "All calls are counted.";
}

const taskName = (i) => `${state.about.tasks[i].name} ${state.about.tasks[i].tid}`;

function showSlowest(body, calls) {
  if (!calls.length) {
    body.replaceChildren(make("p", {}, "No call ended there."));
    return;
  }
  body.replaceChildren(table([
    { title: "Duration", cell: (c) => duration(c.dur) },
    { title: "Self", cell: (c) => duration(c.self) },
    { title: "At", cell: (c) => moment(c.start, 1000) },
    { title: "Call", name: true, cell: (c) => link(c.name, "Show it on the timeline", () => goTo(c)) },
    { title: "Task", cell: (c) => taskName(c.task) },
    { title: "Ended", cell: (c) => c.ended || "" },
  ], calls, { by: -1 }, (c) => state.call && state.call.start === c.start && state.call.id === c.id &&
    state.call.row === c.row));
}

function showAround(body, a) {
  if (!a) {
    body.replaceChildren(make("p", {}, "Choose a function: in the table, or by its call on the timeline."));
    return;
  }
  const side = (title, rows, sorted) => make("div", {}, make("h3", {}, title), rows.length ? table([
    { title: "Function", name: true, value: (r) => r.name,
      cell: (r) => r.id ? link(r.name, r.name, () => focusOn(r)) : r.name },
    { title: "Calls", value: (r) => r.calls, cell: (r) => grouped(r.calls) },
    { title: "Total", value: (r) => r.total, cell: (r) => duration(r.total) },
  ], rows, sorted) : make("p", {}, "none"));
  body.replaceChildren(make("div", { class: "facts" }, facts([
    ["Function", a.name], ["Source", a.source], ["Image", a.image], ["Calls", grouped(a.calls)],
    ["Total", duration(a.total)], ["Self", duration(a.self)],
  ])), make("div", { class: "columns" }, side("Called by", a.callers, sortedBy.callers),
    side("Calls", a.callees, sortedBy.callees)));
}

const facts = (list) => make("dl", {}, ...list.filter(([, value]) => value)
  .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));

const button = (text, fn) => make("button", { type: "button", on: { click: fn } }, text);

// callersOf lists the calls around something in a task: the innermost is in a row.
const callersOf = (title, callers, task, row) => callers.length ? [make("h3", {}, title),
  make("ol", {}, ...callers.map((k, i) => make("li", {}, link(k.name, "Select this call", () => {
    goTo({ task, row: row - i, start: k.start, dur: -1, id: k.id, name: k.name });
  }))))] : [];

// walked lists a stack as it was walked, with what no trace has: functions that are not traced, and inlined ones.
const walked = (stack, end) => stack ? [make("h3", {}, "Stack, as it was walked"), make("ol", {},
  ...stack.map((f) => make("li", {}, make("code", {}, f.name + (f.inlined ? " (inlined)" : "")),
    f.place ? make("span", { class: "place" }, f.place) : null)),
  end ? make("li", { class: "end" }, `no more: ${end}`) : null)] : [];

function showNote(body, d) {
  if (!d) {
    body.replaceChildren(make("p", {}, "There is no such mark, signal or stack."));
    return;
  }
  const n = state.note;
  body.replaceChildren(make("div", { class: "facts" }, facts([
    ["What", d.kind], ["Text", d.text], ["At", moment(d.time)], ["Task", taskName(n.task)], ...d.facts,
  ]), ...walked(d.stack, d.end), ...callersOf("Inside of", d.callers, n.task, d.callers.length - 1)));
}

function showCall(body, d) {
  const c = state.call;
  if (!d || !c) {
    body.replaceChildren(make("p", {}, "Click a call or a mark on the timeline to select it."));
    return;
  }
  const alone = { range: { from: c.start, to: c.start + c.dur }, task: c.task, fn: null, tab: "flames" };
  body.replaceChildren(make("div", { class: "facts" }, facts([
    ["Function", d.name], ["Call", d.text], ["Begins at", moment(c.start)], ["Duration", duration(c.dur)],
    ["Self", d.self >= 0 ? duration(d.self) : ""], ["Ended", d.ended], ["Task", taskName(c.task)],
    ["Source", d.source], ["Image", d.image],
  ]), make("p", {}, button("Callers and callees", () => focusOn(d, "around")), " ",
    button("Slowest calls of it", () => focusOn(d, "slowest")), " ",
    button("Flame graph of this call", () => change(alone))),
  ...walked(d.walked, d.walked_end), ...callersOf("Called by", d.callers, c.task, c.row - 1)));
}
