//! Disks and network interfaces of guests, as the VMM and the host's kernel count them.

use super::{Section, missing};
use crate::ui::{
    AppState, Cell, Column, RowKey, RowStyle, Table, TableId, clean, left, right, step,
};
use judge::figures::{age, count, micros, percent, rate, share};
use judge::lint::{Finding, Mark, Severity};
use judge::model::{DiskRates, DomainModel, HostDiskModel, Model, NicRates};
use sample::{SourceId, Timing};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// At most this many kinds of interfaces that are not counted are named.
const MAX_NAMED_KINDS: usize = 8;
/// From this on a disk or an interface is at its limit, percent.
const MIN_LIMIT_PERCENT: f64 = 95.0;

/// What a device did for a guest.
pub struct Work<'a> {
    /// Name of the device.
    pub name: &'a str,
    /// Reads, writes and flushes per second; packets to the guest and from it, and drops.
    pub ops: [Option<f64>; 3],
    /// Mean time of a read, a write and a flush, microseconds.
    pub mean_us: [Option<f64>; 3],
}

/// A device of a guest, or one of the host that works for it.
pub struct DeviceRow<'a, Device> {
    guest: &'a DomainModel,
    /// The device.
    pub device: &'a Device,
    work: Work<'a>,
    worst: Option<Severity>,
    is_one_guest: bool,
}

impl<Device> DeviceRow<'_, Device> {
    fn key(&self) -> RowKey {
        key(self.guest, &self.work)
    }

    fn style(&self) -> RowStyle {
        match self.worst {
            Some(severity) => RowStyle::Severity(severity),
            None if is_busy(&self.work) => RowStyle::Plain,
            None => RowStyle::Dim,
        }
    }
}

fn key(guest: &DomainModel, work: &Work<'_>) -> RowKey {
    RowKey::of((guest.key(), work.name))
}

fn is_busy(work: &Work<'_>) -> bool {
    work.ops.iter().flatten().any(|rate| *rate > 0.0)
}

/// What a block device of the host did.
pub fn host_disk(disk: &HostDiskModel) -> Work<'_> {
    let kinds = [&disk.reads.total, &disk.writes.total, &disk.flushes.total];
    Work {
        name: &disk.name,
        ops: kinds.map(|k| disk.rate_of(k.count)),
        mean_us: kinds.map(Timing::mean_us),
    }
}

/// The devices that do something.
pub fn busy(model: &Model) -> impl Iterator<Item = RowKey> {
    model.domains.iter().flat_map(|guest| {
        let disks = guest.disks.iter().map(disk);
        let nics = guest.nics.iter().map(nic);
        let on_host = guest.host_disks.iter().flatten().map(host_disk);
        let devices = disks.chain(nics).chain(on_host);
        devices.filter(is_busy).map(|work| key(guest, &work))
    })
}

/// The rows of devices, busiest first.
pub struct DeviceRows<'a, Device> {
    /// The rows.
    pub rows: Vec<DeviceRow<'a, Device>>,
    /// The number of idle devices, which have no row.
    pub idle: usize,
}

/// Lists the devices of guests; findings mark them by their names.
pub fn rows<'a, Device>(
    state: &AppState,
    guests: &[&'a DomainModel],
    devices: fn(&'a DomainModel) -> &'a [Device],
    work: fn(&'a Device) -> Work<'a>,
    mark: fn(String) -> Mark,
) -> DeviceRows<'a, Device> {
    let mut rows = Vec::new();
    let mut idle = 0;
    for guest in guests {
        let found: Vec<&Finding> = state.findings_about(Some(guest.name())).collect();
        for device in devices(guest) {
            let work = work(device);
            let mark = mark(work.name.to_owned());
            let about = found.iter().filter(|f| f.marks.contains(&mark));
            let row = DeviceRow {
                guest,
                device,
                work,
                worst: about.map(|f| f.severity).max(),
                is_one_guest: guests.len() == 1,
            };
            if is_busy(&row.work) || row.worst.is_some() || state.awake.has(row.key()) {
                rows.push(row);
            } else {
                idle += 1;
            }
        }
    }
    rows.sort_by_cached_key(|row| Reverse(step(row.work.ops.iter().flatten().sum())));
    DeviceRows { rows, idle }
}

/// A section of devices, or why there are none.
pub fn section_of<'a, Device>(
    id: TableId,
    devices: DeviceRows<'a, Device>,
    columns: Vec<Col<'a, Device>>,
    state: &AppState,
    nothing: String,
) -> Section<'a> {
    let table = Table {
        id,
        columns,
        rows: devices.rows,
        key: DeviceRow::key,
        style: DeviceRow::style,
    };
    let section = Section::table(table, state, nothing);
    if devices.idle == 0 {
        return section;
    }
    section.with_note(match id {
        TableId::Disks => count(devices.idle, "idle disk"),
        TableId::Nics => count(devices.idle, "idle interface"),
        _ => count(devices.idle, "idle device"),
    })
}

