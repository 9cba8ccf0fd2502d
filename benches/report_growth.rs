//! What `kvmtop report` costs as its input grows: CPU time, memory and output, for each kind of
//! made input.
//!
//! ```console
//! cargo bench --bench report_growth -- [--only NAME] [--most N]
//! ```
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "../tests/common/child.rs"]
mod child;
use testkit::inputs;

use std::process::Command;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        args.iter()
            .position(|a| a == name)
            .and_then(|at| args.get(at + 1))
    };
    let only = option("--only");
    let most: usize = option("--most").map_or(usize::MAX, |n| n.parse().expect("a number"));
    println!(
        "{:<20} {:>8} {:<20} {:>9} {:>9} {:>8} {:>10}",
        "input", "n", "of", "MiB", "CPU s", "RSS MiB", "JSON MiB"
    );
    for input in inputs::ALL
        .iter()
        .filter(|i| only.is_none_or(|name| i.name.starts_with(name.as_str())))
    {
        for n in input.sizes.iter().copied().filter(|n| *n <= most) {
            let folder = tempfile::tempdir().expect("a folder");
            let bytes = input.write(n, folder.path()).expect("room for the input");
            let mut command = Command::new(env!("CARGO_BIN_EXE_kvmtop"));
            command.args(["report", "--json"]).arg(folder.path());
            let done = child::measure(&mut command).expect("kvmtop runs");
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            println!(
                "{:<20} {n:>8} {:<20} {:>9.2} {:>9.2} {:>8.0} {:>10.2}",
                input.name,
                input.of,
                mib(bytes),
                done.cpu.as_secs_f64(),
                mib(done.rss),
                mib(done.output)
            );
        }
    }
}
