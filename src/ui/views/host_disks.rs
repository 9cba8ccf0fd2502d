//! Block devices of the host, and what they did for guests.

use super::Section;
use super::disks::{DeviceRow, host_disk, names, requests, rows, section_of};
use crate::ui::{AppState, Column, Lens, ScreenView, TableId, left, right};
use judge::figures::{micros, share};
use judge::lint::Mark;
use judge::model::{DomainModel, HostDiskModel};
use sample::EngineKind;

type Col<'a> = Column<DeviceRow<'a, HostDiskModel>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    const NAME: &str = "A block device of the host that worked for the guest, timed by BPF. Not \
                        seen here: what the page cache answers or writes back later, and storage \
                        over the network.";
    const TIME: &str = "Mean time from the request of a thread of the guest to its completion, \
                        microseconds where no unit is given. What the guest's disk takes longer is \
                        spent in the VMM.";
    let mut columns = names("ON HOST", NAME);
    columns.extend(requests(TIME));
    columns.extend([
        Col::figure(
            "device_mean_us",
            "DEVICE us",
            right(9).grow(2).drop_order(3),
            |r| r.device.device_mean_us(),
            micros,
        )
        .help(
            "The part of reads and writes in the device itself; `-` for device-mapper and md, \
                below which are other devices.",
        ),
        Col::figure(
            "p99_us",
            "P99 us",
            right(6).grow(2).drop_order(4),
            |r| r.device.p99_us(),
            micros,
        )
        .help("99 of 100 reads and writes took at most this; of 100 or more."),
        Col::text(
            "submitted",
            "SUBMITTED BY",
            left(12).grow(6).drop_order(7),
            |r| match r.device.submitted_most() {
                Some((who, part)) => format!("{} {} %", who.as_str(), share(part)),
                None => String::new(),
            },
        )
        .help("The thread that submitted most of them."),
        Col::text(
            "alias",
            "STANDS FOR",
            left(10).grow(40).drop_order(8),
            |r| r.device.alias.clone().unwrap_or_default(),
        )
        .help("File of a loop device, name of a mapped one."),
    ]);
    columns
}

/// The section.
pub fn section<'a>(state: &'a AppState, guests: &[&'a DomainModel]) -> Section<'a> {
    let rows = rows(
        state,
        guests,
        |d| d.host_disks.as_deref().unwrap_or_default(),
        host_disk,
        Mark::HostDisk,
    );
    let is_bpf = state
        .model
        .as_ref()
        .is_some_and(|m| m.engine.kind == EngineKind::Bpf);
    let why = if guests.iter().any(|d| d.host_disks.is_some()) {
        "no request of a guest reached one"
    } else if state.is_recorded() {
        "not recorded: record with --engine-detail disks"
    } else if !is_bpf {
        "only the BPF engine times them"
    } else if state.view == ScreenView::Guests && state.lens != Lens::Disks {
        "timed while the page of a guest is open"
    } else {
        "timed from now on, while this view is open"
    };
    section_of(TableId::HostDisks, rows, columns(), state, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::screen;
    use crate::ui::views::disks::DeviceRows;
    use testkit::Fixture;

    #[test]
    fn the_title_says_why_no_device_is_listed() {
        let mut state = screen(&Fixture::with_devices(), 120, 40);
        let note = |state: &AppState| section(state, &state.guests()).note;
        state.model.as_mut().unwrap().engine.kind = EngineKind::Bpf;
        assert_eq!(note(&state), "timed while the page of a guest is open");
        state.show(ScreenView::Page);
        assert_eq!(note(&state), "timed from now on, while this view is open");
        state.model.as_mut().unwrap().domains[0].host_disks = Some(Vec::new());
        assert_eq!(note(&state), "no request of a guest reached one");
        state.model.as_mut().unwrap().domains[0].host_disks = None;
        state.model.as_mut().unwrap().engine.kind = EngineKind::Perf;
        assert_eq!(note(&state), "only the BPF engine times them");
    }

    #[test]
    fn a_device_has_its_figures_and_who_asked_most() {
        let mut disk = sample::HostDisk {
            name: "nvme0n1".into(),
            ..sample::HostDisk::default()
        };
        (0..150).for_each(|_| disk.reads.total.add(200_000));
        disk.submitters = [
            (sample::ThreadKind::Pool, 140),
            (sample::ThreadKind::Main, 10),
        ]
        .into();
        let mut state = screen(&Fixture::with_devices(), 120, 40);
        let of = HostDiskModel {
            of: disk,
            seconds: Some(1.0),
            device: None,
        };
        state.model.as_mut().unwrap().domains[0].host_disks = Some(vec![of]);
        let guests = state.guests();
        let DeviceRows { rows, idle } = rows(
            &state,
            &guests,
            |d| d.host_disks.as_deref().unwrap_or_default(),
            host_disk,
            Mark::HostDisk,
        );
        let texts: Vec<String> = columns()
            .iter()
            .map(|c| format!("{:?}", c.value(&rows[0])))
            .collect();
        assert_eq!((rows.len(), idle), (1, 0));
        assert!(
            texts.contains(&"Figure(150.0)".into())
                && texts.contains(&"Text(\"pool 93 %\")".into()),
            "{texts:?}"
        );
    }
}
