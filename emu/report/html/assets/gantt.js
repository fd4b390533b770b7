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

// The task in whose lane one is drawn: a process of many tasks has one lane for all.
function laneOf(data, task) { return data.tasks[task].lane ?? task; }

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
           taskRows: bucketed(tasks.row.map(row => laneOf(data, row)), data.tasks.length, tasks) };
}

// The bars of a row that are to be kept.
function kept(row, keep) {
  const places = [...row.bars.keys()].filter(k => keep(row.bars[k]));
  const chosen = (from, Kind) => Kind.from(places, k => from[k]);
  return { bars: chosen(row.bars, Uint32Array), start: chosen(row.start, Float32Array), end: chosen(row.end, Float32Array) };
}

class Gantt {
  constructor(place, view, data) {
    Object.assign(this, { view, data, mode: data.runs.length > 1 ? "both" : data.runs[0].name, chain: true,
                          search: "", byKind: Boolean(data.counts) || data.iterations === 1, pinned: new Set() });
    this.runs = data.runs.map(run => readRun(run, data));
    this.kinds = [...new Set(data.tasks.map(task => task.kind))];
    this.kindOf = data.tasks.map(task => this.kinds.indexOf(task.kind));
    this.groups = this.laneGroups();
    this.window = place.appendChild(document.createElement("div"));
    this.window.className = "window";
    this.canvas = this.window.appendChild(document.createElement("canvas"));
    this.whole = this.window.appendChild(document.createElement("div"));
    this.whole.className = "whole";
    this.window.addEventListener("scroll", () => view.redraw());
    this.canvas.addEventListener("click", event => this.pin(this.laneAt(event)));
    control(this.canvas, view, (event, time) => this.describe(event, time));
    this.layOut();
    view.charts.push(this);
  }

  // Per machine its tasks and the directions of its NIC; last the links that are no NIC.
  laneGroups() {
    const { machines, tasks, ports } = this.data;
    const links = machine => ports.map((port, number) => ({ key: `link ${number}`, number, link: true, name: port.name,
      machine: port.machine, text: port.direction ? `NIC ${port.direction}` : port.name, words: port.name.toLowerCase() }))
      .filter(lane => machine < 0 ? lane.machine < 0 : lane.machine === machine);
    const groups = machines.map((machine, position) => {
      const nics = links(position), [out, into] = nics.map(lane => rateText(ports[lane.number].capacity));
      const nic = !out ? "no NIC" : out === into ? `NIC ${out} each way` : `NIC ${out} out, ${into} in`;
      const own = tasks.map((task, number) => ({ key: `task ${number}`, number, name: task.lane_name ?? task.name,
        text: task.lane_name ?? task.name, machine: task.machine, words: `${task.name} ${task.kind} ${machine}`.toLowerCase() }))
        .filter(lane => lane.machine === position && laneOf(this.data, lane.number) === lane.number);
      return { head: `${machine} · ${nic}`, lanes: [...own, ...nics] };
    });
    const shared = links(-1);
    return shared.length ? [...groups, { head: "links", lanes: shared }] : groups;
  }

  // Rows from top to bottom: {y, height, bars, of, run, lane, pinned}; found again by `at`.
  // What is searched for: lanes by task, kind, machine or link; on links flows by edge.
  layOut() {
    const shown = this.runs.filter(run => this.mode === "both" || run.name === this.mode);
    const words = this.search.toLowerCase().split(/\s+/).filter(word => word);
    const has = text => words.every(word => text.includes(word));
    const lit = new Set(words.length ? [...this.data.edges.keys()].filter(edge => has(this.data.edges[edge][2].toLowerCase())) : []);
    this.rows = []; this.heads = []; this.labels = []; this.at = new Map();
    const lanes = this.groups.flatMap(group => group.lanes);
    let y = this.place("pinned", lanes.filter(lane => this.pinned.has(lane.key)), shown, 0, true, () => null);
    this.fixed = y;
    for (const { head, lanes } of this.groups) {
      const left = lanes.filter(lane => !this.pinned.has(lane.key) && (has(lane.words) || (lane.link && lit.size)));
      y = this.place(head, left, shown, y, false, lane => has(lane.words) ? null : lit);
    }
    this.height = y;
    this.whole.style.height = `${y + AXIS_HEIGHT}px`;
  }

  // Lanes below a head; nothing where there is nothing in them. `lit`: edges, null for all.
  place(head, lanes, shown, top, pinned, lit) {
    let y = top + HEAD_HEIGHT;
    for (const lane of lanes) y = lane.link ? this.placeLink(lane, shown, y, pinned, lit(lane)) : this.placeTask(lane, shown, y, pinned);
    if (y === top + HEAD_HEIGHT) return top;
    this.heads.push({ y: top, text: head, pinned });
    return y + 8;
  }

