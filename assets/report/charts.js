// Charts over time, drawn by uPlot; all share one stretch of time and one cursor.

const PALETTES = {
  dark: {
    text: "#9da7b3",
    grid: "rgba(139,148,158,0.16)",
    ground: "#0d1117",
    other: "#6e7681",
    peak: "#d0d7de",
    guest: "#5faf5f",
    usr: "#5fafd7",
    sys: "#d7875f",
    wait: "#af5faf",
    irq: "#87afaf",
    steal: "#d7af00",
    iowait: "#6e7681",
    lines: ["#d7875f", "#5fafd7", "#5faf5f", "#af5faf", "#87afaf", "#c9b458"],
    critical: "#ff5f5f",
    warning: "#d7af00",
    info: "#87afd7",
  },
  light: {
    text: "#57606a",
    grid: "rgba(27,31,36,0.10)",
    ground: "#ffffff",
    other: "#a3abb3",
    peak: "#424a53",
    guest: "#4a9a4a",
    usr: "#3f8fbf",
    sys: "#c46f43",
    wait: "#93458f",
    irq: "#6f9a9a",
    steal: "#a68400",
    iowait: "#a3abb3",
    lines: ["#c46f43", "#3f8fbf", "#4a9a4a", "#93458f", "#6f9a9a", "#a08c2c"],
    critical: "#cf222e",
    warning: "#8a6100",
    info: "#3b6ea5",
  },
};
// Whatever a colour says, a dash or a hatch says as well.
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]];
const GLYPHS = { critical: "▲", warning: "●", info: "·" };
const AXIS = 58;
const RIGHT = 28;

// Below so many slots a chart shows steps: the value of a slot from its begin to its end.
const STEPS = 100;

// Times of an axis in seconds, with the slot of each, and whether the slot ends there; a gap is a time without a slot.
function timesOf(axis) {
  const x = [],
    slots = [],
    ends = [],
    gaps = new Set(axis.gaps);
  const add = (ms, slot, end) => {
    x.push((axis.begin_ms + ms) / 1e3);
    slots.push(slot);
    ends.push(end);
  };
  axis.ends.forEach((end, i) => {
    const before = i === 0 ? 0 : axis.ends[i - 1];
    if (gaps.has(i)) add(before + 1, -1, false);
    if (i === 0 || gaps.has(i)) add(Math.max(before + (i && 2), end - axis.seconds[i] * 1e3), i, false);
    else if (axis.ends.length < STEPS) add(before + 1, i, false);
    add(end, i, true);
  });
  return { x, slots, ends, lengths: axis.seconds };
}

// Mean and maximum of a line over a stretch of time.
function overStretch(line, times, [from, to]) {
  let sum = 0,
    seconds = 0,
    max = -Infinity;
  times.slots.forEach((slot, i) => {
    if (!times.ends[i] || times.x[i] < from || times.x[i] > to) return;
    const value = line.mean[slot];
    if (value === null) return;
    sum += value * times.lengths[slot];
    seconds += times.lengths[slot];
    const top = line.max ? line.max[slot] : value;
    if (top !== null && top > max) max = top;
  });
  return { mean: seconds > 0 ? sum / seconds : null, max: max > -Infinity ? max : null };
}

function hatch(u, colour) {
  const c = document.createElement("canvas"),
    size = 6 * devicePixelRatio;
  c.width = c.height = size;
  const g = c.getContext("2d");
  g.strokeStyle = colour;
  g.lineWidth = 1.6 * devicePixelRatio;
  g.beginPath();
  for (const at of [-size, 0, size]) {
    g.moveTo(at, size);
    g.lineTo(at + size, 0);
  }
  g.stroke();
  return u.ctx.createPattern(c, "repeat");
}

const placeOf = (line, i) => (line.colour === undefined ? i : line.colour);

function colourOf(palette, spec, line, i) {
  if (line.name === "other" || line.name === "other guests") return palette.other;
  return (spec.fixed && palette[line.name]) || palette.lines[placeOf(line, i) % palette.lines.length];
}

