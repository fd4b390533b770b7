// The Gantt: per machine a lane per task, then the flows through its NIC; last the
// links that are no NIC.
// A frame draws at most one rectangle per pixel and row, however many bars there are.

const TASK_HEIGHT = 18, HEAD_HEIGHT = 24, AXIS_HEIGHT = 36, NIC_HEIGHT = 56;

// Bars of one row, sorted by start; they do not overlap, so their ends are sorted too.
function bucketed(rowOf, rows, bars) {
  const counts = new Uint32Array(rows + 1);
  for (const row of rowOf) counts[row + 1]++;
  for (let row = 0; row < rows; row++) counts[row + 1] += counts[row];
  const order = Uint32Array.from(rowOf.keys()).sort((a, b) =>
    rowOf[a] - rowOf[b] || bars.start[a] - bars.start[b] || bars.end[a] - bars.end[b]);
  const start = new Float32Array(order.length), end = new Float32Array(order.length);
  order.forEach((bar, place) => { start[place] = bars.start[bar]; end[place] = bars.end[bar]; });
  return Array.from({ length: rows }, (_, row) => ({
    bars: order.subarray(counts[row], counts[row + 1]),
    start: start.subarray(counts[row], counts[row + 1]),
    end: end.subarray(counts[row], counts[row + 1]),
  }));
}

function readRun(run, data) {
  const tasks = {
    row: unpack(run.tasks.row, Uint32Array), iteration: unpack(run.tasks.iteration, Uint32Array),
    start: unpack(run.tasks.start, Float32Array), end: unpack(run.tasks.end, Float32Array),
  };
  const flows = {};
  for (const key of ["edge", "iteration", "crossing", "port", "lane"]) flows[key] = unpack(run.flows[key], Uint32Array);
  for (const key of ["start", "end", "bytes"]) flows[key] = unpack(run.flows[key], Float32Array);
  // A bar for every link that a flow crosses; the rows of a link are its lanes.
  const lanes = run.flows.lanes, first = [0], rowAt = new Map();
  lanes.forEach(count => first.push(first[first.length - 1] + count));
  const rowOf = Uint32Array.from(flows.port, (port, k) => first[port] + flows.lane[k]);
  flows.port.forEach((port, k) => rowAt.set(flows.crossing[k] * lanes.length + port, rowOf[k]));
  const bars = {
    start: Float32Array.from(flows.crossing, flow => flows.start[flow]),
    end: Float32Array.from(flows.crossing, flow => flows.end[flow]),
  };
  const rows = bucketed(rowOf, first[first.length - 1], bars).map(
    row => ({ ...row, bars: row.bars.map(k => flows.crossing[k]) }));
  const links = { lanes, first, rows, rowAt };
  const flowAt = new Map();
  flows.edge.forEach((edge, flow) => flowAt.set(edge * data.iterations + flows.iteration[flow], flow));
  return { name: run.name, chain: run.chain, tasks, flows, links, flowAt,
           taskRows: bucketed(tasks.row, data.tasks.length, tasks) };
}

class Gantt {
  constructor(place, view, data) {
    Object.assign(this, { view, data, mode: data.runs.length > 1 ? "both" : data.runs[0].name, chain: true });
    this.runs = data.runs.map(run => readRun(run, data));
    this.window = place.appendChild(document.createElement("div"));
    this.window.className = "window";
    this.canvas = this.window.appendChild(document.createElement("canvas"));
    this.whole = this.window.appendChild(document.createElement("div"));
    this.whole.className = "whole";
    this.window.addEventListener("scroll", () => view.redraw());
    control(this.canvas, view, (event, time) => this.describe(event, time));
    this.layOut();
    view.charts.push(this);
  }

