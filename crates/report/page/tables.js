// Elements and tables. Text becomes text nodes and never markup: names are hostile.

const ROWS_SHOWN = 12;

// An element. Its tag may name classes ("p.quiet"); an object of attributes and event handlers may follow.
function el(tag, ...content) {
  const [name, ...classes] = tag.split(".");
  const e = document.createElement(name);
  e.classList.add(...classes);
  const isPlain = content[0] && Object.getPrototypeOf(content[0]) === Object.prototype;
  for (const [key, value] of Object.entries(isPlain ? content.shift() : {})) {
    if (typeof value === "function") e.addEventListener(key, value);
    else if (value !== null && value !== false) e.setAttribute(key, value === true ? "" : value);
  }
  e.append(...content.flat().filter((child) => child !== null));
  return e;
}

const button = (words, click, attributes) => el("button", { type: "button", click, ...attributes }, words);

// A name from outside, apart from the direction of the text around it.
function named(text) {
  return el("bdi", { title: text.length > 40 ? text : null }, text);
}

const collator = new Intl.Collator("en", { numeric: true });

// The order of two values of a column; what is unknown comes last in both directions.
function compare(a, b, sign) {
  const [none, other] = [a, b].map((v) => v === null || v === undefined || v === "");
  if (none || other) return none - other;
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b));
}

// The cells of each column, and the values that sort it. A column is its head, the field or function that gives its
// value, and the format of a figure; a head that begins with "<" makes it a column of text.
function layOut(columns, rows) {
  return columns.map(([head, value, format = plain]) => {
    const values = rows.map((row) => (typeof value === "string" ? row[value] : value(row)));
    const cells = values.map((cell) => (cell instanceof Node ? cell : format(cell)));
    const keys = values.map((cell) => (cell instanceof Node ? (cell.key ?? cell.textContent) : cell));
    return { head: head.replace("<", ""), kind: head.startsWith("<") ? "text" : "figure", cells, keys };
  });
}

// The table element of the first `count` rows, and the function that shows all. A click on a head sorts by it: figures
// from the largest, text from A; the second click turns the order round.
function grid(columns, count) {
  const body = el("tbody");
  const order = columns[0].cells.map((_, row) => row);
  const cell = ({ kind, cells }, row) =>
    el(`td.${kind}`, kind === "text" && typeof cells[row] === "string" ? named(cells[row]) : cells[row]);
  const line = (row) => el("tr", columns.map((column) => cell(column, row)));
  const show = (rows) => {
    count = rows;
    body.replaceChildren(...order.slice(0, rows).map(line));
  };
  const heads = columns.map(({ head, kind, keys }) => {
    const sort = () => {
      const isUp = th.ariaSort ? th.ariaSort === "descending" : kind === "text" && typeof keys[0] !== "number";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      th.ariaSort = isUp ? "ascending" : "descending";
      order.sort((a, b) => compare(keys[a], keys[b], isUp ? 1 : -1));
      show(count);
    };
    const th = el(`th.${kind}`, { scope: "col" }, button(head, sort));
    return th;
  });
  show(count);
  return { element: el("table", el("thead", el("tr", heads)), body), showAll: () => show(order.length) };
}

// A table under a heading. Columns without any value are left out, as in the text report.
function table(caption, columns, rows) {
  if (rows.length === 0) return null;
  const isShown = ({ cells }, i) => i === 0 || cells.some((c) => c !== UNKNOWN && c !== "");
  const { element, showAll } = grid(layOut(columns, rows).filter(isShown), Math.min(rows.length, ROWS_SHOWN));
  const whole = el("div.table", el("h3", caption), el("div.wide", element));
  if (rows.length > ROWS_SHOWN) {
    const all = ({ target }) => {
      showAll();
      target.remove();
    };
    whole.append(button(`Show all ${rows.length} rows`, all));
  }
  return whole;
}

const threadName = (t) =>
  t.role === "vcpu" && t.vcpu !== null ? `vcpu ${t.vcpu}` : t.role === "other" ? t.comm : t.role;
