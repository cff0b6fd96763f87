// Plotly, unpacked once, and the colours of both themes. Okabe and Ito's palette, lightened for dark pages.

const PALETTES = {
  light: {
    blue: "#0072b2", orange: "#d55e00", green: "#00875f", purple: "#b8578f", sky: "#56b4e9", amber: "#e69f00",
    yellow: "#b8a800", grey: "#8a8f98", muted: "#7a808a", ink: "#1d2129", paper: "#ffffff", grid: "#e6e8ec",
  },
  dark: {
    blue: "#4aa3df", orange: "#f0894d", green: "#2fc79a", purple: "#df97bf", sky: "#8fd0f5", amber: "#f2b84b",
    yellow: "#e8dc5a", grey: "#8b929d", muted: "#9aa1ac", ink: "#eceef2", paper: "#171a21", grid: "#2b303a",
  },
};
// From early to late, both ends away from the page's own colour.
const SCALES = {
  light: [[0, "#00224e"], [0.5, "#7d7c78"], [1, "#dba800"]],
  dark: [[0, "#4f6fa8"], [0.5, "#b0a8a0"], [1, "#ffd84d"]],
};
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

const theme = () =>
  document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

function colour(name) {
  const found = /^@([a-z]+)(?:\/([\d.]+))?$/.exec(name);
  if (!found) return name;
  const hex = PALETTES[theme()][found[1]];
  if (!found[2]) return hex;
  const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${parts.join(",")},${found[2]})`;
}

// A copy of a figure's part in the colours of the theme.
function coloured(value, key = "") {
  if (value === "@steps") return SCALES[theme()];
  if (typeof value === "string") return key === "color" || key === "fillcolor" ? colour(value) : value;
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map((item) => coloured(item)) : value;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => !name.startsWith("_"))
      .map(([name, inner]) => [name, coloured(inner, name)]),
  );
}

let loading = null;

function plotly() {
  loading ||= unpacked().then((text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    return window.Plotly;
  });
  return loading;
}

async function unpacked() {
  const packed = document.getElementById("plotly").textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function axisStyle(axis, narrow) {
  const grid = colour("@grid");
  const style = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true, ticks: "", nticks: narrow ? 6 : 0 };
  const said = axis.title?.text || "";
  const title = { text: narrow ? said.replace(", ", ",<br>") : said, standoff: 8 };
  return { ...style, ...axis, title };
}

function styledLayout(layout, narrow) {
  const styled = coloured(layout);
  const quiet = { family: FONT, size: narrow ? 11 : 12.5, color: colour("@ink") };
  return {
    hovermode: "closest",
    ...styled,
    font: quiet,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 12, r: 12, t: 10, b: 8, autoexpand: true },
    legend: { orientation: "h", x: 0, xanchor: "left", y: -0.19, yanchor: "top", bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: {
      bgcolor: colour("@paper"), bordercolor: colour("@grid"), font: { color: colour("@ink"), family: FONT }, namelength: 40,
    },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("@muted"), activecolor: colour("@ink") },
    // A finger that scrolls the page must not drag a figure.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis: axisStyle(styled.xaxis || {}, narrow),
    yaxis: axisStyle(styled.yaxis || {}, narrow),
  };
}

const PLOT_SETTINGS = {
  displaylogo: false,
  responsive: true,
  showTips: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};
