// Charts by guest and vCPU, the lanes of findings, and what the reader chooses.

const SPECS = [
  ["cpu", { title: "CPU time", unit: "% of one host CPU", format: percent, stacked: true, fixed: true }],
  ["exits", { title: "Exits by reason", unit: "per second", format: rate, stacked: true }],
  ["devices", { title: "Accesses by device", unit: "per second", format: rate, stacked: true }],
  ["vmm", { title: "Exits to the VMM", unit: "per second", format: rate, stacked: true }],
  ["wait", { title: "Wait", unit: "% of the time, of the vCPU that waits longest", format: percent }],
  [
    "wakeup",
    { title: "Wake-up latency", unit: "99th percentile of the slowest vCPU", format: duration, peaks: true },
  ],
  ["moves", { title: "Moves between host CPUs", unit: "per second", format: rate, stacked: true }],
  ["disk_requests", { title: "Disk requests", unit: "per second", format: rate }],
  ["disk_time", { title: "Disk latency", unit: "mean of a request", format: duration, peaks: true }],
  ["network", { title: "Network", unit: "bytes per second", format: bytesPerSecond }],
];

// One line for all series of a chart.
function sumOf(chart) {
  const { lines } = chart;
  return chart.total || { mean: addUp(lines), max: lines.length === 1 ? lines[0].max : undefined };
}

function addUp(lines) {
  return lines[0].mean.map((_, i) =>
    lines.reduce((sum, l) => (l.mean[i] === null ? sum : (sum || 0) + l.mean[i]), null),
  );
}

const total = (line) => line.mean.reduce((sum, v) => sum + (v || 0), 0);

function largest(lines, weight) {
  return lines
    .map((line) => [weight(line), line])
    .sort((a, b) => b[0] - a[0])
    .map(([, line]) => line);
}

function specsOf(owner) {
  return SPECS.flatMap(([id, spec]) => {
    const chart = owner.find((c) => c.id === id);
    if (!chart) return [];
    if (chart.lines.length === 0)
      return [{ ...spec, title: "Exits", id, stacked: false, lines: [{ ...chart.total, name: "all" }] }];
    const unit = spec.unit.replace(state.vcpu === null ? "" : / of the slowest vCPU$/, "");
    return [{ ...spec, unit, id, lines: chart.lines, peak: chart.total && chart.total.max }];
  });
}

function specsOfAll() {
  const host = data.host.find((c) => c.id === "cpu");
  const all = host
    ? [{ ...SPECS[0][1], id: "host", title: "Host CPUs", unit: "% of all CPUs", lines: host.lines }]
    : [];
  for (const [id, spec] of SPECS) {
    const of = data.guests.flatMap((g) => {
      const chart = g.charts.find((c) => c.id === id);
      return chart && !id.startsWith("disk") && id !== "network"
        ? [{ ...sumOf(chart), name: g.name, place: guestOrder.findIndex(({ i }) => i === g.domain) }]
        : [];
    });
    if (of.length === 0) continue;
    const weight = (l) => (spec.peaks ? Math.max(...l.mean.map((v) => v || 0)) : total(l));
    const sized = largest(of, weight);
    const lines = sized.slice(0, LINES),
      rest = sized.slice(LINES);
    paint(lines);
    if (rest.length && spec.stacked) lines.push({ name: "other guests", mean: addUp(rest) });
    const title = spec.title.replace(/ by (reason|device)$/, "");
    all.push({ ...spec, id, title: `${title} by guest`, fixed: false, lines });
  }
  return all;
}

// Each guest keeps its colour in all charts, as long as there are enough.
function paint(lines) {
  const free = new Set(PALETTES.dark.lines.keys());
  for (const line of lines.filter((l) => l.place >= 0)) {
    const wanted = line.place % PALETTES.dark.lines.length;
    line.colour = free.has(wanted) ? wanted : [...free][0];
    free.delete(line.colour);
  }
}

function isFlat(spec) {
  return spec.lines.every((l) => l.mean.every((v) => !v));
}

