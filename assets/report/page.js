// The page: what is shown for all guests, one guest or one vCPU.

const report = JSON.parse(document.getElementById("report").textContent);
const data = JSON.parse(document.getElementById("data").textContent);
const RANK = { critical: 3, warning: 2, info: 1 };
const LANES_SHOWN = 8;
const MARKS_SHOWN = 60;
const byId = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");

const times = { guests: timesOf(data.axes.guests), vcpus: timesOf(data.axes.vcpus) };
const whole = data.begin_ms === null ? null : [data.begin_ms / 1e3, data.end_ms / 1e3];
// The guest (its place in the report) and vCPU that are shown; null is all.
const state = { guest: report.domains.length === 1 ? 0 : null, vcpu: null, allLanes: false };
let charts = [];

const view = {
  stretch: whole || [0, 1], offset: data.utc_offset_s, days: false, marks: [], height: 150,
  zoom(from, to) {
    const [begin, end] = whole;
    const least = Math.min(end - begin, Math.max(1, (2 * (end - begin)) / Math.max(2, times.guests.x.length)));
    const length = Math.min(end - begin, Math.max(least, to - from));
    const start = Math.min(Math.max(begin, (from + to - length) / 2), end - length);
    view.stretch = [start, start + length];
    charts.forEach((c) => c.zoomed());
    sayStretch();
    placeLanes();
  },
  reset: () => view.zoom(...whole),
  // by: the part of the stretch to move, and what to multiply its length with.
  change(move, scale) {
    const [from, to] = view.stretch, length = to - from, middle = (from + to) / 2 + move * length;
    view.zoom(middle - (length * scale) / 2, middle + (length * scale) / 2);
  },
  onKey(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const act = { "+": [0, 0.5], "=": [0, 0.5], "-": [0, 2], ArrowLeft: [-0.25, 1], ArrowRight: [0.25, 1] }[e.key];
    if (act) view.change(...act);
    else if (e.key === "0" || e.key === "Home" || e.key === "Escape") view.reset();
    else return;
    e.preventDefault();
  },
};

const ofGuest = (name) => report.findings.filter((f) => f.domain === name || (f.also || []).includes(name));
const worst = (findings) => findings.reduce((w, f) => (RANK[f.severity] > (RANK[w] || 0) ? f.severity : w), null);
const busy = (d) => (d.cpu.guest === null ? null : d.cpu.guest + d.cpu.usr + d.cpu.sys);
const guestOrder = report.domains
  .map((d, i) => ({ d, i, worst: worst(ofGuest(d.name)) }))
  .sort((a, b) => (RANK[b.worst] || 0) - (RANK[a.worst] || 0) || (busy(b.d) || 0) - (busy(a.d) || 0) || a.i - b.i);

function badge(severity, words) {
  return el("span", { class: `badge ${severity}` }, el("i", { "aria-hidden": "true" }, GLYPHS[severity]), " ", words || severity);
}

function dateTime(ms) {
  const t = new Date(ms + data.utc_offset_s * 1e3);
  const date = t.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
  return [date, t.toISOString().slice(11, 19)];
}

function stretchText(from, to) {
  const [[day, begin], [lastDay, end]] = [dateTime(from), dateTime(to)];
  return day === lastDay ? `${day}, ${begin} – ${end}` : `${day}, ${begin} – ${lastDay}, ${end}`;
}

function header() {
  const facts = [];
  if (whole) facts.push(`${stretchText(data.begin_ms, data.end_ms)} ${data.zone}`);
  else if (report.time) facts.push(`${dateTime(Date.parse(report.time)).join(", ")} ${data.zone}`);
  if (report.interval_s !== null) facts.push(`over ${seconds(report.interval_s)}`);
  facts.push(`${report.domains.length} guest${report.domains.length === 1 ? "" : "s"}`);
  if (report.host.cpus.length) facts.push(`${report.host.cpus.length} CPUs`);
  if (data.kernel) facts.push(`Linux ${data.kernel}`);
  if (report.lost_events) facts.push(`${report.lost_events} events lost`);
  const name = data.hostname || data.input;
  document.title = `${name} – kvmtop report`;
  byId("head").append(el("h1", {}, named(name)),
    el("p", { class: "facts" }, facts.flatMap((f, i) => (i ? [el("i", { "aria-hidden": "true" }, " · "), named(f)] : [named(f)]))));
  const complaints = report.sources.filter((s) => s.state !== "ok").map((s) => `${s.name} ${s.state}: ${[s.cause, s.fix].filter(Boolean).join("; ")}`);
  const notes = complaints.concat(data.notes);
  if (notes.length) byId("head").append(el("ul", { class: "notes" }, notes.map((n) => el("li", {}, named(n)))));
}

