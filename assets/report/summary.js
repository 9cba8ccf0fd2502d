// The page: what is shown for all guests, one guest or one vCPU.

const report = JSON.parse(document.getElementById("report").textContent);
const data = JSON.parse(document.getElementById("data").textContent);
const RANK = { critical: 3, warning: 2, info: 1 };
const LANES_SHOWN = 8;
const MARKS_SHOWN = 60;
// Guests or vCPUs that a chart compares.
const LINES = 6;
const byId = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");

const times = { guests: timesOf(data.axes.guests), vcpus: timesOf(data.axes.vcpus) };
const whole = data.begin_ms === null ? null : [data.begin_ms / 1e3, data.end_ms / 1e3];
// The guest (its place in the report) and vCPU that are shown; null is all.
const state = { guest: report.domains.length === 1 ? 0 : null, vcpu: null, allLanes: false };
let charts = [];

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
    sayStretch();
    placeLanes();
  },
  reset: () => view.zoom(...whole),
  // by: the part of the stretch to move, and what to multiply its length with.
  change(move, scale) {
    const [from, to] = view.stretch,
      length = to - from,
      middle = (from + to) / 2 + move * length;
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
  return el(
    "span",
    { class: `badge ${severity}` },
    el("i", { "aria-hidden": "true" }, GLYPHS[severity]),
    " ",
    words || severity,
  );
}

function dateTime(ms) {
  if (!isWall(ms / 1e3)) return ["", new Date(ms).toISOString().slice(11, 23)];
  const t = new Date(ms + data.utc_offset_s * 1e3);
  const date = t.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
  return [date, t.toISOString().slice(11, 19)];
}

function stretchText(from, to) {
  const [[day, begin], [lastDay, end]] = [dateTime(from), dateTime(to)];
  if (!day) return `${begin} – ${end}`;
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
  byId("head").append(
    el("h1", {}, named(name)),
    el(
      "p",
      { class: "facts" },
      facts.flatMap((f, i) => (i ? [el("i", { "aria-hidden": "true" }, " · "), named(f)] : [named(f)])),
    ),
  );
  const complaints = report.sources
    .filter((s) => s.state !== "ok")
    .map((s) => `${s.name} ${s.state}: ${[s.cause, s.fix].filter(Boolean).join("; ")}`);
  const notes = complaints.concat(data.notes);
  if (notes.length)
    byId("head").append(
      el(
        "ul",
        { class: "notes" },
        notes.map((n) => el("li", {}, named(n))),
      ),
    );
}

function verdict() {
  const first = report.findings[0];
  const young = (report.watching || []).length > 0;
  if (!first) {
    byId("verdict").append(
      el("p", { class: "calm" }, young ? "No findings yet: not enough has been seen." : "No findings."),
    );
    return;
  }
  const counts = ["critical", "warning", "info"].map((s) => [
    s,
    report.findings.filter((f) => f.severity === s).length,
  ]);
  byId("verdict").append(
    el(
      "p",
      { class: `first ${first.severity}` },
      badge(first.severity),
      " ",
      el("strong", {}, named(first.domain || "host")),
      " ",
      named(first.title),
    ),
    el("p", { class: "figure-line" }, named(first.evidence[0] || "")),
    el(
      "p",
      { class: "counts" },
      counts.filter(([, n]) => n).map(([s, n]) => badge(s, `${n} ${s}`)),
      el("button", { type: "button", on: { click: () => showFinding(0) } }, "Show the fix"),
    ),
  );
}

function longestWait(d) {
  const waits = d.threads.filter((t) => t.role === "vcpu" && t.wait !== null).map((t) => t.wait);
  return waits.length ? Math.max(...waits) : null;
}

