// The tiles that timelines are drawn from: 512 units of a power of two of nanoseconds of a task each. What is on the
// screen and not there yet is asked for, a few at a time; the newest wishes first, since older ones may have scrolled
// away: first what the server has at once, then, of tiles that it had in part, the rest. That can take a tenth of a
// second or more, so it has places of its own, and what comes at once does not wait for it. Browsers ask a server at most
// six things at a time; one is left for the panel. Those used last are kept.

import * as api from "./api.js";

const kept = 1500, quickPlaces = 3, restPlaces = 2;
const tiles = new Map(); // by key: {tile}, {error} or {waiting}
let wanted = [], quickRunning = 0, restRunning = 0, arrived = () => {};
const rows = new Map(), cut = new Set(); // what tiles have told of tasks

export function onArrival(fn) { arrived = fn; }

const keyOf = (task, level, index) => `${task}/${level}/${index}`;

// levelFor returns the level whose unit is at most the time of a column.
export function levelFor(nsPerPixel, levels) {
  return Math.max(0, Math.min(levels - 1, Math.floor(Math.log2(nsPerPixel))));
}

export const width = (level) => 512 * 2 ** level;

// peek returns a tile if it is there.
export function peek(task, level, index) {
  const key = keyOf(task, level, index), have = tiles.get(key);
  if (!have || !have.tile) return null;
  tiles.delete(key); // the last ones are the newest
  tiles.set(key, have);
  return have.tile;
}

// want says which tiles the screen needs now, the most important first.
export function want(list) {
  const have = (key) => tiles.get(keyOf(...key));
  const partly = list.filter((key) => have(key) && have(key).tile && have(key).tile.partial && !have(key).asked);
  wanted = [...list.filter((key) => !have(key)), ...partly];
  next();
}

// isCut tells whether a task has calls that are too deep to be drawn.
export const isCut = (task) => cut.has(task);

export const waiting = () => quickRunning + restRunning + wanted.length;

// rowsOf returns how many rows each lane of a task has, as far as tiles have told.
export function rowsOf(task) { return rows.get(task) || [1]; }

function next() {
  const later = [];
  for (const [task, level, index] of wanted) {
    const key = keyOf(task, level, index), old = tiles.get(key), quick = !old;
    if (old && (!old.tile || !old.tile.partial || old.asked)) continue;
    if (quick ? quickRunning >= quickPlaces : restRunning >= restPlaces) {
      later.push([task, level, index]);
      continue;
    }
    tiles.set(key, old ? { tile: old.tile, asked: true } : { waiting: true });
    if (quick) quickRunning++;
    else restRunning++;
    api.tile(task, level, index, quick).then((tile) => {
      tiles.set(key, { tile });
      note(task, tile);
      trim();
    }, (error) => {
      if (quick) tiles.set(key, { error });
      setTimeout(() => quick ? tiles.delete(key) : tiles.set(key, { tile: old.tile }), 5000); // and then try again
    }).finally(() => {
      if (quick) quickRunning--;
      else restRunning--;
      arrived();
      next();
    });
  }
  wanted = later;
}

function note(task, tile) {
  const old = rows.get(task) || [1];
  const now = old.slice();
  tile.rows.forEach((n, lane) => { now[lane] = Math.max(now[lane] || 0, n); });
  rows.set(task, now);
  if (tile.deeper) cut.add(task);
}

function trim() {
  for (const [key, value] of tiles) {
    if (tiles.size <= kept) return;
    if (value.tile) tiles.delete(key);
  }
}
