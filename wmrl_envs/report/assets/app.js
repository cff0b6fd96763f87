// The page put together, its theme, and what is new while a run goes on.

const main = document.getElementById("main");
const live = document.body.hasAttribute("data-live");
let data = JSON.parse(document.getElementById("data").textContent);

class Section {
  constructor(kind, title) {
    this.chosen = null;
    this.head = element("div", { class: "head" });
    this.overall = new Figures(`${title}: all runs`);
    this.picker = element("div", { class: "picker" });
    this.single = new Figures(`${title}: one run`);
    this.best = element("div", { class: "best" });
    this.settings = new Settings("Configuration", `${kind}-settings`, `${title}: configuration`);
    this.versions = new Settings("Versions", `${kind}-versions`, `${title}: versions`);
    this.box = part(kind, title, this.head, this.overall.box, this.picker, this.single.box, this.best);
    const tables = element("div", { class: "tables" }, this.settings.box, this.versions.box);
    this.setup = part(`${kind}-setup`, title === "Results" ? "Configuration and versions" : `${title}: configuration and versions`, tables);
  }

  update(shown, runs) {
    const head = JSON.stringify([shown.cards, shown.table]);
    if (head !== this.headKey) {
      this.headKey = head;
      const title = `${shown.title}: results`;
      this.head.replaceChildren(...(shown.cards.length ? [cardsOf(shown.cards)] : []), ...(shown.table ? [groupTable(shown.table, title)] : []));
    }
    this.overall.update(shown.figures);
    this.shown = shown;
    this.runs = runs;
    this.#pick();
    this.#run();
    this.settings.update(shown.settings);
    this.versions.update(shown.versions);
  }

  #pick() {
    const options = this.shown.runs.map((one) => [String(one.run), `${this.runs[one.run].name} (${one.group})`]);
    if (!options.some(([value]) => value === this.chosen)) this.chosen = options[0]?.[0] ?? null;
    this.picker.hidden = options.length < 2;
    const key = JSON.stringify(options);
    if (key === this.pickKey || this.picker.contains(document.activeElement)) return;
    this.pickKey = key;
    this.picker.replaceChildren(element("h3", {}, "One run at a time"), select("Run", options, this.chosen, (value) => { this.chosen = value; this.#run(); }));
  }

  #run() {
    const one = this.shown.runs.find((found) => String(found.run) === this.chosen);
    this.single.update(one ? one.figures : []);
    const best = one ? one.best : [];
    const key = JSON.stringify(best);
    if (key === this.bestKey) return;
    this.bestKey = key;
    this.best.replaceChildren(...(best.length ? [element("h3", {}, best.length > 1 ? "Best solutions" : "Best solution"), ...best.map(bestSolution)] : []));
  }

  draw() {
    this.overall.draw();
    this.single.draw();
  }
}

function bestSolution(found) {
  const told = [["reported", found.report_reward], ["reward in training", found.reward], ["metric", found.score]].filter(([, value]) => value !== undefined);
  return element(
    "details", { class: "block", open: false },
    element("summary", {}, `${found.task || "solution"}: `, badge(found.status), " ", told.map(([name, value]) => `${name} ${digits(value)}`).join(", ")),
    found.code === undefined ? element("p", { class: "none" }, "Its program is not here.") : codeBlock(data.codes[found.code], "Best solution: code"),
  );
}

const headline = element("div", { class: "headline" });
const notes = element("div", { class: "notes" });
const sections = new Map();
const browser = new Browser();
const rollouts = new Rollouts();

function update(found) {
  data = found;
  document.title = `${data.title} · wmrl report`;
  const one = data.runs.length === 1 ? data.runs[0] : null;
  const count = (wanted) => data.runs.filter((run) => run.state === wanted).length;
  const going = count("going");
  const states = [["finished", "finished"], ["going", "still going"], ["stopped", "stopped before their end"]]
    .filter(([wanted]) => count(wanted)).map(([wanted, said]) => `${count(wanted) === data.runs.length ? "all" : count(wanted)} ${said}`);
  const state = one ? one.words : states.join(", ");
  headline.replaceChildren(
    element("h1", {}, data.title),
    element("p", { class: "words" }, data.subtitle),
    element("p", { class: `state ${one ? one.state : going ? "going" : "finished"}` }, state),
  );
  const told = data.notes.filter((note) => !(one && note.kind === "state" && one.state === "finished"));
  notes.replaceChildren(...(told.length ? [noteList(told)] : []));
  for (const shown of data.sections) {
    if (!sections.has(shown.kind)) sections.set(shown.kind, new Section(shown.kind, data.sections.length > 1 ? shown.title : "Results"));
    sections.get(shown.kind).update(shown, data.runs);
  }
  rollouts.update(data);
  browser.update(data);
  arrange();
  const made = live ? "Served while the run goes on" : `Made ${data.made}`;
  document.getElementById("made").textContent = `${made} by wmrl-envs ${data.version}. This page loads nothing from elsewhere.`;
}

function noteList(told) {
  const many = told.length > 6;
  const list = element("ul", {}, told.map((note) => element("li", { class: `note ${slug(note.kind)}` }, note.text)));
  if (!many) return list;
  return element("details", { class: "block" }, element("summary", {}, `${told.length} notes on these runs`), list);
}

// Parts stand in one order; those that are there already are not moved, which would lose their place.
function arrange() {
  const held = [...sections.values()];
  const wanted = [headline, notes, ...held.map((one) => one.box), rollouts.box, browser.box, ...held.map((one) => one.setup)];
  wanted.forEach((box, place) => {
    if (main.children[place] !== box) main.insertBefore(box, main.children[place] || null);
  });
  const links = wanted.filter((box) => box.id && !box.hidden).map((box) => [box.id, box.querySelector("h2").textContent]);
  const key = JSON.stringify(links);
  const parts = document.getElementById("parts");
  if (parts.dataset.key === key) return;
  parts.dataset.key = key;
  parts.replaceChildren(...links.map(([id, title]) => element("li", {}, element("a", { href: `#${id}` }, title.replace(/: configuration and versions$/, " setup").replace(/ and versions$/, "")))));
}

const button = document.getElementById("theme");

function paint() {
  const dark = theme() === "dark";
  button.textContent = dark ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to the ${dark ? "light" : "dark"} theme`);
  for (const one of sections.values()) one.draw();
}

button.addEventListener("click", () => {
  document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
  paint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

const sign = document.getElementById("live");
let tag = null;

async function ask() {
  try {
    const answer = await fetch("data.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      const found = await answer.json();
      if (tag !== answer.headers.get("ETag")) update(found);
      tag = answer.headers.get("ETag");
    } else {
      await answer.text(); // a body left unread counts as a request that failed
      if (answer.status !== 304) throw new Error(`status ${answer.status}`);
    }
    tell(data.runs.some((run) => run.state === "going") ? "Live" : "Up to date", "on");
  } catch {
    tell("No answer: is wmrl watch still running?", "off");
  }
  setTimeout(ask, document.hidden ? 10000 : 2000);
}

function tell(text, state) {
  if (sign.textContent === text) return;
  sign.textContent = text;
  sign.className = `live ${state}`;
}

main.querySelector("noscript")?.remove();
update(data);
paint();
if (live) ask();
