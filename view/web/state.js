// What is seen is one object, and a fragment of the address: who opens the address sees the same. Whoever changes it
// says so with change(), and everybody who draws listens.

export const state = {
  about: null,
  from: 0, to: 1, // the time that is visible, in ns
  top: 0, // how far down, in px
  range: null, // {from, to}: selected time
  task: -1, process: -1, // whose calls are analysed; -1: everybody's
  fn: null, // {id, name}: function in focus
  call: null, // {task, row, stack?, start, dur, id, name}: selected call
  note: null, // {task, time, kind}: selected note, which no call is
  query: "",
  tab: "functions",
};

const listeners = [];

export function listen(fn) { listeners.push(fn); }

let pending = 0;

// change takes changes; listeners get the names of what has changed.
export function change(values) {
  const names = new Set();
  for (const [name, value] of Object.entries(values)) {
    if (state[name] !== value) {
      state[name] = value;
      names.add(name);
    }
  }
  if (names.size === 0) return;
  for (const fn of listeners) fn(names);
  clearTimeout(pending);
  pending = setTimeout(save, 120);
}

// show makes a time visible, as far as there is such a time.
export function show(from, to) {
  const end = Math.max(state.about.end, 1);
  let width = Math.min(Math.max(to - from, 20), end * 1.05);
  const middle = (from + to) / 2;
  from = Math.max(-0.02 * width, Math.min(middle - width / 2, end - width * 0.98));
  if (width >= end) from = Math.max(from, -(width - end) / 2);
  change({ from, to: from + width });
}

// scope is what the panel analyses, as the server wants it.
export function scope() {
  const s = state;
  const range = s.range || { from: 0, to: s.about.end + 1 };
  return {
    from: Math.max(0, Math.floor(range.from)), to: Math.max(0, Math.ceil(range.to)),
    task: s.task >= 0 ? s.task : undefined, process: s.task < 0 && s.process >= 0 ? s.process : undefined,
  };
}

function save() {
  const s = state, f = new URLSearchParams();
  f.set("view", `${Math.round(s.from)},${Math.round(s.to)},${Math.round(s.top)}`);
  if (s.range) f.set("range", `${Math.floor(s.range.from)},${Math.ceil(s.range.to)}`);
  if (s.task >= 0) f.set("task", s.task);
  if (s.process >= 0) f.set("process", s.process);
  if (s.fn) f.set("fn", s.fn.id + "," + s.fn.name);
  if (s.call) f.set("call", [s.call.task, s.call.row, s.call.start, s.call.dur, s.call.id, s.call.name].join(","));
  if (s.note) f.set("note", [s.note.task, s.note.time, s.note.kind].join(","));
  if (s.query) f.set("search", s.query);
  if (s.tab !== "functions") f.set("tab", s.tab);
  const text = "#" + f;
  if (text !== location.hash) history.replaceState(null, "", text);
}

// numbers parses "1,2", null if it is something else.
function numbers(text, n) {
  const list = (text || "").split(",").map(Number);
  return text && list.length >= n && list.slice(0, n).every(Number.isFinite) ? list : null;
}

// after returns what stands behind n commas.
function after(text, n) { return text.split(",").slice(n).join(","); }

const isID = (text) => /^\d+\.\d+$/.test(text);

// restore takes what the address says. It may be anything.
export function restore() {
  const f = new URLSearchParams(location.hash.slice(1));
  const about = state.about;
  const values = { range: null, task: -1, process: -1, fn: null, call: null, note: null, query: "",
    tab: "functions" };
  const range = numbers(f.get("range"), 2);
  if (range && range[1] > range[0] && range[0] >= 0 && range[0] <= about.end) {
    values.range = { from: range[0], to: Math.min(range[1], about.end + 1) };
  }
  const position = (name, list) => {
    const i = numbers(f.get(name), 1);
    return i && Number.isInteger(i[0]) && i[0] >= 0 && i[0] < list.length ? i[0] : -1;
  };
  values.task = position("task", about.tasks);
  values.process = position("process", about.processes);
  const fn = f.get("fn");
  if (fn && isID(fn.split(",")[0])) values.fn = { id: fn.split(",")[0], name: after(fn, 1) };
  const call = numbers(f.get("call"), 4);
  const id = call && f.get("call").split(",")[4] || "";
  if (call && about.tasks[call[0]] && isID(id)) {
    values.call = { task: call[0], row: call[1], start: call[2], dur: call[3], id, name: after(f.get("call"), 5) };
  }
  const note = numbers(f.get("note"), 2), kind = note && after(f.get("note"), 2);
  if (note && about.tasks[note[0]] && note[1] >= 0 && /^[a-z_]+$/.test(kind)) {
    values.note = { task: note[0], time: Math.floor(note[1]), kind };
  }
  values.query = (f.get("search") || "").slice(0, 200);
  if (["functions", "flames", "slowest", "around", "call"].includes(f.get("tab"))) values.tab = f.get("tab");
  const view = numbers(f.get("view"), 2);
  values.top = view && view[2] > 0 ? view[2] : 0;
  change(values);
  if (view && view[1] > view[0]) show(view[0], view[1]);
  else {
    const margin = (about.end - about.begin) * 0.01;
    show(about.begin - margin, about.end + margin);
  }
}