// Values for uPlot. Stacked lines are sums from the bottom up, the topmost first, so that each covers the one above.
function plotData(spec, times) {
  const at = (values) => times.slots.map((slot) => (slot < 0 ? null : values[slot]));
  if (!spec.stacked) return [times.x, ...spec.lines.map((l) => at(spec.peaks && l.max ? l.max : l.mean))];
  let below = times.x.map(() => null);
  const sums = spec.lines.map((line) => {
    const values = at(line.mean);
    below = below.map((b, i) => (values[i] === null ? b : (b || 0) + values[i]));
    return below;
  });
  const data = [times.x, ...sums.reverse()];
  if (spec.peak) data.push(at(spec.peak));
  return data;
}

function seriesOf(spec, palette) {
  const line = (l, i) => {
    const colour = colourOf(palette, spec, l, i);
    const hatched = spec.stacked && l.name === "wait";
    return {
      label: l.name,
      stroke: spec.stacked ? palette.ground : colour,
      width: spec.stacked ? 0.75 : 1.5,
      dash: spec.stacked ? [] : DASHES[placeOf(l, i) % DASHES.length],
      fill: spec.stacked ? (hatched ? (u) => hatch(u, colour) : colour) : undefined,
      points: { show: false },
      spanGaps: false,
    };
  };
  const all = spec.lines.map(line);
  if (spec.stacked) all.reverse();
  if (spec.stacked && spec.peak) {
    all.push({ label: "peak", stroke: palette.peak, width: 1, dash: [2, 2], points: { show: false } });
  }
  return [{}, ...all];
}

function clock(time, offset, withSeconds) {
  const text = new Date((time + offset) * 1e3).toISOString();
  return text.slice(11, withSeconds ? 19 : 16);
}

// A trace's clock counts from the boot of its host: it has no day.
function isWall(time) {
  return time >= 365 * 86400;
}

function day(time, offset) {
  if (!isWall(time)) return "";
  return new Date((time + offset) * 1e3).toLocaleDateString("en-GB", {
    day: "numeric",
    month: "short",
    timeZone: "UTC",
  });
}

function xValues(view) {
  return (u, splits, axis, space, step) => {
    let before = null;
    return splits.map((t) => {
      const today = day(t, view.offset);
      const isNew = view.days && today !== before;
      before = today;
      return clock(t, view.offset, step < 60) + (isNew && today ? "\n" + today : "");
    });
  };
}

