// Elements from data. Text reaches the page by textContent alone, so that no text can become markup.

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function vector(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

let nextId = 0;
const fresh = (word) => `${word}-${(nextId += 1)}`;

const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

function digits(value, places = 3) {
  if (value === null || value === undefined) return "?";
  return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(places);
}

const fixed = (value, places = 3) => (value === null || value === undefined ? "?" : value.toFixed(places));

const words = (status) => status.replaceAll("_", " ");

// A part of the page: a landmark with its heading.
function part(id, title, ...children) {
  const heading = element("h2", { id: `${id}-title` }, title);
  return element("section", { id, class: "part", "aria-labelledby": `${id}-title` }, heading, children);
}

// A table that scrolls by itself where it is too wide, by keyboard as well.
function scrolling(label, table) {
  return element("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, table);
}

function select(label, options, chosen, change) {
  const id = fresh("select");
  const box = element("select", { id, change: () => change(box.value) });
  options.forEach(([value, text]) => box.append(element("option", { value, selected: value === chosen }, text)));
  return element("div", { class: "field" }, element("label", { for: id }, label), box);
}
