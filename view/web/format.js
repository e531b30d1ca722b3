// Numbers for people. Times are in nanoseconds, or sequence numbers where a trace has no clock.

let clockless = false;

export function setClockless(is) { clockless = is; }

const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];

// duration returns a time with three digits or more: 1.23 ms.
export function duration(ns) {
  if (ns < 0) return "-";
  if (clockless) return grouped(Math.round(ns));
  if (ns >= 60e9) return `${Math.floor(ns / 60e9)} min ${(ns % 60e9 / 1e9).toFixed(1)} s`;
  for (const [size, name] of units) {
    if (ns >= size || size === 1) {
      const v = ns / size;
      const digits = size === 1 ? 0 : v >= 100 ? 1 : v >= 10 ? 2 : 3;
      return `${v.toFixed(digits)} ${name}`;
    }
  }
  return "";
}

// moment returns a point in time in seconds, with as many digits as tell steps apart.
export function moment(ns, step = 1) {
  if (clockless) return grouped(Math.round(ns));
  let digits = 0;
  for (let s = 1e9; digits < 9 && s > step * 1.0001; s /= 10) digits++;
  const whole = Math.floor(ns / 1e9);
  const rest = String(Math.floor(ns - whole * 1e9)).padStart(9, "0").slice(0, digits);
  const parts = rest.match(/.{1,3}/g) || [];
  return grouped(whole) + (digits ? "." + parts.join("\u2009") : "") + " s";
}

export function grouped(n) { return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ","); }

export function percent(part, whole) { return whole > 0 ? (100 * part / whole).toFixed(2) : "-"; }