// How the vCPUs of a guest compare: those with most.
function specsByVcpu(guest) {
  const of = (id, title, pick) => {
    const lines = guest.vcpus.flatMap(([vcpu, charts]) => {
      const cpu = charts.find((c) => c.id === "cpu");
      const chosen = cpu ? cpu.lines.filter((l) => pick.includes(l.name)) : [];
      return chosen.length ? [{ ...sumOf({ lines: chosen }), name: `vCPU ${vcpu}` }] : [];
    });
    if (lines.length < 2) return [];
    const spec = { id, title, unit: "% of the time", format: percent, times: times.vcpus };
    const most = largest(lines, (l) => total(l)).slice(0, LINES);
    return [
      { ...spec, unit: lines.length > LINES ? `${spec.unit}, the ${LINES} with most` : spec.unit, lines: most },
    ];
  };
  return [
    ...of("vcpu_cpu", "CPU time by vCPU", ["guest", "usr", "sys"]),
    ...of("vcpu_wait", "Wait by vCPU", ["wait"]),
  ];
}

function selected() {
  if (state.guest === null) return { specs: specsOfAll(), axis: times.guests };
  const guest = data.guests.find((g) => g.domain === state.guest);
  if (!guest) return { specs: [], axis: times.guests };
  if (state.vcpu === null) return { specs: [...specsOf(guest.charts), ...specsByVcpu(guest)], axis: times.guests };
  const vcpu = guest.vcpus.find(([v]) => v === state.vcpu);
  return { specs: vcpu ? specsOf(vcpu[1]) : [], axis: times.vcpus };
}

function spansShown() {
  const name = state.guest === null ? null : report.domains[state.guest].name;
  return data.spans
    .filter(
      (s) =>
        name === null ||
        s.domain === name ||
        (s.finding !== null && (report.findings[s.finding].also || []).includes(name)),
    )
    .sort((a, b) => RANK[b.severity] - RANK[a.severity] || a.begin_ms - b.begin_ms);
}

function drawCharts() {
  charts.forEach((c) => c.end());
  const { specs, axis } = selected();
  const spans = spansShown();
  view.marks = spans.slice(0, MARKS_SHOWN);
  view.days = whole[1] - whole[0] > 86400 || day(whole[0], view.offset) !== day(whole[1], view.offset);
  view.height = innerWidth < 600 ? 130 : 150;
  charts = specs
    .filter((s) => !isFlat(s))
    .map((spec) => makeChart(spec, spec.times || axis, view, PALETTES[palette]));
  const flat = specs.filter(isFlat).map((s) => s.title);
  const rest = flat.length ? [el("p", { class: "quiet" }, `Always 0, so not drawn: ${flat.join(", ")}.`)] : [];
  if (specs.length === 0) rest.push(el("p", { class: "quiet" }, "No time lines of it."));
  byId("charts").replaceChildren(...charts.map((c) => c.box), ...rest);
  const width = byId("charts").clientWidth;
  charts.forEach((c) => c.draw(width));
  drawLanes(spans);
}

// A lane for each finding: when it held.
function drawLanes(spans) {
  const lanes = new Map();
  for (const s of spans) {
    const key = s.finding === null ? `${s.rule} ${s.domain}` : s.finding;
    if (!lanes.has(key)) lanes.set(key, []);
    lanes.get(key).push(s);
  }
  const all = [...lanes.values()];
  const shown = state.allLanes ? all : all.slice(0, LANES_SHOWN);
  const rows = shown.map((list) => {
    const [first] = list;
    const track = el(
      "div",
      { class: "track" },
      list.map((s) => {
        const bar = el("i", {
          class: `span ${s.severity}`,
          title: `${stretchText(s.begin_ms, s.end_ms)}: ${s.title}`,
        });
        bar.span = s;
        return bar;
      }),
    );
    const who = state.guest === null ? [el("strong", {}, named(first.domain || "host")), " "] : [];
    const open = () => showFinding(first.finding);
    return el(
      "div",
      { class: "lane" },
      el(
        "button",
        { type: "button", class: first.severity, disabled: first.finding === null, on: { click: open } },
        el("i", { "aria-hidden": "true" }, GLYPHS[first.severity]),
        " ",
        who,
        named(first.title),
      ),
      track,
    );
  });
  if (all.length > shown.length) {
    rows.push(
      el(
        "button",
        {
          type: "button",
          on: {
            click: () => {
              state.allLanes = true;
              drawLanes(spans);
            },
          },
        },
        `Show all ${all.length} findings over time`,
      ),
    );
  }
  byId("lanes").replaceChildren(...rows);
  placeLanes();
}