  // Rows from top to bottom: {y, height, bars, of, run, label}; found again by `at`.
  layOut() {
    const shown = this.runs.filter(run => this.mode === "both" || run.name === this.mode);
    this.rows = []; this.heads = []; this.labels = []; this.at = new Map();
    let y = 0;
    this.data.machines.forEach((machine, position) => {
      const ports = this.data.ports.map((_, port) => port).filter(port => this.data.ports[port].machine === position);
      const [out, into] = ports.map(port => rateText(this.data.ports[port].capacity));
      const nic = !out ? "no NIC" : out === into ? `NIC ${out} each way` : `NIC ${out} out, ${into} in`;
      this.heads.push({ y, text: `${machine} · ${nic}` });
      y += HEAD_HEIGHT;
      this.data.tasks.forEach((task, number) => {
        if (task.machine !== position || !shown.some(run => run.taskRows[number].bars.length)) return;
        this.labels.push({ y: y + TASK_HEIGHT / 2, text: task.name });
        const first = shown.length > 1 ? 9 : 14;
        shown.forEach((run, place) => this.add(
          { y: y + 2 + place * first, height: place ? 5 : first, run, ...run.taskRows[number], of: "tasks" },
          `${run.name} task ${number}`));
        y += TASK_HEIGHT;
      });
      for (const port of ports) y = this.layOutLink(shown, port, `NIC ${this.data.ports[port].direction}`, y);
      y += 8;
    });
    const shared = this.data.ports.map((_, port) => port).filter(port => this.data.ports[port].machine < 0);
    if (shared.length) { this.heads.push({ y, text: "links" }); y += HEAD_HEIGHT; }
    for (const port of shared) y = this.layOutLink(shown, port, this.data.ports[port].name, y);
    this.height = y;
    this.whole.style.height = `${y + AXIS_HEIGHT}px`;
  }

  layOutLink(shown, port, text, top) {
    let y = top + 3;
    const before = y;
    shown.forEach((run, place) => {
      const lanes = run.links.lanes[port];
      const height = Math.min(7, (place ? 0.6 : 1) * NIC_HEIGHT / Math.max(lanes, 1));
      for (let lane = 0; lane < lanes; lane++) {
        const row = run.links.first[port] + lane;
        this.add({ y, height, run, ...run.links.rows[row], of: "flows" }, `${run.name} link ${row}`);
        y += height;
      }
      if (lanes) y += 3;
    });
    if (y === before) return top;
    y = Math.max(y, before + 16);
    this.labels.push({ y: (before + y) / 2, text, quiet: true });
    return y + 3;
  }

  add(row, key) { this.at.set(key, row); this.rows.push(row); }

  draw() {
    const width = this.window.clientWidth;
    const height = Math.min(this.height + AXIS_HEIGHT, parseInt(getComputedStyle(this.window).maxHeight) - 2);
    this.whole.style.height = `${this.height + AXIS_HEIGHT}px`;
    const pen = prepared(this.canvas, width, height);
    const top = this.window.scrollTop, bottom = height - AXIS_HEIGHT;
    const [from, to] = this.view.range, scale = (width - LEFT - RIGHT) / (to - from);
    Object.assign(this, { top, bottom, scale, from, to, width });
    timeAxis(pen, this.view, width, 0, bottom);
    pen.save();
    pen.beginPath(); pen.rect(0, 0, width, bottom); pen.clip();
    this.drawNames(pen);
    pen.beginPath(); pen.rect(LEFT, 0, width - LEFT - RIGHT, bottom); pen.clip();
    this.drawn = 0;
    for (const row of this.rows)
      if (row.y + row.height >= top && row.y <= top + bottom) this.drawRow(pen, row);
    const traced = this.runs.find(run => run.name === this.mode) || this.runs[0];
    if (this.chain) this.drawChain(pen, traced);
    pen.restore();
  }

  drawNames(pen) {
    pen.textBaseline = "middle";
    for (const { y, text } of this.heads) {
      pen.strokeStyle = colourOf("--rule");
      pen.beginPath(); pen.moveTo(0, y - this.top + 0.5); pen.lineTo(this.width, y - this.top + 0.5); pen.stroke();
      pen.textAlign = "left"; pen.fillStyle = colourOf("--ink");
      pen.font = 'bold 12px system-ui, "DejaVu Sans", sans-serif';
      pen.fillText(text, 8, y - this.top + HEAD_HEIGHT / 2);
    }
    pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
    pen.textAlign = "right";
    for (const { y, text, quiet } of this.labels) {
      pen.fillStyle = colourOf(quiet ? "--quiet" : "--ink");
      pen.fillText(text, LEFT - 8, y - this.top, LEFT - 12);
    }
  }