const CPU_COLUMNS = ["usr", "sys", "guest", "wait"].map((kind) => [`${kind} %`, kind, percent]);
const THREAD_COLUMNS = [
  ["<Thread", threadName],
  ["<Name", "comm"],
  ["TID", "tid"],
  ...CPU_COLUMNS,
  ["CPU", "cpu"],
  ["<May run on", "affinity"],
  ["Moves", "migrations"],
  ["to another node", (t) => t.migrations_cross_node || null],
  ["wake-up p50 us", "wakeup_p50_us", micros],
  ["p99 us", "wakeup_p99_us", micros],
];
const EXIT_COLUMNS = [
  ["<Reason", (r) => (r.idle ? `${r.reason} (sleep)` : r.reason)],
  ["Count", "count"],
  ["/s", "rate", rate],
  ["count %", "count_percent", percent],
  ["time %", "time_percent", percent],
  ["work %", "work_percent", percent],
  ["mean us", "mean_us", micros],
  ["+- %", "stderr_percent", percent],
  ["p99 us", "p99_us", micros],
  ["max us", "max_us", micros],
];
const ACCESS_COLUMNS = [
  ["<Address", "address"],
  ["<Access", "access"],
  ["<Device", "device"],
  ["<Named by", "device_source"],
  ["Count", "count"],
  ["/s", "rate", rate],
  ["time %", "time_percent", percent],
  ["mean us", "mean_us", micros],
];
const VMM_COLUMNS = [
  ["<Reason", "reason"],
  ["Count", "count"],
  ["/s", "rate", rate],
];
const EVENT_COLUMNS = [["<Event", "event"], ...VMM_COLUMNS.slice(1)];
const COUNTER_COLUMNS = [
  ["<Counter", ([name]) => name],
  ["/s", ([, value]) => value, rate],
];
const DISK_COLUMNS = [
  ["<Disk", "name"],
  ["reads/s", "read_ops", rate],
  ["writes/s", "write_ops", rate],
  ["flushes/s", "flush_ops", rate],
  ["read", "read_bytes", bytesPerSecond],
  ["written", "write_bytes", bytesPerSecond],
  ["mean read us", "read_mean_us", micros],
  ["mean write us", "write_mean_us", micros],
  ["mean flush us", "flush_mean_us", micros],
  ["in flight", "queue_depth", rate],
  ["errors/s", "failed_ops", rate],
];
const JOB_COLUMNS = [
  ["<Job", (j) => `${j.kind} ${j.name}`],
  ["<State", "status"],
  ["done %", "progress_percent", percent],
  ["moved", "bytes_rate", bytesPerSecond],
  ["dirtied", "dirtied_rate", bytesPerSecond],
  ["pass", "rounds"],
  ["<Ends", (j) => ({ true: "yes", false: "no" })[j.converges] ?? ""],
  ["<Error", "error"],
];
const NIC_COLUMNS = [
  ["<Interface", "name"],
  ["received", "rx_bytes", bytesPerSecond],
  ["sent", "tx_bytes", bytesPerSecond],
  ["packets in/s", "rx_packets", rate],
  ["packets out/s", "tx_packets", rate],
  ["drops/s", "drops", rate],
];
const HOST_CPU_COLUMNS = [
  ["<CPU", "cpu"],
  ...["guest", "usr", "sys", "irq", "softirq", "steal", "iowait", "idle"].map((k) => [`${k} %`, k, percent]),
  ["node", "node"],
  ["core", "core"],
  ["<isolated", (c) => (c.isolated === null ? null : c.isolated ? "yes" : "")],
];

const HOST_TASK_COLUMNS = [
  ["<Task outside guests", "comm"],
  ["CPU %", "cpu", percent],
  ["tasks", "count"],
];

// The tables of a guest, or (a number) of one of its vCPUs.
function guestTables(d, vcpu) {
  const rows = (all) => all.filter((r) => r.vcpu === vcpu);
  const whose = vcpu === null ? "" : ` of vCPU ${vcpu}`;
  const threads = vcpu === null ? d.threads : rows(d.threads).filter((t) => t.role === "vcpu");
  const accesses = (space) => rows(d.accesses).filter((a) => a.space === space);
  const all = [
    table("Threads", THREAD_COLUMNS, threads.filter((t) => t.usr !== null || t.affinity !== null)),
    table("Exits" + whose, EXIT_COLUMNS, rows(d.exits)),
    table("I/O ports" + whose, ACCESS_COLUMNS, accesses("pio")),
    table("Device memory" + whose, ACCESS_COLUMNS, accesses("mmio")),
    table("MSRs" + whose, ACCESS_COLUMNS, accesses("msr")),
    table("Exits to the VMM" + whose, VMM_COLUMNS, rows(d.userspace_exits)),
  ];
  if (vcpu !== null) return all;
  const counters = Object.entries(d.counters).filter(([, value]) => value !== 0);
  return [
    ...all,
    table("Disks", DISK_COLUMNS, d.disks),
    table("Jobs", JOB_COLUMNS, d.jobs ?? []),
    table("Network interfaces", NIC_COLUMNS, d.nics),
    table("Tracepoints", EVENT_COLUMNS, d.kvm_events.filter((k) => k.count > 0)),
    table("KVM's counters", COUNTER_COLUMNS, counters),
  ];
}
