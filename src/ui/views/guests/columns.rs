//! The columns of the list of guests.

use crate::ui::filter::FilterField;
use crate::ui::guest_list::ListRow;
use crate::ui::lens::Lens;
use crate::ui::state::AppState;
use crate::ui::table::{Cell, Column, ColumnId, Sort, left, right, severity_style};
use crate::ui::text::clean;
use crate::ui::theme::StyleId;
use crate::ui::views::memory;
use crate::ui::widgets::bars;
use judge::cost::GuestCosts;
use judge::figures::{age, micros, percent, rate, share, size};
use judge::lint::{Finding, RuleId, Severity};
use judge::model::{
    ByteRates, CpuShare, DiskRates, DomainModel, ExitRateSource, GuestConfig, HostModel, NicRates,
};
use kvm::CpuSet;
use kvm::labels::Labels;
use kvm::thread_name::Role;
use report::json;
use sample::{DomainState, StoredDisk};

/// A disk whose requests take this long is slow, and this long very slow; microseconds.
const SLOW_DISK_US: f64 = 20_000.0;
/// So much of a request's time outside the host's devices is much (KAVG's limit in esxtop),
/// microseconds.
const MUCH_OUTSIDE_US: f64 = 2000.0;
/// Tasks outside guests that use less of a CPU are not named, percent.
const MIN_TASK_PERCENT: f64 = 0.5;

/// A row of the list with all that its cells are made from.
pub struct GuestRow<'a> {
    /// The screen.
    pub state: &'a AppState,
    /// Which row it is.
    pub row: ListRow,
    /// The guest; `None` on the rows of the host and of idle guests.
    pub domain: Option<&'a DomainModel>,
}

impl<'a> GuestRow<'a> {
    /// A row of the list.
    pub fn new(state: &'a AppState, row: ListRow) -> Self {
        Self {
            state,
            row,
            domain: state.guest_at(row),
        }
    }

    /// The worst finding about the guest itself, or about the host on its row. Settings that cost
    /// little are on the guest's page alone.
    pub fn worst(&self) -> Option<&'a Finding> {
        if let ListRow::Idle(_) = self.row {
            return None;
        }
        let guest = self.domain.map(DomainModel::name);
        self.state.findings_about(guest).find(|f| {
            f.severity > Severity::Info || !matches!(f.rule, RuleId::DiskSetup | RuleId::CpuModel)
        })
    }

    /// How bad it is that the guest does not run; `None` if it runs, or somebody paused it.
    pub fn stopped(&self) -> Option<Severity> {
        let found = self.worst()?;
        if found.rule == RuleId::GuestStopped && found.severity > Severity::Info {
            Some(found.severity)
        } else {
            None
        }
    }

    /// What costs the guest its time.
    pub fn costs(&self) -> Option<&'a GuestCosts> {
        let ListRow::Guest(at) = self.row else {
            return None;
        };
        self.state.list.costs.get(at)
    }

    /// A name that its manager gave it; empty without one.
    fn labels(&self, label: fn(&Labels) -> Option<String>) -> String {
        self.domain
            .and_then(|domain| label(&domain.facts.labels))
            .unwrap_or_default()
    }

    /// The host, on its row.
    fn host(&self) -> Option<&'a HostModel> {
        if self.row != ListRow::Other {
            return None;
        }
        Some(&self.state.model.as_ref()?.host)
    }

    fn cpu(&self, kind: fn(&CpuShare) -> f64) -> Option<f64> {
        self.domain?.cpu?.kind(kind)
    }

    /// The wait of the vCPU that waits longest.
    fn wait(&self) -> Option<f64> {
        Some(self.domain?.worst_wait()?.1)
    }

    /// Its memory on the host, bytes; that of all else on the row of the host.
    fn memory(&self) -> Option<f64> {
        let bytes = match self.domain {
            Some(domain) => domain.memory.on_host(),
            None => self.host()?.other_memory(),
        };
        bytes.map(|bytes| bytes as f64)
    }

    /// What its disks read and write.
    fn disk_rates(&self) -> Option<ByteRates> {
        match self.domain {
            Some(domain) => domain.disk_rates(),
            None => self.host()?.other_disk(),
        }
    }

    /// What it receives and sends.
    fn nic_rates(&self) -> Option<ByteRates> {
        match self.domain {
            Some(domain) => domain.nic_rates(),
            None => self.host()?.other_net(),
        }
    }

    /// A figure of all disks together.
    fn disks(&self, figure: fn(&DiskRates) -> Option<f64>) -> Option<f64> {
        let figures = self.domain?.disks.iter().filter_map(figure);
        figures.reduce(|a, b| a + b)
    }

    /// A figure of all network interfaces together.
    fn nics(&self, figure: fn(&NicRates) -> f64) -> Option<f64> {
        self.domain?.nics.iter().map(figure).reduce(|a, b| a + b)
    }

    /// Where its slowest disk is kept, or else its first one.
    fn storage(&self) -> Option<&'a StoredDisk> {
        let domain = self.domain?;
        let stored = domain
            .slowest_disk()
            .and_then(|disk| domain.stored(&disk.name));
        stored.or_else(|| domain.storage.first())
    }

    /// CPU time of its vhost threads, percent of one CPU.
    fn vhost(&self) -> Option<f64> {
        let threads = self.domain?.threads.iter();
        let vhost = threads.filter(|t| t.role == Role::Vhost);
        let busy = vhost.filter_map(|t| Some(t.cpu?.busy()));
        busy.reduce(|a, b| a + b)
    }

    /// What tasks outside guests use, on the row of the host.
    fn outside(&self) -> Option<OutsideTasks> {
        let host = self.host()?;
        let time = host.total()?;
        let usage = host.usage()?;
        let all = usage.other * usage.cpus;
        let usr = all * time.usr / (time.usr + time.sys).max(f64::MIN_POSITIVE);
        Some(OutsideTasks {
            usr,
            sys: all - usr,
            cpus: usage.cpus,
        })
    }
}

