// A function has the same colour everywhere, made of its name; text on it has enough contrast in both themes. Canvases
// cannot use the style sheet's variables, so they are read here, again when the theme changes.

let theme = {};
const made = new Map();

export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  theme = { dark: document.documentElement.dataset.theme === "dark" };
  for (const name of ["ground", "raised", "line", "text", "faint", "accent", "select", "range", "match", "grid",
    "warn", "box-text"]) {
    theme[name] = style.getPropertyValue("--" + name).trim();
  }
  made.clear();
}

export function color(name) { return theme[name]; }

function hash(text) {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  return h >>> 0;
}

// ofFunction returns the colour of a function's calls. System calls are grey: they are the kernel's.
export function ofFunction(fn) {
  let c = made.get(fn.id);
  if (!c) {
    const h = hash(fn.name), hue = h % 24 * 15, step = (h >>> 8) % 3;
    if (fn.sys) c = theme.dark ? "hsl(215 8% 38%)" : "hsl(215 10% 78%)";
    else c = theme.dark ? `hsl(${hue} 38% ${24 + 3 * step}%)` : `hsl(${hue} 62% ${76 + 4 * step}%)`;
    made.set(fn.id, c);
  }
  return c;
}
