// Questions to the server. The page's own address has the token; nothing else is ever asked.

export const units = { tile: 512 };

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
export const tile = (task, level, index, signal) => get("tile", { task, level, tile: index }, signal);
export const functions = (scope, signal) => get("functions", scope, signal);
export const flames = (scope, signal) => get("flames", scope, signal);
export const around = (scope, signal) => get("around", scope, signal);
export const slowest = (scope, n, signal) => get("slowest", { ...scope, n }, signal);
export const find = (scope, text, back, signal) => get("find", { ...scope, text, back: back ? 1 : 0 }, signal);
export const call = (c, signal) =>
  get("call", { task: c.task, row: c.row, fn: c.id, from: c.start, to: c.start + c.dur }, signal);
