// A figure with its words, its controls and its numbers as a table.

const MOST_ROWS = 400;

class Figure {
  constructor(shown) {
    this.shown = shown;
    this.choices = [];
    this.seen = false;
    const title = fresh("figure");
    this.title = element("h3", { id: title });
    this.words = element("p", { class: "words" });
    this.controls = element("div", { class: "controls" });
    // Not an image: Plotly's buttons in it take the focus, which nothing inside an image may.
    this.plot = element("div", { class: "plot", role: "group" });
    this.numbers = element("details", { class: "numbers", toggle: () => this.#table() }, element("summary", {}, "Numbers"));
    this.box = element(
      "figure",
      { class: "figure", "aria-labelledby": title },
      this.title, this.words, this.controls, this.plot, this.numbers,
    );
    this.update(shown);
    whenSeen(this.box, () => {
      this.seen = true;
      this.draw();
    });
  }

  update(shown) {
    const before = JSON.stringify(this.shown.controls);
    const first = this.choices.length !== shown.controls.length;
    // A slider at its end stays at the end while steps are added to it.
    this.choices = shown.controls.map((control, place) => {
      const last = control.options.length - 1;
      const was = this.shown.controls[place];
      const chosen = this.choices[place];
      if (control.kind !== "slider") return first ? 0 : Math.min(chosen, last);
      return first || !was || chosen >= was.options.length - 1 ? last : chosen;
    });
    const unchanged = !first && this.drawn && JSON.stringify(this.shown) === JSON.stringify(shown);
    this.shown = shown;
    this.box.dataset.figure = shown.id;
    this.box.classList.toggle("wide", shown.wide);
    this.title.textContent = shown.title;
    this.words.textContent = shown.summary;
    this.plot.setAttribute("aria-label", `${shown.title}. ${shown.summary} The numbers follow as a table.`);
    if (first || before !== JSON.stringify(shown.controls)) this.#control();
    if (this.seen && !unchanged) this.draw();
  }

  #control() {
    const active = document.activeElement && document.activeElement.closest(".controls") === this.controls;
    this.controls.replaceChildren(...this.shown.controls.map((control, place) => this.#one(control, place)));
    if (active) this.controls.querySelector("input")?.focus({ preventScroll: true });
  }

  #one(control, place) {
    if (control.kind === "slider") return this.#slider(control, place);
    const name = fresh("choice");
    const options = control.options.map((text, index) =>
      element(
        "label", {},
        element("input", {
          type: "radio", name, value: index, checked: index === this.choices[place],
          change: () => { this.choices[place] = index; this.draw(); },
        }),
        element("span", {}, text),
      ),
    );
    return element("fieldset", { class: "choice" }, element("legend", {}, control.label), element("div", { class: "options" }, options));
  }

  #slider(control, place) {
    const id = fresh("slider");
    const value = () => control.options[this.choices[place]];
    const shown = element("output", { for: id }, value());
    const range = element("input", {
      id, type: "range", min: 0, max: control.options.length - 1, step: 1, value: this.choices[place],
      "aria-valuetext": `step ${value()}`,
      input: () => {
        this.choices[place] = Number(range.value);
        shown.textContent = value();
        range.setAttribute("aria-valuetext", `step ${value()}`);
        this.draw();
      },
    });
    range.value = this.choices[place];
    return element("div", { class: "slider" }, element("label", { for: id }, control.label), range, shown);
  }

  // The traces that the choices leave, a slider's later maps left out and its earlier ones faint.
  traces() {
    const slider = this.shown.controls.findIndex((control) => control.kind === "slider");
    const chosen = slider < 0 ? 0 : this.choices[slider];
    const limit = slider < 0 ? Infinity : Number(this.shown.controls[slider].options[chosen]);
    const last = slider < 0 || chosen === this.shown.controls[slider].options.length - 1;
    return this.shown.data
      .filter((trace) => !trace._when || trace._when.every((want, at) => want === null || this.choices[at] === undefined || want === this.choices[at]))
      .filter((trace) => trace._slide === undefined || trace._slide <= chosen)
      .map((trace) => {
        if (trace._slide !== undefined && trace._slide < chosen) return faint(trace);
        return trace._upto && !last ? upTo(trace, limit) : trace;
      });
  }

  async draw() {
    let Plotly;
    try {
      Plotly = await plotly();
    } catch (problem) {
      this.plot.replaceChildren(element("p", { class: "note" }, `This browser cannot draw the figure (${problem.message}); its numbers are below.`));
      return;
    }
    const narrow = this.box.clientWidth < 520;
    const option = this.shown.controls.map((control, at) => (control.kind === "slider" ? null : control.options[this.choices[at]])).filter(Boolean).at(-1);
    const layout = { ...this.shown.layout, ...(this.shown.layouts[option] || {}) };
    await Plotly.react(this.plot, this.traces().map((trace) => coloured(trace)), styledLayout(layout, narrow), PLOT_SETTINGS);
    this.drawn = true;
    this.#table();
  }

  #table() {
    if (!this.numbers.open) return;
    const axes = ["xaxis", "yaxis"].map((name) => this.shown.layout[name]?.title?.text || name[0]);
    const rows = this.traces()
      .filter((trace) => trace._slide === undefined || trace.showlegend !== false)
      .flatMap((trace) => trace.x.map((x, at) => [plainName(trace.name), x, trace.y[at]]));
    const step = Math.ceil(rows.length / MOST_ROWS);
    const kept = rows.filter((_, at) => at % step === 0);
    const table = element(
      "table", {},
      element("caption", {}, step > 1 ? `Every ${step}th of ${rows.length} points` : `${rows.length} points`),
      element("thead", {}, element("tr", {}, ["line", ...axes].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, kept.map(([name, x, y]) =>
        element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, digits(x)), element("td", {}, digits(y))))),
    );
    this.numbers.querySelector(".scroll")?.remove();
    this.numbers.append(scrolling(`Numbers of: ${this.shown.title}`, table));
  }
}

