// Accuracy over time of several systems: one plot, each curve named where it ends.

const ACCURACY_HEIGHT = 440, LABEL_HEIGHT = 16;
// Narrower places name the curves below the plot.
const ROOM_FOR_LABELS = 620;
const DASHES = [["", []], ["dashed", [7, 4]], ["dotted", [2, 3]]];

class AccuracyPlot {
  constructor(place, view, { target, split, unit, curves }) {
    Object.assign(this, { view, target, unit, place });
    this.title = `accuracy on ${{ train: "training", valid: "validation", test: "test" }[split]} vertices`;
    this.curves = curves.map((curve, n) => ({ ...curve,
      time: unpack(curve.time, Float32Array), share: unpack(curve.share, Float32Array),
      colour: COLOURS[n % COLOURS.length],
      dash: DASHES[Math.floor(n / COLOURS.length) % DASHES.length] }));
    const shares = this.curves.flatMap(({ share }) => [...share]);
    this.low = Math.max(0, Math.floor(Math.min(...shares, target) / 10) * 10);
    this.high = Math.min(100, Math.ceil((Math.max(...shares, target) + 2) / 10) * 10);
    this.canvas = place.appendChild(document.createElement("canvas"));
    this.canvas.dataset.plot = "accuracy";
    this.key = place.appendChild(document.createElement("div"));
    control(this.canvas, view, (event, time) => this.describe(time));
    view.charts.push(this);
  }
  x(time) { return LEFT + (time - this.view.range[0]) / (this.view.range[1] - this.view.range[0]) * (this.width - LEFT - RIGHT); }
  y(share) { return this.bottom - (share - this.low) / (this.high - this.low) * (this.bottom - this.head); }
  label({ name, reached }) { return reached ? name : `${name}, not reached`; }
  describe(time) {
    const rows = this.curves.map(curve => {
      const k = lowerBound(curve.time, time * (1 + 1e-9)) - 1;
      return k < 0 ? null : `${curve.name} ${+curve.share[k].toPrecision(4)} %`;
    });
    return [`at ${+time.toPrecision(5)} ${this.unit}`, ...rows.filter(row => row)].join("\n");
  }
  draw() {
    const whole = Math.floor(this.place.clientWidth), beside = whole >= ROOM_FOR_LABELS;
    this.head = 34; this.bottom = ACCURACY_HEIGHT - 40;
    const pen = this.pen = prepared(this.canvas, whole, ACCURACY_HEIGHT);
    const longest = Math.max(...this.curves.map(curve => this.label(curve).length));
    this.canvas.room = beside ? Math.ceil(6.6 * longest) + 34 : 0;
    this.width = whole - this.canvas.room;
    this.axes();
    pen.save();
    pen.beginPath(); pen.rect(LEFT, this.head - 4, this.width - LEFT - RIGHT, this.bottom - this.head + 8); pen.clip();
    for (const curve of this.curves) this.line(curve);
    pen.restore();
    if (beside) this.labels();
    const named = curve => [this.label(curve), curve.dash[0]].filter(word => word).join(", ");
    legend(this.key, beside ? [] : this.curves.map(curve => [curve.colour, named(curve)]));
  }
  axes() {
    const { pen } = this;
    timeAxis(pen, this.view, this.width, this.head, this.bottom);
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const share of ticks(this.low, this.high, 6)) {
      const y = Math.round(this.y(share)) + 0.5;
      pen.strokeStyle = colourOf("--grid"); pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(LEFT, y); pen.lineTo(this.width - RIGHT, y); pen.stroke();
      pen.fillStyle = colourOf("--quiet");
      pen.fillText(`${share} %`, LEFT - 6, y);
    }
    pen.textAlign = "left"; pen.fillStyle = colourOf("--ink");
    pen.font = 'bold 13px system-ui, "DejaVu Sans", sans-serif';
    pen.fillText(this.title, LEFT, 12);
    pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
    const y = this.y(this.target);
    pen.strokeStyle = colourOf("--ink"); pen.lineWidth = 1.2; pen.setLineDash([6, 4]);
    pen.beginPath(); pen.moveTo(LEFT, y); pen.lineTo(this.width - RIGHT, y); pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = colourOf("--ink");
    pen.fillText(`target ${+this.target.toPrecision(4)} %`, LEFT + 6, y - 9);
  }
  line({ time, share, colour, dash }) {
    const { pen } = this;
    pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = 2; pen.setLineDash(dash[1]);
    pen.beginPath();
    time.forEach((at, k) => k ? pen.lineTo(this.x(at), this.y(share[k])) : pen.moveTo(this.x(at), this.y(share[k])));
    pen.stroke(); pen.setLineDash([]);
    time.forEach((at, k) => pen.fillRect(this.x(at) - 2, this.y(share[k]) - 2, 4, 4));
  }
  // Names beside the plot in the order in which curves end, so that no two of the
  // lines that lead there cross.
  labels() {
    const { pen } = this, left = this.width - RIGHT + 26;
    const shown = this.curves.filter(({ time }) => time[time.length - 1] <= this.view.range[1] && time[time.length - 1] >= this.view.range[0]);
    const height = LABEL_HEIGHT * (shown.length - 1);
    const middle = this.y(this.target) + height / 3;
    const top = Math.max(this.head, Math.min(middle - height / 2, this.bottom - height));
    pen.textAlign = "left"; pen.textBaseline = "middle"; pen.lineWidth = 0.8;
    pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
    shown.forEach((curve, n) => {
      const last = curve.time.length - 1, y = top + n * LABEL_HEIGHT;
      pen.strokeStyle = pen.fillStyle = curve.colour;
      pen.globalAlpha = 0.4;
      pen.beginPath();
      pen.moveTo(this.x(curve.time[last]), this.y(curve.share[last]));
      pen.lineTo(left - 20, y); pen.lineTo(left - 5, y); pen.stroke();
      pen.globalAlpha = 1;
      pen.fillText(this.label(curve), left, y);
    });
  }
}

function accuracyCsv(view, { unit, curves }) {
  const rows = [["system", `time_${unit}`, "accuracy_percent"]];
  for (const { name, time, share } of curves) {
    const shares = unpack(share, Float32Array);
    unpack(time, Float32Array).forEach((at, k) => { if (inRange(view, at, at)) rows.push([name, exact(at), exact(shares[k])]); });
  }
  return csvOf(rows);
}
