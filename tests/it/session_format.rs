//! A reader that knows nothing but `docs/session-format.md`, in another language, reads a
//! recording.

use session::Session;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn a_reader_in_python_prints_the_exits_of_the_demo() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let has_modules = |python: &&str| {
        let imports = Command::new(python)
            .args(["-c", "import msgpack, zstandard"])
            .output();
        imports.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"]
        .into_iter()
        .find(has_modules)
    else {
        eprintln!("SKIPPED: there is no python3 with msgpack and zstandard");
        return;
    };
    let demo = root.join("assets/demo.kvmtop");
    let output = Command::new(python)
        .arg(root.join("tests/read_recording.py"))
        .arg(&demo)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    // The reader prints the last count of each exit; the last sample has most of them.
    let mut cursor = Session::open(&demo).unwrap().cursor();
    let last = cursor.at(cursor.len() - 1).unwrap();
    let mut wanted = Vec::new();
    for domain in &last.domains {
        for thread in &domain.threads {
            for exit in &thread.events.exits {
                let (name, tid) = (&domain.facts.name.value, thread.tid);
                wanted.push(format!(
                    "{name} {tid} {:?} {} {}",
                    exit.isa, exit.code, exit.time.count
                ));
            }
        }
    }
    let lines: BTreeSet<&str> = printed.lines().collect();
    assert!(wanted.len() > 10, "{}", wanted.len());
    assert!(
        wanted.iter().all(|line| lines.contains(line.as_str())),
        "{printed}"
    );
}