type Col<'a, D> = Column<DeviceRow<'a, D>>;

/// The columns that name the guest, where there are several, and the device.
pub fn names<'a, D>(header: &'static str, help: &'static str) -> Vec<Col<'a, D>> {
    vec![
        Col::text("domain", "GUEST", left(8).grow(16).drop_order(1), |r| {
            r.guest.name().into()
        })
        .help("Name of the guest.")
        .drawn(|r| {
            if r.is_one_guest {
                Cell::blank()
            } else {
                Cell::name(clean(r.guest.name()))
            }
        }),
        Col::text("name", header, left(7).grow(16), |r| r.work.name.into())
            .help(help)
            .drawn(|r| Cell::name(clean(r.work.name))),
    ]
}

/// The columns of the requests of a disk: how many there are, and how long one takes by `help`.
pub fn requests<'a, D>(help: &'static str) -> Vec<Col<'a, D>> {
    vec![
        Col::figure(
            "read_ops",
            "READ/s",
            right(6).grow(2),
            |r| r.work.ops[0],
            rate,
        )
        .help("Reads per second."),
        Col::figure(
            "write_ops",
            "WRITE/s",
            right(7).grow(2),
            |r| r.work.ops[1],
            rate,
        )
        .help("Writes per second."),
        Col::figure(
            "flush_ops",
            "FLUSH/s",
            right(7).grow(2).drop_order(5),
            |r| r.work.ops[2],
            rate,
        )
        .help("Requests to bring all writes to the medium, per second."),
        Col::figure(
            "read_mean_us",
            "READ us",
            right(7).grow(2).drop_order(1),
            |r| r.work.mean_us[0],
            micros,
        )
        .help(help),
        Col::figure(
            "write_mean_us",
            "WRITE us",
            right(8).grow(2).drop_order(2),
            |r| r.work.mean_us[1],
            micros,
        )
        .help(help),
        Col::figure(
            "flush_mean_us",
            "FLUSH us",
            right(8).grow(2).drop_order(6),
            |r| r.work.mean_us[2],
            micros,
        )
        .help(help),
    ]
}

type Disk<'a> = Col<'a, DiskRates>;