// Plotly reads names with the three characters of markup escaped.
const plainName = (name) => name.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

function faint(trace) {
  return { ...trace, line: { ...trace.line, width: 1 }, opacity: 0.18, showlegend: false, hoverinfo: "skip", hovertemplate: null };
}

function upTo(trace, limit) {
  const kept = trace._upto.map((step) => step <= limit);
  const cut = (values) => values.filter((_, at) => kept[at]);
  const shades = trace.marker.color;
  const marker = { ...trace.marker, color: cut(shades), cmin: Math.min(...shades), cmax: Math.max(...shades) };
  return { ...trace, x: cut(trace.x), y: cut(trace.y), marker };
}

// Figures far down the page wait until they come near, so that the first ones are there at once.
const waiting = new Map();
const watcher = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => reveal(entry.target)),
  { rootMargin: "500px" },
);

function whenSeen(box, act) {
  waiting.set(box, act);
  watcher.observe(box);
}

function reveal(box) {
  watcher.unobserve(box);
  const act = waiting.get(box);
  waiting.delete(box);
  act?.();
}

addEventListener("beforeprint", () => [...waiting.keys()].forEach(reveal));

// The figures of one place: those that stay are updated in place, so that a reader's choices and focus stay too.
class Figures {
  constructor(label) {
    this.found = new Map();
    this.box = element("div", { class: "figures", role: "group", "aria-label": label });
  }

  update(shown) {
    const wanted = new Set(shown.map((one) => one.id));
    for (const [id, figure] of this.found) {
      if (!wanted.has(id)) {
        figure.box.remove();
        this.found.delete(id);
      }
    }
    shown.forEach((one, place) => {
      const known = this.found.get(one.id);
      if (known) known.update(one);
      else this.found.set(one.id, new Figure(one));
      const { box } = this.found.get(one.id);
      if (this.box.children[place] !== box) this.box.insertBefore(box, this.box.children[place] || null);
    });
  }

  draw() {
    for (const figure of this.found.values()) if (figure.seen) figure.draw();
  }
}