/// CPU time of tasks outside guests, user and kernel, percent of one CPU.
struct OutsideTasks {
    usr: f64,
    sys: f64,
    /// The number of the host's CPUs.
    cpus: f64,
}

/// The order by a column of this name.
pub fn sort_by_name(name: &str) -> Option<Sort> {
    let at = columns().iter().position(|c| c.head.name == name)?;
    Some(Sort {
        column: ColumnId(at),
        reversed: false,
    })
}

/// The order of the list in a lens at first.
pub fn usual_sort(lens: Lens) -> Option<Sort> {
    lens.sorted_by().and_then(sort_by_name)
}

/// The name of a column.
pub fn column_name(id: ColumnId) -> &'static str {
    columns().get(id.0).map_or("", |column| column.head.name)
}

/// What filters can name.
pub fn filter_fields() -> Vec<FilterField> {
    columns()
        .iter()
        .map(|c| FilterField {
            name: c.head.name,
            is_text: c.is_text(),
        })
        .collect()
}

type Col<'a> = Column<GuestRow<'a>>;

/// All columns, left to right; those of the lens for CPUs are shown at first.
pub fn columns<'a>() -> Vec<Col<'a>> {
    columns_through(Lens::Cpu)
}

/// The same; those of this lens are shown at first.
pub fn columns_through<'a>(lens: Lens) -> Vec<Col<'a>> {
    let all = [
        cpu_columns(),
        memory_columns(),
        disk_columns(),
        network_columns(),
        verdict_columns(),
        further_columns(),
    ];
    let shown = lens.columns();
    let mut columns = Vec::new();
    for column in all.into_iter().flatten() {
        let mut column = column.finished(finish);
        column.head.is_hidden = !shown.contains(&column.head.name);
        columns.push(column);
    }
    columns
}

