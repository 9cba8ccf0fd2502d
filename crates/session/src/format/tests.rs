//! What a hostile frame may cost.

use super::{FrameKind, SegmentReader, SegmentWriter, Stamp};
use kvm::kernel_log::{LogKind, LogLine};
use sample::*;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

/// Bytes in memory for one byte of a frame, of a list of default values.
fn growth<T: serde::Serialize>(value: &T) -> usize {
    size_of::<T>().div_ceil(postcard::to_allocvec(value).unwrap().len())
}

/// The document says that a frame's values take at most 64 times its uncompressed bytes.
#[test]
fn a_list_takes_no_more_memory_than_stated() {
    let exit = ExitCell {
        isa: kvm::Isa::Vmx,
        code: 0,
        name: None,
        time: Timing::default(),
        userspace_ns: None,
        halted_ns: None,
        preempted_ns: None,
    };
    let log = LogLine {
        pid: None,
        vcpu: None,
        msr: None,
        write: false,
        data: None,
        kind: LogKind::UnhandledMsr,
        time_s: None,
        text: String::new(),
        guest: None,
    };
    let growths = [
        ("domain", growth(&DomainSample::default())),
        ("thread", growth(&ThreadSample::default())),
        ("exit", growth(&exit)),
        ("access", growth(&AccessCell::default())),
        ("user space", growth(&UserspaceCell::default())),
        ("task", growth(&OtherTask::default())),
        ("cpu", growth(&CpuTimes::default())),
        ("host task", growth(&HostTask::default())),
        ("log line", growth(&log)),
        ("disk", growth(&DiskSample::default())),
        ("host disk", growth(&HostDisk::default())),
        ("doorbell", growth(&Doorbell::default())),
        ("injection", growth(&Injection::default())),
        ("throttling", growth(&Throttling::default())),
        ("facts", growth(&DomainFacts::default())),
        ("text", growth(&String::new())),
        ("texts by name", growth(&BTreeMap::from([(String::new(), String::new())]))),
    ];
    assert!(growths.iter().all(|(_, n)| *n <= 64), "{growths:?}");
}

#[test]
fn a_frame_that_decompresses_to_gigabytes_is_refused() {
    let stamp = Stamp { number: 0, time_ms: 0, run: true };
    let bomb = zstd::encode_all(std::io::repeat(0).take(1 << 30), 1).unwrap();
    assert!(bomb.len() < 1 << 20);
    let mut reader = SegmentReader::new(None).unwrap();
    assert!(reader.advance(&bomb).unwrap_err().to_string().contains("does not decompress"));
    // The same reader's code reads what a recorder writes.
    let mut writer = SegmentWriter::new().unwrap();
    let frame = writer.pack(FrameKind::First, stamp, &Sample::default()).unwrap();
    let (read, packed) = Stamp::split(FrameKind::First, &frame[super::HEAD..]).unwrap();
    let mut reader = SegmentReader::new(None).unwrap();
    reader.advance(packed).unwrap();
    assert_eq!((read, reader.sample().unwrap()), (stamp, Sample::default()));
}

#[test]
fn block_devices_stand_behind_the_sample() {
    let guest = |pid, host_disks| {
        let facts = DomainFacts { pid: Some(pid), ..DomainFacts::default() };
        DomainSample { facts: facts.into(), host_disks, ..DomainSample::default() }
    };
    let mut disk = HostDisk { name: "dm-0".into(), number: (252, 0), ..HostDisk::default() };
    disk.below = vec!["sda".into()];
    disk.submitters = [(Submitter::Pool, 3)].into();
    disk.writes.total.add(5000);
    let sample = Sample { domains: vec![guest(1, None), guest(2, Some(vec![disk]))], ..Sample::default() };
    let mut writer = SegmentWriter::new().unwrap();
    let stamp = Stamp { number: 0, time_ms: 0, run: true };
    let frame = writer.pack(FrameKind::First, stamp, &sample).unwrap();
    let mut reader = SegmentReader::new(None).unwrap();
    reader.advance(Stamp::split(FrameKind::First, &frame[super::HEAD..]).unwrap().1).unwrap();
    assert_eq!(reader.sample().unwrap(), sample);
}

