// Step curves of rates, and training figures, over the same time axis as the Gantt.

const PLOT_HEIGHT = 150;

class Plot {
  constructor(place, view, { title, unit, top, low = 0, draw, describe, name }) {
    Object.assign(this, { view, title, unit, low, high: top, paint: draw });
    this.canvas = place.appendChild(document.createElement("canvas"));
    this.canvas.dataset.plot = name || title;
    control(this.canvas, view, (event, time) => describe(time));
    view.charts.push(this);
    this.place = place;
  }
  x(time) { return LEFT + (time - this.view.range[0]) / (this.view.range[1] - this.view.range[0]) * (this.width - LEFT - RIGHT); }
  y(value) { return this.bottom - (value - this.low) / (this.high - this.low) * (this.bottom - this.head); }
  draw() {
    const columns = getComputedStyle(this.place).gridTemplateColumns.split(" ");
    this.width = Math.floor(parseFloat(columns[0])) || this.place.clientWidth;
    this.head = 22; this.bottom = PLOT_HEIGHT - 34;
    const pen = this.pen = prepared(this.canvas, this.width, PLOT_HEIGHT);
    timeAxis(pen, this.view, this.width, this.head, this.bottom);
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const value of ticks(this.low, this.high, 4)) {
      const y = Math.round(this.y(value)) + 0.5;
      pen.strokeStyle = colourOf("--grid");
      pen.beginPath(); pen.moveTo(LEFT, y); pen.lineTo(this.width - RIGHT, y); pen.stroke();
      pen.fillStyle = colourOf("--quiet");
      pen.fillText(String(value), LEFT - 6, y);
    }
    pen.fillStyle = colourOf("--ink"); pen.textAlign = "left";
    pen.font = 'bold 12px system-ui, "DejaVu Sans", sans-serif';
    pen.fillText(this.title, LEFT, 9);
    pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
    pen.save();
    pen.translate(14, (this.head + this.bottom) / 2); pen.rotate(-Math.PI / 2);
    pen.textAlign = "center"; pen.fillStyle = colourOf("--quiet");
    pen.fillText(this.unit, 0, 0);
    pen.restore();
    pen.save();
    pen.beginPath(); pen.rect(LEFT, this.head - 3, this.width - LEFT - RIGHT, this.bottom - this.head + 6); pen.clip();
    this.paint(this);
    pen.restore();
  }
  level(value, from, to) {
    const { pen } = this, y = this.y(value);
    pen.strokeStyle = colourOf("--quiet");
    pen.beginPath(); pen.moveTo(this.x(from), y); pen.lineTo(this.x(to), y); pen.stroke();
  }
  // A curve that keeps each value until the next time.
  steps({ time, rate }, colour, factor, filled) {
    const { pen } = this, [from, to] = this.view.range;
    if (!time.length) return;
    const begin = Math.max(lowerBound(time, from) - 1, 0);
    pen.beginPath();
    pen.moveTo(this.x(Math.max(time[begin], from)), this.y(0));
    let k = begin;
    for (; k < time.length && time[k] <= to; k++) {
      const x = this.x(time[k]), next = k + 1 < time.length ? this.x(time[k + 1]) : x;
      pen.lineTo(x, this.y(rate[k] * factor));
      pen.lineTo(next, this.y(rate[k] * factor));
    }
    if (filled) {
      pen.lineTo(this.x(k < time.length ? time[k] : time[time.length - 1]), this.y(0));
      pen.globalAlpha = 0.3; pen.fillStyle = colour; pen.fill(); pen.globalAlpha = 1;
    }
    pen.strokeStyle = colour; pen.lineWidth = 1.2; pen.stroke();
  }
}

const valueAt = ({ time, rate }, moment) => {
  const k = lowerBound(time, moment);
  if (time[k] === moment) return rate[k];
  return k > 0 && k < time.length ? rate[k - 1] : 0;
};