/// The columns about CPU time, waits and exits.
fn cpu_columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::text("name", "GUEST", left(15), |r| {
            r.domain.map(|d| d.name().to_owned()).unwrap_or_default()
        })
        .help(
            "Name of the guest; Enter opens its page. `host tasks` is what the host does outside \
                guests.",
        )
        .json("name")
        .drawn(name),
        Col::figure(
            "cpu",
            "CPU%",
            right(5),
            |r| match r.outside() {
                Some(tasks) => Some(tasks.usr + tasks.sys),
                None => Some(r.domain?.cpu?.busy()),
            },
            percent,
        )
        .help(
            "CPU time of all threads of the guest, vhost included, or of all tasks outside \
                guests. 100 is one host CPU.",
        )
        .json("cpu.guest + cpu.usr + cpu.sys"),
        Col::figure(
            "load",
            bars::LEGEND,
            left(18).drop_order(4),
            |r| Some(r.domain?.cpu?.busy() / f64::from(r.domain?.vcpu_count().max(1))),
            percent,
        )
        .help(
            "Time in the guest, of the VMM, in the host's kernel, and the vCPUs' wait, percent of \
                the guest's vCPUs.",
        )
        .drawn(bar),
        Col::figure(
            "wait",
            "WAIT%",
            right(6).drop_order(1),
            GuestRow::wait,
            percent,
        )
        .help(
            "What the guest sees as steal: time that its worst vCPU waited, percent of the \
                    time it wanted to run.",
        )
        .json("threads[].wait")
        .drawn(|r| Cell::wait(r.wait())),
        Col::figure(
            "exits",
            "EXITS/s",
            right(8).drop_order(3),
            |r| r.domain?.exit_rate.per_second,
            rate,
        )
        .help(
            "Exits per second; where the kernel fires no kvm_exit, exits to the VMM (u). `no \
                room`, or `+` behind a figure: the engine's tables have no place for all its \
                vCPUs.",
        )
        .json("exits[].rate")
        .drawn(exits),
    ]
}

/// The columns about what is wrong.
fn verdict_columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::text(
            "cost",
            "WHAT COSTS IT",
            left(20).grow(99).drop_order(2),
            |r| {
                r.costs()
                    .map(|c| c.what_costs(usize::MAX))
                    .unwrap_or_default()
            },
        )
        .help(
            "The largest cost, percent of one CPU; a wait, percent of the time that the vCPU \
                wanted to run.",
        )
        .ranked(|r| r.costs()?.lost)
        .drawn(cost),
        Col::text("problem", "PROBLEM", left(21).grow(4), |r| {
            r.worst().map(|f| f.problem.clone()).unwrap_or_default()
        })
        .help(
            "The worst problem in short; the lines below the list explain it. Of `host tasks`, \
                how many guests its tasks delay.",
        )
        .ranked(|r| r.worst().map(|f| 1.0 + f64::from(f.severity as u8)))
        .drawn(problem),
    ]
}

