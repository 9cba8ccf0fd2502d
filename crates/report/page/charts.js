// Charts over time, drawn by uPlot; all share one stretch of time and one cursor.

// The variables of page.css that colour what has no colour of its own.
const LINE_COLOURS = ["sys", "usr", "guest", "wait", "irq", "extra"];
// Dashes repeat what the colours say.
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]];
const GLYPHS = { critical: "▲", warning: "●", info: "·" };
const Y_AXIS_WIDTH = 58;
const RIGHT_PADDING = 28;
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800];
// Charts with fewer slots show steps: the value of a slot from its begin to its end.
const MAX_STEPS = 100;

// The colour of a variable of page.css, as a canvas takes it.
function colour(name) {
  const probe = byId("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// An element in the colour of a variable of page.css.
function swatch(name) {
  const e = el("i.colour");
  e.style.background = `var(--${name})`;
  return e;
}

// Times of an axis in seconds, with the slot of each, and whether the slot ends there. Gaps are times without a slot.
function timesOf(axis) {
  const x = [];
  const slots = [];
  const ends = [];
  const gaps = new Set(axis.gaps);
  const add = (ms, slot, isEnd) => {
    x.push((axis.begin_ms + ms) / 1e3);
    slots.push(slot);
    ends.push(isEnd);
  };
  axis.ends.forEach((end, i) => {
    const before = i === 0 ? 0 : axis.ends[i - 1];
    if (gaps.has(i)) add(before + 1, -1, false);
    if (i === 0 || gaps.has(i)) add(Math.max(before + (i && 2), end - axis.seconds[i] * 1e3), i, false);
    else if (axis.ends.length < MAX_STEPS) add(before + 1, i, false);
    add(end, i, true);
  });
  return { x, slots, ends, lengths: axis.seconds };
}

// Mean and maximum of a line over a stretch of time. As in the report, the mean is of all the time: that of a guest
// that came late has the time without it, too.
function overStretch(line, times, [from, to]) {
  let sum = 0;
  let length = 0;
  let max = null;
  times.slots.forEach((slot, i) => {
    const value = line.mean[slot];
    if (!times.ends[i] || times.x[i] < from || times.x[i] > to) return;
    length += times.lengths[slot];
    if (value === null) return;
    sum += value * times.lengths[slot];
    const top = line.max ? line.max[slot] : value;
    if (top !== null) max = Math.max(max ?? top, top);
  });
  return { mean: max === null ? null : sum / length, max };
}

const placeOf = (line, i) => (line.place ?? i) % LINE_COLOURS.length;

// The variable of page.css that colours a line.
function colourName(spec, line, i) {
  if (line.name === "other" || line.name === "other guests" || line.name === "iowait") return "other";
  return spec.isByKind ? line.name : LINE_COLOURS[placeOf(line, i)];
}

// Values for uPlot. Stacked lines are sums from the bottom up, the topmost first, so that each covers the one above.
function plotData(spec, times) {
  const at = (values) => times.slots.map((slot) => (slot < 0 ? null : values[slot]));
  if (!spec.stacked) return [times.x, ...spec.lines.map((l) => at(spec.peaks && l.max ? l.max : l.mean))];
  let below = times.x.map(() => null);
  const sums = spec.lines.map((line) => {
    const values = at(line.mean);
    below = below.map((b, i) => (values[i] === null ? b : b + values[i]));
    return below;
  });
  return [times.x, ...sums.reverse()];
}

function seriesOf(spec) {
  const all = spec.lines.map((line, i) => {
    const stroke = colour(colourName(spec, line, i));
    if (!spec.stacked) return { stroke, width: 1.5, dash: DASHES[placeOf(line, i)] };
    return { stroke: colour("ground"), width: 0.75, fill: stroke };
  });
  if (spec.stacked) all.reverse();
  return [{}, ...all.map((series) => ({ ...series, points: { show: false } }))];
}

const clock = (time, offset, withSeconds) =>
  new Date((time + offset) * 1e3).toISOString().slice(11, withSeconds ? 19 : 16);

// Whether a time, in seconds, is of a wall clock. The clock of a trace counts from the boot of its host and has no day.
const isWall = (time) => time >= 365 * 86400;

function day(time, offset, format) {
  if (!isWall(time)) return "";
  return new Date((time + offset) * 1e3).toLocaleDateString("en-GB", { ...format, timeZone: "UTC" });
}

const SHORT_DAY = { day: "numeric", month: "short" };

function timeLabels(view) {
  return (u, splits, axis, space, step) => {
    const days = splits.map((t) => (view.days ? day(t, view.offset, SHORT_DAY) : ""));
    return splits.map(
      (t, i) => clock(t, view.offset, step < 60) + (days[i] && days[i] !== days[i - 1] ? "\n" + days[i] : ""),
    );
  };
}

// Vertical lines where findings begin.
function drawMarks(u, view) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
  ctx.clip();
  for (const span of view.marks) {
    const x = Math.round(u.valToPos(span.begin_ms / 1e3, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(span.severity);
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

// The options of uPlot for a chart; `say` writes its legend.
function plotOptions(spec, view, width, say) {
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false } };
  const yLabels = (_, splits) => splits.map((v) => spec.format(v));
  const zoomToSelection = (u) => {
    const { left, width: wide } = u.select;
    if (wide < 4) return;
    const [from, to] = [u.posToVal(left, "x"), u.posToVal(left + wide, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    view.zoom(from, to);
  };
  return {
    width,
    height: view.height,
    series: seriesOf(spec),
    legend: { show: false },
    padding: [12, RIGHT_PADDING, 0, 0],
    scales: {
      x: { time: true, range: () => view.stretch },
      y: { range: (_, min, max) => [0, max > 0 ? max * 1.05 : 1] },
    },
    axes: [
      { ...axis, size: view.days ? 40 : 26, space: 70, incrs: TIME_STEPS, values: timeLabels(view) },
      { ...axis, size: Y_AXIS_WIDTH, space: 28, values: yLabels },
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
      bind: { dblclick: () => view.reset },
    },
    hooks: { setCursor: [say], draw: [(u) => drawMarks(u, view)], setSelect: [zoomToSelection] },
  };
}

// A chart: its element, its uPlot and how to say what its legend shows.
function makeChart(spec, times, view) {
  const when = el("span.when.quiet");
  const items = spec.lines.map((line, i) => {
    const value = el("b");
    return { line, value, element: el("span", swatch(colourName(spec, line, i)), named(line.name), " ", value) };
  });
  const legend = el("div.legend", items.map((item) => item.element), when);
  const canvas = el("div.canvas");
  const attributes = { tabindex: "0", role: "group", "aria-label": `${spec.title}, ${spec.unit}`, keydown: view.onKey };
  const caption = el("figcaption", el("h3", spec.title), el("span.quiet", spec.unit), legend);
  const chart = { spec, box: el("figure", attributes, caption, canvas), plot: null };
  const say = () => {
    const i = chart.plot ? chart.plot.cursor.idx : null;
    const slot = times.slots[i] ?? -1;
    for (const { line, value } of items) {
      if (slot >= 0) {
        const hasPeak = line.max && line.max[slot] !== line.mean[slot];
        value.textContent = spec.format(line.mean[slot]) + (hasPeak ? ` (peak ${spec.format(line.max[slot])})` : "");
      } else {
        const { mean, max } = overStretch(line, times, view.stretch);
        value.textContent = spec.format(spec.peaks ? max : mean);
        if (!spec.peaks) value.title = `mean ${spec.format(mean)}, highest ${spec.format(max)}`;
      }
    }
    when.textContent = slot >= 0 ? "at " + clock(times.x[i], view.offset, true) : spec.peaks ? "highest" : "mean";
  };
  chart.draw = (width) => {
    chart.plot = new uPlot(plotOptions(spec, view, width, say), plotData(spec, times), canvas);
    say();
  };
  chart.zoomed = () => {
    chart.plot.setScale("x", { min: view.stretch[0], max: view.stretch[1] });
    say();
  };
  return chart;
}
