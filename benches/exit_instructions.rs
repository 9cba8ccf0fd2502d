//! What watching costs a guest, in instructions for each exit.
//!
//! A host that QEMU emulates (`tests/nested`) runs a real `kvm_amd`, which fires `kvm_exit`, and
//! with QEMU's `-icount` its clock counts instructions: each takes 16 ns. So a cost comes out the
//! same in every run and on every machine, to about one instruction in a hundred. It says nothing
//! of time: caches, speculation and the price of an instruction are missing.
//!
//! The guest makes one exit a round and counts its rounds in its memory. Instructions are those of
//! the vCPU thread, in the host's kernel, the VMM and the guest, in windows with each watcher and
//! without one in turn.
//!
//! ```console
//! cargo bench --bench exit_instructions -- --rounds 2 [--load port|msr|apic] [--perf]
//! ```
#![allow(
    unsafe_code,
    reason = "sets the guest's environment and maps its memory"
)]
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;
mod watched;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use watched::{Guests, WARM, end, median, watcher};

/// Nanoseconds of an instruction: `-icount shift=4` in `boot.sh`.
const INSTRUCTION_NS: f64 = 16.0;
/// How long a watcher may take for its first output; perf needs long for its own start.
const START: Duration = Duration::from_secs(60);
/// The emulated host may take this long, seconds.
const LIFE: &str = "1800";
/// Its kernel panics now and then, towards the end of a run.
const TRIES: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if std::env::var_os("KVMTOP_TEST_GUEST").is_some() {
        return common::guest::main();
    }
    let value = |name: &str| {
        args.iter()
            .position(|a| a == name)
            .and_then(|i| args.get(i + 1))
    };
    let rounds = value("--rounds").map_or(2, |n| n.parse().expect("--rounds N"));
    let loads =
        value("--load").map_or_else(|| vec!["port", "msr", "apic"], |load| vec![load.as_str()]);
    if args.iter().any(|a| a == "--inside") {
        return loads
            .iter()
            .for_each(|load| measure(load, rounds, args.iter().any(|a| a == "--perf")));
    }
    for load in loads {
        let mut options = vec![
            "--load".into(),
            load.into(),
            "--rounds".into(),
            rounds.to_string(),
        ];
        options.extend(args.iter().filter(|a| *a == "--perf").cloned());
        let mut said = boot(&options.join(" "));
        for _ in 1..TRIES {
            said = said.or_else(|_| boot(&options.join(" ")));
        }
        match said {
            Ok(table) => print!("{table}"),
            Err(why) => println!("load {load}: not measured in {TRIES} tries: {why}"),
        }
    }
}

/// Runs this program in the emulated host; what it printed.
fn boot(options: &str) -> Result<String, String> {
    let nested = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nested");
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nested-bookworm");
    let shared = dir.join("shared-instructions");
    let script = |name: &str, args: &[&Path]| {
        let mut command = Command::new("sh");
        command
            .arg(nested.join(name))
            .args(args)
            .env("MACHINE", "amd64-instructions");
        command.output().map_err(|e| format!("{name}: {e}"))
    };
    let prepared = script("prepare.sh", &[&dir])?;
    if !prepared.status.success() {
        return Err(String::from_utf8_lossy(&prepared.stderr).into_owned());
    }
    let _ = std::fs::remove_dir_all(&shared);
    std::fs::create_dir_all(&shared).map_err(|e| e.to_string())?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    // The screen, and perf, want a terminal.
    let job = format!(
        "mkdir -p /dev/shm /dev/pts\nmount -t devpts devpts /dev/pts\nexport TERM=xterm\n{} \
         --inside {options} > /shared/table.part 2> /shared/progress || exit 1\nmv \
         /shared/table.part /shared/table\n",
        own.display()
    );
    std::fs::write(shared.join("job"), job).map_err(|e| e.to_string())?;
    let said = script("boot.sh", &[&dir, &shared, Path::new(LIFE)])?;
    let read = |name: &str| std::fs::read_to_string(shared.join(name));
    let last = |text: &str| {
        text.lines()
            .rfind(|line| !line.contains("reboot:"))
            .unwrap_or("it said nothing")
            .to_owned()
    };
    read("table").map_err(|_| {
        last(
            &(String::from_utf8_lossy(&said.stdout).into_owned()
                + &read("progress").unwrap_or_default()),
        )
    })
}

/// Measures in the emulated host.
fn measure(load: &str, rounds: usize, perf: bool) {
    let guests = Guests::start(load, 1);
    let kvmtop = env!("CARGO_BIN_EXE_kvmtop");
    // The key `e` goes from full detail to none, and from there to counts.
    let counts = format!(
        "sh -c '(sleep 8; printf e; sleep 2; printf e; sleep 600) | script -qc {kvmtop} /dev/null'"
    );
    let mut watchers = vec![
        (
            "kvmtop --engine none",
            format!("{kvmtop} --batch --json --engine none"),
        ),
        (
            "kvmtop --engine bpf",
            format!("{kvmtop} --batch --json --engine bpf"),
        ),
        (
            "the same, interrupts",
            format!("{kvmtop} --batch --json --engine bpf --engine-detail interrupts"),
        ),
        ("the same, counts only", counts),
        (
            "kvmtop --engine perf",
            format!("{kvmtop} --batch --json --engine perf"),
        ),
    ];
    if perf {
        let pid = guests.guest.pid();
        watchers.push((
            "perf kvm stat live",
            format!("script -qc 'perf kvm stat live -p {pid}' /dev/null"),
        ));
    }
    // Between the windows it stands still: the emulated clock leaps over idle times, and nothing is
    // so slow to emulate as a guest.
    guests.stop(true);
    let instructions = || {
        guests.stop(false);
        std::thread::sleep(WARM / 10);
        let speed = guests.speed().0;
        guests.stop(true);
        1e9 / speed / INSTRUCTION_NS
    };
    let (mut alone, mut under) = (Vec::new(), vec![(Vec::new(), Vec::new()); watchers.len()]);
    for _ in 0..rounds {
        let mut before = instructions();
        for ((name, command), (more, ratios)) in watchers.iter().zip(&mut under) {
            let output = tempfile::NamedTempFile::new().expect("a file");
            let mut child = watcher(command, output.reopen().expect("the file").into());
            wait_for_output(name, &mut child, output.path());
            // Switching to counts happens after the first output.
            std::thread::sleep(if name.contains("counts") {
                8 * WARM
            } else {
                WARM
            });
            let with = instructions();
            eprintln!("{name}: {with:.0}, {before:.0} before it");
            end(child);
            let after = instructions();
            let without = f64::midpoint(before, after);
            more.push(with - without);
            ratios.push(without / with);
            alone.push(without);
            before = after;
        }
    }
    println!(
        "load {load}: {:.0} instructions a round unwatched; {rounds} rounds",
        median(&alone)
    );
    println!(
        "{:<22} {:>20} {:>14}",
        "watcher", "instructions an exit", "guest's speed"
    );
    for ((name, _), (more, ratios)) in watchers.iter().zip(&under) {
        println!("{name:<22} {:>20.0} {:>14.3}", median(more), median(ratios));
    }
    std::process::exit(0); // the guest ends with this process
}

fn wait_for_output(name: &str, child: &mut Child, output: &Path) {
    let began = Instant::now();
    while std::fs::metadata(output).is_ok_and(|m| m.len() == 0) {
        assert!(began.elapsed() < START, "{name}: no output");
        assert!(
            child.try_wait().expect("its state").is_none(),
            "{name}: it ended"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}