function verdict() {
  const first = report.findings[0];
  const young = (report.watching || []).length > 0;
  if (!first) {
    byId("verdict").append(el("p", { class: "calm" }, young ? "No findings yet: not enough has been seen." : "No findings."));
    return;
  }
  const counts = ["critical", "warning", "info"].map((s) => [s, report.findings.filter((f) => f.severity === s).length]);
  byId("verdict").append(
    el("p", { class: `first ${first.severity}` }, badge(first.severity), " ", el("strong", {}, named(first.domain || "host")), " ",
      named(first.title)),
    el("p", { class: "figure-line" }, named(first.evidence[0] || "")),
    el("p", { class: "counts" }, counts.filter(([, n]) => n).map(([s, n]) => badge(s, `${n} ${s}`)),
      el("button", { type: "button", on: { click: () => showFinding(0) } }, "Show the fix")));
}

function cpuBar(d) {
  const all = 100 * Math.max(d.vcpus || 1, 1);
  const bar = el("span", { class: "bar", role: "img", "aria-label": `guest ${known(d.cpu.guest, percent)}, usr ${known(d.cpu.usr, percent)}, ` +
    `sys ${known(d.cpu.sys, percent)}, wait ${known(d.cpu.wait, percent)} percent` });
  for (const part of ["guest", "usr", "sys", "wait"]) {
    const piece = el("i", { class: part });
    piece.style.width = `${Math.min(100, (100 * (d.cpu[part] || 0)) / all)}%`;
    bar.append(piece);
  }
  return bar;
}

function guestTable() {
  const heads = ["Guest", "Findings", "CPU %", "of its vCPUs", "wait %", "Exits/s", "Top exit", "Hot device", "/s"];
  const row = ({ d, i, worst: severity }) => {
    const findings = ofGuest(d.name);
    const top = d.exits.filter((e) => e.vcpu === null && !e.idle)[0];
    const exits = d.exits.filter((e) => e.vcpu === null && e.rate !== null);
    const rateOfExits = exits.length ? rate(exits.reduce((sum, e) => sum + e.rate, 0)) : known(d.counters.exits, rate);
    const hot = d.accesses.filter((a) => a.vcpu === null)[0];
    const name = el("button", { type: "button", class: "name", "data-guest": String(i), on: { click: () => select(i, null) } }, named(d.name));
    if (d.state !== "running") name.append(` (${d.state})`);
    return el("tr", { class: severity || "" },
      el("td", { class: "text" }, name), el("td", { class: "text" }, severity ? badge(severity, String(findings.length)) : el("span", { class: "quiet" }, "none")),
      el("td", { class: "figure" }, known(busy(d), percent)), el("td", { class: "text" }, d.cpu.guest === null ? UNKNOWN : cpuBar(d)),
      el("td", { class: "figure" }, known(d.cpu.wait, percent)), el("td", { class: "figure" }, rateOfExits),
      el("td", { class: "text" }, top ? named(top.reason) : UNKNOWN),
      el("td", { class: "text" }, hot ? named(hot.device || `${hot.space} ${hot.address}`) : UNKNOWN),
      el("td", { class: "figure" }, hot ? known(hot.rate, rate) : UNKNOWN));
  };
  if (report.domains.length === 0) {
    byId("guests").append(el("p", { class: "quiet" }, "No guest is in it."));
    return;
  }
  const text = new Set([0, 1, 3, 6, 7]);
  byId("guests").append(el("table", { class: "guests" },
    el("thead", {}, el("tr", {}, heads.map((h, i) => el("th", { scope: "col", class: text.has(i) ? "text" : "figure" }, h)))),
    el("tbody", {}, guestOrder.map(row))));
}

