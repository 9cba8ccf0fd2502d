// The report's head, its worst finding, its guests and its findings; and what the reader chose.

const report = JSON.parse(document.getElementById("report").textContent);
const data = JSON.parse(document.getElementById("data").textContent);
const RANK = { critical: 3, warning: 2, info: 1 };
const byId = (id) => document.getElementById(id);

const times = { guests: timesOf(data.axis) };
const whole = data.begin_ms === null ? null : [data.begin_ms / 1e3, data.end_ms / 1e3];
// The guest (its place in the report) and vCPU that are shown; null is all.
const state = { guest: report.domains.length === 1 ? 0 : null, vcpu: null };
let charts = [];

const KEYS = { "+": [0, 0.5], "=": [0, 0.5], "-": [0, 2], ArrowLeft: [-0.25, 1], ArrowRight: [0.25, 1] };
const view = {
  stretch: whole || [0, 1],
  offset: data.utc_offset_s,
  days: false,
  marks: [],
  height: 150,
  zoom(from, to) {
    const [begin, end] = whole;
    const least = Math.min(end - begin, Math.max(1, (2 * (end - begin)) / Math.max(2, times.guests.x.length)));
    const length = Math.min(end - begin, Math.max(least, to - from));
    const start = Math.min(Math.max(begin, (from + to - length) / 2), end - length);
    view.stretch = [start, start + length];
    charts.forEach((c) => c.zoomed());
    showStretch();
    placeLanes();
  },
  reset: () => view.zoom(...whole),
  // Moves the stretch by a part of its length, and multiplies its length.
  change(move, scale) {
    const [from, to] = view.stretch;
    const length = to - from;
    const middle = (from + to) / 2 + move * length;
    view.zoom(middle - (length * scale) / 2, middle + (length * scale) / 2);
  },
  onKey(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (KEYS[e.key]) view.change(...KEYS[e.key]);
    else if (e.key === "0" || e.key === "Home" || e.key === "Escape") view.reset();
    else return;
    e.preventDefault();
  },
};

// Whether a finding is about a guest: its own, or one that names it as well. Null is all guests.
const isAbout = (f, name) => name === null || f.domain === name || (f.also || []).includes(name);
const ofGuest = (name) => report.findings.filter((f) => isAbout(f, name));
const shownName = () => (state.guest === null ? null : report.domains[state.guest].name);
const busy = (d) => (d.cpu.guest === null ? null : d.cpu.guest + d.cpu.usr + d.cpu.sys);
// Findings are sorted by severity, so the first is the worst.
const guestOrder = report.domains
  .map((d, i) => ({ d, i, findings: ofGuest(d.name) }))
  .map((g) => ({ ...g, worst: g.findings.length ? g.findings[0].severity : null }))
  .sort((a, b) => (RANK[b.worst] || 0) - (RANK[a.worst] || 0) || (busy(b.d) || 0) - (busy(a.d) || 0) || a.i - b.i);

const quiet = (text) => el("p.quiet", text);
const glyph = (severity) => el("span.glyph", { "aria-hidden": "true" }, GLYPHS[severity]);
const badge = (severity, words) => el(`span.badge.${severity}`, glyph(severity), " ", words || severity);

function dateTime(ms) {
  const time = ms / 1e3;
  if (!isWall(time)) return ["", new Date(ms).toISOString().slice(11, 23)];
  const date = day(time, view.offset, { day: "numeric", month: "long", year: "numeric" });
  return [date, clock(time, view.offset, true)];
}

function stretchText(from, to) {
  const [[date, begin], [lastDate, end]] = [dateTime(from), dateTime(to)];
  if (!date) return `${begin} – ${end}`;
  return `${date}, ${begin} – ${date === lastDate ? "" : lastDate + ", "}${end}`;
}

function header() {
  const count = report.domains.length;
  const time = report.time ? `${dateTime(Date.parse(report.time)).join(", ")} ${data.zone}` : null;
  const facts = [
    whole ? `${stretchText(data.begin_ms, data.end_ms)} ${data.zone}` : time,
    report.interval_s !== null && `over ${seconds(report.interval_s)}`,
    `${count} guest${count === 1 ? "" : "s"}`,
    report.host.cpus.length && `${report.host.cpus.length} CPUs`,
    data.kernel && `Linux ${data.kernel}`,
    report.lost_events && `${report.lost_events} events lost`,
  ].filter(Boolean);
  const name = data.hostname || data.input;
  document.title = `${name} – kvmtop report`;
  const complaints = report.sources
    .filter((s) => s.state !== "ok")
    .map((s) => `${s.name} ${s.state}: ${[s.cause, s.fix].filter(Boolean).join("; ")}`);
  const notes = [...complaints, ...(report.notes ?? []), ...data.notes].map((note) => el("li", named(note)));
  byId("head").append(
    el("h1", named(name)),
    el("p.quiet", facts.flatMap((fact, i) => [i ? " · " : null, named(fact)])),
  );
  if (notes.length) byId("notes").append(el("ul.quiet", notes));
}