#[test]
fn interrupts_stand_behind_the_block_devices() {
    let guest = |pid, interrupts| {
        let facts = DomainFacts { pid: Some(pid), ..DomainFacts::default() };
        DomainSample { facts: facts.into(), interrupts, ..DomainSample::default() }
    };
    let mut injection = Injection { source: IrqSource::Msi(0x31), count: 3, tid: Some(7), ..Injection::default() };
    injection.wake.add(5000);
    let interrupts = GuestInterrupts { injections: vec![injection], doorbells: vec![Doorbell::default()] };
    let mut sample = Sample { domains: vec![guest(1, None), guest(2, Some(interrupts))], ..Sample::default() };
    for disks in [None, Some(vec![HostDisk { name: "dm-0".into(), ..HostDisk::default() }])] {
        sample.domains[0].host_disks = disks;
        let mut writer = SegmentWriter::new().unwrap();
        let stamp = Stamp { number: 0, time_ms: 0, run: true };
        let frame = writer.pack(FrameKind::First, stamp, &sample).unwrap();
        let mut reader = SegmentReader::new(None).unwrap();
        reader.advance(Stamp::split(FrameKind::First, &frame[super::HEAD..]).unwrap().1).unwrap();
        assert_eq!(reader.sample().unwrap(), sample);
    }
}

#[test]
fn a_segment_of_ever_new_guests_is_refused() {
    let mut reader = SegmentReader::new(None).unwrap();
    let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let mut advance = |reader: &mut SegmentReader| {
        let guests = vec![DomainFacts::default(); 40_000];
        let sample = (None::<HostFacts>, guests, Vec::<u32>::new(), Sample::default());
        stream.write_all(&postcard::to_allocvec(&sample).unwrap()).unwrap();
        stream.flush().unwrap();
        reader.advance(&std::mem::take(stream.get_mut()))
    };
    advance(&mut reader).unwrap();
    let error = advance(&mut reader).unwrap_err();
    assert!(error.to_string().contains("facts of more guests"), "{error}");
}

/// A sample with its facts, through a segment of its own.
fn advance(sample: &impl serde::Serialize) -> anyhow::Result<Sample> {
    let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
    stream.write_all(&postcard::to_allocvec(sample)?)?;
    stream.flush()?;
    let mut reader = SegmentReader::new(None)?;
    reader.advance(stream.get_ref())?;
    reader.sample()
}

#[test]
fn values_that_take_more_memory_than_any_host_needs_are_refused() {
    let threads = |n| {
        let domain = DomainSample { threads: vec![ThreadSample::default(); n], ..DomainSample::default() };
        let sample = Sample { domains: vec![domain], ..Sample::default() };
        advance(&(None::<HostFacts>, vec![DomainFacts::default()], vec![0u32], sample))
    };
    assert_eq!(threads(100_000).unwrap().domains[0].threads.len(), 100_000);
    let error = format!("{:#}", threads(500_000).unwrap_err());
    assert!(error.contains("a sample is not what a recorder writes"), "{error}");
    // A set of all CPUs: seven bytes.
    let sets = postcard::to_allocvec(&vec![kvm::CpuSet::range(0, 8191); 200]).unwrap();
    let take = |mut budget| super::budget::take_from::<Vec<kvm::CpuSet>>(&sets, &mut budget).is_ok();
    assert!(sets.len() < 2000 && take(1 << 20) && !take(200 << 10));
}

#[test]
fn a_segment_longer_than_a_recorder_writes_is_refused() {
    let mut reader = SegmentReader::new(None).unwrap();
    let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let name = Known::new("x".repeat(12 << 20), Origin::File);
    let facts = vec![DomainFacts { name, ..DomainFacts::default() }];
    let sample = postcard::to_allocvec(&(None::<HostFacts>, facts, Vec::<u32>::new(), Sample::default())).unwrap();
    let frames = (0..9).take_while(|_| {
        stream.write_all(&sample).unwrap();
        stream.flush().unwrap();
        reader.advance(&std::mem::take(stream.get_mut())).is_ok()
    });
    assert_eq!(frames.count(), 3, "12 MiB each, of 32");
}