function copyButton(text, source) {
  const button = el("button", { type: "button", class: "copy", on: { click: () => {
    const done = () => { button.textContent = "Copied"; };
    const byHand = () => {
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (document.execCommand("copy")) done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
    else byHand();
  } } }, "Copy");
  return button;
}

const FIX = { "libvirt-xml": "virsh edit, then", command: "run", "kernel-option": "kernel command line", "qemu-option": "QEMU option", advice: "" };

function fixOf(fix) {
  const needs = fix.needs ? ` (${fix.needs})` : "";
  if (fix.kind === "advice") return el("li", {}, named(fix.text + needs));
  const text = el("pre", {}, fix.text);
  return el("li", {}, named(FIX[fix.kind] + needs), el("div", { class: "paste" }, text, copyButton(fix.text, text)));
}

function evidenceOf(line) {
  const command = /^(check|look at): /.exec(line);
  if (!command) return el("li", {}, named(line));
  const text = el("code", {}, line.slice(command[0].length));
  return el("li", {}, command[0], text, " ", copyButton(text.textContent, text));
}

function finding(f, i, open) {
  const who = f.domain || "host";
  const target = ["domain", "host"].includes(f.target) ? "" : `, ${f.target}`;
  const lasting = [];
  if (f.since) lasting.push(`seen since ${dateTime(Date.parse(f.since)).join(", ")}`);
  if (f.lasting) lasting.push(`shown in ${seconds(f.lasting.shown_s)} of ${seconds(f.lasting.of_s)}`);
  if (f.lasting && f.lasting.worst) lasting.push(`at worst: ${f.lasting.worst}`);
  const part = (name, content) => (content.length ? [el("dt", {}, name), el("dd", {}, content)] : []);
  const links = (f.see || []).map((s) => el("li", {}, /^https:\/\//.test(s) ? el("a", { href: s, rel: "noreferrer noopener" }, s) : named(s)));
  return el("details", { id: `finding-${i}`, class: `finding ${f.severity}`, open },
    el("summary", {}, badge(f.severity), " ", el("strong", {}, named(who)), target, " ", el("span", { class: "title" }, named(f.title)),
      el("span", { class: "figure-line" }, named(f.evidence[0] || ""))),
    el("dl", {},
      part("Seen", [el("ul", {}, f.evidence.map(evidenceOf), lasting.length ? el("li", {}, named(lasting.join(", "))) : null)]),
      part("Why", f.why ? [named(f.why)] : []),
      part("Fix", f.fix.length ? [el("ul", {}, f.fix.map(fixOf))] : []),
      part("See", links.length ? [el("ul", {}, links)] : []),
      part("Rule", [[f.rule, ...(f.folded || [])].join(" + ") + `, ${f.confidence} confidence`])));
}

function findingsList() {
  const name = state.guest === null ? null : report.domains[state.guest].name;
  const concerns = (of) => name === null || of === null || of === undefined || of === name;
  const shown = report.findings.map((f, i) => [f, i]).filter(([f]) => name === null || f.domain === name || (f.also || []).includes(name));
  const list = shown.map(([f, i], place) => finding(f, i, name !== null && place === 0));
  if (list.length === 0) list.push(el("p", { class: "quiet" }, name === null ? "None." : "None about this guest."));
  const because = new Map();
  for (const c of (report.cannot_tell || []).filter((c) => concerns(c.domain))) {
    if (!because.has(c.because)) because.set(c.because, new Set());
    because.get(c.because).add(c.rule);
  }
  const unjudged = [...because].map(([why, rules]) => el("li", {}, named(`${[...rules].join(", ")}: ${why}`)));
  for (const w of (report.watching || []).filter((w) => concerns(w.domain))) {
    unjudged.push(el("li", {}, named(`still watched: ${w.domain || "host"}: ${w.because}`)));
  }
  if (report.unjudged_lines) unjudged.push(el("li", {}, named(`${report.unjudged_lines.count} lines about KVM that no rule judges; the first: ${report.unjudged_lines.first}`)));
  if (unjudged.length) list.push(el("details", { class: "unjudged" }, el("summary", {}, `Not judged (${unjudged.length})`), el("ul", {}, unjudged)));
  byId("findings").replaceChildren(...list);
}

// --- Over time ---

const SPECS = [
  ["cpu", { title: "CPU time", unit: "% of one host CPU", format: percent, stacked: true, fixed: true }],
  ["exits", { title: "Exits by reason", unit: "per second", format: rate, stacked: true }],
  ["devices", { title: "Accesses by device", unit: "per second", format: rate, stacked: true }],
  ["vmm", { title: "Exits to the VMM", unit: "per second", format: rate, stacked: true }],
  ["wait", { title: "Wait", unit: "% of the time, of the vCPU that waits longest", format: percent }],
  ["wakeup", { title: "Wake-up latency", unit: "99th percentile of the slowest vCPU", format: duration, peaks: true }],
  ["moves", { title: "Moves between host CPUs", unit: "per second", format: rate, stacked: true }],
  ["disk_requests", { title: "Disk requests", unit: "per second", format: rate }],
  ["disk_time", { title: "Disk latency", unit: "mean of a request", format: duration, peaks: true }],
  ["network", { title: "Network", unit: "bytes per second", format: bytesPerSecond }],
];

// One line for all series of a chart.
function sumOf(chart) {
  if (chart.total) return chart.total;
  const mean = chart.lines[0].mean.map((_, i) =>
    chart.lines.reduce((sum, l) => (l.mean[i] === null ? sum : (sum || 0) + l.mean[i]), null));
  return { mean, max: chart.lines.length === 1 ? chart.lines[0].max : undefined };
}

function addUp(lines) {
  return lines[0].mean.map((_, i) => lines.reduce((sum, l) => (l.mean[i] === null ? sum : (sum || 0) + l.mean[i]), null));
}

function specsOf(owner) {
  return SPECS.flatMap(([id, spec]) => {
    const chart = owner.find((c) => c.id === id);
    if (!chart) return [];
    if (chart.lines.length === 0) return [{ ...spec, title: "Exits", id, stacked: false, lines: [{ ...chart.total, name: "all" }] }];
    return [{ ...spec, id, lines: chart.lines, peak: chart.total && chart.total.max }];
  });
}

function specsOfAll() {
  const host = data.host.find((c) => c.id === "cpu");
  const all = host ? [{ ...SPECS[0][1], id: "host", title: "Host CPUs", unit: "% of all CPUs", lines: host.lines }] : [];
  for (const [id, spec] of SPECS) {
    const of = data.guests.flatMap((g) => {
      const chart = g.charts.find((c) => c.id === id);
      return chart && !id.startsWith("disk") && id !== "network" ? [{ ...sumOf(chart), name: g.name, place: guestOrder.findIndex(({ i }) => i === g.domain) }] : [];
    });
    if (of.length === 0) continue;
    const weight = (l) => (spec.peaks ? Math.max(...l.mean.map((v) => v || 0)) : l.mean.reduce((sum, v) => sum + (v || 0), 0));
    const sized = of.map((line) => [weight(line), line]).sort((a, b) => b[0] - a[0]).map(([, line]) => line);
    const lines = sized.slice(0, 6), rest = sized.slice(6);
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

function selected() {
  if (state.guest === null) return { specs: specsOfAll(), axis: times.guests };
  const guest = data.guests.find((g) => g.domain === state.guest);
  if (!guest) return { specs: [], axis: times.guests };
  if (state.vcpu === null) return { specs: specsOf(guest.charts), axis: times.guests };
  const vcpu = guest.vcpus.find(([v]) => v === state.vcpu);
  return { specs: vcpu ? specsOf(vcpu[1]) : [], axis: times.vcpus };
}

function spansShown() {
  const name = state.guest === null ? null : report.domains[state.guest].name;
  return data.spans
    .filter((s) => name === null || s.domain === name || (s.finding !== null && (report.findings[s.finding].also || []).includes(name)))
    .sort((a, b) => RANK[b.severity] - RANK[a.severity] || a.begin_ms - b.begin_ms);
}

function drawCharts() {
  charts.forEach((c) => c.end());
  const { specs, axis } = selected();
  const spans = spansShown();
  view.marks = spans.slice(0, MARKS_SHOWN);
  view.days = whole[1] - whole[0] > 86400 || day(whole[0], view.offset) !== day(whole[1], view.offset);
  view.height = innerWidth < 600 ? 130 : 150;
  charts = specs.filter((s) => !isFlat(s)).map((spec) => makeChart(spec, axis, view, PALETTES[palette]));
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
    const track = el("div", { class: "track" }, list.map((s) => {
      const bar = el("i", { class: `span ${s.severity}`, title: `${stretchText(s.begin_ms, s.end_ms)}: ${s.title}` });
      bar.span = s;
      return bar;
    }));
    const who = state.guest === null ? [el("strong", {}, named(first.domain || "host")), " "] : [];
    const open = () => showFinding(first.finding);
    return el("div", { class: "lane" }, el("button", { type: "button", class: first.severity, disabled: first.finding === null, on: { click: open } },
      el("i", { "aria-hidden": "true" }, GLYPHS[first.severity]), " ", who, named(first.title)), track);
  });
  if (all.length > shown.length) {
    rows.push(el("button", { type: "button", on: { click: () => { state.allLanes = true; drawLanes(spans); } } }, `Show all ${all.length} findings over time`));
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
  const guest = el("select", { id: "guest", on: { change: () => select(guest.value === "" ? null : Number(guest.value), null) } },
    el("option", { value: "" }, "All guests"), guestOrder.map(({ d, i }) => el("option", { value: String(i) }, d.name)));
  const vcpu = el("select", { id: "vcpu", on: { change: () => select(state.guest, vcpu.value === "" ? null : Number(vcpu.value)) } });
  const button = (text, label, run) => el("button", { type: "button", "aria-label": label, title: label, on: { click: run } }, text);
  byId("tools").append(
    el("label", {}, "Guest ", guest), el("label", { id: "vcpu-label" }, "vCPU ", vcpu),
    el("span", { class: "zoom" },
      button("−", "Zoom out (-)", () => view.change(0, 2)), button("+", "Zoom in (+)", () => view.change(0, 0.5)),
      button("◀", "Earlier (left)", () => view.change(-0.25, 1)), button("▶", "Later (right)", () => view.change(0.25, 1)),
      button("All", "All of the time (0, double click)", () => view.reset())),
    el("span", { id: "stretch", role: "status" }));
}

function sayStretch() {
  const [from, to] = view.stretch;
  byId("stretch").textContent = `${stretchText(from * 1e3, to * 1e3)} (${seconds(to - from)})`;
}

function select(guest, vcpu) {
  Object.assign(state, { guest, vcpu, allLanes: false });
  for (const b of document.querySelectorAll("[data-guest]")) b.setAttribute("aria-pressed", String(b.dataset.guest === String(guest)));
  findingsList();
  const tables = guest === null ? hostTables(report) : guestTables(report.domains[guest], vcpu);
  const shown = tables.filter(Boolean);
  if (guest === null && report.domains.length) shown.push(el("p", { class: "quiet" }, "Choose a guest for its threads, exits and accesses."));
  byId("tables").replaceChildren(...shown);
  byId("tables-title").textContent = guest === null ? "Host" : `Tables of ${report.domains[guest].name}`;
  if (!whole) return;
  byId("guest").value = guest === null ? "" : String(guest);
  const series = guest === null ? null : data.guests.find((g) => g.domain === guest);
  const vcpus = series ? series.vcpus.map(([v]) => v) : [];
  byId("vcpu").replaceChildren(el("option", { value: "" }, "all"), ...vcpus.map((v) => el("option", { value: String(v) }, String(v))));
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
  byId("foot").append(`Made by ${report.tool} from `, named(data.input),
    ". Percentages of CPU time are of one host CPU; wait is runnable but not running. A value that was not measured is “-”.");
  if (!whole) return;
  const repaint = (name) => { palette = name; drawCharts(); };
  dark.addEventListener("change", () => repaint(dark.matches ? "dark" : "light"));
  addEventListener("resize", () => charts.forEach((c) => c.resize(byId("charts").clientWidth)));
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((d) => { d.open = true; });
    repaint("light");
  });
  addEventListener("afterprint", () => repaint(dark.matches ? "dark" : "light"));
}

begin();
