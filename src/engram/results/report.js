// Draws the figures from the data in #figures. The rest of the page works without it.
"use strict";

const root = document.documentElement;
const read = (id) => JSON.parse(document.getElementById(id).textContent);

// ---- Colours, read from the style sheet so that page and plots agree. ----

const swatch = document.createElement("span");
swatch.hidden = true;

function colour(name) {
  swatch.style.color = `var(--${name})`;
  return getComputedStyle(swatch).color;
}

function faint(rgb, share) {
  return rgb.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
}

function isDark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// Eight colour-blind safe colours; longer streams get a colour ramp in the order of the tasks.
function colourOf(index, count) {
  if (count <= 8) return colour(`c${index}`);
  const t = index / (count - 1);
  return isDark() ? `hsl(${265 - 215 * t}, 75%, ${66 + 8 * t}%)` : `hsl(${265 - 225 * t}, 70%, ${38 - 4 * t}%)`;
}

// ---- Traces and layouts. ----

const state = new Map(); // figure → { view, hidden }

function curve(series, ink, extra) {
  return { type: "scatter", mode: "lines", name: series.name, x: series.x, y: series.y, line: { color: ink, width: 1.8 }, ...extra };
}

function band(series, ink) {
  if (!series.low) return [];
  const x = series.x.concat([...series.x].reverse());
  const y = series.high.concat([...series.low].reverse());
  const fill = ink.startsWith("rgb(") ? faint(ink, 0.16) : ink.replace("hsl", "hsla").replace(")", ", 0.16)");
  return [{ type: "scatter", x, y, fill: "toself", fillcolor: fill, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false }];
}

// Figures of kind "plotly" hold Plotly data and layout; their colours are names of the style sheet: "c0", "ink", "c1/0.16".
function inked(value, key = "") {
  if (Array.isArray(value)) return value.map((inner) => inked(inner, key));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, inked(inner, name)]));
  const named = typeof value === "string" && /color(way)?$/.test(key) && /^(c[0-7]|ink|soft|line|grid|card|shade|accent)(?:\/([\d.]+))?$/.exec(value);
  if (!named) return value;
  return named[2] ? faint(colour(named[1]), named[2]) : colour(named[1]);
}

function tracesOf(figure, { view, hidden }) {
  if (figure.kind === "plotly") return inked(figure.data);
  const traces = [];
  const percent = { hovertemplate: "%{y:.1f} %" };
  if (figure.kind === "bars") {
    figure.bars.forEach((bar, i) => {
      if (hidden.has(bar.name)) return;
      traces.push({
        type: "bar", name: bar.name, x: figure.metrics, y: bar.y, marker: { color: colourOf(i, figure.bars.length) },
        error_y: { array: bar.error, arrayminus: bar.errorBelow, symmetric: false, color: colour("ink"), thickness: 1.2, width: 4, visible: bar.error.some((e) => e !== null) }, ...percent,
      });
    });
    return traces;
  }
  if (figure.kind === "tasks") {
    figure.tasks.forEach((task, i) => {
      if (hidden.has(task.name)) return;
      const ink = colourOf(i, figure.tasks.length);
      if (view !== "ends") traces.push(...band(task, ink), curve(task, ink, percent));
      if (view !== "all") {
        const dashes = { color: ink, width: view === "ends" ? 2 : 1.4, dash: "dash" };
        const marker = { color: colour("card"), size: figure.tasks.length > 10 ? 5 : 8, line: { color: ink, width: 2 } };
        const hover = view === "ends" ? percent : { hoverinfo: "skip" };
        traces.push({ type: "scatter", mode: "lines+markers", name: task.name, x: task.endX, y: task.endY, line: dashes, marker, ...hover });
      }
    });
    if (view !== "ends" && !hidden.has(figure.lowest.name) && figure.lowest.x.length)
      traces.push(curve(figure.lowest, colour("ink"), { line: { color: colour("ink"), width: 2.4, dash: "dot", shape: "hv" }, ...percent }));
    return traces;
  }
  figure.series.forEach((series, i) => {
    if (hidden.has(series.name)) return;
    const ink = colourOf(i, figure.series.length);
    const hover = figure.kind === "probe" ? { hovertemplate: "%{y:.4g}" } : percent;
    traces.push(...band(series, ink), curve(series, ink, hover));
  });
  return traces;
}

