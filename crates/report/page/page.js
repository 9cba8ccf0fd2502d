// Charts by guest, the lanes of findings, and what the reader chooses.

const MARKS_SHOWN = 60;
// Guests that a chart compares.
const MAX_LINES = 6;
const PEAKS = { format: duration, peaks: true };
// The charts of a guest; those with `isOwn` are not compared between guests.
const SPECS = [
  { id: "cpu", title: "CPU time", unit: "% of one host CPU", format: percent, stacked: true, isByKind: true },
  { id: "exits", title: "Exits by reason", unit: "per second", format: rate, stacked: true },
  { id: "devices", title: "Accesses by device", unit: "per second", format: rate, stacked: true },
  { id: "wait", title: "Wait", unit: "% of the time, of the vCPU that waits longest then", ...PEAKS, format: percent },
  { id: "wakeup", title: "Wake-up latency", unit: "99th percentile of the slowest vCPU", ...PEAKS },
  { id: "moves", title: "Moves between host CPUs", unit: "per second", format: rate, stacked: true },
  { id: "disk_time", title: "Disk latency", unit: "mean of a request", ...PEAKS, isOwn: true },
];

// Sums of lines at each time; null where none has a value.
function addUp(lines) {
  return lines[0].mean.map((_, i) => lines.reduce((sum, { mean }) => (mean[i] === null ? sum : sum + mean[i]), null));
}

// One line for all series of a chart.
function sumOf({ lines }) {
  return { mean: addUp(lines), max: lines.length === 1 ? lines[0].max : undefined };
}

const total = ({ mean }) => mean.reduce((sum, v) => sum + v, 0);
const peak = ({ mean }) => Math.max(...mean);
const sorted = (lines, weight) => [...lines].sort((a, b) => weight(b) - weight(a));
const isFlat = (spec) => spec.lines.every((l) => l.mean.every((v) => !v));
const seriesOfGuest = (guest) => data.guests.find((g) => g.domain === guest);

// The charts of a guest.
function specsOf(owner) {
  return SPECS.flatMap((spec) => {
    const chart = owner.find((c) => c.id === spec.id);
    if (!chart) return [];
    return [{ ...spec, lines: chart.lines }];
  });
}

// The charts of the host, and those that compare the guests.
function specsOfAll() {
  const host = data.host.filter((c) => c.id === "cpu");
  const ofHost = host.map(({ lines }) => ({ ...SPECS[0], title: "Host CPUs", unit: "% of all CPUs", lines }));
  const compared = SPECS.filter((spec) => !spec.isOwn).flatMap((spec) => {
    const guests = data.guests.flatMap((g) => {
      const chart = g.charts.find((c) => c.id === spec.id);
      return chart ? [{ ...sumOf(chart), name: g.name, order: guestOrder.findIndex(({ i }) => i === g.domain) }] : [];
    });
    if (guests.length === 0) return [];
    const largest = sorted(guests, spec.peaks ? peak : total);
    const lines = largest.slice(0, MAX_LINES);
    paint(lines);
    const rest = largest.slice(MAX_LINES);
    if (rest.length && spec.stacked) lines.push({ name: "other guests", mean: addUp(rest) });
    const title = spec.title.replace(/ by (reason|device)$/, "");
    return [{ ...spec, title: `${title} by guest`, isByKind: false, lines }];
  });
  return [...ofHost, ...compared];
}

// Gives each guest the same colour in all charts, as long as there are enough.
function paint(lines) {
  const free = new Set(LINE_COLOURS.keys());
  for (const line of lines.filter((l) => l.order >= 0)) {
    const wanted = line.order % LINE_COLOURS.length;
    line.place = free.has(wanted) ? wanted : [...free][0];
    free.delete(line.place);
  }
}

function selected() {
  if (state.guest === null) return specsOfAll();
  const guest = seriesOfGuest(state.guest);
  return guest ? specsOf(guest.charts) : [];
}

function spansShown() {
  const name = shownName();
  const isShown = (s) => isAbout(s, name) || (s.finding !== null && isAbout(report.findings[s.finding], name));
  return data.spans
    .filter(isShown)
    .sort((a, b) => RANK[b.severity] - RANK[a.severity] || a.begin_ms - b.begin_ms);
}

function drawCharts() {
  charts.forEach((c) => c.plot.destroy());
  const specs = selected();
  const spans = spansShown();
  view.marks = spans.slice(0, MARKS_SHOWN);
  const days = whole.map((time) => day(time, view.offset, SHORT_DAY));
  view.days = whole[1] - whole[0] > 86400 || days[0] !== days[1];
  view.height = innerWidth < 600 ? 130 : 150;
  charts = specs.filter((s) => !isFlat(s)).map((spec) => makeChart(spec, times.guests, view));
  const flat = specs.filter(isFlat).map((s) => s.title);
  const rest = flat.length ? [quiet(`Always 0, so not drawn: ${flat.join(", ")}.`)] : [];
  if (specs.length === 0) rest.push(quiet("No time lines of it."));
  byId("charts").replaceChildren(...charts.map((c) => c.box), ...rest);
  const width = byId("charts").clientWidth;
  charts.forEach((c) => c.draw(width));
  drawLanes(spans);
}