/// The columns of disks; they have the names that JSON has.
pub fn columns<'a>() -> Vec<Disk<'a>> {
    const DISK: &str = "Target (libvirt), or id of the drive or device (the guest's own monitor). \
        Read every 5 s, every 2 s while the list is about disks.";
    const TIME: &str = "Mean time from the guest's request to its completion by the VMM, \
                        microseconds where no unit is given. What the host's block devices take \
                        less is spent in the VMM and its queue.";
    let mut columns = names("DISK", DISK);
    columns.extend(requests(TIME));
    columns.extend([
        Disk::figure(
            "failed_ops",
            "FAILED/s",
            right(8).drop_order(3),
            |r| r.device.failed_ops,
            rate,
        )
        .help(
            "Requests that failed in QEMU or below it, per second; libvirt does not pass them on.",
        )
        .warns_above_zero(),
        Disk::figure(
            "queue_depth",
            "IN FLIGHT",
            right(9).drop_order(4),
            |r| r.device.queue_depth,
            rate,
        )
        .help(
            "Requests under way on average, those that QEMU has taken from the guest's queue: the \
                time of all that completed, over the time between two readings.",
        ),
        Disk::figure(
            "p99_us",
            "P99 us",
            right(8).drop_order(6),
            |r| r.device.p99_us,
            micros,
        )
        .help(
            "99 of 100 requests took at most this long; `-`: QEMU is not told to count \
                (<latency-histogram> of libvirt 12.1).",
        ),
        Disk::figure(
            "max_us",
            "MAX us",
            right(8).drop_order(6),
            |r| r.device.max_us,
            micros,
        )
        .help(
            "The longest request of the last interval that QEMU measures; `-`: it is not told to \
                (<statistic interval='10'/> of libvirt 11.9, stats-intervals of QEMU).",
        ),
        Disk::figure(
            "limit_percent",
            "LIMIT%",
            right(6).drop_order(6),
            |r| r.device.limit_percent,
            percent,
        )
        .help("What it uses of its tightest limit; `-` without one.")
        .warns_from(MIN_LIMIT_PERCENT),
        Disk::text("storage", "STORAGE", left(8).grow(16).drop_order(4), |r| {
            let stored = r.guest.stored(r.work.name);
            stored
                .map(|stored| stored.storage.clone())
                .unwrap_or_default()
        })
        .help("Where it is kept: mount point of its file system, or the lowest device below it."),
        Disk::figure(
            "read_bytes",
            "READ B/s",
            right(8).grow(2).drop_order(7),
            |r| Some(r.device.read_bytes),
            rate,
        )
        .help("Bytes."),
        Disk::figure(
            "write_bytes",
            "WRITE B/s",
            right(9).grow(2).drop_order(7),
            |r| Some(r.device.write_bytes),
            rate,
        )
        .help("Bytes."),
    ]);
    columns
}

fn disk(d: &DiskRates) -> Work<'_> {
    Work {
        name: &d.name,
        ops: [Some(d.read_ops), Some(d.write_ops), d.flush_ops],
        mean_us: [d.read_mean_us, d.write_mean_us, d.flush_mean_us],
    }
}

/// The section of disks.
pub fn section<'a>(state: &'a AppState, guests: &[&'a DomainModel]) -> Section<'a> {
    let rows = rows(state, guests, |d| &d.disks, disk, Mark::Disk);
    let sources = [SourceId::Libvirt, SourceId::Monitor];
    let mut why = missing::because(state, "none is known", &sources);
    if guests.iter().any(|guest| guest.process_io.is_some()) {
        why += "; the list has what the VMM reads and writes (/proc/PID/io)";
    }
    section_of(TableId::Disks, rows, columns(), state, why)
        .with_right(covered(guests, |guest| guest.disks_s))
}

/// How far back the figures of guests go.
fn covered(guests: &[&DomainModel], seconds: fn(&DomainModel) -> Option<f64>) -> String {
    let covered = guests.iter().filter_map(|guest| seconds(guest));
    match covered.reduce(f64::max) {
        Some(longest) => format!("means of the last {}", age(longest.round())),
        None => String::new(),
    }
}

type Nic<'a> = Col<'a, NicRates>;

/// The columns of network interfaces; they have the names that JSON has.
pub fn nic_columns<'a>() -> Vec<Nic<'a>> {
    const NIC: &str = "The device on the host, such as a tap. There RX and TX are swapped: what it \
                       sends, the guest receives.";
    let mut columns = names("NIC", NIC);
    columns.extend([
        Nic::figure(
            "rx_bytes",
            "RX B/s",
            right(6).grow(4),
            |r| Some(r.device.rx_bytes),
            rate,
        )
        .help("Bytes received."),
        Nic::figure(
            "tx_bytes",
            "TX B/s",
            right(6).grow(4),
            |r| Some(r.device.tx_bytes),
            rate,
        )
        .help("Bytes sent."),
        Nic::figure(
            "rx_packets",
            "RX pkt/s",
            right(8).grow(2).drop_order(2),
            |r| r.work.ops[0],
            rate,
        )
        .help("Packets received."),
        Nic::figure(
            "tx_packets",
            "TX pkt/s",
            right(8).grow(2).drop_order(2),
            |r| r.work.ops[1],
            rate,
        )
        .help("Packets sent."),
        Nic::figure(
            "drops",
            "DROP/s",
            right(6).grow(2).drop_order(1),
            |r| r.work.ops[2],
            rate,
        )
        .help("Packets dropped, both ways.")
        .warns_above_zero(),
        Nic::figure(
            "rx_drops",
            "RX DROP/s",
            right(9).drop_order(2),
            |r| r.device.rx_drops,
            rate,
        )
        .help("Those of them that the guest should have received.")
        .warns_above_zero(),
        Nic::figure(
            "queues",
            "QUEUES",
            right(6).drop_order(4),
            |r| r.device.queues.map(f64::from),
            share,
        )
        .help("Queues that QEMU has open: each needs a vhost thread and a vCPU."),
        Nic::text("bridge", "BRIDGE", left(8).grow(8).drop_order(5), |r| {
            r.device.bridge.clone().unwrap_or_default()
        })
        .help("The bridge that it is plugged into, ovs-system for Open vSwitch."),
        Nic::figure(
            "limit_percent",
            "LIMIT%",
            right(6).drop_order(3),
            |r| r.device.limit_percent,
            percent,
        )
        .help("What it uses of its tighter limit (<bandwidth> of libvirt); `-` without one.")
        .warns_from(MIN_LIMIT_PERCENT),
    ]);
    columns
}

fn nic(n: &NicRates) -> Work<'_> {
    Work {
        name: &n.name,
        ops: [n.rx_packets, n.tx_packets, n.drops].map(Some),
        mean_us: [None; 3],
    }
}

