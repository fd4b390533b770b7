// The live page: one WebSocket in, the same figures for every viewer whenever it came.

const facts = JSON.parse(document.getElementById("facts").textContent);
const byId = name => document.getElementById(name);
const view = new TimeView(1);
// The whole run so far, as /api/history has it; `samples` only ever append to it.
let history_ = { time: [], end: 0, rates: facts.ports.map(() => []), flows: [], training: [], spans: [] };
window.runHistory = () => history_;

function element(place, kind, name, text) {
  const made = place.appendChild(document.createElement(kind));
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function meterOf(place, label) {
  const row = element(place, "div", "meter");
  element(row, "span", "label", label);
  const track = element(row, "span", "track"), fill = element(track, "span");
  const note = element(row, "span", "note", "");
  return (share, text) => { fill.style.width = `${100 * Math.min(share, 1)}%`; note.textContent = text; };
}

const chips = new Map();
const meters = [];
facts.machines.forEach((machine, position) => {
  const card = element(byId("machines"), "div", "card");
  element(card, "h3", "", machine);
  const place = element(card, "div", "chips");
  for (const task of facts.tasks) {
    if (task.machine !== position) continue;
    const chip = element(place, "span", "chip", task.name);
    chip.title = task.kind;
    chips.set(task.name, chip);
  }
  meters.push(meterOf(card, "NIC out"), meterOf(card, "NIC in"));
});

const curves = facts.ports.map(port => ({ time: [], rate: [], port }));
function buildPorts() {
  facts.ports.forEach((port, number) => {
    const units = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];
    const [scale, unit] = units.find(([scale]) => 8 * port.capacity >= scale) || units[3];
    new Plot(byId("ports"), view, {
      title: port.name, unit: `rate (${unit})`, top: 1.08 * 8 * port.capacity / scale,
      describe: time => `${port.name}\nat ${seconds(time)}\nassigned ${rateText(valueAt(curves[number], time))}`,
      draw: plot => {
        plot.steps(curves[number], colourOf("--allocated"), 8 / scale, true);
        const y = plot.y(8 * port.capacity / scale);
        plot.pen.strokeStyle = colourOf("--quiet"); plot.pen.setLineDash([6, 4]);
        plot.pen.beginPath(); plot.pen.moveTo(LEFT, y); plot.pen.lineTo(plot.width, y); plot.pen.stroke();
        plot.pen.setLineDash([]);
      },
    });
  });
}

const taskAt = new Map(facts.tasks.map((task, number) => [task.name, number]));
const lanes = new Lanes(byId("lanes"), view, facts.tasks);
if (facts.tasks.length > LANES) byId("rows").textContent = `The first ${LANES} of ${facts.tasks.length} tasks.`;
let expected = 0; // end of the simulation, emulated seconds
async function expect() {
  const spans = await (await fetch(`api/prediction${location.search}`)).json();
  lanes.expect(spans);
  expected = spans.reduce((latest, [, , , end]) => Math.max(latest, end), 0);
  extend({});
}

const trained = new Map();
function drawTraining() {
  const figures = [...new Set(history_.training.map(([, figure]) => figure))];
  byId("training").hidden = figures.length === 0;
  for (const figure of figures) {
    const share = figure.includes("accuracy"), factor = share ? 100 : 1;
    const points = history_.training.filter(([, name]) => name === figure);
    const values = points.map(([, , value]) => value * factor);
    const low = Math.min(...values), high = Math.max(...values), pad = 0.08 * (high - low) || 0.5;
    if (!trained.has(figure))
      trained.set(figure, new Plot(byId("curves"), view, {
        title: figure, unit: share ? `${figure} (%)` : `${figure} (no unit)`, top: 1,
        describe: time => `at ${seconds(time)}`,
        draw: plot => {
          plot.pen.fillStyle = colourOf("--allocated");
          for (const [time, , value] of plot.points)
            plot.pen.fillRect(plot.x(time) - 1.5, plot.y(value * factor) - 1.5, 3, 3);
        },
      }));
    Object.assign(trained.get(figure), { points, low: Math.max(0, low - pad), high: high + pad });
  }
}