function placeLanes() {
  const [from, to] = view.stretch.map((t) => t * 1e3);
  for (const bar of document.querySelectorAll("#lanes .span")) {
    const at = (ms) => Math.min(100, Math.max(0, (100 * (ms - from)) / (to - from)));
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

function tools() {
  const guest = el(
    "select",
    { id: "guest", on: { change: () => select(guest.value === "" ? null : Number(guest.value), null) } },
    el("option", { value: "" }, "All guests"),
    guestOrder.map(({ d, i }) => el("option", { value: String(i) }, d.name)),
  );
  const vcpu = el("select", {
    id: "vcpu",
    on: { change: () => select(state.guest, vcpu.value === "" ? null : Number(vcpu.value)) },
  });
  const button = (text, label, run) =>
    el("button", { type: "button", "aria-label": label, title: label, on: { click: run } }, text);
  byId("tools").append(
    el("label", {}, "Guest ", guest),
    el("label", { id: "vcpu-label" }, "vCPU ", vcpu),
    el(
      "span",
      { class: "zoom" },
      button("−", "Zoom out (-)", () => view.change(0, 2)),
      button("+", "Zoom in (+)", () => view.change(0, 0.5)),
      button("◀", "Earlier (left)", () => view.change(-0.25, 1)),
      button("▶", "Later (right)", () => view.change(0.25, 1)),
      button("All", "All of the time (0, double click)", () => view.reset()),
    ),
    el("span", { id: "stretch", role: "status" }),
  );
}

function sayStretch() {
  const [from, to] = view.stretch;
  byId("stretch").textContent = `${stretchText(from * 1e3, to * 1e3)} (${seconds(to - from)})`;
}

function select(guest, vcpu) {
  Object.assign(state, { guest, vcpu, allLanes: false });
  for (const b of document.querySelectorAll("[data-guest]"))
    b.setAttribute("aria-pressed", String(b.dataset.guest === String(guest)));
  findingsList();
  const tables = guest === null ? hostTables(report) : guestTables(report.domains[guest], vcpu);
  const shown = tables.filter(Boolean);
  if (guest === null && report.domains.length)
    shown.push(el("p", { class: "quiet" }, "Choose a guest for its threads, exits and accesses."));
  byId("tables").replaceChildren(...shown);
  byId("tables-title").textContent = guest === null ? "Host" : `Tables of ${report.domains[guest].name}`;
  if (!whole) return;
  byId("guest").value = guest === null ? "" : String(guest);
  const series = guest === null ? null : data.guests.find((g) => g.domain === guest);
  const vcpus = series ? series.vcpus.map(([v]) => v) : [];
  byId("vcpu").replaceChildren(
    el("option", { value: "" }, "all"),
    ...vcpus.map((v) => el("option", { value: String(v) }, String(v))),
  );
  byId("vcpu").value = vcpu === null ? "" : String(vcpu);
  byId("vcpu-label").hidden = vcpus.length === 0;
  drawCharts();
}

let palette = dark.matches ? "dark" : "light";

function begin() {
  header();
  verdict();
  guestTable();
  byId("page").hidden = false;
  if (whole) {
    tools();
    sayStretch();
  } else {
    byId("over-time").hidden = true;
  }
  select(state.guest, null);
  byId("foot").append(
    `Made by ${report.tool} from `,
    named(data.input),
    ". Percentages of CPU time are of one host CPU; wait is runnable but not running. " +
      "A value that was not measured is “-”.",
  );
  if (!whole) return;
  const repaint = (name) => {
    palette = name;
    drawCharts();
  };
  dark.addEventListener("change", () => repaint(dark.matches ? "dark" : "light"));
  addEventListener("resize", () => charts.forEach((c) => c.resize(byId("charts").clientWidth)));
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((d) => {
      d.open = true;
    });
    repaint("light");
  });
  addEventListener("afterprint", () => repaint(dark.matches ? "dark" : "light"));
}

begin();
