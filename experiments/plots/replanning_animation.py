"""Animation of a replanning run as one self-contained HTML file: rotatable stick figure and objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.config.scenario import path_of
from trajopt.replanning.run_log import RunLog
from ..replan.run import Setup
from .animation import DIGITS, FRAME_RATE, positions, skeleton


def write_animation(file: Path, start: Setup, log: RunLog) -> Path:
    """Write the animation of a run. Raises ValueError for a task without a robot."""
    task, model = start.task, start.task.ocp.model
    if model is None:
        raise ValueError(f"{task.ocp.name} has no robot to show")
    every = max(1, round(1.0 / (FRAME_RATE * log.tick)))
    x = log.xs[::every]
    figure, path = skeleton(model, () if task.frame is None else (task.frame,)), path_of(task, x)
    data: dict[str, Any] = {
        "title": f"{model.name}: {task.ocp.name}",
        "times": _short(log.times[::every]),
        "points": _short(positions(model, figure.places, x[:, : model.nq])),
        "edges": figure.lines,
        "path": None if path is None else _short(path),
        "contour": None if task.contour is None else _short(task.contour.at(x)),
        "objects": {name: _short(p[::every]) for name, p in log.objects.items() if p.shape[1] == 3},
        "events": [[round(e.time, DIGITS), str(e.kind)] for e in log.events],
    }
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")  # "</" would end the script
    file.write_text(PAGE.replace("/*DATA*/", text), encoding="utf-8")
    return file


def _short(values: Array) -> Any:
    return np.round(values, DIGITS).tolist()


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>trajopt replan</title><style>
body { margin: 0; font: 14px system-ui, sans-serif; background: #f6f7f9; color: #25303b }
canvas { display: block; width: 100vw; height: calc(100vh - 84px); cursor: grab; background: #fff }
#bar { display: flex; gap: 12px; align-items: center; padding: 8px 14px } #seek { flex: 1 }
#event { padding: 0 14px; color: #c03a2b; height: 22px }
</style></head><body><canvas id="view"></canvas>
<div id="bar"><button id="play">pause</button><input id="seek" type="range" min="0" value="0">
<select id="speed"><option value="0.25">1/4</option><option value="1" selected>1 x</option><option value="4">4 x</option></select>
<span id="time"></span></div><div id="event"></div>
<script>
const D = /*DATA*/;
const view = document.getElementById("view"), seek = document.getElementById("seek"), play = document.getElementById("play");
const ctx = view.getContext("2d"), last = D.times.length - 1, colors = ["#c03a2b", "#d98a1f", "#2a8a4a"];
let yaw = 0.7, pitch = 0.35, zoom = 1, clock = 0, running = true, before = null;
seek.max = last; document.title = D.title;
const all = D.points.flat().concat(...Object.values(D.objects)), low = [0, 1, 2].map(i => Math.min(...all.map(p => p[i])));
const high = [0, 1, 2].map(i => Math.max(...all.map(p => p[i]))), mid = low.map((v, i) => (v + high[i]) / 2);
const size = Math.max(...high.map((v, i) => v - low[i]), 0.1);
function project(p) {
  const x = p[0] - mid[0], y = p[1] - mid[1], z = p[2] - mid[2], s = zoom * 0.72 * Math.min(view.width, view.height) / size;
  const a = Math.cos(yaw) * x - Math.sin(yaw) * y, b = Math.sin(yaw) * x + Math.cos(yaw) * y;
  return [view.width / 2 + s * a, view.height / 2 - s * (Math.cos(pitch) * z + Math.sin(pitch) * b)];
}
function line(points, color, width) {
  ctx.strokeStyle = color; ctx.lineWidth = width; ctx.beginPath();
  points.forEach((p, i) => { const [x, y] = project(p); i ? ctx.lineTo(x, y) : ctx.moveTo(x, y); }); ctx.stroke();
}
function dot(p, color, radius) {
  const [x, y] = project(p); ctx.fillStyle = color; ctx.beginPath(); ctx.arc(x, y, radius, 0, 7); ctx.fill();
}
function draw(k) {
  const r = devicePixelRatio; view.width = view.clientWidth * r; view.height = view.clientHeight * r;
  for (let i = -4; i <= 4; i++) {
    const w = size / 4; line([[mid[0] + i * w, mid[1] - size, 0], [mid[0] + i * w, mid[1] + size, 0]], "#e3e6ea", r);
    line([[mid[0] - size, mid[1] + i * w, 0], [mid[0] + size, mid[1] + i * w, 0]], "#e3e6ea", r);
  }
  if (D.contour) line(D.contour, "#2a8a4a", r);
  if (D.path) line(D.path.slice(Math.max(0, k - 90), k + 1), "#9bb8da", 2 * r);
  Object.entries(D.objects).forEach(([name, p], i) => {
    line(p.slice(Math.max(0, k - 30), k + 1), colors[i % 3], r); dot(p[k], colors[i % 3], 7 * r);
    const [x, y] = project(p[k]); ctx.font = 12 * r + "px system-ui"; ctx.fillText(name, x + 10 * r, y - 8 * r);
  });
  D.edges.forEach(([a, b]) => line([D.points[k][a], D.points[k][b]], "#1f5fa8", 5 * r));
  D.points[k].forEach(p => dot(p, "#25303b", 4 * r));
  document.getElementById("time").textContent = D.times[k].toFixed(2) + " s";
  const now = D.events.filter(e => e[0] <= D.times[k] && e[0] > D.times[k] - 0.4).map(e => e[1]);
  document.getElementById("event").textContent = [...new Set(now)].join(", ");
}
function step(now) {
  if (running && before !== null) clock += (now - before) / 1000 * document.getElementById("speed").value;
  before = now; if (clock > D.times[last]) clock = 0;
  let k = D.times.findIndex(t => t >= clock); k = k < 0 ? last : k; if (running) seek.value = k; draw(+seek.value);
  requestAnimationFrame(step);
}
play.onclick = () => { running = !running; play.textContent = running ? "pause" : "play"; };
seek.oninput = () => { clock = D.times[+seek.value]; };
view.onpointermove = e => { if (e.buttons) { yaw += e.movementX * 0.01; pitch += e.movementY * 0.01; } };
view.onwheel = e => { zoom *= Math.exp(-e.deltaY * 0.001); e.preventDefault(); };
requestAnimationFrame(step);
</script></body></html>
"""