function portPlots(place, view, data) {
  const run = data.runs[0];
  data.ports.forEach((port, number) => {
    const scaleOf = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];
    const [scale, unit] = scaleOf.find(([scale]) => 8 * port.capacity >= scale) || [1, "bit/s"];
    const curves = Object.entries(run.curves).map(([name, ports]) => ({ name,
      time: unpack(ports[number].time, Float32Array), rate: unpack(ports[number].rate, Float32Array) }));
    // A flow of a few bytes may arrive a moment early and seem infinitely fast.
    const fastest = Math.max(...curves.map(({ rate }) => rate.reduce((a, b) => Math.max(a, b), 0)));
    const most = Math.min(Math.max(port.capacity, fastest), 1.2 * port.capacity);
    curves.sort((a, b) => a.name.localeCompare(b.name)); // allocated below moved
    const limits = port.limits || [[0, port.capacity]]; // since when, bytes per second
    new Plot(place, view, {
      title: port.name, unit: `rate (${unit})`, top: 1.08 * 8 * most / scale,
      describe: time => [port.name, `at ${seconds(time)}`,
        ...curves.map(curve => `${curve.name} ${rateText(valueAt(curve, time))}`),
        `capacity ${rateText(limits.filter(([since]) => since <= time).pop()[1])}`].join("\n"),
      draw: plot => {
        for (const curve of curves)
          plot.steps(curve, colourOf(`--${curve.name}`), 8 / scale, curve.name === "allocated");
        plot.pen.setLineDash([6, 4]);
        limits.forEach(([since, rate], k) => plot.level(8 * rate / scale, since, (limits[k + 1] || [view.whole[1]])[0]));
        plot.pen.setLineDash([]);
      },
    });
  });
}

// Plots of what was counted; the names of their curves in the colours of these.
function countPlots(place, view, data) {
  for (const { title, unit, curves } of data.counts) {
    const read = curves.map(({ name, time, rate }) => ({ name, time: unpack(time, Float32Array), rate: unpack(rate, Float32Array) }));
    const most = Math.max(0, ...read.map(({ rate }) => rate.reduce((a, b) => Math.max(a, b), 0)));
    if (!read.length) continue;
    const cell = place.appendChild(document.createElement("div"));
    legend(cell.appendChild(document.createElement("div")), read.map(({ name }, n) => [COLOURS[n % COLOURS.length], name]));
    new Plot(cell, view, {
      title, unit, top: 1.08 * most,
      describe: time => [title, `at ${seconds(time)}`, ...read.map(curve => `${curve.name} ${+valueAt(curve, time).toPrecision(4)} ${unit}`)].join("\n"),
      draw: plot => read.forEach((curve, n) => plot.steps(curve, COLOURS[n % COLOURS.length], 1, false)),
    });
  }
}

function trainingPlots(place, view, data) {
  for (const { figure, points, means } of data.training) {
    const share = figure.includes("accuracy"), factor = share ? 100 : 1;
    const values = points.map(point => point[3] * factor);
    const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const pad = 0.08 * (high - low) || 0.5;
    new Plot(place, view, {
      title: share ? figure : `training ${figure}`, unit: share ? `${figure} (%)` : `${figure} (no unit)`, name: figure,
      low: Math.max(0, low - pad), top: high + pad,
      describe: time => {
        const last = means.filter(([at]) => at <= time).pop();
        return last ? `${figure} ${+(last[1] * factor).toPrecision(5)}${share ? " %" : ""}\nat ${seconds(last[0])}` : "";
      },
      draw: plot => {
        const { pen } = plot;
        pen.fillStyle = colourOf("--quiet"); pen.globalAlpha = 0.5;
        for (const [time, , , value] of points)
          pen.fillRect(plot.x(time) - 1, plot.y(value * factor) - 1, 2, 2);
        pen.globalAlpha = 1;
        pen.strokeStyle = colourOf("--allocated"); pen.lineWidth = 2;
        pen.beginPath();
        means.forEach(([time, value]) => pen.lineTo(plot.x(time), plot.y(value * factor)));
        pen.stroke();
      },
    });
  }
}