function figureCards(status) {
  const percent = share => `${Math.abs(share) < 1e-9 ? 0 : +(100 * share).toPrecision(3)} %`;
  const wall = value => `${+(1000 * value).toPrecision(3)} ms`;
  const shown = [
    ["run time", seconds(status.run_time), "emulated"],
    ["iteration", `${status.iterations_ended} of ${status.iterations}`, "ended by every task"],
    ...(status.left === null ? [] : [["time left", `${+status.left.toPrecision(2)} s`, "of wall time, by the prediction and the pace so far"]]),
    ["active flows", String(status.active_flows), "between machines"],
    ["processes", String(status.processes), status.phase === "ended" ? "are left, all have ended" : "are up"],
    ["event delay", wall(status.delay), `worst ${wall(status.max_delay)} of wall time`],
    ["late steps", String(status.late_steps), status.late_steps ? `worst by ${seconds(status.max_late)}` : "tasks kept their times"],
  ];
  for (const [name, value] of Object.entries(status.figures))
    shown.push([name, String(+value.toPrecision(4)), "mean of the last reports"]);
  if (status.verdict) shown.push(["verdict", status.verdict, "did the host keep up"]);
  if (status.outcome) {
    shown.push(["emulated makespan", seconds(status.outcome.makespan), "real sockets"]);
    shown.push(["makespan error", percent(status.outcome.makespan_error), `of ${seconds(status.outcome.predicted_makespan)} predicted`]);
    shown.push(["replay error", percent(status.outcome.replay_error), `of ${seconds(status.outcome.replayed_makespan)} replayed`]);
  }
  byId("figures").replaceChildren();
  for (const [label, value, note] of shown) {
    const card = element(byId("figures"), "div", "figure");
    element(card, "span", "label", label);
    element(card, "span", "value", value);
    element(card, "span", "note", note);
  }
}

function showStatus(status) {
  document.title = `${status.scenario}: ${status.phase} - emu`;
  byId("name").textContent = status.scenario;
  byId("phase").textContent = status.error ? `failed: ${status.error}` : `${status.phase}, rates by ${status.policy}`;
  byId("phase").className = status.phase;
  byId("progress").style.width = `${100 * status.share}%`;
  figureCards(status);
  lanes.compute(status.running.map(({ task, iteration, since }) => [taskAt.get(task), iteration, since, status.run_time]));
  const busy = new Map(status.running.map(task => [task.task, task.iteration]));
  chips.forEach((chip, name) => {
    chip.classList.toggle("busy", busy.has(name));
    chip.textContent = name;
  });
  status.ports.forEach((port, number) =>
    meters[number](port.rate / port.capacity, `${rateText(port.rate)}, ${sizeText(port.bytes)}`));
  byId("many").textContent = status.active_flows > status.flows.length
    ? `The largest ${status.flows.length} of ${status.active_flows} active flows.`
    : `${status.active_flows} active flows.`;
  byId("flows").replaceChildren();
  for (const flow of status.flows) {
    const row = element(byId("flows"), "tr");
    element(row, "td", "", flow.source);
    element(row, "td", "", flow.destination);
    element(row, "td", "number", String(flow.iteration));
    element(row, "td", "number", sizeText(flow.bytes));
    const track = element(element(row, "td"), "span", "track");
    element(track, "span").style.width = `${flow.bytes ? 100 * flow.sent / flow.bytes : 0}%`;
    element(row, "td", "number", rateText(flow.rate));
  }
}

function extend({ history, samples }) {
  if (history) {
    history_ = history.time.length ? history : { ...history, rates: facts.ports.map(() => []) };
    lanes.clear();
    lanes.add(history.spans);
  }
  if (samples) {
    history_.time.push(...samples.time);
    history_.flows.push(...samples.flows);
    samples.rates.forEach(rates => rates.forEach((rate, port) => history_.rates[port].push(rate)));
    history_.training.push(...samples.training);
    history_.spans.push(...samples.spans);
    lanes.add(samples.spans);
    history_.end = samples.end;
  }
  lanes.deaths = (history || samples || lanes).deaths;
  curves.forEach((curve, port) => {
    curve.time = [...history_.time, history_.end];
    curve.rate = [...(history_.rates[port] || []), 0];
  });
  const followed = view.range[0] === 0 && view.range[1] === view.whole[1];
  view.whole = [0, 1.01 * Math.max(history_.end, expected) || 1];
  if (followed) view.range = [...view.whole];
  drawTraining();
  view.redraw();
}

let last = null, asked = false;
function connect() {
  const address = new URL("ws", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  address.search = location.search;
  const socket = new WebSocket(address);
  socket.addEventListener("message", event => {
    const message = JSON.parse(event.data);
    last = message.status;
    showStatus(message.status);
    if (!asked && message.status.phase !== "starting") { asked = true; expect().catch(() => { asked = false; }); }
    byId("report").hidden = !message.report;
    if (message.samples && !message.samples.time.length && !message.samples.training.length && !message.samples.spans.length) return;
    extend(message);
    document.documentElement.dataset.samples = history_.time.length;
  });
  // The page keeps what it has. A run that ended has nothing more to say.
  socket.addEventListener("close", () => {
    if (last && (last.phase === "ended" || last.phase === "failed")) {
      byId("phase").textContent += " (emu has left; this page keeps the run)";
      if (!byId("report").hidden) {
        byId("report").removeAttribute("href");
        byId("report").textContent = `report: ${facts.report}`;
      }
    } else {
      byId("phase").textContent = "connection lost, trying again";
      setTimeout(connect, 1000);
    }
  });
}

buildPorts();
byId("report").href = `report.html${location.search}`;
addEventListener("resize", () => view.redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.redraw());
connect();
