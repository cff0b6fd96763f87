// Headline, table of groups, settings and versions.

function cardsOf(cards) {
  return element(
    "dl", { class: "cards" },
    cards.map((card) =>
      element(
        "div", { class: `card ${card.tone || ""}` },
        element("dt", {}, card.label),
        element("dd", {}, element("span", { class: "value" }, card.value), element("span", { class: "hint" }, card.detail)),
      )),
  );
}

function groupTable(table, title) {
  const numeric = (place) => (place > 0 ? "number" : "");
  return scrolling(
    title,
    element(
      "table", { class: "groups" },
      element("caption", {}, "Runs that differ in the seed alone share a row; ± is the standard error over them."),
      element("thead", {}, element("tr", {}, table.columns.map((name, place) => element("th", { scope: "col", class: numeric(place) }, name)))),
      element("tbody", {}, table.rows.map((row) =>
        element("tr", {}, row.map((cell, place) =>
          place === 0 ? element("th", { scope: "row" }, cell) : element("td", { class: "number" }, cell))))),
    ),
  );
}

class Settings {
  constructor(title, id, label) {
    this.only = true;
    this.toggle = element("input", { type: "checkbox", id: fresh("only"), checked: true, change: () => { this.only = this.toggle.checked; this.#fill(); } });
    this.choice = element("p", { class: "only" }, this.toggle, element("label", { for: this.toggle.id }, "only what differs"));
    this.table = element("table", { class: "settings" });
    this.box = element("div", { class: "block", role: "group", "aria-labelledby": id }, element("h3", { id }, title), this.choice, scrolling(label, this.table));
  }

  update(shown) {
    const key = JSON.stringify(shown);
    if (key === this.key) return;
    this.key = key;
    this.shown = shown;
    this.choice.hidden = shown.columns.length < 2 || !shown.rows.some((row) => row.differs);
    this.#fill();
  }

  #fill() {
    const { columns, rows } = this.shown;
    const several = columns.length > 1;
    const kept = rows.filter((row) => this.choice.hidden || !this.only || row.differs);
    const head = element("tr", {}, ["setting", ...(several ? columns : ["value"])].map((name) => element("th", { scope: "col" }, name)));
    const mark = () => element("span", { class: "differs" }, "differs");
    this.table.replaceChildren(
      element("thead", {}, head),
      element("tbody", {}, kept.map((row) =>
        element(
          "tr", { class: row.differs ? "apart" : null },
          element("th", { scope: "row" }, row.name, row.differs && !this.only ? mark() : null),
          row.cells.map((cell) => element("td", {}, cell)),
        ))),
    );
  }
}