  placeTask(lane, shown, y, pinned) {
    if (!shown.some(run => run.taskRows[lane.number].bars.length)) return y;
    this.labels.push({ y: y + TASK_HEIGHT / 2, text: lane.text, pinned });
    const first = shown.length > 1 ? 9 : 14;
    shown.forEach((run, place) => this.add(
      { y: y + 2 + place * first, height: place ? 5 : first, run, ...run.taskRows[lane.number], of: "tasks", lane, pinned },
      `${run.name} task ${lane.number}`));
    return y + TASK_HEIGHT;
  }

  placeLink(lane, shown, top, pinned, lit) {
    let y = top + 3;
    const before = y;
    shown.forEach((run, place) => {
      const count = run.links.lanes[lane.number];
      const height = Math.min(7, (place ? 0.6 : 1) * NIC_HEIGHT / Math.max(count, 1)), begun = y;
      for (let number = 0; number < count; number++) {
        const row = run.links.first[lane.number] + number, whole = run.links.rows[row];
        const bars = lit ? kept(whole, flow => lit.has(run.flows.edge[flow])) : whole;
        if (!bars.bars.length) continue;
        this.add({ y, height, run, ...bars, of: "flows", lane, pinned }, `${run.name} link ${row}`);
        y += height;
      }
      if (y > begun) y += 3;
    });
    if (y === before) return top;
    y = Math.max(y, before + 16);
    this.labels.push({ y: (before + y) / 2, text: pinned ? lane.name : lane.text, quiet: true, pinned });
    return y + 3;
  }

  add(row, key) { this.at.set(key, row); this.rows.push(row); }

  // Pinned lanes stay at the top, whatever is searched for and however far one scrolls.
  pin(lane) {
    if (!lane) return;
    if (!this.pinned.delete(lane.key)) this.pinned.add(lane.key);
    this.layOut(); this.view.redraw();
  }

  screen(row) { return row.y - (row.pinned ? 0 : this.top); }

  rowAt(event) {
    const y = event.clientY - this.canvas.getBoundingClientRect().top;
    if (y > this.bottom) return undefined;
    return this.rows.find(row => row.pinned === y < this.fixed && y >= this.screen(row) && y < this.screen(row) + row.height);
  }

  // The lane whose name is pointed at.
  laneAt(event) {
    const row = event.clientX - this.canvas.getBoundingClientRect().left < LEFT ? this.rowAt(event) : undefined;
    return row && row.lane;
  }

  draw() {
    const width = this.window.clientWidth;
    const height = Math.min(this.height + AXIS_HEIGHT, parseInt(getComputedStyle(this.window).maxHeight) - 2);
    this.whole.style.height = `${this.height + AXIS_HEIGHT}px`;
    const pen = prepared(this.canvas, width, height);
    const top = this.window.scrollTop, bottom = height - AXIS_HEIGHT;
    const [from, to] = this.view.range, scale = (width - LEFT - RIGHT) / (to - from);
    Object.assign(this, { top, bottom, scale, from, to, width });
    timeAxis(pen, this.view, width, 0, bottom);
    this.drawn = 0;
    this.drawPart(pen, false, Math.min(this.fixed, bottom), bottom);
    if (this.fixed) this.drawPart(pen, true, 0, Math.min(this.fixed, bottom));
  }

  drawPart(pen, pinned, from, to) {
    pen.save();
    pen.beginPath(); pen.rect(0, from, this.width, to - from); pen.clip();
    this.drawNames(pen, pinned);
    pen.beginPath(); pen.rect(LEFT, from, this.width - LEFT - RIGHT, to - from); pen.clip();
    for (const row of this.rows)
      if (row.pinned === pinned && this.screen(row) + row.height >= from && this.screen(row) <= to) this.drawRow(pen, row);
    const traced = this.runs.find(run => run.name === this.mode) || this.runs[0];
    if (this.chain) this.drawChain(pen, traced);
    pen.restore();
  }

  drawNames(pen, pinned) {
    pen.textBaseline = "middle";
    for (const head of this.heads.filter(head => head.pinned === pinned)) {
      const y = this.screen(head);
      pen.strokeStyle = colourOf("--rule"); pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(0, y + 0.5); pen.lineTo(this.width, y + 0.5); pen.stroke();
      pen.textAlign = "left"; pen.fillStyle = colourOf("--ink");
      pen.font = 'bold 12px system-ui, "DejaVu Sans", sans-serif';
      pen.fillText(head.text, 8, y + HEAD_HEIGHT / 2);
    }
    pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
    pen.textAlign = "right";
    for (const label of this.labels.filter(label => label.pinned === pinned)) {
      pen.fillStyle = colourOf(label.quiet ? "--quiet" : "--ink");
      pen.fillText(label.text, LEFT - 8, this.screen(label), LEFT - 12);
    }
  }

  // Position of a bar's colour: its iteration, or the kind of its task or its sender.
  shade(row, bar) {
    const of = row.run[row.of];
    if (!this.byKind) return of.iteration[bar] % COLOURS.length;
    return this.kindOf[row.of === "tasks" ? of.row[bar] : this.data.edges[of.edge[bar]][0]] % COLOURS.length;
  }