function cpuBar(d) {
  const all = 100 * Math.max(d.vcpus || 1, 1);
  const bar = el("span", {
    class: "bar",
    role: "img",
    "aria-label":
      `guest ${known(d.cpu.guest, percent)}, usr ${known(d.cpu.usr, percent)}, ` +
      `sys ${known(d.cpu.sys, percent)}, wait ${known(d.cpu.wait, percent)} percent`,
  });
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
    const rateOfExits = exits.length
      ? rate(exits.reduce((sum, e) => sum + e.rate, 0))
      : known(d.counters.exits, rate);
    const hot = d.accesses.filter((a) => a.vcpu === null)[0];
    const name = el(
      "button",
      { type: "button", class: "name", "data-guest": String(i), on: { click: () => select(i, null) } },
      named(d.name),
    );
    if (d.state !== "running") name.append(` (${d.state})`);
    return el(
      "tr",
      { class: severity || "" },
      el("td", { class: "text" }, name),
      el(
        "td",
        { class: "text" },
        severity ? badge(severity, String(findings.length)) : el("span", { class: "quiet" }, "none"),
      ),
      el("td", { class: "figure" }, known(busy(d), percent)),
      el("td", { class: "text" }, d.cpu.guest === null ? UNKNOWN : cpuBar(d)),
      el("td", { class: "figure", title: "of the vCPU that waits longest" }, known(longestWait(d), percent)),
      el("td", { class: "figure" }, rateOfExits),
      el("td", { class: "text" }, top ? named(top.reason) : UNKNOWN),
      el("td", { class: "text" }, hot ? named(hot.device || `${hot.space} ${hot.address}`) : UNKNOWN),
      el("td", { class: "figure" }, hot ? known(hot.rate, rate) : UNKNOWN),
    );
  };
  if (report.domains.length === 0) {
    byId("guests").append(el("p", { class: "quiet" }, "No guest is in it."));
    return;
  }
  const text = new Set([0, 1, 3, 6, 7]);
  byId("guests").append(
    el(
      "table",
      { class: "guests" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((h, i) => el("th", { scope: "col", class: text.has(i) ? "text" : "figure" }, h)),
        ),
      ),
      el("tbody", {}, guestOrder.map(row)),
    ),
  );
}

function copyButton(text, source) {
  const button = el(
    "button",
    {
      type: "button",
      class: "copy",
      on: {
        click: () => {
          const done = () => {
            button.textContent = "Copied";
          };
          const byHand = () => {
            const range = document.createRange();
            range.selectNodeContents(source);
            getSelection().removeAllRanges();
            getSelection().addRange(range);
            if (document.execCommand("copy")) done();
          };
          if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
          else byHand();
        },
      },
    },
    "Copy",
  );
  return button;
}

const FIX = {
  "libvirt-xml": "virsh edit, then",
  command: "run",
  "kernel-option": "kernel command line",
  "qemu-option": "QEMU option",
  advice: "",
};

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
  const links = (f.see || []).map((s) =>
    el("li", {}, /^https:\/\//.test(s) ? el("a", { href: s, rel: "noreferrer noopener" }, s) : named(s)),
  );
  return el(
    "details",
    { id: `finding-${i}`, class: `finding ${f.severity}`, open },
    el(
      "summary",
      {},
      badge(f.severity),
      " ",
      el("strong", {}, named(who)),
      target,
      " ",
      el("span", { class: "title" }, named(f.title)),
      el("span", { class: "figure-line" }, named(f.evidence[0] || "")),
    ),
    el(
      "dl",
      {},
      part("Seen", [
        el("ul", {}, f.evidence.map(evidenceOf), lasting.length ? el("li", {}, named(lasting.join(", "))) : null),
      ]),
      part("Why", f.why ? [named(f.why)] : []),
      part("Fix", f.fix.length ? [el("ul", {}, f.fix.map(fixOf))] : []),
      part("See", links.length ? [el("ul", {}, links)] : []),
      part("Rule", [[f.rule, ...(f.folded || [])].join(" + ") + `, ${f.confidence} confidence`]),
    ),
  );
}

function findingsList() {
  const name = state.guest === null ? null : report.domains[state.guest].name;
  const concerns = (of) => name === null || of === null || of === undefined || of === name;
  const shown = report.findings
    .map((f, i) => [f, i])
    .filter(([f]) => name === null || f.domain === name || (f.also || []).includes(name));
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
  if (report.unjudged_lines) {
    const { count, first } = report.unjudged_lines;
    unjudged.push(el("li", {}, named(`${count} lines about KVM that no rule judges; the first: ${first}`)));
  }
  if (unjudged.length)
    list.push(
      el(
        "details",
        { class: "unjudged" },
        el("summary", {}, `Not judged (${unjudged.length})`),
        el("ul", {}, unjudged),
      ),
    );
  byId("findings").replaceChildren(...list);
}