/// The columns about memory.
fn memory_columns<'a>() -> Vec<Col<'a>> {
    let figure = right(6).drop_order(5);
    vec![
        Col::figure("mem", "MEM", figure, GuestRow::memory, size).help(
            "Its memory on the host, with its huge pages; on the row `host tasks` what neither \
                guests nor caches have.",
        ),
        Col::figure(
            "mem_percent",
            "MEM%",
            right(5).drop_order(3),
            |r| {
                let total = r.state.model.as_ref()?.host.memory.as_ref()?.total;
                Some(100.0 * r.memory()? / total.max(1) as f64)
            },
            percent,
        )
        .help("The same, percent of the host's memory."),
        Col::figure(
            "allotted",
            "ALLOTTED",
            right(8).drop_order(4),
            |r| Some(GuestConfig::from_facts(&r.domain?.facts).memory? as f64),
            size,
        )
        .help("Memory that it is configured with."),
        Col::figure(
            "balloon",
            "BALLOON",
            right(7).drop_order(5),
            |r| Some(r.domain?.memory.balloon? as f64),
            size,
        )
        .help("What the balloon leaves to the guest."),
        Col::figure(
            "guest_used",
            "USED%",
            right(5).drop_order(4),
            guest_used,
            percent,
        )
        .help(
            "Memory that the guest's programs cannot have any more, percent of what its \
                    kernel has, as its balloon driver last said: caches count as free. `-`: \
                    nobody asks the driver (libvirt: <stats period='10'/> in <memballoon>).",
        )
        .warns_from(MIN_SHORT_PERCENT),
        Col::figure(
            "guest_faults",
            "FAULTS/s",
            right(8).drop_order(5),
            guest_faults,
            rate,
        )
        .help("Major page faults per second in the guest."),
        Col::figure("swap", "SWAP", figure, swap, size)
            .help("Its part in the host's swap.")
            .warns_above_zero(),
        Col::figure("swap_in", "SWAPIN/s", right(8).drop_order(5), swap_in, rate)
            .help(
                "Bytes per second that come back from it: each stopped a thread until the disk \
                    had read it.",
            )
            .warns_above_zero(),
        Col::figure(
            "swap_growth",
            "SWAP B/s",
            right(8).drop_order(5),
            swap_growth,
            rate,
        )
        .help("How the part in swap grows.")
        .warns_above_zero(),
        Col::figure(
            "mem_stall",
            "STALL%",
            right(6).drop_order(4),
            memory_stall,
            percent,
        )
        .help("Part of the last 10 s in which one of its threads waited for memory, percent of it.")
        .warns_above_zero(),
        Col::figure(
            "local",
            "LOCAL%",
            right(6).drop_order(5),
            |r| {
                let host = &r.state.model.as_ref()?.host;
                r.domain?.local_memory_percent(&host.facts.topology)
            },
            share,
        )
        .help("The part of its memory on the NUMA nodes where its vCPUs ran last, percent of it."),
        Col::figure(
            "mem_limit",
            "OF LIMIT",
            right(8).drop_order(5),
            memory_limit,
            percent,
        )
        .help("What its cgroup has and cannot drop, percent of its limit; `-` without one.")
        .warns_from(MIN_SHORT_PERCENT),
        Col::figure("uptime", "UP", right(7).drop_order(5), uptime, age)
            .help("For how long its process runs."),
    ]
}

/// From this on the guest's memory is short, percent.
const MIN_SHORT_PERCENT: f64 = 95.0;

fn guest_used(row: &GuestRow<'_>) -> Option<f64> {
    row.domain?.memory.in_guest?.used_percent()
}

fn memory_limit(row: &GuestRow<'_>) -> Option<f64> {
    row.domain?.memory.limit_percent()
}

fn guest_faults(row: &GuestRow<'_>) -> Option<f64> {
    Some(row.domain?.memory.in_guest?.grown?.fault_rate())
}

fn swap_in(row: &GuestRow<'_>) -> Option<f64> {
    row.domain?.swap_in_rate
}