  drawRow(pen, row) {
    const { bars, start, end } = row, of = row.run[row.of], y = this.screen(row);
    const gap = row.height > 3 ? 0.5 : 0;
    pen.globalAlpha = row.run.name === "simulated" && this.mode === "both" ? 0.5 : 1;
    this.drawBands(pen, row, y);
    let reached = -1;
    for (let k = lowerBound(end, this.from); k < bars.length && start[k] <= this.to; k++) {
      const left = LEFT + (start[k] - this.from) * this.scale;
      const right = LEFT + (end[k] - this.from) * this.scale;
      if (right < reached + 0.5) continue;
      reached = Math.max(right, left + 0.7);
      const shade = this.shade(row, bars[k]);
      pen.fillStyle = COLOURS[shade];
      pen.fillRect(left, y, reached - left - (reached - left > 2 ? 0.5 : 0), row.height - gap);
      this.drawn++;
      if (row.height >= 9 && right - left > 22 && !this.data.counts) {
        pen.fillStyle = INK[shade]; pen.textAlign = "center"; pen.textBaseline = "middle";
        const middle = (Math.max(left, LEFT) + Math.min(right, this.width - RIGHT)) / 2;
        pen.fillText(String(of.iteration[bars[k]]), middle, y + row.height / 2);
      }
    }
    pen.globalAlpha = 1;
  }

  // Behind the bars: when a link is cut or slow, when the tasks of a machine are; on all
  // lanes of a run, before 0, what its attempts did, and when it was down.
  bandsOf({ lane, run }) {
    return (this.data.bands || []).filter(band => band.run ? band.run === run.name
      : lane.link ? band.port === lane.number : band.port < 0 && band.machine === lane.machine);
  }

  drawBands(pen, row, y) {
    const alpha = pen.globalAlpha;
    pen.fillStyle = colourOf("--chain");
    for (const band of this.bandsOf(row)) {
      if (band.until < this.from || band.since > this.to) continue;
      pen.globalAlpha = { done: 0.04, "done again": 0.12, slow: 0.12 }[band.what] || 0.3;
      const left = LEFT + (band.since - this.from) * this.scale;
      pen.fillRect(left, y - 1, (band.until - band.since) * this.scale, row.height + 1);
    }
    pen.globalAlpha = alpha;
  }

  // Where a link of the chain is drawn: its task's lane, or its flow's lane at the port
  // that held it back.
  rowOf(run, { task, edge, iteration, port }) {
    if (edge < 0) return this.at.get(`${run.name} task ${laneOf(this.data, task)}`);
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
      const y = this.screen(row) + row.height / 2;
      if (dense) pen.moveTo(left, y); else pen.lineTo(left, y);
      pen.lineTo(right, y);
    }
    pen.stroke();
    if (dense) return;
    pen.lineWidth = 1.5;
    for (const { row, left, right } of seen)
      if (right - left >= 2)
        pen.strokeRect(left, this.screen(row) - 0.5, right - left, Math.max(row.height, 3) + 0.5);
  }

  describe(event, time) {
    const row = this.rowAt(event), lane = this.laneAt(event);
    if (lane) return `${lane.name}\nclick to ${this.pinned.has(lane.key) ? "let go" : "keep at the top"}`;
    if (!row) return "";
    const slack = 2 / this.scale, k = lowerBound(row.end, time - slack);
    if (k >= row.bars.length || row.start[k] > time + slack) {
      const band = this.bandsOf(row).find(({ since, until }) => since <= time && time < until);
      return band ? `${row.lane.name}\n${band.what} from ${seconds(band.since)} to ${seconds(band.until)}${band.note ? `\n${band.note}` : ""}` : "";
    }
    const bar = row.bars[k], bars = row.run[row.of], { tasks, edges } = this.data;
    const span = `${row.run.name}, ${this.data.counted || "iteration"} ${bars.iteration[bar]}\n${seconds(bars.start[bar])} to ${seconds(bars.end[bar])}, ${seconds(bars.end[bar] - bars.start[bar])} long`;
    const task = row.of === "tasks" && tasks[bars.row[bar]];
    if (task) return `${task.name} (${task.note || task.kind})\n${span}`;
    const name = edges[bars.edge[bar]][2].replace("->", " → ");
    const rate = bars.bytes[bar] / (bars.end[bar] - bars.start[bar]);
    return `${name}\n${span}\n${sizeText(bars.bytes[bar])}, ${rateText(rate)} on average`;
  }

  // What is shown, bar by bar: the lanes of the layout, in the range of the time axis.
  csv() {
    const rows = [["run", "lane", "name", "iteration", "start_s", "end_s", "bytes"]], { tasks, edges } = this.data;
    for (const { bars, start, end, run, of, lane } of this.rows)
      bars.forEach((bar, k) => {
        if (!inRange(this.view, start[k], end[k])) return;
        const from = run[of], flow = of === "flows";
        rows.push([run.name, lane.name, flow ? edges[from.edge[bar]][2] : tasks[from.row[bar]].name, from.iteration[bar],
                   exact(start[k]), exact(end[k]), flow ? exact(from.bytes[bar]) : ""]);
      });
    return csvOf(rows);
  }
}