// Vertical lines where findings begin.
function drawMarks(u, view, palette) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
  ctx.clip();
  for (const span of view.marks) {
    const x = Math.round(u.valToPos(span.begin_ms / 1e3, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = palette[span.severity];
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.font = `${10 * devicePixelRatio}px sans-serif`;
    ctx.textAlign = "center";
    ctx.fillText(GLYPHS[span.severity], x, bbox.top - 2 * devicePixelRatio);
  }
  ctx.restore();
}

// On a touch screen two fingers stretch and move the time that is shown, as they do a map; a double tap shows all of
// it. One finger scrolls the page.
function bindTouch(u, view) {
  const { over } = u;
  // The times under the two fingers; they stay under them.
  let held = null;
  const places = (e) => [...e.touches].map((t) => t.clientX - over.getBoundingClientRect().left);
  over.addEventListener(
    "touchstart",
    (e) => {
      held = e.touches.length === 2 ? places(e).map((x) => u.posToVal(x, "x")) : null;
    },
    { passive: true },
  );
  over.addEventListener(
    "touchmove",
    (e) => {
      if (held === null || e.touches.length !== 2) return;
      e.preventDefault();
      const [a, b] = places(e);
      const each = (held[1] - held[0]) / (b - a);
      if (!Number.isFinite(each) || each <= 0) return;
      const from = held[0] - a * each;
      view.zoom(from, from + over.clientWidth * each);
    },
    { passive: false },
  );
  over.addEventListener("touchend", () => (held = null), { passive: true });
}

// A chart: its element, its uPlot and how to say what its legend shows.
function makeChart(spec, times, view, palette) {
  const legend = el("div", { class: "legend" });
  const canvas = el("div", { class: "canvas" });
  const box = el(
    "figure",
    {
      tabindex: "0",
      role: "group",
      "aria-label": `${spec.title}, ${spec.unit}`,
      on: { keydown: (e) => view.onKey(e) },
    },
    el("figcaption", {}, el("h3", {}, spec.title), el("span", { class: "unit" }, spec.unit), legend),
    canvas,
  );
  const items = spec.lines.map((line, i) => {
    const swatch = el("i", { class: spec.stacked && line.name === "wait" ? "swatch hatched" : "swatch" });
    swatch.style.setProperty("--colour", colourOf(palette, spec, line, i));
    const value = el("b", {});
    legend.append(el("span", { class: "item" }, swatch, named(line.name), " ", value));
    return { line, value };
  });
  const when = el("span", { class: "when" });
  legend.append(when);
  let u = null;
  const say = () => {
    const i = u ? u.cursor.idx : null;
    const slot = i === null || i === undefined ? -1 : times.slots[i];
    for (const { line, value } of items) {
      if (slot >= 0) {
        const top =
          line.max && line.max[slot] !== line.mean[slot] ? ` (peak ${known(line.max[slot], spec.format)})` : "";
        value.textContent = known(line.mean[slot], spec.format) + top;
      } else {
        const { mean, max } = overStretch(line, times, view.stretch);
        value.textContent = spec.peaks ? known(max, spec.format) : known(mean, spec.format);
        value.title = `mean ${known(mean, spec.format)}, highest ${known(max, spec.format)}`;
      }
    }
    when.textContent = slot >= 0 ? "at " + clock(times.x[i], view.offset, true) : spec.peaks ? "highest" : "mean";
  };
  const chart = {
    box,
    spec,
    say,
    draw(width) {
      if (u) u.destroy();
      u = new uPlot(
        {
          width,
          height: view.height,
          series: seriesOf(spec, palette),
          legend: { show: false },
          padding: [12, RIGHT, 0, 0],
          scales: {
            x: { time: true, range: () => view.stretch },
            y: { range: (_, min, max) => [0, max > 0 ? max * 1.05 : 1] },
          },
          axes: [
            {
              stroke: palette.text,
              grid: { stroke: palette.grid, width: 1 },
              ticks: { show: false },
              size: view.days ? 40 : 26,
              space: 70,
              incrs: [
                1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800,
              ],
              values: xValues(view),
            },
            {
              stroke: palette.text,
              grid: { stroke: palette.grid, width: 1 },
              ticks: { show: false },
              size: AXIS,
              space: 28,
              values: (_, splits) => splits.map((v) => spec.format(v)),
            },
          ],
          cursor: {
            drag: { x: true, y: false, setScale: false },
            y: false,
            points: { show: !spec.stacked, size: 6 },
            sync: {
              key: "time",
              scales: ["x", null],
              filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
            },
            bind: {
              dblclick: () => () => {
                view.reset();
                return null;
              },
            },
          },
          hooks: {
            setCursor: [say],
            draw: [(self) => drawMarks(self, view, palette)],
            setSelect: [
              (self) => {
                const { left, width: wide } = self.select;
                if (wide < 4) return;
                const [from, to] = [self.posToVal(left, "x"), self.posToVal(left + wide, "x")];
                self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
                view.zoom(from, to);
              },
            ],
          },
        },
        plotData(spec, times),
        canvas,
      );
      bindTouch(u, view);
      say();
    },
    resize: (width) => u.setSize({ width, height: view.height }),
    zoomed() {
      u.setScale("x", { min: view.stretch[0], max: view.stretch[1] });
      say();
    },
    end: () => u && u.destroy(),
    get plot() {
      return u;
    },
  };
  return chart;
}
