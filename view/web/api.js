// Questions to the server. The page's own address has the token; nothing else is ever asked.

async function get(name, values, signal) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, String(value));
  }
  const answer = await fetch(`api/${name}?${query}`, { signal, credentials: "omit", redirect: "error" });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
}

export const about = () => get("about", {});
export const tile = (task, level, index, quick) => get("tile",
  { task, level, tile: index, quick: quick ? 1 : undefined });
export const functions = (scope, signal) => get("functions", scope, signal);
export const flames = (scope, quick, signal) => get("flames", { ...scope, quick: quick ? 1 : undefined }, signal);
export const around = (scope, signal) => get("around", scope, signal);
export const slowest = (scope, n, signal) => get("slowest", { ...scope, n }, signal);
export const find = (scope, text, back, signal) => get("find", { ...scope, text, back: back ? 1 : 0 }, signal);
export const note = (n, signal) => get("note", { task: n.task, kind: n.kind, from: n.time, to: n.time }, signal);
export const call = (c, signal) =>
  get("call", { task: c.task, row: c.row, fn: c.id, from: c.start, to: c.start + c.dur }, signal);
