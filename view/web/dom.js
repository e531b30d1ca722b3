// Elements are made of names and text; text is never HTML.

export function make(name, properties = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") e.className = value;
    else if (key === "on") for (const [event, fn] of Object.entries(value)) e.addEventListener(event, fn);
    else if (key in e) e[key] = value;
    else e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

export const byId = (id) => document.getElementById(id);

// link is a button that reads like a link.
export const link = (text, title, fn) => make("button", { class: "link", type: "button", title, on: { click: fn } },
  text);

// table makes a table of columns {title, name?, value(row), cell(row)}, sorted by the column sorted.by, at first the
// most.
export function table(columns, rows, sorted, chosen, more) {
  let shown = 200;
  const head = make("tr"), body = make("tbody"), element = make("table", {}, make("thead", {}, head), body);
  const fill = () => {
    const column = columns[sorted.by];
    if (column && column.value) {
      const sign = sorted.up ? 1 : -1;
      rows.sort((a, b) => {
        const x = column.value(a), y = column.value(b);
        return sign * (x < y ? -1 : x > y ? 1 : 0);
      });
    }
    head.replaceChildren(...columns.map((c, i) => {
      const th = make("th", { class: c.name ? "name" : "", scope: "col" });
      if (!c.value) th.append(make("span", {}, c.title));
      else {
        th.setAttribute("aria-sort", i !== sorted.by ? "none" : sorted.up ? "ascending" : "descending");
        th.append(make("button", { type: "button", on: { click: () => {
          sorted.up = i === sorted.by ? !sorted.up : !!c.name;
          sorted.by = i;
          fill();
        } } }, c.title + (i !== sorted.by ? "" : sorted.up ? " \u25b4" : " \u25be")));
      }
      return th;
    }));
    body.replaceChildren(...rows.slice(0, shown).map((row) => make("tr",
      { class: chosen && chosen(row) ? "chosen" : "" },
      ...columns.map((c) => make("td", { class: c.name ? "name" : "" }, c.cell(row))))));
    if (rows.length > shown || more) {
      const rest = rows.length - shown;
      const cell = make("td", { class: "name", colSpan: columns.length });
      if (rest > 0) cell.append(link(`${rest} more`, "Show all", () => { shown = rows.length; fill(); }));
      else cell.append(more);
      body.append(make("tr", {}, cell));
    }
  };
  fill();
  return element;
}
