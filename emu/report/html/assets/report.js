// Puts the charts into the page.

const data = JSON.parse(document.getElementById("data").textContent);
const lastReport = data.training.reduce((end, { points }) => points.reduce((a, b) => Math.max(a, b[0]), end), 0);
const view = new TimeView(1.005 * (data.end || lastReport), data.clock, data.start);
const chartPlace = name => document.querySelector(`[data-chart=${name}]`);

function button(place, text, action, pressed) {
  const made = place.appendChild(document.createElement("button"));
  made.textContent = text;
  made.type = "button";
  if (pressed !== undefined) made.setAttribute("aria-pressed", pressed);
  made.addEventListener("click", action);
  return made;
}

function legend(made, items) {
  made.className = "legend";
  made.replaceChildren();
  for (const [colour, text] of items) {
    const item = made.appendChild(document.createElement("span"));
    item.appendChild(document.createElement("i")).style.background = colour;
    item.append(text);
  }
}

function bar(place) {
  const made = place.appendChild(document.createElement("div"));
  made.className = "controls";
  button(made, "+", () => view.zoom(2)).title = "zoom in";
  button(made, "−", () => view.zoom(0.5)).title = "zoom out";
  button(made, "◀", () => view.move(-0.5)).title = "earlier";
  button(made, "▶", () => view.move(0.5)).title = "later";
  button(made, "everything", () => view.reset());
  return made;
}

// Buttons that save what a chart shows.
function saving(place, name, charts, csv) {
  button(place, "SVG", () => { download(`${name}.svg`, "image/svg+xml", svgOf(charts())); view.redraw(); }).title = "save what is shown as a picture";
  button(place, "CSV", () => download(`${name}.csv`, "text/csv", csv())).title = "save what is shown as numbers";
}
const added = place => place.appendChild(document.createElement("div"));
const chartsIn = place => view.charts.filter(chart => place.contains(chart.canvas));

function ganttLegend(place) {
  const kinds = gantt.kinds.map((kind, n) => [COLOURS[n % COLOURS.length], kind]);
  const iterations = COLOURS.map((colour, n) => [colour, `${n ? "" : "iteration "}${n}, ${n + 6} …`]);
  legend(place, gantt.byKind ? kinds : iterations.slice(0, data.iterations));
}

let gantt = null;
if (chartPlace("gantt")) {
  const place = chartPlace("gantt"), controls = bar(place);
  gantt = new Gantt(place, view, data);
  if (data.runs.length > 1) {
    const modes = ["both", ...data.runs.map(run => run.name)].map(mode =>
      button(controls, mode, event => {
        modes.forEach(other => other.setAttribute("aria-pressed", other === event.target));
        gantt.mode = mode; gantt.layOut(); view.redraw();
      }, mode === "both"));
  }
  if (!data.counts) button(controls, "critical path", event => {
    gantt.chain = !gantt.chain;
    event.target.setAttribute("aria-pressed", gantt.chain);
    view.redraw();
  }, true);
  const colours = data.counts || button(controls, "colour by kind", () => {
    gantt.byKind = !gantt.byKind;
    colours.setAttribute("aria-pressed", gantt.byKind);
    ganttLegend(key); view.redraw();
  }, false);
  const search = controls.appendChild(document.createElement("input"));
  Object.assign(search, { type: "search", placeholder: "task, kind, machine or edge" });
  search.setAttribute("aria-label", "show only lanes and flows with these words");
  search.addEventListener("input", () => { gantt.search = search.value; gantt.layOut(); view.redraw(); });
  saving(controls, "gantt", () => [gantt], () => gantt.csv());
  const key = added(controls);
  ganttLegend(key);
}
if (chartPlace("ports")) {
  const place = chartPlace("ports"), controls = bar(place);
  const names = Object.keys(data.runs[0].curves).sort();
  saving(controls, "rates", () => chartsIn(place), () => portsCsv(view, data));
  legend(added(controls), names.map(name => [`var(--${name})`, `${name} (${data.runs[0].name} run)`]));
  const plots = place.appendChild(document.createElement("div"));
  plots.className = "plots";
  portPlots(plots, view, data);
}
if (chartPlace("counts")) {
  const place = chartPlace("counts"), controls = bar(place);
  saving(controls, "counts", () => chartsIn(place), () => countsCsv(view, data));
  const plots = place.appendChild(document.createElement("div"));
  plots.className = "plots";
  countPlots(plots, view, data);
}
if (chartPlace("accuracy")) {
  const place = chartPlace("accuracy"), controls = bar(place);
  saving(controls, "accuracy", () => chartsIn(place), () => accuracyCsv(view, data.accuracy));
  new AccuracyPlot(added(place), view, data.accuracy);
}
if (chartPlace("training")) {
  const place = chartPlace("training"), controls = place.appendChild(document.createElement("div"));
  controls.className = "controls";
  saving(controls, "training", () => chartsIn(place), () => trainingCsv(view, data));
  const plots = place.appendChild(document.createElement("div"));
  plots.className = "plots";
  trainingPlots(plots, view, data);
}

addEventListener("resize", () => view.redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.redraw());
view.charts.forEach(chart => chart.draw());
requestAnimationFrame(() => { document.documentElement.dataset.drawn = performance.now().toFixed(0); });