/// The columns about disks.
fn disk_columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::figure(
            "disk",
            "DISK/s",
            right(12).drop_order(6),
            |r| Some(r.disk_rates()?.all()),
            rate,
        )
        .help(
            "Bytes that its disks read and write; on the row `host tasks` what the host's disks \
                do beyond that.",
        ),
        Col::figure(
            "iops",
            "IO/s",
            right(6).grow(2).drop_order(4),
            |r| r.disks(|d| Some(d.read_ops + d.write_ops)),
            rate,
        )
        .help("Reads and writes of its disks."),
        Col::figure(
            "reads",
            "READ/s",
            right(6).grow(2).drop_order(2),
            |r| r.disks(|d| Some(d.read_ops)),
            rate,
        )
        .help(
            "Reads of its disks, of the last 5 s (2 s while the list is about disks) as all \
                figures of disks.",
        ),
        Col::figure(
            "writes",
            "WRITE/s",
            right(7).grow(2).drop_order(2),
            |r| r.disks(|d| Some(d.write_ops)),
            rate,
        )
        .help("Writes of its disks."),
        Col::figure(
            "read_bytes",
            "READ B/s",
            right(8).grow(2).drop_order(3),
            |r| Some(r.disk_rates()?.inward),
            rate,
        )
        .help(
            "Bytes that its disks read; where neither libvirt nor a monitor reports them, those \
                that its VMM read from storage (/proc/PID/io). So for bytes written.",
        ),
        Col::figure(
            "write_bytes",
            "WRITE B/s",
            right(9).grow(2).drop_order(3),
            |r| Some(r.disk_rates()?.outward),
            rate,
        )
        .help("Bytes that its disks write."),
        Col::figure(
            "disk_us",
            "WORST us",
            right(8).grow(2).drop_order(1),
            |r| r.domain?.slowest_disk()?.slowest_us(),
            micros,
        )
        .help(
            "Mean time of a request of its slowest disk with at least 5 requests/s, microseconds; \
                from 20 ms on it is slow.",
        )
        .warns_from(SLOW_DISK_US),
        Col::figure(
            "outside_us",
            "QEMU us",
            right(8).drop_order(3),
            |r| r.domain?.outside_devices_us(),
            micros,
        )
        .help(
            "The part of the mean time of its reads and writes that is spent outside the host's \
                block devices, in QEMU, its queues and limits; from 2 ms on it is much. `-`: the \
                devices are not timed, or a cache answers most requests.",
        )
        .warns_from(MUCH_OUTSIDE_US),
        Col::text("disk_of", "DISK", left(6).grow(10).drop_order(4), |r| {
            let disk = r.domain.and_then(DomainModel::slowest_disk);
            disk.map(|disk| disk.name.clone()).unwrap_or_default()
        })
        .help("Which disk that is."),
        Col::text("storage", "STORAGE", left(8).grow(16).drop_order(3), |r| {
            r.storage()
                .map(|stored| stored.storage.clone())
                .unwrap_or_default()
        })
        .help(
            "Where it is kept: the mount point of its file system, or the disk or pool below its \
                block device. Guests with the same storage share its speed and its room.",
        ),
        Col::figure(
            "storage_free",
            "FREE",
            right(6).drop_order(3),
            storage_free,
            size,
        )
        .help("Room that is left there; none for block devices."),
        Col::figure(
            "in_flight",
            "IN FLIGHT",
            right(9).drop_order(4),
            |r| r.disks(|d| d.queue_depth),
            rate,
        )
        .help("Requests of its disks under way on average."),
        Col::figure(
            "io_stall",
            "STALL%",
            right(6).drop_order(4),
            |r| Some(r.domain?.pressure?.io),
            percent,
        )
        .help(
            "Part of the last 10 s in which one of its threads waited for a disk, percent of it.",
        ),
    ]
}

/// The columns about network interfaces.
fn network_columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::figure(
            "net",
            "NET/s",
            right(7).drop_order(7),
            |r| Some(r.nic_rates()?.all()),
            rate,
        )
        .help(
            "Bytes that it receives and sends; on the row `host tasks` what the host's links do \
                beyond that.",
        ),
        Col::figure(
            "pps",
            "PKT/s",
            right(6).grow(2).drop_order(4),
            |r| r.nics(|n| n.rx_packets + n.tx_packets),
            rate,
        )
        .help("Packets that it receives and sends."),
        Col::figure(
            "rx",
            "RX PKT/s",
            right(8).grow(2).drop_order(2),
            |r| r.nics(|n| n.rx_packets),
            rate,
        )
        .help(
            "Packets that it receives, of the last 5 s (2 s while the list is about the network) \
                as all figures of it.",
        ),
        Col::figure(
            "tx",
            "TX PKT/s",
            right(8).grow(2).drop_order(2),
            |r| r.nics(|n| n.tx_packets),
            rate,
        )
        .help("Packets that it sends."),
        Col::figure(
            "rx_bytes",
            "RX B/s",
            right(7).grow(2).drop_order(1),
            |r| Some(r.nic_rates()?.inward),
            rate,
        )
        .help("Bytes that it receives."),
        Col::figure(
            "tx_bytes",
            "TX B/s",
            right(7).grow(2).drop_order(1),
            |r| Some(r.nic_rates()?.outward),
            rate,
        )
        .help("Bytes that it sends."),
        Col::figure(
            "drops",
            "DROP/s",
            right(6).grow(2).drop_order(1),
            |r| r.nics(|n| n.drops),
            rate,
        )
        .help("Packets dropped in both directions.")
        .warns_above_zero(),
        Col::figure(
            "rx_drops",
            "RX DROP/s",
            right(9).drop_order(2),
            rx_drops,
            rate,
        )
        .help("Those that it should have received: it did not take them in time.")
        .warns_above_zero(),
        Col::figure(
            "vhost",
            "VHOST%",
            right(6).drop_order(3),
            GuestRow::vhost,
            percent,
        )
        .help("CPU time of its vhost threads, percent of one CPU."),
    ]
}