  drawRow(pen, row) {
    const { bars, start, end } = row, of = row.run[row.of], y = row.y - this.top;
    const gap = row.height > 3 ? 0.5 : 0;
    pen.globalAlpha = row.run.name === "simulated" && this.mode === "both" ? 0.5 : 1;
    let reached = -1;
    for (let k = lowerBound(end, this.from); k < bars.length && start[k] <= this.to; k++) {
      const left = LEFT + (start[k] - this.from) * this.scale;
      const right = LEFT + (end[k] - this.from) * this.scale;
      if (right < reached + 0.5) continue;
      reached = Math.max(right, left + 0.7);
      pen.fillStyle = COLOURS[of.iteration[bars[k]] % COLOURS.length];
      pen.fillRect(left, y, reached - left - (reached - left > 2 ? 0.5 : 0), row.height - gap);
      this.drawn++;
      if (row.height >= 9 && right - left > 22) {
        pen.fillStyle = INK[of.iteration[bars[k]] % INK.length]; pen.textAlign = "center"; pen.textBaseline = "middle";
        const middle = (Math.max(left, LEFT) + Math.min(right, this.width - RIGHT)) / 2;
        pen.fillText(String(of.iteration[bars[k]]), middle, y + row.height / 2);
      }
    }
    pen.globalAlpha = 1;
  }

  // Where a link of the chain is drawn: its task's lane, or its flow's lane at the port
  // that held it back.
  rowOf(run, { task, edge, iteration, port }) {
    if (edge < 0) return this.at.get(`${run.name} task ${task}`);
    const flow = run.flowAt.get(edge * this.data.iterations + iteration);
    if (flow === undefined) return undefined;
    return this.at.get(`${run.name} link ${run.links.rowAt.get(flow * run.links.lanes.length + port)}`);
  }

  drawChain(pen, run) {
    const links = run.chain.filter(link => link.cause !== "gap").map(link => ({
      row: this.rowOf(run, link),
      left: LEFT + (link.start - this.from) * this.scale,
      right: LEFT + (link.end - this.from) * this.scale,
    })).filter(link => link.row);
    const seen = links.filter(({ left, right }) => right >= LEFT && left <= this.width - RIGHT);
    // With a link every few pixels the lines between rows would cover everything.
    const dense = seen.length > (this.width - LEFT - RIGHT) / 12;
    pen.strokeStyle = colourOf("--chain");
    pen.lineWidth = dense ? 1.6 : 1;
    pen.beginPath();
    for (const { row, left, right } of dense ? seen : links) {
      const y = row.y + row.height / 2 - this.top;
      if (dense) pen.moveTo(left, y); else pen.lineTo(left, y);
      pen.lineTo(right, y);
    }
    pen.stroke();
    if (dense) return;
    pen.lineWidth = 1.5;
    for (const { row, left, right } of seen)
      if (right - left >= 2)
        pen.strokeRect(left, row.y - this.top - 0.5, right - left, Math.max(row.height, 3) + 0.5);
  }

  describe(event, time) {
    const y = event.clientY - this.canvas.getBoundingClientRect().top;
    if (y > this.bottom) return "";
    const row = this.rows.find(row => y + this.top >= row.y && y + this.top < row.y + row.height);
    if (!row) return "";
    const slack = 2 / this.scale, k = lowerBound(row.end, time - slack);
    if (k >= row.bars.length || row.start[k] > time + slack) return "";
    const bar = row.bars[k], bars = row.run[row.of], { tasks, edges } = this.data;
    const span = `${row.run.name}, iteration ${bars.iteration[bar]}\n${seconds(bars.start[bar])} to ${seconds(bars.end[bar])}, ${seconds(bars.end[bar] - bars.start[bar])} long`;
    if (row.of === "tasks") return `${tasks[bars.row[bar]].name} (${tasks[bars.row[bar]].kind})\n${span}`;
    const name = edges[bars.edge[bar]][2].replace("->", " → ");
    const rate = bars.bytes[bar] / (bars.end[bar] - bars.start[bar]);
    return `${name}\n${span}\n${sizeText(bars.bytes[bar])}, ${rateText(rate)} on average`;
  }
}
