"""HTML template of :mod:`experiments.plots.animation` with the placeholders @TITLE@ and @SCENE@."""

PAGE = r"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
  body { margin: 0; padding: 16px 20px; background: #f6f7f9; color: #2c333c; font: 14px/1.4 system-ui, sans-serif; }
  h1 { margin: 0 0 10px; font-size: 16px; }
  .views { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 12px; }
  figure { margin: 0; background: #fff; border: 1px solid #dfe3e8; border-radius: 6px; overflow: hidden; }
  figcaption { padding: 6px 10px; color: #5b6472; font-size: 12px; border-bottom: 1px solid #eef0f3; }
  canvas { display: block; width: 100%; height: 420px; touch-action: none; }
  #turning { cursor: grab; }
  .bar { display: flex; flex-wrap: wrap; align-items: center; gap: 12px; margin-top: 12px; }
  .bar input[type=range] { flex: 1; min-width: 160px; }
  button, select { font: inherit; padding: 3px 12px; border: 1px solid #c5cad2; border-radius: 5px; background: #fff; }
  output { min-width: 5.5em; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
<h1>@TITLE@</h1>
<div class="views">
  <figure><figcaption>from the side</figcaption><canvas id="side"></canvas></figure>
  <figure><figcaption>drag to turn, scroll to zoom</figcaption><canvas id="turning"></canvas></figure>
</div>
<div class="bar">
  <button id="play">Pause</button>
  <input id="slider" type="range" min="0" step="any" aria-label="time">
  <output id="clock"></output>
  <label>speed <select id="speed">
    <option value="0.1">1/10</option><option value="0.25">1/4</option><option value="0.5">1/2</option>
    <option value="1" selected>1</option><option value="2">2</option>
  </select></label>
  <label><input id="forces" type="checkbox" checked> contact forces</label>
</div>
<script>
"use strict";
const scene = @SCENE@;
const COLORS = { link: "#39424e", plate: "rgba(31, 95, 168, 0.20)", edge: "#1f5fa8", joint: "#1f5fa8", foot: "#d98a1f",
                 touching: "#2a8a4a", force: "#c03a2b", trail: "#9fb9d6", goal: "#c03a2b", grid: "#e6e9ed", axis: "#c9ced6" };
const END = scene.times[scene.times.length - 1];
const element = id => document.getElementById(id);

// A view looks along a direction given by two angles; u points right, v up, w toward the reader.
function axes(azimuth, elevation) {
  const ca = Math.cos(azimuth), sa = Math.sin(azimuth), ce = Math.cos(elevation), se = Math.sin(elevation);
  return { u: [ca, sa, 0], v: [-sa * se, ca * se, ce], w: [sa * ce, -ca * ce, se] };
}
const dot = (a, p) => a[0] * p[0] + a[1] * p[1] + a[2] * p[2];

// Bounding box of all points in all frames.
const box = { low: [Infinity, Infinity, Infinity], high: [-Infinity, -Infinity, -Infinity] };
for (const picture of scene.points)
  picture.forEach((c, i) => { box.low[i % 3] = Math.min(box.low[i % 3], c); box.high[i % 3] = Math.max(box.high[i % 3], c); });
if (scene.ground) box.low[2] = Math.min(box.low[2], 0);
if (scene.goal) scene.goal.forEach((c, i) => { box.low[i] = Math.min(box.low[i], c); box.high[i] = Math.max(box.high[i], c); });
const middle = box.low.map((c, i) => 0.5 * (c + box.high[i]));
const floor = scene.ground ? 0 : box.low[2];

function cell() {  // grid spacing: 1, 2 or 5 times a power of ten, about a tenth of the scene
  const raw = Math.max(box.high[0] - box.low[0], box.high[1] - box.low[1], box.high[2] - box.low[2], 0.1) / 8;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find(k => k * power >= raw);
}

class View {
  constructor(canvas, azimuth, elevation) {
    Object.assign(this, { canvas, azimuth, elevation, zoom: 1 });
    this.context = canvas.getContext("2d");
  }
  prepare() {
    const ratio = window.devicePixelRatio || 1, { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = clientWidth * ratio;
    this.canvas.height = clientHeight * ratio;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.axes = axes(this.azimuth, this.elevation);
    const corners = [0, 1, 2, 3, 4, 5, 6, 7].map(k => [0, 1, 2].map(i => ((k >> i) & 1 ? box.high : box.low)[i] - middle[i]));
    const reach = a => Math.max(...corners.map(c => Math.abs(dot(a, c))), 0.05);
    this.scale = this.zoom * 0.84 * Math.min(clientWidth / 2 / reach(this.axes.u), clientHeight / 2 / reach(this.axes.v));
    this.center = [clientWidth / 2, clientHeight / 2];
  }
  project(p) {
    const d = p.map((c, i) => c - middle[i]);
    return [this.center[0] + this.scale * dot(this.axes.u, d), this.center[1] - this.scale * dot(this.axes.v, d)];
  }
  path(points, close) {
    const c = this.context;
    c.beginPath();
    points.forEach((p, i) => { const [x, y] = this.project(p); i ? c.lineTo(x, y) : c.moveTo(x, y); });
    if (close) c.closePath();
  }
  line(points, color, width) {
    this.path(points);
    Object.assign(this.context, { strokeStyle: color, lineWidth: width, lineCap: "round", lineJoin: "round" });
    this.context.stroke();
  }
  dot(p, radius, color) {
    const [x, y] = this.project(p), c = this.context;
    c.beginPath();
    c.arc(x, y, radius, 0, 2 * Math.PI);
    c.fillStyle = color;
    c.fill();
  }
  grid() {
    const side = cell(), margin = side;
    const first = i => side * Math.floor((box.low[i] - margin) / side), last = i => side * Math.ceil((box.high[i] + margin) / side);
    for (let x = first(0); x <= last(0) + 1e-9; x += side) this.line([[x, first(1), floor], [x, last(1), floor]], COLORS.grid, 1);
    for (let y = first(1); y <= last(1) + 1e-9; y += side) this.line([[first(0), y, floor], [last(0), y, floor]], COLORS.grid, 1);
    this.line([[first(0), middle[1], floor], [last(0), middle[1], floor]], COLORS.axis, 1);
  }
  draw(k) {
    this.prepare();
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const picture = scene.points[k], at = i => picture.slice(3 * i, 3 * i + 3);
    this.grid();
    this.line(scene.points.slice(0, k + 1).map(p => p.slice(3 * scene.trail, 3 * scene.trail + 3)), COLORS.trail, 1.5);
    for (const plate of scene.plates) {
      this.path(plate.map(at), true);
      this.context.fillStyle = COLORS.plate;
      this.context.fill();
      this.line([...plate, plate[0]].map(at), COLORS.edge, 2);
    }
    const depth = ([i, j]) => dot(this.axes.w, at(i)) + dot(this.axes.w, at(j));
    for (const [i, j] of [...scene.lines].sort((a, b) => depth(a) - depth(b))) this.line([at(i), at(j)], COLORS.link, 4);
    for (const i of scene.joints) this.dot(at(i), 3.2, COLORS.joint);
    for (const i of scene.ends) if (!scene.feet.includes(i)) this.dot(at(i), 3.6, COLORS.foot);
    scene.feet.forEach((i, f) => this.dot(at(i), 5, scene.touching[k][f] ? COLORS.touching : COLORS.foot));
    if (scene.goal) this.dot(scene.goal, 5, COLORS.goal);
    if (element("forces").checked) scene.forces.forEach(f => this.force(at(f.at), f.values.slice(3 * k, 3 * k + 3)));
  }
  force(p, value) {  // the robot's weight is drawn with 0.8 of the scene's height
    const length = 0.8 * Math.max(box.high[2] - box.low[2], 0.2) / scene.weight;
    if (Math.hypot(...value) < 0.03 * scene.weight) return;
    const tip = p.map((c, i) => c + length * value[i]);
    this.line([p, tip], COLORS.force, 2);
    this.dot(tip, 2.6, COLORS.force);
  }
}

const side = new View(element("side"), 0, 0.06), turning = new View(element("turning"), -0.7, 0.45);
const slider = element("slider"), play = element("play");
slider.max = END;
let time = 0, running = true, before = null;

function picture() {  // last frame that has started
  let k = scene.times.findIndex(t => t > time + 1e-9);
  return (k < 0 ? scene.times.length : k) - 1;
}
function show() {
  const k = Math.max(picture(), 0);
  side.draw(k);
  turning.draw(k);
  slider.value = time;
  element("clock").textContent = time.toFixed(2) + " / " + END.toFixed(2) + " s";
}
function tick(now) {
  if (running && before !== null) {
    time += Number(element("speed").value) * (now - before) / 1000;
    if (time > END + 0.6) time = 0;  // pause at the end
    show();
    if (time > END) { slider.value = END; element("clock").textContent = END.toFixed(2) + " / " + END.toFixed(2) + " s"; }
  }
  before = now;
  window.requestAnimationFrame(tick);
}
function run(on) { running = on; play.textContent = on ? "Pause" : "Play"; }
play.addEventListener("click", () => { if (!running && time >= END) time = 0; run(!running); });
slider.addEventListener("input", () => { run(false); time = Number(slider.value); show(); });
element("forces").addEventListener("change", show);
document.addEventListener("keydown", e => {
  if (e.target.tagName === "SELECT") return;
  if (e.key === " ") { e.preventDefault(); play.click(); }
  const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
  if (!step) return;
  e.preventDefault();
  run(false);
  time = scene.times[Math.min(Math.max(picture() + step, 0), scene.times.length - 1)];
  show();
});
let grip = null;
turning.canvas.addEventListener("pointerdown", e => {
  grip = [e.clientX, e.clientY];
  turning.canvas.setPointerCapture(e.pointerId);
});
turning.canvas.addEventListener("pointerup", () => { grip = null; });
turning.canvas.addEventListener("pointermove", e => {
  if (!grip) return;
  turning.azimuth -= 0.008 * (e.clientX - grip[0]);
  turning.elevation = Math.min(1.55, Math.max(-0.3, turning.elevation + 0.008 * (e.clientY - grip[1])));
  grip = [e.clientX, e.clientY];
  show();
});
turning.canvas.addEventListener("wheel", e => {
  e.preventDefault();
  turning.zoom = Math.min(8, Math.max(0.3, turning.zoom * Math.exp(-0.0012 * e.deltaY)));
  show();
}, { passive: false });
window.addEventListener("resize", show);
show();
window.requestAnimationFrame(tick);
</script>
</body>
</html>
"""
