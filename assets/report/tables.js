// Elements and tables. All text goes through textContent: names are hostile.

const ROWS_SHOWN = 12;
// Calls below this percentage of the samples are left out, as in the text report.
const SMALLEST_CALL = 1;
const CALL_LINES = 120;

function el(tag, properties, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "class") e.className = value;
    else if (key === "on") Object.entries(value).forEach(([event, run]) => e.addEventListener(event, run));
    else if (value !== null && value !== undefined && value !== false)
      e.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) e.append(child);
  }
  return e;
}

// A name from outside, apart from the direction of the text around it.
function named(text) {
  const e = el("bdi", { title: text.length > 40 ? text : null });
  e.textContent = text;
  return e;
}

// A table. Heads that begin with "<" are of text. Columns without any value are left out, as in the text report.
function table(caption, heads, rows) {
  if (rows.length === 0) return null;
  const shown = heads.map((_, i) => i === 0 || rows.some((r) => r[i] !== UNKNOWN && r[i] !== ""));
  const cells = (row, tag) =>
    row.flatMap((cell, i) => {
      if (!shown[i]) return [];
      const attributes = { class: heads[i].startsWith("<") ? "text" : "figure" };
      if (tag === "th") attributes.scope = "col";
      return [el(tag, attributes, heads[i].startsWith("<") && tag === "td" ? named(String(cell)) : String(cell))];
    });
  const body = el(
    "tbody",
    {},
    rows.slice(0, ROWS_SHOWN).map((r) => el("tr", {}, cells(r, "td"))),
  );
  const head = el(
    "thead",
    {},
    el(
      "tr",
      {},
      cells(
        heads.map((h) => h.replace(/^</, "")),
        "th",
      ),
    ),
  );
  const whole = el(
    "div",
    { class: "table" },
    el("h3", {}, caption),
    el("div", { class: "wide" }, el("table", {}, head, body)),
  );
  if (rows.length > ROWS_SHOWN) {
    const all = () => {
      body.append(...rows.slice(ROWS_SHOWN).map((r) => el("tr", {}, cells(r, "td"))));
      more.remove();
    };
    const more = el("button", { type: "button", on: { click: all } }, `Show all ${rows.length} rows`);
    whole.append(more);
  }
  return whole;
}

const NOT_ZERO = (n) => (n ? String(n) : UNKNOWN);

function threadTable(threads) {
  const rows = threads.map((t) => [
    t.role === "vcpu" && t.vcpu !== null ? `vcpu ${t.vcpu}` : t.role === "other" ? t.comm : t.role,
    t.comm,
    String(t.tid),
    known(t.usr, percent),
    known(t.sys, percent),
    known(t.guest, percent),
    known(t.wait, percent),
    known(t.cpu, String),
    known(t.affinity, String),
    known(t.migrations, String),
    known(t.migrations_cross_node, NOT_ZERO),
    known(t.wakeup_p50_us, micros),
    known(t.wakeup_p99_us, micros),
  ]);
  return table(
    "Threads",
    [
      "<Thread",
      "<Name",
      "TID",
      "usr %",
      "sys %",
      "guest %",
      "wait %",
      "CPU",
      "<May run on",
      "Moves",
      "to another node",
      "wake-up p50 us",
      "p99 us",
    ],
    rows,
  );
}

function exitTable(exits, caption) {
  const rows = exits.map((r) => [
    r.idle ? `${r.reason} (sleep)` : r.reason,
    String(r.count),
    known(r.rate, rate),
    known(r.count_percent, percent),
    known(r.time_percent, percent),
    known(r.work_percent, percent),
    known(r.mean_us, micros),
    known(r.stderr_percent, percent),
    known(r.p99_us, micros),
    known(r.max_us, micros),
  ]);
  return table(
    caption,
    ["<Reason", "Count", "/s", "count %", "time %", "work %", "mean us", "+- %", "p99 us", "max us"],
    rows,
  );
}

function accessTable(accesses, space, caption) {
  const rows = accesses
    .filter((a) => a.space === space)
    .map((a) => [
      a.address,
      a.access,
      known(a.device, String),
      known(a.device_source, String),
      String(a.count),
      known(a.rate, rate),
      known(a.time_percent, percent),
      known(a.mean_us, micros),
    ]);
  return table(caption, ["<Address", "<", "<Device", "<Named by", "Count", "/s", "time %", "mean us"], rows);
}

// Who called whom, as lines: a call is indented only where several follow one another's caller.
function callLines(profile) {
  const root = { total: 0, calls: new Map() };
  for (const stack of profile.stacks) {
    let node = root;
    node.total += stack.samples;
    for (const place of stack.functions) {
      if (!node.calls.has(place)) node.calls.set(place, { total: 0, calls: new Map() });
      node = node.calls.get(place);
      node.total += stack.samples;
    }
  }
  const lines = [];
  const share = (node) => (node.total / root.total) * 100;
  const walk = (place, node, depth, first) => {
    if (share(node) < SMALLEST_CALL || lines.length >= CALL_LINES) return;
    const f = profile.functions[place];
    const name = f.name.startsWith("+") ? f.module + f.name : f.name;
    const figure = first ? percent(share(node)).padStart(7) : " ".repeat(7);
    lines.push(figure + "  " + "  ".repeat(Math.min(depth, 24)) + name + (f.space === "kernel" ? "  [kernel]" : ""));
    const calls = [...node.calls].sort((a, b) => b[1].total - a[1].total || a[0] - b[0]);
    const goesOn = calls.length === 1 && calls[0][1].total === node.total;
    calls.forEach(([next, call]) => walk(next, call, goesOn ? depth : depth + 1, !goesOn));
  };
  [...root.calls].sort((a, b) => b[1].total - a[1].total).forEach(([place, node]) => walk(place, node, 0, true));
  return lines;
}