// A lane for each finding: when it held.
function drawLanes(spans) {
  const lanes = new Map();
  for (const span of spans) {
    const key = span.finding === null ? `${span.rule} ${span.domain}` : span.finding;
    lanes.set(key, [...(lanes.get(key) || []), span]);
  }
  const bar = (span) => {
    const title = `${stretchText(span.begin_ms, span.end_ms)}: ${span.title}`;
    return Object.assign(el(`i.span.${span.severity}`, { title }), { span });
  };
  const lane = (all) => {
    const { severity, domain, title, finding } = all[0];
    const who = state.guest === null ? [el("strong", named(domain || "host")), " "] : [];
    const words = [glyph(severity), " ", ...who, named(title)];
    const open = button(words, () => showFinding(finding), { disabled: finding === null });
    return el(`div.lane.${severity}`, open, el("div.track", all.map(bar)));
  };
  byId("lanes").replaceChildren(...[...lanes.values()].map(lane));
  placeLanes();
}

function placeLanes() {
  const [from, to] = view.stretch.map((t) => t * 1e3);
  const at = (ms) => Math.min(100, Math.max(0, (100 * (ms - from)) / (to - from)));
  for (const bar of document.querySelectorAll("#lanes .span")) {
    const { begin_ms: begin, end_ms: end } = bar.span;
    bar.hidden = end < from || begin > to;
    bar.style.left = `${at(begin)}%`;
    bar.style.width = `${at(end) - at(begin)}%`;
  }
}

function showFinding(i) {
  const e = byId(`finding-${i}`);
  if (!e) return;
  e.open = true;
  e.scrollIntoView({ block: "start" });
  e.querySelector("summary").focus();
}

// The options of a list of guests or vCPUs; the first stands for all.
function options(all, choices) {
  return [el("option", { value: "" }, all), ...choices.map(([value, name]) => el("option", { value }, name))];
}

function tools() {
  const number = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  const guests = guestOrder.map(({ d, i }) => [i, d.name]);
  const choose = () => select(number("guest"), null);
  const guest = el("select", { id: "guest", change: choose }, options("All guests", guests));
  const vcpu = el("select", { id: "vcpu", change: () => select(state.guest, number("vcpu")) });
  const tool = (text, label, run) => button(text, run, { "aria-label": label, title: label });
  const zoom = [
    tool("−", "Zoom out (-)", () => view.change(0, 2)),
    tool("+", "Zoom in (+)", () => view.change(0, 0.5)),
    tool("◀", "Earlier (left)", () => view.change(-0.25, 1)),
    tool("▶", "Later (right)", () => view.change(0.25, 1)),
    tool("All", "All of the time (0, double click)", view.reset),
  ];
  byId("tools").append(
    el("label", "Guest ", guest),
    el("label", { id: "vcpu-label" }, "vCPU ", vcpu),
    el("span.zoom", zoom),
    el("span.quiet", { id: "stretch", role: "status" }),
  );
}

function showStretch() {
  const [from, to] = view.stretch;
  byId("stretch").textContent = `${stretchText(from * 1e3, to * 1e3)} (${seconds(to - from)})`;
}

function select(guest, vcpu) {
  Object.assign(state, { guest, vcpu });
  for (const b of document.querySelectorAll("[data-guest]"))
    b.ariaCurrent = b.dataset.guest === String(guest) ? "true" : null;
  findingsList();
  const ofHost = () => [
    table("Host tasks", HOST_TASK_COLUMNS, report.host.tasks ?? []),
    table("Host CPUs", HOST_CPU_COLUMNS, report.host.cpus),
  ];
  const shown = (guest === null ? ofHost() : guestTables(report.domains[guest], vcpu)).filter(Boolean);
  if (guest === null && report.domains.length) shown.push(quiet("Choose a guest for its threads, exits and accesses."));
  byId("tables").replaceChildren(...shown);
  byId("tables-title").textContent = guest === null ? "Host" : `Tables of ${shownName()}`;
  if (!whole) return;
  const threads = guest === null ? [] : report.domains[guest].threads;
  const vcpus = threads.filter((t) => t.role === "vcpu" && t.vcpu !== null).map((t) => [t.vcpu, t.vcpu]);
  byId("guest").value = guest ?? "";
  byId("vcpu").replaceChildren(...options("all", vcpus));
  byId("vcpu").value = vcpu ?? "";
  byId("vcpu-label").hidden = vcpus.length === 0;
  drawCharts();
}

// Draws the charts in the colours of a scheme: "light" for paper, "" for the reader's own.
function repaint(scheme) {
  document.documentElement.style.colorScheme = scheme;
  drawCharts();
}

function begin() {
  header();
  verdict();
  guestTable();
  byId("page").hidden = false;
  byId("over-time").hidden = !whole;
  if (whole) {
    tools();
    showStretch();
  }
  select(state.guest, null);
  followLink();
  addEventListener("hashchange", followLink);
  byId("foot").append(
    `Made by ${report.tool} from `,
    named(data.input),
    ". CPU time is in percent of one host CPU; means are of all the time, also that without the guest; “-” is unknown.",
  );
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
  if (!whole) return;
  const fit = (c) => c.plot.setSize({ width: byId("charts").clientWidth, height: view.height });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint(""));
  addEventListener("resize", () => charts.forEach(fit));
  addEventListener("beforeprint", () => repaint("light"));
  addEventListener("afterprint", () => repaint(""));
}

begin();
