// Curves of what ranks give to log(): each rank thin, the mean of all thick. Called by live_view.js.

const MOST_CURVES = 48; // metrics; each has a canvas of its own
const MOST_POINTS = 4000; // of one curve; beyond it every second point is dropped
const CURVE = { width: 380, height: 170, left: 58, right: 8, top: 20, bottom: 26 };
// Okabe and Ito's colours, told apart by colour-blind eyes.
const RANK_COLOURS = ["#2A8FD0", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8c8c2e", "#7f7f7f"];

/** All curves of a run, drawn on canvases; owns the points. */
class Curves {
  constructor() {
    this.metrics = new Map(); // name: Map of rank: [[step, time, value], ...]
    this.byTime = false;
    this.began = null;
    this.root = element("div", "ddpnb-curves");
    this.empty = element("div", "ddpnb-muted", {}, "Nothing is logged yet: ddpnb.worker.log(step, loss=...)");
    this.legend = element("div", "ddpnb-muted ddpnb-legend");
    this.more = element("div", "ddpnb-muted");
    this.root.append(this.empty, this.legend, this.more);
    this.axis = element(
      "button", "ddpnb-button", { type: "button", click: () => this.turn() }, "by step",
    );
    this.canvases = new Map();
  }

  forget() {
    this.metrics.clear();
    this.began = null;
    for (const canvas of this.canvases.values()) canvas.remove();
    this.canvases.clear();
  }

  turn() {
    this.byTime = !this.byTime;
    this.axis.textContent = this.byTime ? "by time" : "by step";
    this.draw();
  }

  /** Take points in; @param all they are everything there is. */
  add(told, all) {
    if (all) this.metrics.clear();
    for (const { metric, rank, points } of told) {
      if (!this.metrics.has(metric)) this.metrics.set(metric, new Map());
      const curves = this.metrics.get(metric);
      let curve = (curves.get(rank) || []).concat(points);
      while (curve.length > MOST_POINTS) curve = curve.filter((_, i) => i % 2 === 0);
      curves.set(rank, curve);
      if (points.length && (this.began === null || points[0][1] < this.began)) this.began = points[0][1];
    }
  }

  /** Draw what is in sight; a hidden page costs nothing. */
  draw() {
    if (!this.root.isConnected || this.root.offsetParent === null) return;
    this.empty.hidden = this.metrics.size > 0;
    this.drawLegend();
    this.more.hidden = this.metrics.size <= MOST_CURVES;
    this.more.textContent = `and ${this.metrics.size - MOST_CURVES} more: job.metrics() has all`;
    for (const [name, curves] of [...this.metrics].slice(0, MOST_CURVES)) {
      if (!this.canvases.has(name)) {
        const canvas = element("canvas", "ddpnb-curve", { role: "img", "aria-label": `curve of ${name}` });
        this.canvases.set(name, canvas);
        this.more.before(canvas);
      }
      this.drawOne(this.canvases.get(name), name, curves);
    }
  }

  drawLegend() {
    const ranks = [...new Set([...this.metrics.values()].flatMap((curves) => [...curves.keys()]))].sort((a, b) => a - b);
    const told = ranks.slice(0, RANK_COLOURS.length).map((rank) => {
      const key = element("span", "", {}, `— rank ${rank} `);
      key.style.color = RANK_COLOURS[rank % RANK_COLOURS.length];
      return key;
    });
    const more = ranks.length > told.length ? ["… "] : [];
    this.legend.replaceChildren(...(ranks.length > 1 ? [...told, ...more, element("b", "", {}, "— mean")] : []));
  }

  drawOne(canvas, name, curves) {
    const scale = window.devicePixelRatio || 1;
    const { width, height, left, right, top, bottom } = CURVE;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(canvas);
    pen.font = `11px ${style.fontFamily}`;
    pen.fillStyle = style.color;
    const x = (point) => (this.byTime ? point[1] - this.began : point[0]);
    const lines = [...curves].map(([rank, points]) => [rank, points.filter((p) => p[2] !== null)]);
    const points = lines.flatMap(([, line]) => line);
    const last = lines.flatMap(([, line]) => line.slice(-1).map((p) => p[2]));
    const now = last.length ? `  ${short(last.reduce((a, b) => a + b) / last.length)}` : "";
    pen.fillText(`${name.slice(0, 40)}${now}`, left, 12);
    if (!points.length) return;
    const [x0, x1] = extent(points.map(x));
    const [y0, y1] = extent(points.map((p) => p[2]));
    const toX = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - right);
    const toY = (value) => height - bottom - ((value - y0) / (y1 - y0 || 1)) * (height - top - bottom);
    this.frame(pen, { x0, x1, y0, y1 }, toX, toY);
    const mean = lines.length > 1 ? meanOf(lines) : null;
    for (const [rank, line] of lines) {
      pen.strokeStyle = RANK_COLOURS[rank % RANK_COLOURS.length];
      stroke(pen, line.map((p) => [toX(x(p)), toY(p[2])]), mean ? 0.7 : 1.5);
    }
    if (mean) {
      pen.strokeStyle = style.color;
      stroke(pen, mean.map((p) => [toX(x(p)), toY(p[2])]), 2);
    }
  }

  frame(pen, { x0, x1, y0, y1 }, toX, toY) {
    const { width, height, left, right, top, bottom } = CURVE;
    pen.strokeStyle = "rgba(128, 128, 128, 0.5)";
    pen.lineWidth = 1;
    pen.strokeRect(left, top, width - left - right, height - top - bottom);
    pen.textAlign = "right";
    for (const value of [y0, y1]) pen.fillText(short(value), left - 4, toY(value) + 4);
    pen.textAlign = "left";
    pen.fillText(short(x0), left, height - 10);
    pen.textAlign = "right";
    pen.fillText(`${short(x1)} ${this.byTime ? "s" : "steps"}`, width - right, height - 10);
    pen.textAlign = "left";
  }
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Return the mean over ranks at each step that all of them have logged. */
function meanOf(lines) {
  const sums = new Map();
  for (const [, line] of lines) {
    for (const [step, time, value] of line) {
      const sum = sums.get(step) || [0, 0, 0];
      sums.set(step, [sum[0] + 1, sum[1] + time, sum[2] + value]);
    }
  }
  return [...sums]
    .filter(([, [count]]) => count >= lines.length)
    .sort((a, b) => a[0] - b[0])
    .map(([step, [count, time, value]]) => [step, time / count, value / count]);
}

function stroke(pen, points, width) {
  pen.lineWidth = width;
  pen.beginPath();
  points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}