// What a guest's threads did, from samples of their stacks.
function profileTables(profile) {
  const of = (samples) => percent((samples / profile.samples) * 100);
  const when = profile.time === null ? "" : ` at ${profile.time}`;
  const about = `${profile.samples} samples in ${seconds(profile.duration_s)}${when}`;
  const said = [about, ...profile.gaps].map((text) => el("p", {}, text));
  if (profile.samples === 0) return [el("div", { class: "table" }, el("h3", {}, "Stacks"), said)];
  const rows = profile.functions
    .filter((f) => f.own_samples > 0)
    .map((f) => [f.name, f.module, of(f.own_samples), of(f.total_samples)]);
  const calls = el("pre", { class: "calls" });
  calls.textContent = callLines(profile).join("\n");
  return [
    table("Functions, % of samples", ["<Function", "<In", "self %", "total %"], rows),
    el("div", { class: "table" }, el("h3", {}, "Calls, % of samples"), said, calls),
  ];
}

// The tables of a guest, or (a number) of one of its vCPUs.
function guestTables(d, vcpu) {
  const of = (rows) => rows.filter((r) => r.vcpu === vcpu);
  const whose = vcpu === null ? "" : ` of vCPU ${vcpu}`;
  const threads = vcpu === null ? d.threads : d.threads.filter((t) => t.role === "vcpu" && t.vcpu === vcpu);
  const all = [
    threadTable(threads.filter((t) => t.usr !== null || t.affinity !== null)),
    exitTable(of(d.exits), "Exits" + whose),
    accessTable(of(d.accesses), "pio", "I/O ports" + whose),
    accessTable(of(d.accesses), "mmio", "Device memory" + whose),
    accessTable(of(d.accesses), "msr", "MSRs" + whose),
    table(
      "Exits to the VMM" + whose,
      ["<Reason", "Count", "/s"],
      of(d.userspace_exits).map((r) => [r.reason, String(r.count), known(r.rate, rate)]),
    ),
  ];
  if (vcpu !== null) return all;
  return all.concat([
    table(
      "Disks",
      [
        "<Disk",
        "reads/s",
        "writes/s",
        "flushes/s",
        "read",
        "written",
        "mean read us",
        "mean write us",
        "mean flush us",
        "in flight",
        "errors/s",
      ],
      d.disks.map((k) => [
        k.name,
        rate(k.read_ops),
        rate(k.write_ops),
        known(k.flush_ops, rate),
        bytesPerSecond(k.read_bytes),
        bytesPerSecond(k.write_bytes),
        known(k.read_mean_us, micros),
        known(k.write_mean_us, micros),
        known(k.flush_mean_us, micros),
        known(k.queue_depth, rate),
        known(k.failed_ops, rate),
      ]),
    ),
    table(
      "Network interfaces",
      ["<Interface", "received", "sent", "packets in/s", "packets out/s", "drops/s"],
      d.nics.map((n) => [
        n.name,
        bytesPerSecond(n.rx_bytes),
        bytesPerSecond(n.tx_bytes),
        rate(n.rx_packets),
        rate(n.tx_packets),
        rate(n.drops),
      ]),
    ),
    table(
      "Tracepoints",
      ["<Event", "Count", "/s"],
      d.kvm_events.filter((k) => k.count > 0).map((k) => [k.event, String(k.count), known(k.rate, rate)]),
    ),
    table(
      "KVM's counters",
      ["<Counter", "/s"],
      Object.entries(d.counters)
        .filter(([, v]) => v !== 0)
        .map(([name, v]) => [name, rate(v)]),
    ),
    ...(d.profile ? profileTables(d.profile) : []),
  ]);
}

function hostTables(report) {
  const rows = report.host.cpus.map((c) => [
    String(c.cpu),
    known(c.guest, percent),
    known(c.usr, percent),
    known(c.sys, percent),
    known(c.irq, percent),
    known(c.softirq, percent),
    known(c.steal, percent),
    known(c.iowait, percent),
    known(c.idle, percent),
    known(c.node, String),
    known(c.core, String),
    known(c.isolated, (i) => (i ? "yes" : "")),
  ]);
  return [
    table(
      "Host CPUs",
      [
        "<CPU",
        "guest %",
        "usr %",
        "sys %",
        "irq %",
        "softirq %",
        "steal %",
        "iowait %",
        "idle %",
        "node",
        "core",
        "<isolated",
      ],
      rows,
    ),
  ];
}
