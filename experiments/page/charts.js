"use strict";
// Small charts without a library: hover reads values, drag zooms, keys switch lines on and off.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const make = (tag, attributes, parent) => {
    const node = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (parent) parent.appendChild(node);
    return node;
  };
  const html = (tag, attributes, parent, text) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // Near-black lines must not vanish on a dark page.
  const ink = colour => (dark.matches && colour === "#222222" ? "#e6e9ed" : colour);
  const show = value => {
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e5 || size < 1e-3) {
      // Powers of ten as people write them.
      const power = Math.floor(Math.log10(size) + 1e-9), head = +(value / 10 ** power).toPrecision(2);
      const up = String(power).replace("-", "⁻").replace(/\d/g, d => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);
      return `${head === 1 ? "" : String(head).replace("-", "−") + "·"}10${up}`;
    }
    return String(+value.toPrecision(3)).replace("-", "−");
  };
  const pen = document.createElement("canvas").getContext("2d");
  const wide = text => { pen.font = "600 11px system-ui, sans-serif"; return pen.measureText(text).width; };
  const DASH = { solid: "", dashed: "6 3", dotted: "1.5 2.5" };

  function ticks(low, high, log, count) {
    const found = [];
    if (log) {
      const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9);
      const step = Math.max(1, Math.ceil((last - first) / count));
      for (let k = first; k <= last; k += step) found.push(k);
      // Never fewer than three: finer steps inside the decades, then even steps of the value itself.
      for (const fine of [[1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
        if (found.length >= 3) return found;
        found.length = 0;
        for (let k = Math.floor(low); k <= Math.ceil(high); k++)
          for (const m of fine) {
            const t = k + Math.log10(m);
            if (t >= low - 1e-9 && t <= high + 1e-9) found.push(t);
          }
      }
      return found.length >= 3 ? found : ticks(10 ** low, 10 ** high, false, count).filter(v => v > 0).map(Math.log10);
    }
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].find(s => s * power >= raw) * power;
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step)
      found.push(Math.abs(v) < 1e-12 * step ? 0 : v);
    return found;
  }

  function lineChart(host, panel) {
    const title = html("p", { class: "t" }, host, panel.title);
    title.id = host.id + "-t";
    const svg = make("svg", { role: "img", "aria-labelledby": title.id }, null);
    host.appendChild(svg);
    const keys = html("div", { class: "keys" }, host);
    const tip = html("div", { class: "tip", hidden: "" }, host);
    const on = panel.series.map(s => !s.off);
    let range = null, drag = null;
    const tx = v => (panel.x.log ? Math.log10(v) : v), ty = v => (panel.y.log ? Math.log10(v) : v);
    const back = v => (panel.x.log ? 10 ** v : v), backY = v => (panel.y.log ? 10 ** v : v);
    const usable = p => (!panel.x.log || p[0] > 0) && (!panel.y.log || p[1] > 0);
    let view = null;

    // Keys in the order in which the lines end, from the top.
    const end = s => { const p = s.points.filter(usable); return p.length ? p[p.length - 1][1] : -Infinity; };
    const order = panel.series.map((s, k) => k).sort((a, b) => end(panel.series[b]) - end(panel.series[a]));
    order.forEach(k => {
      const s = panel.series[k];
      const button = html("button", { type: "button", "aria-pressed": String(on[k]) }, keys);
      const mark = html("i", s.line ? {} : { class: "ring" }, button);
      mark.style.borderColor = ink(s.colour);
      if (s.line && s.dash !== "solid") mark.style.borderTopStyle = s.dash;
      button.append(s.name);
      button.onclick = () => {
        on[k] = !on[k];
        button.setAttribute("aria-pressed", String(on[k]));
        draw();
      };
    });
    const reset = html("button", { type: "button", class: "reset", hidden: "" }, keys, "↺ whole range");
    reset.onclick = () => { range = null; draw(); };

    function draw() {
      const width = Math.max(host.clientWidth, 240), narrow = width < 470;
      const height = panel.tall ? Math.min(260, width * 0.5) : Math.min(330, Math.max(220, width * 0.62));
      const labels = !narrow;
      const longest = Math.max(0, ...panel.series.filter((s, k) => on[k] && s.line).map(s => wide(s.name)));
      const right = labels ? 16 + longest : 14, top = 8, bottom = 38;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      svg.replaceChildren();
      const all = [], seen = [];
      panel.series.forEach((s, k) => {
        if (!on[k]) return;
        for (const p of s.points) {
          if (!usable(p)) continue;
          all.push(tx(p[0]));
          if (range && (p[0] < range[0] || p[0] > range[1])) continue;
          seen.push(ty(p[1]));
        }
      });
      if (!all.length) all.push(0, 1);
      if (!seen.length) seen.push(0, 1);
      let x0 = range ? tx(range[0]) : Math.min(...all), x1 = range ? tx(range[1]) : Math.max(...all);
      if (x1 === x0) { x0 -= 1; x1 += 1; }
      // Room for whole markers at both ends.
      if (!range && panel.series.some((s, k) => on[k] && s.marker)) {
        const room = 0.025 * (x1 - x0);
        x0 -= room;
        x1 += room;
      }
      let y0 = Math.min(...seen), y1 = Math.max(...seen);
      if (panel.y.low !== null && panel.y.low !== undefined)
        y0 = panel.y.log ? Math.max(y0, Math.log10(panel.y.low)) : Math.min(panel.y.low, y0);
      const pad = (y1 - y0 || (panel.y.log ? 0.3 : Math.abs(y1) || 1)) * 0.06;
      if (panel.y.log || panel.y.low === null || y0 !== panel.y.low) y0 -= pad;
      y1 += pad;
      const rows = ticks(y0, y1, panel.y.log, 5);
      const left = 24 + 6.4 * Math.max(2, ...rows.map(t => show(backY(t)).length));
      const sx = v => left + (tx(v) - x0) / (x1 - x0) * (width - left - right);
      const sy = v => height - bottom - (ty(v) - y0) / (y1 - y0) * (height - top - bottom);
      view = { x0, x1, left, right, width, height, top, bottom, sx, sy };
      reset.hidden = !range;

      const clip = host.id + "-c";
      const defs = make("defs", {}, svg);
      // A zoomed chart cuts at its edges; a whole one lets rings on the axis be whole.
      const spare = range ? 0 : 6;
      make("rect", { x: left - spare, y: top - spare, width: width - left - right + 2 * spare, height: height - top - bottom + 2 * spare },
        make("clipPath", { id: clip }, defs));
      const inside = make("g", { "clip-path": `url(#${clip})` }, svg);
      for (const [a, b] of panel.shade || [])
        make("rect", { class: "gap", x: sx(a - .5), width: Math.max(sx(b + .5) - sx(a - .5), .5), y: top, height: height - top - bottom }, inside);
      for (const t of rows) {
        const y = sy(backY(t));
        if (y < top - 1 || y > height - bottom + 1) continue;
        make("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }, svg);
        make("text", { x: left - 6, y: y + 3.5, "text-anchor": "end" }, svg).textContent = show(backY(t));
      }
      for (const t of ticks(x0, x1, panel.x.log, narrow ? 4 : 6)) {
        const x = sx(back(t));
        make("line", { class: "axis", x1: x, x2: x, y1: height - bottom, y2: height - bottom + 4 }, svg);
        make("text", { x, y: height - bottom + 16, "text-anchor": "middle" }, svg).textContent = show(back(t));
      }
      make("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }, svg);
      make("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, svg).textContent = panel.x.label;
      make("text", { transform: `translate(11 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg).textContent = panel.y.label;

      const ends = [];
      panel.series.forEach((s, k) => {
        const points = s.points.filter(usable);
        if (!on[k] || !points.length) return;
        const colour = ink(s.colour);
        for (const p of points) {
          if (p.length < 3) continue;
          const low = panel.y.log ? Math.max(p[1] - p[2], p[1] * 1e-2) : p[1] - p[2];
          make("line", { x1: sx(p[0]), x2: sx(p[0]), y1: sy(low), y2: sy(p[1] + p[2]), stroke: colour, "stroke-width": 1.2 }, inside);
        }
        if (s.line) {
          const path = points.map((p, i) => `${i ? "L" : "M"}${sx(p[0]).toFixed(1)} ${sy(p[1]).toFixed(1)}`).join("");
          make("path", { d: path, fill: "none", stroke: colour, "stroke-width": points.length > 120 ? 1.2 : 1.8,
            "stroke-dasharray": DASH[s.dash], "stroke-linejoin": "round", "data-series": s.name }, inside);
        }
        if (s.marker) for (const p of points)
          make("circle", { cx: sx(p[0]), cy: sy(p[1]), r: s.line ? 2.4 : 4.6, fill: s.line ? colour : "none", stroke: colour, "stroke-width": 1.3 }, inside);
        if (s.line) {
          const visible = points.filter(p => tx(p[0]) <= x1 + 1e-9);
          if (visible.length) ends.push({ y: sy(visible[visible.length - 1][1]), text: s.name, colour });
        }
      });
      if (labels) {
        // Names at the ends of the lines, pushed apart where they would collide.
        ends.sort((a, b) => a.y - b.y);
        const step = 13;
        ends.forEach((e, i) => { e.at = Math.max(top + 4, Math.min(height - bottom, e.y)); if (i) e.at = Math.max(e.at, ends[i - 1].at + step); });
        let over = ends.length ? ends[ends.length - 1].at - (height - bottom) : 0;
        for (let i = ends.length - 1; over > 0 && i >= 0; i--) {
          ends[i].at -= over;
          over = i ? ends[i - 1].at + step - ends[i].at : 0;
        }
        for (const e of ends) {
          const word = make("text", { x: width - right + 7, y: e.at + 3.5 }, svg);
          word.textContent = e.text;
          word.style.fill = e.colour;
          word.style.fontWeight = 600;
        }
      }
      make("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" }, svg);
      make("rect", { class: "zoom", y: top, height: height - top - bottom, visibility: "hidden" }, svg);
    }

    const at = event => {
      const box = svg.getBoundingClientRect();
      return (event.clientX - box.left) / box.width * view.width;
    };
    const value = px => back(view.x0 + (px - view.left) / (view.width - view.left - view.right) * (view.x1 - view.x0));
    const within = px => Math.max(view.left, Math.min(view.width - view.right, px));

    svg.addEventListener("pointerdown", event => {
      if (event.button || event.pointerType === "touch") return;
      drag = within(at(event));
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", event => {
      const px = at(event), cursor = svg.querySelector(".cursor"), zoom = svg.querySelector(".zoom");
      if (drag !== null) {
        const now = within(px);
        zoom.setAttribute("visibility", "visible");
        zoom.setAttribute("x", Math.min(drag, now));
        zoom.setAttribute("width", Math.abs(now - drag));
      }
      if (px < view.left - 8 || px > view.width - view.right + 8) { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); return; }
      const rows = [];
      let where = null, best = Infinity;
      panel.series.forEach((s, k) => {
        if (on[k]) for (const p of s.points) {
          if (!usable(p)) continue;
          const far = Math.abs(view.sx(p[0]) - px);
          if (far < best) { best = far; where = p[0]; }
        }
      });
      if (where === null) return;
      panel.series.forEach((s, k) => {
        if (!on[k]) return;
        let near = null, far = Infinity;
        for (const p of s.points) {
          const gap = Math.abs(view.sx(p[0]) - view.sx(where));
          if (usable(p) && gap < far) { far = gap; near = p; }
        }
        if (near && far < 7) rows.push([s, near]);
      });
      rows.sort((a, b) => b[1][1] - a[1][1]);
      cursor.setAttribute("visibility", "visible");
      cursor.setAttribute("x1", view.sx(where));
      cursor.setAttribute("x2", view.sx(where));
      tip.replaceChildren(html("b", {}, null, `${panel.x.label}: ${show(where)}`));
      for (const [s, p] of rows) {
        const row = html("div", {}, tip);
        html("span", {}, row, "● ").style.color = ink(s.colour);
        row.append(`${s.name}  ${show(p[1])}${p.length > 2 ? " ± " + show(p[2]) : ""}`);
      }
      tip.hidden = false;
      const box = svg.getBoundingClientRect(), scale = box.width / view.width;
      const x = view.sx(where) * scale;
      const leftwards = x > box.width * 0.5;
      tip.style.left = leftwards ? "auto" : `${x + 12}px`;
      tip.style.right = leftwards ? `${box.width - x + 12}px` : "auto";
      tip.style.top = "1.6rem";
    });
    const leave = () => { tip.hidden = true; svg.querySelector(".cursor")?.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("pointerup", event => {
      if (drag === null) return;
      const now = within(at(event)), from = Math.min(drag, now), to = Math.max(drag, now);
      drag = null;
      svg.querySelector(".zoom").setAttribute("visibility", "hidden");
      if (to - from > 8) { range = [value(from), value(to)]; draw(); }
    });
    svg.addEventListener("dblclick", () => { range = null; draw(); });
    draw();
    return draw;
  }

  function mapChart(host, panel) {
    const title = html("p", { class: "t" }, host, panel.title);
    title.id = host.id + "-t";
    const svg = make("svg", { role: "img", "aria-labelledby": title.id }, null);
    host.appendChild(svg);
    const bar = html("div", { class: "scale" }, host);
    const tip = html("div", { class: "tip", hidden: "" }, host);
    const xs = panel.x.values, ys = panel.y.values;
    const { low, middle, high, unit } = panel.scale;
    const shade = v => {
      // Blue (low) to orange (high), light in the middle: readable without colour vision too.
      const t = v < middle ? Math.max(-1, (v - middle) / (middle - low)) : Math.min(1, (v - middle) / (high - middle));
      const a = Math.abs(t) ** 0.6, to = t < 0 ? [0, 114, 178] : [213, 94, 0];
      return `rgb(${to.map(c => Math.round(250 + (c - 250) * a)).join(",")})`;
    };
    const of = axis => (axis.log ? Math.log10 : v => v), back = axis => (axis.log ? v => 10 ** v : v => v);
    const fx = of(panel.x), fy = of(panel.y);
    html("span", {}, bar, show(low));
    html("i", {}, bar).style.background = `linear-gradient(90deg, ${Array.from({ length: 11 }, (_, k) => shade(low + (high - low) * k / 10)).join(",")})`;
    html("span", {}, bar, show(high));
    html("span", {}, bar, unit);
    let view = null;
    function draw() {
      const width = Math.max(host.clientWidth, 240), height = Math.min(330, width * 0.7);
      const left = 52, right = 14, top = 8, bottom = 38;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      svg.replaceChildren();
      const w = (width - left - right) / xs.length, h = (height - top - bottom) / ys.length;
      const place = (f, list) => v => (f(v) - f(list[0])) / (f(list[list.length - 1]) - f(list[0])) * (list.length - 1) + .5;
      const px = place(fx, xs), py = place(fy, ys);
      const sx = v => left + px(v) * w, sy = v => height - bottom - py(v) * h;
      view = { left, top, bottom, width, height, w, h };
      panel.grid.forEach((row, j) => row.forEach((v, i) => make("rect", {
        x: left + i * w, y: height - bottom - (j + 1) * h, width: w + .3, height: h + .3, fill: shade(v) }, svg)));
      const path = panel.edge.filter(p => p[1] <= ys[ys.length - 1] && p[0] <= xs[xs.length - 1]).map((p, i) => `${i ? "L" : "M"}${sx(p[0])} ${sy(p[1])}`).join("");
      make("path", { d: path, fill: "none", stroke: "#111", "stroke-width": 2, "data-series": "boundary" }, svg);
      for (const [a, b, word] of panel.marks || []) {
        const rightwards = sx(a) < (left + width) / 2;
        make("circle", { cx: sx(a), cy: sy(b), r: 4, fill: "#fff", stroke: "#111", "stroke-width": 1.5 }, svg);
        const text = make("text", { x: sx(a) + (rightwards ? 8 : -8), y: sy(b) + 3.5, "text-anchor": rightwards ? "start" : "end" }, svg);
        text.textContent = word;
        Object.assign(text.style, { fill: "#111", fontWeight: 600, paintOrder: "stroke", stroke: "#fff", strokeWidth: "3px" });
      }
      for (const t of ticks(fx(xs[0]), fx(xs[xs.length - 1]), panel.x.log, 5).map(back(panel.x)))
        make("text", { x: sx(t), y: height - bottom + 16, "text-anchor": "middle" }, svg).textContent = show(t);
      for (const t of ticks(fy(ys[0]), fy(ys[ys.length - 1]), panel.y.log, 5).map(back(panel.y)))
        make("text", { x: left - 6, y: sy(t) + 3.5, "text-anchor": "end" }, svg).textContent = show(t);
      make("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, svg).textContent = panel.x.label;
      make("text", { transform: `translate(11 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg).textContent = panel.y.label;
    }
    svg.addEventListener("pointermove", event => {
      const box = svg.getBoundingClientRect(), scale = view.width / box.width;
      const i = Math.floor(((event.clientX - box.left) * scale - view.left) / view.w);
      const j = Math.floor((view.height - view.bottom - (event.clientY - box.top) * scale) / view.h);
      if (!(panel.grid[j] && panel.grid[j][i] !== undefined)) { tip.hidden = true; return; }
      const v = panel.grid[j][i];
      tip.textContent = `${panel.x.label} ${show(xs[i])}, ${panel.y.label} ${show(ys[j])}: ${unit} ${show(v)}`;
      tip.hidden = false;
      tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - 230)}px`;
      tip.style.top = `${event.clientY - box.top + 34}px`;
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
    draw();
    return draw;
  }

  function player(host, data) {
    const frames = data.observed.length;
    const left = html("div", {}, host), side = html("div", {}, host);
    const svg = make("svg", { viewBox: "-2.1 -2.1 4.2 4.2", role: "img", "aria-label": "rotating ellipse and its estimates" }, null);
    left.appendChild(svg);
    const outline = (m, attributes) => {
      const node = make("ellipse", { cx: 0, cy: 0, "vector-effect": "non-scaling-stroke", ...attributes }, svg);
      node.place = (e) => {
        if (!e || e[0] === null) { node.setAttribute("visibility", "hidden"); return; }
        const [a, b, c] = e, mid = (a + c) / 2, half = Math.hypot((a - c) / 2, b);
        node.setAttribute("visibility", "visible");
        node.setAttribute("rx", Math.sqrt(Math.max(mid + half, 0)));
        node.setAttribute("ry", Math.sqrt(Math.max(mid - half, 0)));
        node.setAttribute("transform", `rotate(${-0.5 * Math.atan2(2 * b, a - c) * 180 / Math.PI})`);
      };
      return node;
    };
    const truth = outline("truth", { fill: "#9aa3ad", "fill-opacity": .45, stroke: "none" });
    const seen = outline("seen", { fill: "none", stroke: "#767676", "stroke-width": 1.2, "stroke-dasharray": "2 3" });
    const lines = data.show.map(([key, name, colour]) => [key, name, colour, outline(key, { fill: "none", stroke: colour, "stroke-width": 2.4 })]).reverse();
    const word = make("text", { x: -1.95, y: -1.72, "font-size": ".2", fill: "currentColor" }, svg);
    const table = html("table", {}, side), body = html("tbody", {}, table), cells = {};
    const head = html("tr", {}, body);
    html("th", {}, head, "angle error"); html("th", { class: "n" }, head, "now"); html("th", { class: "n" }, head, "mean so far");
    for (const [key, name, colour] of data.show) {
      const row = html("tr", {}, body), label = html("td", {}, row);
      html("span", {}, label, "● ").style.color = colour;
      label.append(name);
      cells[key] = [html("td", { class: "n" }, row), html("td", { class: "n" }, row)];
    }
    const slider = html("input", { type: "range", min: 0, max: frames - 1, value: 108, "aria-label": "frame" }, side);
    const button = html("button", { type: "button", class: "play" }, side, "▶ play");
    let timer = null;
    function draw() {
      const t = +slider.value;
      truth.place(data.truth[t]);
      seen.place(data.observed[t] ? data.seen[t] : null);
      for (const [key, , , node] of lines) node.place(data.tracks[key][t]);
      word.textContent = `frame ${t}${data.observed[t] ? "" : " – nothing seen"}`;
      for (const [key] of data.show) {
        const e = data.errors[key];
        cells[key][0].textContent = e[t].toFixed(1) + "°";
        let sum = 0;
        for (let k = 0; k <= t; k++) sum += e[k];
        cells[key][1].textContent = (sum / (t + 1)).toFixed(1) + "°";
      }
    }
    const stop = () => { clearInterval(timer); timer = null; button.textContent = "▶ play"; };
    button.onclick = () => {
      if (timer) return stop();
      button.textContent = "❚❚ pause";
      timer = setInterval(() => {
        if (+slider.value >= frames - 1) slider.value = 0;
        slider.value = +slider.value + 1;
        draw();
      }, 45);
    };
    slider.oninput = () => { stop(); draw(); };
    draw();
  }

  const data = JSON.parse(document.getElementById("data").textContent);
  const redraw = [];
  for (const host of document.querySelectorAll("[data-figure]")) {
    const figure = data.figures.find(f => f.id === host.dataset.figure);
    if (!figure) continue;
    // All places first: a panel's width depends on its neighbours.
    const places = figure.panels.map((panel, k) => html("div", { class: "chart", id: `${figure.id}-${k}` }, host));
    figure.panels.forEach((panel, k) => redraw.push((panel.kind === "map" ? mapChart : lineChart)(places[k], panel)));
  }
  for (const host of document.querySelectorAll("[data-player]")) if (data.player) player(host, data.player);
  // A chart is drawn for the width of its place, whenever that changes.
  const widths = new Map();
  const watch = new ResizeObserver(entries => {
    if (entries.some(e => widths.get(e.target) !== e.contentRect.width)) redraw.forEach(d => d());
    for (const e of entries) widths.set(e.target, e.contentRect.width);
  });
  watch.observe(document.body);
  addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach(d => { d.open = true; }); redraw.forEach(d => d()); });
  dark.addEventListener("change", () => redraw.forEach(d => d()));
  document.documentElement.dataset.drawn = String(redraw.length);
})();

// One part of the page at a time: the one that the address names. Without scripts, and on paper,
// all parts are there.
{
  const parts = [...document.querySelectorAll(".part")];
  const open = () => {
    const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const part = (at && at.closest(".part")) || parts[0];
    for (const other of parts) other.hidden = other !== part;
    for (const link of document.querySelectorAll("nav a"))
      link.toggleAttribute("aria-current", link.hash === "#" + part.id);
    if (at && at !== part) at.scrollIntoView();
    else if (location.hash) scrollTo(0, 0);
  };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => parts.forEach(part => (part.hidden = false)));
  addEventListener("afterprint", open);
  open();
}