fn storage_free(r: &GuestRow<'_>) -> Option<f64> {
    Some(r.storage()?.free_bytes? as f64)
}

fn rx_drops(r: &GuestRow<'_>) -> Option<f64> {
    r.domain?.rx_drops()
}

fn swap(r: &GuestRow<'_>) -> Option<f64> {
    Some(r.domain?.swap?.bytes as f64)
}

fn swap_growth(r: &GuestRow<'_>) -> Option<f64> {
    memory::swap_growth(r.domain?, r.state.model.as_ref()?)
}

fn memory_stall(r: &GuestRow<'_>) -> Option<f64> {
    Some(r.domain?.pressure?.memory)
}

fn uptime(r: &GuestRow<'_>) -> Option<f64> {
    let now_ms = r.state.model.as_ref()?.time_ms;
    Some((now_ms - r.domain?.facts.started_ms?).max(0) as f64 / 1e3)
}

/// Further columns that the user can choose.
fn further_columns<'a>() -> Vec<Col<'a>> {
    let figure = right(8).drop_order(4);
    let text = left(12).grow(9).drop_order(4);
    vec![
        Col::figure(
            "vcpus",
            "VCPUS",
            figure,
            |r| r.domain.map(|d| d.vcpu_count().into()),
            whole,
        )
        .help("Number of virtual CPUs.")
        .json("vcpus"),
        Col::figure("guest", "GUEST%", figure, |r| r.cpu(|c| c.guest), percent)
            .help("Time in guest code. 100 is one host CPU.")
            .json("cpu.guest"),
        Col::figure("usr", "USR%", figure, |r| r.cpu(|c| c.usr), percent)
            .help("Time of the VMM in user mode. 100 is one host CPU.")
            .json("cpu.usr"),
        Col::figure("sys", "SYS%", figure, |r| r.cpu(|c| c.sys), percent)
            .help("Time in the host's kernel: KVM, vhost. 100 is one host CPU.")
            .json("cpu.sys"),
        Col::figure(
            "limit",
            "LIMIT%",
            figure,
            |r| r.domain?.limit_percent(),
            percent,
        )
        .help("CPU time, percent of what its tightest CPU quota allows; `-` without one."),
        Col::text("cpus", "ON CPUS", text, |r| {
            let vcpus = r.domain.iter().flat_map(|d| d.vcpus());
            let cpus: CpuSet = vcpus.filter_map(|t| t.place.cpu).collect();
            cpus.to_string()
        })
        .help("The host CPUs that its vCPUs ran on last.")
        .json("threads[].cpu"),
        Col::figure(
            "migrations",
            "MOVES/s",
            figure,
            |r| Some(r.domain?.vcpu_migrations()? as f64 / r.state.model.as_ref()?.interval_s?),
            rate,
        )
        .help("Moves of vCPUs to another host CPU, per second.")
        .json("threads[].migrations"),
        Col::figure(
            "pid",
            "PID",
            figure,
            |r| r.domain?.facts.pid.map(f64::from),
            whole,
        )
        .help("Process id of the VMM.")
        .json("pid"),
        Col::text("title", "TITLE", text, |r| {
            r.labels(|labels| labels.title.clone())
        })
        .help("libvirt's title, or the name that nova's users gave it.")
        .json("title"),
        Col::text("owner", "OWNER", text, |r| {
            r.labels(|labels| labels.owner.clone())
        })
        .help("nova's project, KubeVirt's namespace or Proxmox's pool.")
        .json("owner"),
        Col::text("tags", "TAGS", text, |r| {
            r.labels(|labels| Some(labels.tags.join(" ")))
        })
        .help("Proxmox's tags.")
        .json("tags"),
        Col::figure(
            "vmid",
            "VMID",
            figure,
            |r| r.domain?.vmid().map(f64::from),
            whole,
        )
        .help("Its number in Proxmox."),
        Col::text("state", "STATE", text, |r| {
            r.domain
                .map(|d| d.state_word().to_owned())
                .unwrap_or_default()
        })
        .help("running, paused or ended; why it does not run, such as io-error or migration.")
        .json("state"),
        Col::text("guest_os", "OS", text, |r| {
            r.domain.and_then(json::guest_os_of).unwrap_or_default()
        })
        .help("The operating system, as configured or as its set-up suggests.")
        .json("guest_os"),
    ]
}

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