function verdict() {
  const first = report.findings[0];
  if (!first) {
    const words = report.watching ? "No findings yet: not enough has been seen." : "No findings.";
    byId("verdict").append(el("p.calm", words));
    return;
  }
  const counts = Object.keys(RANK)
    .map((severity) => [severity, report.findings.filter((f) => f.severity === severity).length])
    .filter(([, n]) => n)
    .map(([severity, n]) => badge(severity, `${n} ${severity}`));
  const who = el("strong", named(first.domain || "host"));
  byId("verdict").classList.add(first.severity);
  byId("verdict").append(
    el("p.first", badge(first.severity), " ", who, " ", named(first.title)),
    el("p.figure-line", named(first.evidence[0] || "")),
    el("p.counts", counts, button("Show the fix", () => showFinding(0))),
  );
}

const CPU_PARTS = { guest: "the guest's code", usr: "the VMM", sys: "the host's kernel", wait: "ready, without a CPU" };

function cpuBar({ cpu, vcpus }) {
  const parts = Object.keys(CPU_PARTS);
  const label = parts.map((part) => `${part} ${percent(cpu[part])}`).join(", ") + " percent";
  const bar = el("span.bar", { role: "img", "aria-label": label });
  for (const part of parts) {
    const piece = swatch(part);
    piece.style.width = `${Math.min(100, (cpu[part] || 0) / Math.max(vcpus || 1, 1))}%`;
    bar.append(piece);
  }
  return Object.assign(bar, { key: parts.reduce((sum, part) => sum + (cpu[part] || 0), 0) / Math.max(vcpus || 1, 1) });
}

function barLegend() {
  const key = Object.entries(CPU_PARTS).map(([part, text]) => el("span", swatch(part), el("strong", part), " ", text));
  return el("p.legend", key, el("span", el("strong", "wait %"), " of the vCPU that waits longest"));
}

const linkOf = (d) => `#guest-${encodeURIComponent(d.name)}`;

function guestName({ d, i }) {
  const words = [named(d.name), d.state === "running" ? null : ` (${d.state})`];
  const attributes = { id: `guest-${d.name}`, href: linkOf(d), "data-guest": String(i), click: () => select(i, null) };
  return el("a.name", attributes, words);
}

// Shows the guest that the address of the page names.
function followLink() {
  const linked = guestOrder.find(({ d }) => linkOf(d) === location.hash);
  if (linked && linked.d.name !== shownName()) select(linked.i, null);
}

function longestWait({ d }) {
  const waits = d.threads.filter((t) => t.role === "vcpu" && t.wait !== null).map((t) => t.wait);
  return waits.length ? Math.max(...waits) : null;
}

function exitRate({ d }) {
  const exits = d.exits.filter((e) => e.vcpu === null && e.rate !== null);
  return exits.length ? exits.reduce((sum, e) => sum + e.rate, 0) : d.counters.exits;
}

const topExit = ({ d }) => d.exits.find((e) => e.vcpu === null && !e.idle);
const hotAccess = ({ d }) => d.accesses.find((a) => a.vcpu === null);
const accessName = (a) => a.device || `${a.space} ${a.address}`;
const findingCount = ({ worst, findings: { length } }) =>
  Object.assign(worst ? badge(worst, length) : el("span.quiet", "none"), { key: (RANK[worst] || 0) * 1e6 + length });
const GUEST_COLUMNS = [
  ["<Guest", guestName],
  ["<Findings", findingCount],
  ["CPU %", (g) => busy(g.d), percent],
  ["<of its vCPUs", (g) => (g.d.cpu.guest === null ? null : cpuBar(g.d))],
  ["wait %", longestWait, percent],
  ["Exits/s", exitRate, rate],
  ["<Top exit", (g) => topExit(g)?.reason],
  ["<Hot device", (g) => (hotAccess(g) ? accessName(hotAccess(g)) : null)],
  ["/s", (g) => hotAccess(g)?.rate, rate],
];

