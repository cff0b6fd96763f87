// The browser of trajectories: filters, a list, and one episode at a time, turn by turn.

const REWARD_WORDS = {
  predicted_reward: "predicted", calibrated_reward: "calibrated", real_reward: "real", corrected_return: "corrected return",
};
const PAGE = 60;

class Browser {
  constructor() {
    this.filters = { run: "", task: "", kind: "", status: "", from: "", to: "", text: "" };
    this.chosen = null;
    this.most = PAGE;
    this.fields = element("div", { class: "filters", role: "group", "aria-label": "Filters" });
    this.count = element("p", { class: "count", role: "status", "aria-live": "polite" });
    this.list = element("ul", { class: "episodes", "aria-label": "Episodes", keydown: (event) => this.#move(event) });
    this.more = element("button", { type: "button", class: "quiet", click: () => { this.most += PAGE; this.#show(); } }, "Show more");
    this.detail = element("article", { class: "detail", "aria-label": "Chosen episode", tabindex: "-1" });
    this.box = part(
      "trajectories", "Trajectories", this.fields, this.count,
      element("div", { class: "split" }, element("div", { class: "side" }, this.list, this.more), this.detail),
    );
  }

  update(data) {
    this.data = data;
    data.episodes.forEach((episode) => { episode.key = `${data.runs[episode.run].name} ${episode.step} ${episode.episode}`; });
    this.box.hidden = data.episodes.length === 0;
    this.#options();
    this.#show();
  }

  // Choices are those that the episodes have; a control that has the focus stays as it is.
  #options() {
    const { episodes, runs } = this.data;
    const distinct = (values) => [...new Set(values)].sort();
    const named = (values) => values.map((value) => [value, words(value)]);
    const choices = {
      run: distinct(episodes.map((one) => one.run)).map((run) => [String(run), runs[run].name]),
      task: named(distinct(episodes.map((one) => one.task))).map(([value]) => [value, value]),
      kind: [["anchor", "executed (anchors)"], ["predicted", "predicted alone"], ["missed", "status predicted wrongly"]],
      status: named(distinct(episodes.flatMap((one) => one.turns.flatMap((turn) => outcomes(turn).map((found) => found.status || "unknown"))))),
    };
    const key = JSON.stringify(choices);
    if (key === this.key) return;
    this.key = key;
    if (this.fields.contains(document.activeElement)) {
      this.fields.addEventListener("focusout", () => { this.key = null; this.#options(); }, { once: true });
      return;
    }
    const chooser = (name, label, all) => select(label, [["", all], ...choices[name]], this.filters[name], (value) => this.#filter(name, value));
    const typed = (name, label, attributes) => {
      const id = fresh("filter");
      const input = element("input", { id, ...attributes, value: this.filters[name], input: () => this.#filter(name, input.value) });
      return element("div", { class: `field ${name}` }, element("label", { for: id }, label), input);
    };
    const number = { type: "number", min: 0, inputmode: "numeric" };
    this.fields.replaceChildren(
      ...(choices.run.length > 1 ? [chooser("run", "Run", "all runs")] : []),
      ...(choices.task.length > 1 ? [chooser("task", "Task", "all tasks")] : []),
      chooser("kind", "Episodes", "all episodes"),
      ...(choices.status.length ? [chooser("status", "Status", "any status")] : []),
      typed("from", "From step", number),
      typed("to", "To step", number),
      typed("text", "Text", { type: "search", placeholder: "in code, replies and feedback", spellcheck: "false" }),
    );
  }

  #filter(name, value) {
    this.filters[name] = value;
    this.most = PAGE;
    this.#show();
  }

  #fits(episode) {
    const { run, task, kind, status, from, to, text } = this.filters;
    if (run !== "" && episode.run !== Number(run)) return false;
    if (task && episode.task !== task) return false;
    if (kind === "anchor" && !episode.anchor) return false;
    if (kind === "predicted" && episode.anchor) return false;
    if (kind === "missed" && !episode.turns.some(missed)) return false;
    if (from !== "" && episode.step < Number(from)) return false;
    if (to !== "" && episode.step > Number(to)) return false;
    if (status && !episode.turns.some((turn) => outcomes(turn).some((found) => (found.status || "unknown") === status))) return false;
    return !text || this.#text(episode).includes(text.toLowerCase());
  }

  #text(episode) {
    const { codes, texts } = this.data;
    episode.searched ||= [
      episode.instruction || "",
      ...episode.turns.flatMap((turn) => [
        turn.code === null ? "" : plainCode(codes[turn.code]),
        turn.reply === null ? "" : texts[turn.reply],
        ...outcomes(turn).flatMap((found) => [found.feedback === undefined ? "" : texts[found.feedback], found.error_type || ""]),
      ]),
    ].join("\n").toLowerCase();
    return episode.searched;
  }

  #show() {
    const found = this.data.episodes.filter((episode) => this.#fits(episode));
    const total = this.data.episodes.length;
    const told = found.length === total ? `${total.toLocaleString("en")} episodes` : `${found.length.toLocaleString("en")} of ${total.toLocaleString("en")} episodes`;
    if (this.count.textContent !== told) this.count.textContent = told;
    const shown = found.slice(0, this.most);
    this.more.hidden = shown.length === found.length;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const top = this.list.scrollTop;
    this.list.replaceChildren(...shown.map((episode) => this.#row(episode)));
    this.list.scrollTop = top;
    if (focused !== null) this.#buttons().find((button) => button.dataset.key === focused)?.focus({ preventScroll: true });
    // At first one that tells much: with both outcomes, or with a video.
    const telling = (episode) => episode.turns.some((turn) => turn.predicted && turn.real) || this.data.videos[episode.video];
    const chosen = found.find((episode) => episode.key === this.chosen) || found.find(telling) || found[0];
    this.#choose(chosen, false);
  }

  #row(episode) {
    const last = episode.turns.at(-1);
    const outcome = last && (last.real || last.predicted);
    const reward = episode.rewards.real_reward ?? episode.rewards.calibrated_reward ?? episode.rewards.predicted_reward;
    return element(
      "li", {},
      element(
        "button",
        { type: "button", class: "row", "data-key": episode.key, click: () => this.#choose(episode, true) },
        element("span", { class: "where" }, `step ${episode.step}`, element("span", { class: "task" }, episode.task)),
        element(
          "span", { class: "what" },
          outcome ? badge(outcome.status) : null,
          episode.anchor ? element("span", { class: "tag anchor" }, "anchor") : null,
          element("span", { class: "reward" }, fixed(reward, 2)),
        ),
      ),
    );
  }

  #buttons() {
    return [...this.list.querySelectorAll("button")];
  }

  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const buttons = this.#buttons();
    const at = buttons.indexOf(document.activeElement);
    if (at < 0 || (!step && event.key !== "Home" && event.key !== "End")) return;
    event.preventDefault();
    const next = step ? buttons[at + step] : buttons.at(event.key === "Home" ? 0 : -1);
    next?.focus();
    next?.click();
  }

  #choose(episode, byReader) {
    for (const button of this.#buttons()) {
      if (episode && button.dataset.key === episode.key) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    if (!episode) {
      this.shown = null;
      this.detail.replaceChildren(element("p", { class: "none" }, "No episode passes these filters."));
      return;
    }
    if (byReader || this.chosen !== null) this.chosen = episode.key;
    const same = JSON.stringify([episode.key, episode.rewards]);
    // On a phone the episode lies below the list.
    if (byReader && matchMedia("(max-width: 800px)").matches) this.detail.scrollIntoView({ block: "start" });
    if (this.shown === same) return;
    this.shown = same;
    this.detail.replaceChildren(...this.#episode(episode));
    // Where the error is, in a program longer than its box.
    for (const line of this.detail.querySelectorAll(".line.wrong")) {
      const box = line.closest("pre");
      box.scrollTop = Math.max(0, line.offsetTop - box.clientHeight / 2);
    }
  }

  #episode(episode) {
    const several = this.data.runs.length > 1 ? ` · ${this.data.runs[episode.run].name}` : "";
    const number = episode.episode === null ? "" : ` · episode ${episode.episode}`;
    const rewards = Object.entries(REWARD_WORDS)
      .filter(([name]) => episode.rewards[name] !== undefined)
      .map(([name, label]) => element("div", { class: `reward-${name}` }, element("dt", {}, label), element("dd", {}, fixed(episode.rewards[name]))));
    return [
      element("h3", {}, `${episode.task} · step ${episode.step}`),
      element("p", { class: "words" }, `${episode.anchor ? "Executed for real (anchor)" : "Predicted alone"}${number}${several}`),
      element("dl", { class: "rewards" }, rewards),
      episode.progress ? rollout(episode, this.data.videos[episode.video]?.src) : null,
      ...episode.turns.map((turn, place) => this.#turn(turn, place, episode.turns.length)),
    ].filter(Boolean);
  }

  #turn(turn, place, turns) {
    const { codes, texts } = this.data;
    const name = turns > 1 ? `Turn ${place + 1} of ${turns}` : "Attempt";
    const line = (turn.real || turn.predicted)?.error_line;
    const verdict = turn.real && turn.predicted
      ? element("p", { class: missed(turn) ? "verdict wrong" : "verdict right" }, missed(turn) ? "The status was predicted wrongly." : "The status was predicted rightly.")
      : null;
    return element(
      "section", { class: "turn", "aria-label": name },
      turns > 1 ? element("h4", {}, name) : null,
      turn.reply === null ? null : element("details", {}, element("summary", {}, "Whole reply"), textBlock(texts[turn.reply], "Whole reply")),
      turn.code === null ? element("p", { class: "none" }, "No code was found in the reply.") : codeBlock(codes[turn.code], `${name}: code`, line),
      verdict,
      element(
        "div", { class: "outcomes" },
        [["Predicted", turn.predicted], ["Real", turn.real]].filter(([, found]) => found).map(([label, found]) => this.#outcome(label, found, turns > 1 ? "h5" : "h4")),
      ),
    );
  }

  #outcome(label, found, heading) {
    const numbers = [
      ["reward", fixed(found.reward)], ["spread", found.spread === undefined ? null : `± ${fixed(found.spread)}`],
      ["score", found.score === undefined ? null : digits(found.score, 4)],
      ["position", found.position === undefined ? null : fixed(found.position)],
      ["seconds", found.seconds === undefined ? null : fixed(found.seconds, 2)],
      ["error", found.error_type ? `${found.error_type}${found.error_line === undefined ? "" : `, line ${found.error_line}`}` : null],
    ].filter(([, value]) => value !== null);
    return element(
      "section", { class: `outcome ${label.toLowerCase()}`, role: "group", "aria-label": `${label} outcome` },
      element(heading, {}, label, badge(found.status)),
      element("dl", { class: "facts" }, numbers.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
      found.feedback === undefined ? null : textBlock(this.data.texts[found.feedback] || "(nothing)", `${label} feedback`),
    );
  }
}

const outcomes = (turn) => [turn.predicted, turn.real].filter(Boolean);
const missed = (turn) => Boolean(turn.predicted && turn.real && turn.predicted.status !== turn.real.status);

const STATUSES = ["valid", "invalid_submission", "no_submission", "disk", "memory", "timeout", "runtime_error", "syntax_error", "malformed"];

function badge(status) {
  const known = STATUSES.includes(status) ? status.replaceAll("_", "-") : "unknown";
  return element("span", { class: `tag status ${known}` }, status ? words(status) : "unknown");
}