/// The section of network interfaces.
pub fn nics<'a>(state: &'a AppState, guests: &[&'a DomainModel]) -> Section<'a> {
    let rows = rows(state, guests, |d| &d.nics, nic, Mark::Nic);
    let why = missing::because(state, "none is known", &[SourceId::Libvirt]);
    let mut section = section_of(TableId::Nics, rows, nic_columns(), state, why)
        .with_right(covered(guests, |guest| guest.nics_s));
    let commands = guests.iter().filter_map(|g| g.facts.command.as_ref());
    let kinds = commands.flat_map(|command| &command.other_netdevs);
    let uncounted: BTreeSet<&str> = kinds.map(String::as_str).collect();
    if !uncounted.is_empty() {
        if !section.note.is_empty() {
            section.note += "; ";
        }
        let listed: Vec<_> = uncounted.into_iter().take(MAX_NAMED_KINDS).collect();
        let listed = listed.join(", ");
        section.note += &format!("not counted on the host: {}", clean(&listed));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::table::{AnyTable, ColumnId, Value};
    use crate::ui::tests::{draw, judged, model, press, screen, text};
    use crate::ui::theme::{Charset, Palette, Theme, Tone};
    use crate::ui::views::section::Body;
    use judge::model::ByteRates;
    use testkit::Fixture;

    /// The texts of a column.
    fn column(section: &Section<'_>, name: &str) -> Vec<String> {
        let Body::Table(table) = &section.body else {
            panic!("no table")
        };
        let table: &dyn AnyTable = table.as_ref();
        let at = (0..table.width())
            .map(ColumnId)
            .find(|id| table.head(*id).name == name)
            .unwrap();
        let text = |row| match table.value(row, at) {
            Value::Text(text) => text,
            Value::Figure(figure) => figure.to_string(),
            Value::Unknown => String::new(),
        };
        (0..table.len()).map(text).collect()
    }

    #[test]
    fn the_busiest_disks_are_first_and_idle_ones_share_a_note() {
        let mut f = Fixture::with_devices();
        let idle = sample::DiskSample {
            name: "sda".into(),
            flush_ops: Some(0),
            ..Default::default()
        };
        f.guests
            .iter_mut()
            .for_each(|g| g.rest.disks.push(idle.clone()));
        let state = screen(&f, 120, 40);
        let guests = state.guests();
        let section = section(&state, &guests);
        let rows = column(&section, "name").len();
        assert_eq!(
            (section.note.as_str(), rows),
            ("5 idle disks", f.guests.len() + 1)
        );
        assert_eq!(
            (
                &*column(&section, "domain")[0],
                &*column(&section, "name")[0]
            ),
            ("db-prod", "vdb")
        );
        let only_idle = Fixture {
            guests: f
                .guests
                .into_iter()
                .map(|mut g| {
                    g.rest.disks = vec![idle.clone()];
                    g
                })
                .collect(),
            ..f
        };
        let state = screen(&only_idle, 120, 40);
        let section = super::section(&state, &state.guests());
        assert_eq!(
            (section.note.as_str(), section.body_lines()),
            ("5 idle disks", 0)
        );
    }

    #[test]
    fn a_device_keeps_its_row_for_some_intervals() {
        let mut state = screen(&Fixture::with_devices(), 120, 40);
        let mut quiet = model(&state).clone();
        quiet
            .domains
            .iter_mut()
            .flat_map(|d| &mut d.nics)
            .for_each(|n| {
                *n = NicRates {
                    name: n.name.clone(),
                    ..NicRates::default()
                }
            });
        for (passed, rows) in [(1, 6), (crate::ui::awake::KEPT - 2, 6), (1, 0)] {
            for _ in 0..passed {
                state.awake.watch(busy(&quiet));
            }
            state.model = Some(quiet.clone());
            let section = nics(&state, &state.guests());
            assert_eq!(column(&section, "name").len(), rows, "{passed}");
        }
    }

    #[test]
    fn one_guest_needs_no_column_of_names() {
        let state = screen(&Fixture::with_devices(), 120, 40);
        let guests = state.guests();
        for (guests, is_known) in [(&guests[..], true), (&guests[..1], false)] {
            let section = section(&state, guests);
            let Body::Table(table) = &section.body else {
                panic!("no table")
            };
            assert_eq!(table.cell(0, ColumnId(0)).is_known(), is_known);
            assert!(
                matches!(table.value(0, ColumnId(0)), Value::Text(_)),
                "files name the guest"
            );
        }
    }

    #[test]
    fn the_title_says_how_far_back_figures_go() {
        let mut f = Fixture::with_devices();
        f.guests[0].rest.nics_ns = 2_004_000_000;
        let state = screen(&f, 120, 40);
        let guests = state.guests();
        assert_eq!(section(&state, &guests).right, "means of the last 5 s");
        let first = [&model(&state).domains[0]];
        assert_eq!(nics(&state, &first).right, "means of the last 2 s");
        let plain = screen(&Fixture::busy_host(), 120, 40);
        assert_eq!(section(&plain, &plain.guests()).right, "");
    }

    #[test]
    fn where_a_guest_without_known_disks_has_its_bytes_from_is_said() {
        let mut f = Fixture::with_devices();
        f.guests[0].rest.disks.clear();
        let mut state = screen(&f, 120, 40);
        let note = |state: &AppState| section(state, &[&model(state).domains[0]]).note;
        assert_eq!(note(&state), "none is known");
        state.model.as_mut().unwrap().domains[0].process_io = Some(ByteRates {
            inward: 4e6,
            outward: 1e6,
        });
        assert!(note(&state).ends_with("(/proc/PID/io)"), "{}", note(&state));
        press(&mut state, "d");
        let picture = text(&draw(
            &state,
            &Theme::new(Palette::Xterm, Tone::Dark, Charset::Unicode),
        ));
        let row = picture.split_once("win10-2").unwrap().1;
        let figures: Vec<&str> = row.split_whitespace().take(5).collect();
        assert_eq!(figures, ["-", "-", "4.00M", "1.00M", "-"]);
    }

    #[test]
    fn a_disk_that_a_finding_is_about_is_marked() {
        let mut f = Fixture::with_devices();
        let mut slow = f.guests[0].rest.disks[0].clone();
        (slow.name, slow.failed_ops) = ("vdz".into(), Some(40));
        f.guests[0].rest.disks.push(slow);
        let state = judged(&f, 120, 40);
        let rows = rows(&state, &state.guests(), |d| &d.disks, disk, Mark::Disk).rows;
        let marked: Vec<_> = rows
            .iter()
            .filter(|r| r.worst.is_some())
            .map(|r| r.work.name)
            .collect();
        assert!(marked.contains(&"vdz"), "{marked:?}");
        assert!(marked.len() < rows.len(), "{marked:?}");
    }
}