function guestTable() {
  const guests = grid(layOut(GUEST_COLUMNS, guestOrder), guestOrder.length).element;
  if (report.interval_s !== null) byId("guests-title").append(`, means over ${seconds(report.interval_s)}`);
  byId("guests").append(...(guestOrder.length ? [guests, barLegend()] : [quiet("No guest is in it.")]));
}

// Copies by selecting, which a page that was opened as a file may do as well.
function copyButton(source) {
  const click = ({ target }) => {
    getSelection().selectAllChildren(source);
    if (document.execCommand("copy")) target.textContent = "Copied";
  };
  return button("Copy", click, { class: "copy" });
}

const FIX_PLACES = {
  "libvirt-xml": (guest) => `XML of ${guest}`,
  command: () => "run",
  "kernel-option": () => "kernel command line",
  "qemu-option": (guest) => `QEMU option of ${guest}`,
};

function fixItem(fix) {
  const needs = fix.needs ? ` (${fix.needs})` : "";
  if (fix.kind === "advice") return el("li", named(fix.text + needs));
  const text = el("pre", fix.text);
  const place = FIX_PLACES[fix.kind](fix.domain ?? "the guest");
  const undo = fix.undo ? [el("p", "to go back:"), el("pre", fix.undo)] : [];
  return el("li", named(place + needs), el("div.paste", text, copyButton(text)), ...undo);
}

function evidenceItem(line) {
  const command = /^(check|look at): /.exec(line);
  if (!command) return el("li", named(line));
  const text = el("code", line.slice(command[0].length));
  return el("li", command[0], text, " ", copyButton(text));
}

function linkItem(link) {
  const isWeb = link.startsWith("https://");
  return el("li", isWeb ? el("a", { href: link, rel: "noreferrer noopener" }, link) : named(link));
}

// A row of a finding's details, none without content.
const detail = (name, content) => (content.length ? [el("dt", name), el("dd", content)] : []);
const list = (items) => (items.length ? [el("ul", items)] : []);

function finding(f, i, open) {
  const { lasting } = f;
  const times = [
    f.since && `seen since ${dateTime(Date.parse(f.since)).join(", ")}`,
    lasting && `shown in ${seconds(lasting.shown_s)} of ${seconds(lasting.of_s)}`,
    lasting && lasting.worst && `at worst: ${lasting.worst}`,
  ].filter(Boolean);
  const seen = [...f.evidence.map(evidenceItem), ...(times.length ? [el("li", named(times.join(", ")))] : [])];
  const summary = [
    badge(f.severity),
    " ",
    el("strong", named(f.domain || "host")),
    ["domain", "host"].includes(f.target) ? "" : `, ${f.target}`,
    " ",
    el("span.title", named(f.title)),
    el("span.figure-line", named(f.evidence[0] || "")),
  ];
  const details = [
    detail("Seen", list(seen)),
    detail("Why", f.why ? [named(f.why)] : []),
    detail("Fix", list(f.fix.map(fixItem))),
    detail("See", list(f.see.map(linkItem))),
    detail("Rule", `${[f.rule, ...(f.folded || [])].join(" + ")}, ${f.confidence} confidence`),
  ];
  const attributes = { id: `finding-${i}`, open };
  return el(`details.finding.${f.severity}`, attributes, el("summary", summary), el("dl", details.flat()));
}

// What could not be judged about a guest (null: about anything), and why.
function unjudged(name) {
  const concerned = (all) => (all || []).filter((c) => name === null || !c.domain || c.domain === name);
  const rules = new Map();
  const young = new Set((report.watching || []).map((w) => w.because));
  for (const { rule, because } of concerned(report.cannot_tell).filter((c) => !young.has(c.because))) {
    rules.set(because, (rules.get(because) || new Set()).add(rule));
  }
  const reasons = [...rules].map(([because, names]) => `${[...names].join(", ")}: ${because}`);
  const watched = concerned(report.watching).map((w) => `still watched: ${w.domain || "host"}: ${w.because}`);
  return [...reasons, ...new Set(watched)];
}

function findingsList() {
  const name = shownName();
  const shown = report.findings.map((f, i) => [f, i]).filter(([f]) => isAbout(f, name));
  const all = shown.map(([f, i], place) => finding(f, i, name !== null && place === 0));
  if (all.length === 0) all.push(quiet(name === null ? "None." : "None about this guest."));
  const reasons = unjudged(name).map((text) => el("li", named(text)));
  const summary = el("summary", `Not judged (${reasons.length})`);
  if (reasons.length) all.push(el("details.quiet", summary, el("ul", reasons)));
  byId("findings").replaceChildren(...all);
}
