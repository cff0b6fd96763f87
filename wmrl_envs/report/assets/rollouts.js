// Rollouts of robots: a video, and the curve of its progress with a line that moves as it plays.

const WIDTH = 480;
const HEIGHT = 150;
const EDGE = { left: 34, right: 10, top: 10, bottom: 22 };

function rollout(found, source) {
  const video = source ? element("video", { controls: true, muted: true, playsinline: true, loop: true, preload: "metadata", src: source, "aria-label": found.instruction || found.caption || "Rollout" }) : null;
  return element(
    "div", { class: "rollout" },
    found.instruction ? element("p", { class: "words" }, `“${found.instruction}”`) : null,
    video,
    found.progress && found.progress.length > 1 ? progressCurve(found, video) : null,
    !video && found.progress ? element("p", { class: "none" }, "No video of this rollout is here.") : null,
  );
}

function progressCurve(found, video) {
  const { progress, success } = found;
  const wide = WIDTH - EDGE.left - EDGE.right;
  const high = HEIGHT - EDGE.top - EDGE.bottom;
  const x = (at, many) => EDGE.left + (wide * at) / Math.max(1, many - 1);
  const y = (value) => EDGE.top + high * (1 - Math.min(1, Math.max(0, value)));
  const path = (values) => values.map((value, at) => `${at ? "L" : "M"}${x(at, values.length).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const ends = `Progress goes from ${digits(progress[0], 2)} to ${digits(progress.at(-1), 2)} over ${progress.length} frames.`;
  const picture = vector("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": ends, class: "progress" });
  for (const value of [0, 0.5, 1]) {
    picture.append(vector("line", { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(value), y2: y(value), class: "grid" }));
    picture.append(vector("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  picture.append(vector("text", { x: EDGE.left, y: HEIGHT - 5 }, "start"));
  picture.append(vector("text", { x: WIDTH - EDGE.right, y: HEIGHT - 5, "text-anchor": "end" }, "end of the rollout"));
  if (success && success.length > 1) picture.append(vector("path", { d: path(success), class: "success" }));
  picture.append(vector("path", { d: path(progress), class: "curve" }));
  const cursor = vector("line", { x1: EDGE.left, x2: EDGE.left, y1: EDGE.top, y2: EDGE.top + high, class: "cursor" });
  const dot = vector("circle", { r: 5, cx: EDGE.left, cy: y(progress[0]), class: "dot" });
  picture.append(cursor, dot);
  const move = (share) => {
    const at = Math.min(progress.length - 1, Math.max(0, share * (progress.length - 1)));
    const low = Math.floor(at);
    const value = progress[low] + (at - low) * ((progress[low + 1] ?? progress[low]) - progress[low]);
    const place = x(at, progress.length);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    dot.setAttribute("cx", place);
    dot.setAttribute("cy", y(value));
  };
  if (video) follow(video, picture, move);
  const real = found.real === undefined ? "" : found.real > 0 ? " The label says: solved." : " The label says: not solved.";
  const legend = element("p", { class: "keys" }, element("span", { class: "key curve" }, "progress"), success && success.length > 1 ? element("span", { class: "key success" }, "probability of success") : null);
  return element("div", { class: "progress-box" }, picture, legend, element("p", { class: "words" }, ends + real));
}

function follow(video, picture, move) {
  const share = () => (video.duration > 0 ? video.currentTime / video.duration : 0);
  let running = false;
  const turn = () => {
    move(share());
    if (!video.paused && video.isConnected) requestAnimationFrame(turn);
    else running = false;
  };
  const start = () => {
    if (!running) {
      running = true;
      requestAnimationFrame(turn);
    }
  };
  video.addEventListener("play", start);
  for (const name of ["timeupdate", "seeked"]) video.addEventListener(name, () => move(share()));
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    const wanted = Math.min(1, Math.max(0, (at - EDGE.left) / (WIDTH - EDGE.left - EDGE.right)));
    if (video.duration > 0) video.currentTime = wanted * video.duration;
  });
}

class Rollouts {
  constructor() {
    this.found = new Map();
    this.list = element("ul", { class: "videos" });
    this.most = 12;
    this.more = element("button", { type: "button", class: "quiet", click: () => { this.most += 12; this.update(this.data); } }, "Show more");
    this.box = part("rollouts", "Rollouts", this.list, this.more);
  }

  update(data) {
    this.data = data;
    this.box.hidden = data.videos.length === 0;
    this.more.hidden = data.videos.length <= this.most;
    const shown = data.videos.filter((video) => video.src).slice(0, this.most);
    // A video that is there already stays where it is, so that it plays on.
    const boxes = shown.map((video) => {
      const key = JSON.stringify([video.caption, video.run, video.src.length, video.src.slice(-64)]);
      if (!this.found.has(key)) this.found.set(key, this.#box(video));
      return this.found.get(key);
    });
    for (const box of [...this.list.children]) if (!boxes.includes(box)) box.remove();
    boxes.forEach((box, place) => {
      if (this.list.children[place] !== box) this.list.insertBefore(box, this.list.children[place] || null);
    });
  }

  #box(video) {
    const run = this.data.runs.length > 1 ? element("span", { class: "words" }, this.data.runs[video.run].name) : null;
    const box = element("li", {}, element("h3", { class: "caption" }, video.caption, run));
    whenSeen(box, () => box.append(rollout(video, video.src)));
    return box;
  }
}