// Where runs differ in their task boundaries, every curve has its own, in its colour; those that several
// curves share are grey.
function ownMarks(figure, { hidden }) {
  const shown = figure.boundaries.filter((own) => figure.kind !== "methods" || !hidden.has(own.name));
  const curves = new Map(); // boundary → the curves that have it
  for (const own of shown) for (const x of own.x) curves.set(x, (curves.get(x) || []).concat(figure.boundaries.indexOf(own)));
  const shapes = [...curves].map(([x, of]) => {
    const ink = figure.kind === "methods" && of.length === 1 ? colourOf(of[0], figure.boundaries.length) : colour("soft");
    return { type: "line", x0: x, x1: x, xref: "x", yref: "paper", y0: 0, y1: 1, layer: "below", line: { color: ink, width: 1.4, dash: "dot" } };
  });
  return { shapes, annotations: [] };
}

function phaseMarks(phases, width) {
  const shapes = [];
  const annotations = [];
  const span = phases.length ? phases[phases.length - 1].end - phases[0].start : 0;
  const pixels = span ? (width - 70) / span : 0;
  phases.forEach((phase, i) => {
    const side = { xref: "x", yref: "paper", y0: 0, y1: 1, layer: "below" };
    if (i % 2) shapes.push({ type: "rect", x0: phase.start, x1: phase.end, ...side, fillcolor: colour("shade"), line: { width: 0 } });
    if (i) shapes.push({ type: "line", x0: phase.start, x1: phase.start, ...side, line: { color: colour("soft"), width: 1, dash: "dot" } });
    const room = (phase.end - phase.start) * pixels - 4;
    const short = phase.name.split(" (")[0];
    const text = [phase.name, short, short.replace(/^Tasks? /, "")].find((label) => label.length * 6.6 < room);
    if (!text) return;
    const centre = { x: (phase.start + phase.end) / 2, y: 1, xref: "x", yref: "paper", yanchor: "bottom", yshift: 3 };
    annotations.push({ ...centre, showarrow: false, text: escapeText(text), font: { size: 11, color: colour("soft") } });
  });
  return { shapes, annotations };
}

// Plotly interprets some HTML tags in text; names are escaped so that they are shown literally.
function escapeText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

const isObject = (value) => value && typeof value === "object" && !Array.isArray(value);

// The layout of a figure on top of that of the page; nested options are merged, not replaced.
function merged(base, overrides) {
  const result = { ...base };
  for (const [key, value] of Object.entries(overrides))
    result[key] = isObject(base[key]) && isObject(value) ? merged(base[key], value) : value;
  return result;
}

