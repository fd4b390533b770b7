// What is shown as a file: the drawing as SVG, its numbers as CSV. Nothing is fetched.

// Takes what a canvas's pen takes, and writes it down.
class SvgPen {
  constructor(width, height) {
    Object.assign(this, { width, height, strokeStyle: "#000", fillStyle: "#000", lineWidth: 1, font: "",
      textAlign: "left", textBaseline: "alphabetic", globalAlpha: 1, dash: "", path: "", parts: [], open: [0] });
  }
  number(value) { return +value.toFixed(2); }
  point(letter, x, y) { this.path += `${letter}${this.number(x)} ${this.number(y)}`; }
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.point("M", x, y); }
  lineTo(x, y) { this.point(this.path ? "L" : "M", x, y); }
  rect(x, y, width, height) {
    this.point("M", x, y);
    this.path += `h${this.number(width)}v${this.number(height)}h${this.number(-width)}Z`;
  }
  style(stroke) {
    const shade = this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : "";
    return stroke
      ? `fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.dash}${shade}`
      : `fill="${this.fillStyle}"${shade}`;
  }
  stroke() { if (this.path) this.parts.push(`<path d="${this.path}" ${this.style(true)}/>`); }
  fill() { if (this.path) this.parts.push(`<path d="${this.path}" ${this.style(false)}/>`); }
  box(x, y, width, height, stroke) {
    const [left, top, wide, high] = [x, y, width, height].map(this.number);
    this.parts.push(`<rect x="${left}" y="${top}" width="${wide}" height="${high}" ${this.style(stroke)}/>`);
  }
  fillRect(x, y, width, height) { this.box(x, y, width, height, false); }
  strokeRect(x, y, width, height) { this.box(x, y, width, height, true); }
  fillText(text, x, y, most) {
    const anchor = { center: "middle", right: "end" }[this.textAlign] || "start";
    const down = { middle: ".35em", top: ".8em" }[this.textBaseline] || "0";
    const [, bold, size] = this.font.match(/(bold )?(\d+)px/) || [, "", 11];
    const squeezed = most && 0.6 * size * text.length > most ? ` textLength="${most}" lengthAdjust="spacingAndGlyphs"` : "";
    const said = text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
    this.parts.push(`<text x="${this.number(x)}" y="${this.number(y)}" dy="${down}" text-anchor="${anchor}" font-size="${size}"` +
      `${bold ? ' font-weight="bold"' : ""}${squeezed} ${this.style(false)}>${said}</text>`);
  }
  setLineDash(lengths) { this.dash = lengths.length ? ` stroke-dasharray="${lengths.join(" ")}"` : ""; }
  group(attribute) { this.parts.push(`<g ${attribute}>`); this.open[this.open.length - 1]++; }
  clip() {
    const name = `clip${++SvgPen.names}`;
    this.parts.push(`<clipPath id="${name}"><path d="${this.path}"/></clipPath>`);
    this.group(`clip-path="url(#${name})"`);
  }
  translate(x, y) { this.group(`transform="translate(${this.number(x)} ${this.number(y)})"`); }
  rotate(angle) { this.group(`transform="rotate(${this.number(angle * 180 / Math.PI)})"`); }
  save() { this.open.push(0); }
  restore() { this.parts.push("</g>".repeat(this.open.pop())); }
}
SvgPen.names = 0;

// The charts as they are now, one below the other.
function svgOf(charts) {
  let height = 0, width = 0, inside = "";
  for (const chart of charts) {
    chart.canvas.recorder = (wide, high) => (chart.canvas.drawing = new SvgPen(wide, high));
    chart.draw();
    const drawing = chart.canvas.drawing;
    delete chart.canvas.recorder;
    inside += `<g transform="translate(0 ${height})">${drawing.parts.join("\n")}</g>\n`;
    height += drawing.height;
    width = Math.max(width, drawing.width);
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
    `font-family="system-ui, DejaVu Sans, sans-serif"><rect width="100%" height="100%" fill="${colourOf("--paper")}"/>\n${inside}</svg>\n`;
}

const quoted = value => /[",\n\r]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : String(value);
const csvOf = rows => rows.map(row => `${row.map(quoted).join(",")}\n`).join("");

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const exact = value => +value.toPrecision(7);
const inRange = (view, start, end) => end >= view.range[0] && start <= view.range[1];

function portsCsv(view, data) {
  const rows = [["run", "port", "curve", "time_s", "bytes_per_s"]], run = data.runs[0];
  for (const [name, ports] of Object.entries(run.curves))
    ports.forEach(({ time, rate }, port) => {
      const times = unpack(time, Float32Array), rates = unpack(rate, Float32Array);
      times.forEach((at, k) => {
        if (inRange(view, at, times[k + 1] ?? Infinity)) rows.push([run.name, data.ports[port].name, name, exact(at), exact(rates[k])]);
      });
    });
  return csvOf(rows);
}

function countsCsv(view, data) {
  const rows = [["figure", "unit", "curve", "time_s", "value"]];
  for (const { title, unit, curves } of data.counts)
    for (const { name, time, rate } of curves) {
      const values = unpack(rate, Float32Array);
      unpack(time, Float32Array).forEach((at, k) => { if (inRange(view, at, at)) rows.push([title, unit, name, exact(at), exact(values[k])]); });
    }
  return csvOf(rows);
}

function trainingCsv(view, data) {
  const rows = [["figure", "time_s", "task", "iteration", "value"]];
  for (const { figure, points } of data.training)
    for (const [time, task, iteration, value] of points)
      if (inRange(view, time, time)) rows.push([figure, exact(time), task, iteration, value]);
  return csvOf(rows);
}
