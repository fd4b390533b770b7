// A lane per task: what ended so far, and below it, thin, what was simulated.
// What computes now is paler. A line is where a death ended an attempt.

const LANE_HEIGHT = 16, LANES = 500, AXIS = 36;

class Lanes {
  // `tasks`: {name, kind, machine}; lanes are in the order of machines.
  constructor(place, view, tasks) {
    Object.assign(this, { place, view, tasks, expected: tasks.map(() => []), ended: tasks.map(() => []), computing: [], deaths: [] });
    this.shown = [...tasks.keys()].sort((a, b) => tasks[a].machine - tasks[b].machine || a - b).slice(0, LANES);
    this.canvas = place.appendChild(document.createElement("canvas"));
    control(this.canvas, view, (event, time) => this.describe(event, time));
    view.charts.push(this);
  }

  // Spans are [task, iteration, start, end], those of a task in order.
  expect(spans) { for (const span of spans) this.expected[span[0]].push(span); }
  add(spans) { for (const span of spans) this.ended[span[0]].push(span); }
  compute(spans) { this.computing = spans; }
  clear() { this.ended = this.tasks.map(() => []); }

  draw() {
    const width = this.place.clientWidth, bottom = this.shown.length * LANE_HEIGHT;
    const pen = prepared(this.canvas, width, bottom + AXIS);
    const [from, to] = this.view.range, scale = (width - LEFT - RIGHT) / (to - from);
    timeAxis(pen, this.view, width, 0, bottom);
    pen.textAlign = "right"; pen.textBaseline = "middle"; pen.fillStyle = colourOf("--ink");
    this.shown.forEach((task, row) => pen.fillText(this.tasks[task].name, LEFT - 8, (row + 0.5) * LANE_HEIGHT, LEFT - 12));
    pen.save();
    pen.beginPath(); pen.rect(LEFT, 0, width - LEFT - RIGHT, bottom); pen.clip();
    this.shown.forEach((task, row) => {
      const y = row * LANE_HEIGHT;
      this.bars(pen, this.ended[task], y + 1, 9, from, to, scale);
      pen.globalAlpha = 0.5;
      this.bars(pen, this.computing.filter(span => span[0] === task), y + 1, 9, from, to, scale);
      this.bars(pen, this.expected[task], y + 11, 3, from, to, scale);
      pen.globalAlpha = 1;
    });
    pen.fillStyle = colourOf("--ink");
    for (const [time] of this.deaths) pen.fillRect(LEFT + (time - from) * scale - 1, 0, 2, bottom);
    pen.restore();
  }

  // At most one bar per half pixel, however many there are.
  bars(pen, spans, y, height, from, to, scale) {
    let reached = -1;
    for (const [, iteration, start, end] of spans) {
      if (end < from || start > to) continue;
      const left = LEFT + (start - from) * scale, right = LEFT + (end - from) * scale;
      if (right < reached + 0.5) continue;
      reached = Math.max(right, left + 0.7);
      pen.fillStyle = COLOURS[iteration % COLOURS.length];
      pen.fillRect(left, y, reached - left, height);
    }
  }

  describe(event, time) {
    const row = Math.floor((event.clientY - this.canvas.getBoundingClientRect().top) / LANE_HEIGHT);
    const task = this.shown[row];
    if (task === undefined) return "";
    const [from, to] = this.view.range, slack = 4 * (to - from) / this.place.clientWidth;
    const death = this.deaths.find(([when]) => Math.abs(when - time) <= slack);
    if (death) return `${seconds(death[0])}: ${death[1]}`;
    const said = [`${this.tasks[task].name} (${this.tasks[task].kind})`];
    for (const [name, spans] of [["emulated", this.ended[task]], ["simulated", this.expected[task]]]) {
      const found = spans.find(([, , start, end]) => start <= time && time <= end);
      if (found) said.push(`${name}, iteration ${found[1]}: ${seconds(found[2])} to ${seconds(found[3])}`);
    }
    return said.join("\n");
  }
}