function plotlyLayout(figure, place) {
  const axis = { gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"), tickfont: { size: 11.5 }, title: { standoff: 6, font: { size: 12, color: colour("soft") } }, automargin: true };
  const overrides = inked(figure.layout);
  const axes = Object.fromEntries(Object.keys({ xaxis: 0, yaxis: 0, ...overrides }).filter((key) => /^[xy]axis\d*$/.test(key)).map((key) => [key, axis]));
  const base = {
    ...axes,
    height: place.clientHeight,
    autosize: true,
    margin: { l: 56, r: 12, t: 24, b: 48 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    colorway: [...Array(8).keys()].map((index) => colour(`c${index}`)),
    font: { family: getComputedStyle(document.body).fontFamily, color: colour("ink"), size: 12.5 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") }, namelength: 40 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    // A long legend reaches the mode bar, which is therefore shown on hover only.
    modebar: { bgcolor: colour("card"), color: colour("soft"), activecolor: colour("accent") },
    uirevision: "kept",
  };
  return merged(base, overrides);
}

function layoutOf(figure, place) {
  if (figure.kind === "plotly") return plotlyLayout(figure, place);
  const bars = figure.kind === "bars";
  const accuracy = figure.kind !== "probe";
  const phases = figure.phases || [];
  const many = (figure.tasks || figure.series || []).length > 10;
  const axis = { gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false, tickfont: { size: 11.5 }, automargin: true };
  const last = figure.boundaries ? Math.max(...figure.boundaries.map((own) => own.end)) : phases.length ? phases[phases.length - 1].end : 0;
  const updates = last ? { range: [Math.min(0, phases.length ? phases[0].start : 0), last * 1.012] } : {};
  return {
    ...(figure.boundaries ? ownMarks(figure, state.get(place)) : phaseMarks(phases, place.clientWidth)),
    height: place.clientHeight,
    autosize: true,
    margin: { l: 46, r: 8, t: bars ? 10 : 50, b: bars ? 30 : 44 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, color: colour("ink"), size: 12.5 },
    xaxis: bars ? { ...axis, fixedrange: true, showgrid: false, tickfont: { size: 13 } } : { ...axis, ...updates, title: { text: "updates", standoff: 6, font: { size: 12, color: colour("soft") } }, showgrid: false },
    yaxis: { ...axis, fixedrange: bars, ...(accuracy ? { ticksuffix: " %", range: [-2, 102] } : { rangemode: "tozero" }) },
    showlegend: false,
    barmode: "group",
    bargap: 0.28,
    bargroupgap: 0.08,
    hovermode: bars || many ? "closest" : "x unified",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") }, namelength: 40 },
    // On touch screens dragging scrolls the page; zooming is available in the mode bar.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("accent") },
    uirevision: "kept",
  };
}

const config = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  toImageButtonOptions: { format: "svg", filename: "engram" },
};

// ---- Drawing and controls. ----

const escaped = (trace) => (trace.name ? { ...trace, name: escapeText(trace.name) } : trace);
const places = () => [...document.querySelectorAll("[data-figure]")];

function draw(place) {
  const figure = figures[place.dataset.figure];
  Plotly.react(place, tracesOf(figure, state.get(place)).map(escaped), layoutOf(figure, place), { ...config, displayModeBar: { plotly: "hover", bars: false }[figure.kind] ?? true });
}

function legendOf(figure, place) {
  const legend = place.parentElement.querySelector(".legend");
  if (!legend) return;
  const entries = figure.tasks || figure.series || figure.bars;
  const { hidden } = state.get(place);
  const add = (name, paint, style) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.className = style;
    button.setAttribute("aria-pressed", "true");
    button.dataset.paint = paint;
    button.addEventListener("click", () => {
      const off = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!off));
      if (off) hidden.add(name);
      else hidden.delete(name);
      draw(place);
    });
    legend.append(button);
  };
  entries.forEach((entry, i) => add(entry.name, `${i}/${entries.length}`, ""));
  if (figure.lowest && figure.lowest.x.length) add(figure.lowest.name, "ink", "dashed");
}

function paintLegends() {
  for (const button of document.querySelectorAll(".legend button")) {
    const [index, count] = button.dataset.paint.split("/");
    button.style.setProperty("--mark", count ? colourOf(Number(index), Number(count)) : colour(index));
  }
}

function redraw() {
  paintLegends();
  places().forEach(draw);
}

function prepare(place) {
  const figure = figures[place.dataset.figure];
  const chosen = place.parentElement.querySelector(".views :checked");
  state.set(place, { view: chosen ? chosen.value : "all", hidden: new Set() });
  legendOf(figure, place);
  for (const choice of place.parentElement.querySelectorAll(".views input"))
    choice.addEventListener("change", () => {
      state.get(place).view = choice.value;
      draw(place);
    });
}

function themes() {
  const button = document.getElementById("theme");
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  const change = () => {
    show();
    if (window.Plotly) redraw();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    change();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    change();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    change();
  });
  show();
}

function tips() {
  const tip = document.getElementById("tip");
  let shown = null;
  const hide = () => {
    shown = null;
    tip.hidden = true;
  };
  const place = () => {
    if (!shown) return;
    const at = shown.getBoundingClientRect();
    const left = Math.max(12, Math.min(at.left, innerWidth - tip.offsetWidth - 12));
    const below = at.bottom + 8 + tip.offsetHeight < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? at.bottom + 8 : Math.max(8, at.top - tip.offsetHeight - 8)}px`;
  };
  const show = (term) => {
    shown = term;
    tip.textContent = term.dataset.tip;
    tip.hidden = false;
    place();
  };
  for (const term of document.querySelectorAll("[data-tip]")) {
    for (const event of ["mouseenter", "focus", "click"]) term.addEventListener(event, () => show(term));
    for (const event of ["mouseleave", "blur"]) term.addEventListener(event, hide);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", place, { capture: true, passive: true });
}

// Plotly is embedded compressed, which more than halves the size of the page.
async function unpackPlotly() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

const figures = read("figures");

document.body.append(swatch);
themes();
tips();
unpackPlotly().then(
  () => {
    places().forEach(prepare);
    redraw();
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth !== width) places().forEach(draw);
      width = innerWidth;
    });
    root.dataset.drawn = "true";
  },
  (reason) => {
    for (const place of places()) place.textContent = `This figure could not be drawn (${reason}). The tables are complete.`;
  },
);