/// The cell as it is painted: a row that is not about a guest is blank where guests have unknown
/// figures.
fn finish(r: &GuestRow<'_>, cell: Cell) -> Cell {
    if r.domain.is_none() && !cell.is_known() {
        Cell::blank()
    } else {
        cell
    }
}

fn name(r: &GuestRow<'_>) -> Cell {
    let Some(d) = r.domain else {
        return match r.row {
            ListRow::Idle(n) => Cell::name(format!("+{n} idle")),
            _ => Cell::name("host tasks"),
        };
    };
    let mut name = clean(d.name());
    if name.is_empty() {
        let pid = d.facts.pid.map_or("?".into(), |pid| pid.to_string());
        name = format!("pid {pid}");
    }
    match d.state {
        DomainState::Running => Cell::Name(name, None, StyleId::Strong),
        DomainState::Paused => match r.stopped() {
            // The column PROBLEM says why.
            Some(severity) => Cell::Name(name, None, severity_style(severity)),
            None => Cell::Name(name, Some("paused"), StyleId::Dim),
        },
        DomainState::Ended => Cell::Name(name, Some("ended"), StyleId::Dim),
    }
}

fn bar(r: &GuestRow<'_>) -> Cell {
    if let Some(OutsideTasks { usr, sys, cpus }) = r.outside() {
        return Cell::Bar([0.0, usr, sys, 0.0], 100.0 * cpus);
    }
    if let Some(d) = r.domain
        && let Some(c) = d.cpu
    {
        let wait = d.vcpus().filter_map(|t| t.cpu?.wait).sum();
        let vcpus = f64::from(d.vcpu_count().max(1));
        return Cell::Bar([c.guest, c.usr, c.sys, wait], 100.0 * vcpus);
    }
    Cell::unknown()
}

fn exits(r: &GuestRow<'_>) -> Cell {
    let Some(d) = r.domain else {
        return Cell::unknown();
    };
    let Some(exits) = d.exit_rate.per_second else {
        return match d.uncounted_vcpus {
            0 => Cell::unknown(),
            _ => Cell::text("no room").styled(StyleId::Warning),
        };
    };
    match d.exit_rate.source {
        ExitRateSource::Userspace => Cell::text(format!("u {}", rate(exits))),
        ExitRateSource::Traced if d.uncounted_vcpus > 0 => Cell::text(format!("{}+", rate(exits))),
        _ => Cell::figure(Some(exits), rate),
    }
}

fn cost(r: &GuestRow<'_>) -> Cell {
    match r.row {
        ListRow::Idle(_) => return Cell::text("Enter shows them"),
        ListRow::Other => return Cell::text(busy_tasks(r)),
        ListRow::Guest(_) => {}
    }
    let Some(GuestCosts { costs, lost }) = r.costs() else {
        return Cell::unknown();
    };
    match costs.first() {
        Some(cost) => Cell::Cost(cost.clone()),
        None if lost.is_some() => Cell::blank(),
        None => Cell::unknown(),
    }
}

/// The tasks of the host that use CPU time.
fn busy_tasks(r: &GuestRow<'_>) -> String {
    let mut texts = Vec::new();
    for task in r.host().iter().flat_map(|host| &host.task_groups).flatten() {
        if task.cpu_percent >= MIN_TASK_PERCENT {
            texts.push(format!("{} {}", clean(&task.comm), share(task.cpu_percent)));
        }
    }
    texts.join(", ")
}

fn problem(r: &GuestRow<'_>) -> Cell {
    match r.worst() {
        Some(f) => Cell::text(clean(&f.problem)).styled(severity_style(f.severity)),
        None => Cell::blank(),
    }
}
