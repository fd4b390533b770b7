"use strict";
// Shared by all charts: one view of the time axis, colours, ticks, numbers with units.

// Okabe and Ito: told apart with every kind of colour vision, on white and on black.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const INK = ["#fff", "#000", "#fff", "#000", "#000", "#fff"]; // readable on each of them
const LEFT = 86, RIGHT = 14;

const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seconds = value => `${+value.toPrecision(6)} s`;

function withPrefix(value, unit) {
  const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [factor, prefix] = prefixes.find(([factor]) => Math.abs(value) >= factor) || [1, ""];
  return `${+(value / factor).toPrecision(4)} ${prefix}${unit}`;
}
const rateText = value => withPrefix(8 * value, "bit/s");
const sizeText = value => withPrefix(value, "B");

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}

// Round steps of 1, 2 or 5 times a power of ten, about `count` of them.
function ticks(from, to, count) {
  if (!(to > from)) return [from];
  const rough = (to - from) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(factor => factor * power >= rough) * power;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9; k++)
    found.push(+(k * step).toFixed(digits));
  return found;
}

// First position in a sorted array whose value is at least `value`.
function lowerBound(array, value) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

class TimeView {
  constructor(end, clock = "emulated time (s)", start = 0) {
    this.clock = clock;
    this.whole = [start, end || 1];
    this.length = this.whole[1] - start;
    this.range = [...this.whole];
    this.charts = [];
    this.asked = false;
  }
  show(from, to) {
    const span = Math.min(Math.max(to - from, 1e-6 * this.length), this.length);
    const start = Math.min(Math.max(from, this.whole[0]), this.whole[1] - span);
    this.range = [start, start + span];
    this.redraw();
  }
  zoom(factor, at = (this.range[0] + this.range[1]) / 2) {
    this.show(at - (at - this.range[0]) / factor, at + (this.range[1] - at) / factor);
  }
  move(share) {
    const by = share * (this.range[1] - this.range[0]);
    this.show(this.range[0] + by, this.range[1] + by);
  }
  reset() { this.show(...this.whole); }
  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.charts.forEach(chart => chart.draw()); });
  }
}

// A canvas that is as sharp as the screen; returns its context and size in CSS pixels.
function prepared(canvas, width, height) {
  if (canvas.recorder) return canvas.recorder(width, height);
  const sharp = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
  return pen;
}

// Vertical grid lines with their times below; the axis always names its unit.
function timeAxis(pen, view, width, top, bottom) {
  const [from, to] = view.range, inner = width - LEFT - RIGHT;
  const shown = ticks(from, to, inner / 90);
  pen.strokeStyle = colourOf("--grid");
  pen.fillStyle = colourOf("--quiet");
  pen.lineWidth = 1;
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const time of shown) {
    const x = Math.round(LEFT + (time - from) / (to - from) * inner) + 0.5;
    pen.beginPath(); pen.moveTo(x, top); pen.lineTo(x, bottom); pen.stroke();
    if (x < width - 20) pen.fillText(String(time), x, bottom + 4);
  }
  pen.textAlign = "center";
  pen.fillText(view.clock, LEFT + inner / 2, bottom + 18);
}

const tip = document.createElement("div");
tip.className = "tip";
document.body.append(tip);
function showTip(event, text) {
  tip.style.visibility = text ? "visible" : "hidden";
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - box.width - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - box.height - 8)}px`;
}

// Mouse and keyboard on a chart: drag zooms, Shift-drag moves, Ctrl-wheel zooms.
function control(canvas, view, describe) {
  let drag = null;
  const box = document.createElement("div");
  box.style.cssText = "position:fixed;pointer-events:none;background:#8886;visibility:hidden;z-index:8";
  document.body.append(box);
  const timeAt = event => {
    const place = canvas.getBoundingClientRect();
    const inner = place.width - LEFT - RIGHT - (canvas.room || 0); // room for labels
    const share = (event.clientX - place.left - LEFT) / inner;
    return view.range[0] + share * (view.range[1] - view.range[0]);
  };
  canvas.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, time: timeAt(event), move: event.shiftKey };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    if (!drag) return showTip(event, describe(event, timeAt(event)));
    showTip(event, "");
    if (drag.move) {
      const by = drag.time - timeAt(event);
      return view.show(view.range[0] + by, view.range[1] + by);
    }
    const place = canvas.getBoundingClientRect();
    box.style.visibility = "visible";
    box.style.left = `${Math.min(drag.x, event.clientX)}px`;
    box.style.width = `${Math.abs(event.clientX - drag.x)}px`;
    box.style.top = `${place.top}px`;
    box.style.height = `${place.height}px`;
  });
  canvas.addEventListener("pointerup", event => {
    box.style.visibility = "hidden";
    if (drag && !drag.move && Math.abs(event.clientX - drag.x) > 4) {
      const end = timeAt(event);
      view.show(Math.min(drag.time, end), Math.max(drag.time, end));
    }
    drag = null;
  });
  canvas.addEventListener("pointerleave", event => showTip(event, ""));
  canvas.addEventListener("dblclick", () => view.reset());
  canvas.addEventListener("wheel", event => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      view.zoom(event.deltaY < 0 ? 1.25 : 0.8, timeAt(event));
    } else if (event.deltaX || event.shiftKey) {
      event.preventDefault();
      view.move((event.deltaX || event.deltaY) / 1000);
    }
  }, { passive: false });
}
