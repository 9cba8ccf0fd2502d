//! The packages of `make packages`: what is in them, and that they install, run and leave no files
//! after removal. `make packages-test` makes them and runs this; without `KVMTOP_TEST_PACKAGES=1`
//! only the systemd unit is checked.

use crate::common;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// What the program prints in a clean root is compared with what it says of this file.
const TABLE: &str = "tests/fixtures/readme/vmexit.txt";

/// The end of the name of this machine's package.
const DEB: &str = if cfg!(target_arch = "aarch64") {
    "_arm64.deb"
} else {
    "_amd64.deb"
};

fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(program: &str, args: &[&str]) -> Output {
    // cargo sets variables that kvmtop does not know. In an empty root it cannot start again
    // without them.
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C.UTF-8");
    command
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// What a program that has to succeed prints.
fn printed(program: &str, args: &[&str]) -> String {
    let out = run(program, args);
    assert!(
        out.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// The package whose name ends like this, or why it is not tested.
fn package(test: &str, end: &str, needs: &[&str]) -> Option<PathBuf> {
    let lacks = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    let why = if std::env::var_os("KVMTOP_TEST_PACKAGES").is_none() {
        "`make packages-test` runs it".to_owned()
    } else if !rustix::process::geteuid().is_root() {
        "not root, who alone may chroot".to_owned()
    } else if let Some(program) = needs.iter().find(lacks) {
        format!("{program} is not installed")
    } else {
        let found = std::fs::read_dir(tree().join("target/packages")).expect("target/packages");
        let found: Vec<_> = found
            .map(|e| e.expect("an entry").path())
            .filter(|p| text(p).ends_with(end))
            .collect();
        assert_eq!(found.len(), 1, "one package {end}: {found:?}");
        return found.into_iter().next();
    };
    common::skipped(test, &why);
    None
}

/// All files and folders below a folder.
fn files(root: &Path) -> BTreeSet<String> {
    let list = printed(
        "find",
        &[text(root), "-mindepth", "1", "-xdev", "-printf", "/%P\n"],
    );
    list.lines().map(str::to_owned).collect()
}

/// kvmtop in another root: version, demo, a report; returns the version.
fn runs_in(root: &Path, kvmtop: &str) {
    std::fs::copy(tree().join(TABLE), root.join("vmexit.txt")).expect("the table");
    let version = printed("chroot", &[text(root), kvmtop, "--version"]);
    assert_eq!(
        version.trim(),
        concat!("kvmtop ", env!("CARGO_PKG_VERSION"))
    );
    let demo = printed(
        "chroot",
        &[text(root), kvmtop, "demo", "--batch", "-n", "1"],
    );
    assert!(demo.contains("CPU%"), "{demo}");
    let report = printed("chroot", &[text(root), kvmtop, "report", "/vmexit.txt"]);
    let here = printed(
        env!("CARGO_BIN_EXE_kvmtop"),
        &["report", text(&tree().join(TABLE))],
    );
    assert!(
        report.contains("IO_INSTRUCTION") && report.lines().count() == here.lines().count(),
        "{report}"
    );
    std::fs::remove_file(root.join("vmexit.txt")).expect("removed");
}

/// Links between a package's documents lead to files of the package.
fn links_lead_somewhere(documents: &Path) {
    let all = files(documents)
        .into_iter()
        .map(|file| documents.join(file.trim_start_matches('/')));
    let pages: Vec<_> = all
        .filter(|file| file.extension().is_some_and(|end| end == "md"))
        .collect();
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        let page_text = std::fs::read_to_string(&page).expect("a page");
        let targets = page_text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains("://")) {
            assert!(
                page.with_file_name(target).exists(),
                "{}: {target}",
                page.display()
            );
        }
    }
}

/// A fresh Debian, kept in `target/roots`; a test works in a copy of it.
fn clean_debian(test: &str) -> Option<tempfile::TempDir> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one = MAKING.lock().expect("no test panics in here");
    let kept = tree().join("target/roots/minbase");
    if !kept.join("usr/bin/dpkg").exists() || kept.join("debootstrap").exists() {
        let _ = std::fs::remove_dir_all(&kept);
        let out = run(
            "debootstrap",
            &["--variant=minbase", "bookworm", text(&kept)],
        );
        if !out.status.success() {
            let _ = std::fs::remove_dir_all(&kept);
            let said = String::from_utf8_lossy(&out.stdout)
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned();
            common::skipped(test, &format!("debootstrap cannot make a root: {said}"));
            return None;
        }
    }
    let copy = tempfile::tempdir_in(tree().join("target")).expect("folder");
    printed(
        "cp",
        &[
            "-a",
            "--reflink=auto",
            &format!("{}/.", text(&kept)),
            text(copy.path()),
        ],
    );
    Some(copy)
}

#[test]
fn deb_in_a_clean_root() {
    let Some(deb) = package("deb_in_a_clean_root", DEB, &["debootstrap", "dpkg-deb"]) else {
        return;
    };
    let Some(root) = clean_debian("deb_in_a_clean_root") else {
        return;
    };
    let root = root.path();
    std::fs::copy(&deb, root.join("kvmtop.deb")).expect("the package");
    // dpkg's own books, and caches of the dynamic linker.
    let of_dpkg = |f: &String| {
        ["/var/lib/dpkg/", "/var/log/", "/var/cache/ldconfig"]
            .iter()
            .any(|p| f.starts_with(p))
    };
    let looked_at = || {
        files(root)
            .into_iter()
            .filter(|f| !of_dpkg(f))
            .collect::<BTreeSet<_>>()
    };
    let before = looked_at();
    printed("chroot", &[text(root), "dpkg", "-i", "/kvmtop.deb"]);
    let came: BTreeSet<_> = looked_at().difference(&before).cloned().collect();
    for file in [
        "/usr/bin/kvmtop",
        "/lib/systemd/system/kvmtop-record.service",
        "/lib/systemd/system/kvmtop-export.service",
        "/etc/default/kvmtop-record",
        "/etc/default/kvmtop-export",
        "/usr/share/doc/kvmtop/examples/prometheus/kvmtop-alerts.yml",
        "/usr/share/doc/kvmtop/examples/grafana/kvmtop.json",
        "/usr/share/bash-completion/completions/kvmtop",
        "/usr/share/zsh/vendor-completions/_kvmtop",
        "/usr/share/fish/vendor_completions.d/kvmtop.fish",
        "/usr/share/doc/kvmtop/copyright",
        "/usr/share/doc/kvmtop/LICENSE-APACHE",
        "/usr/share/doc/kvmtop/docs/security.md",
    ] {
        let usr_merged = format!("/usr{file}");
        assert!(
            came.contains(file) || came.contains(&usr_merged),
            "{file} is not among {came:#?}"
        );
    }
    let pages = std::fs::read_dir(tree().join("target/manual/man"))
        .expect("pages")
        .count();
    assert_eq!(
        came.iter()
            .filter(|f| f.starts_with("/usr/share/man/man1/kvmtop"))
            .count(),
        pages,
        "{came:#?}"
    );
    runs_in(root, "kvmtop");
    links_lead_somewhere(&root.join("usr/share/doc/kvmtop"));
    // Neither started nor enabled: recording and serving are the admin's choice.
    assert!(
        !came.iter().any(|f| f.contains("multi-user.target.wants")),
        "{came:#?}"
    );
    // Files that a host has after a while: recordings, and its own options.
    std::fs::create_dir_all(root.join("var/lib/kvmtop")).expect("folder");
    std::fs::write(root.join("var/lib/kvmtop/host.kvmtop"), "a recording").expect("recording");
    std::fs::write(
        root.join("etc/default/kvmtop-record"),
        "KVMTOP_RECORD_OPTIONS=\"--max-age 1d\"\n",
    )
    .expect("options");
    printed("chroot", &[text(root), "dpkg", "--remove", "kvmtop"]);
    let kept = looked_at();
    assert!(
        kept.contains("/var/lib/kvmtop/host.kvmtop") && kept.contains("/etc/default/kvmtop-record"),
        "{kept:#?}"
    );
    printed("chroot", &[text(root), "dpkg", "--purge", "kvmtop"]);
    let left: Vec<_> = looked_at().difference(&before).cloned().collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
    common::ran("deb_in_a_clean_root");
}

/// The files of a package without their folders, and where distributions differ by one name.
fn comparable(list: &str) -> BTreeSet<String> {
    let same = [
        ("/etc/sysconfig/", "/etc/default/"),
        ("/usr/lib/systemd/", "/lib/systemd/"),
        ("/site-functions/", "/vendor-completions/"),
        ("/usr/share/licenses/", "/usr/share/doc/"),
    ];
    let one_name = |f: &str| {
        same.iter()
            .fold(f.trim_end_matches(".gz").to_owned(), |f, (rpm, deb)| {
                f.replace(rpm, deb)
            })
    };
    let files = list
        .lines()
        .map(|l| l.trim_start_matches('.'))
        .filter(|f| !f.ends_with('/'));
    let files = files.filter(|f| {
        !["copyright", "LGPL-2.1", "changelog.gz", "lintian"]
            .iter()
            .any(|own| f.contains(own))
    });
    files
        .map(one_name)
        .map(|f| f.replace("/usr/lib/systemd/", "/lib/systemd/"))
        .collect()
}

#[test]
fn the_deb_of_arm64_holds_an_arm64_program() {
    let test = "the_deb_of_arm64_holds_an_arm64_program";
    let Some(deb) = package(
        test,
        "_arm64.deb",
        &["aarch64-linux-gnu-readelf", "dpkg-deb"],
    ) else {
        return;
    };
    let Some(own) = package(test, DEB, &[]) else {
        return;
    };
    let list = |deb| {
        printed(
            "sh",
            &[
                "-c",
                "dpkg-deb --fsys-tarfile \"$1\" | tar -t",
                "sh",
                text(deb),
            ],
        )
    };
    assert_eq!(list(&deb), list(&own));
    assert_eq!(
        printed("dpkg-deb", &["-f", text(&deb), "Architecture"]),
        "arm64\n"
    );
    let of = |deb| printed("dpkg-deb", &["-f", text(deb), "Depends"]);
    assert_eq!(of(&deb), of(&own));
    let root = tempfile::tempdir().expect("a folder");
    printed("dpkg-deb", &["-x", text(&deb), text(root.path())]);
    let head = printed(
        "aarch64-linux-gnu-readelf",
        &["-h", text(&root.path().join("usr/bin/kvmtop"))],
    );
    assert!(head.contains("AArch64"), "{head}");
}

#[test]
fn rpm_holds_what_the_deb_holds() {
    let test = "rpm_holds_what_the_deb_holds";
    let Some(rpm) = package(test, ".rpm", &["rpm", "dpkg-deb", "readelf"]) else {
        return;
    };
    let Some(deb) = package(test, DEB, &[]) else {
        return;
    };
    let rpm = text(&rpm);
    let of_rpm = comparable(&printed("rpm", &["-qlp", rpm]));
    let of_deb = printed(
        "sh",
        &[
            "-c",
            "dpkg-deb --fsys-tarfile \"$1\" | tar -t",
            "sh",
            text(&deb),
        ],
    );
    assert_eq!(of_rpm, comparable(&of_deb));
    printed("rpm", &["-K", "--nosignature", rpm]);
    let config = printed("rpm", &["-qcp", rpm]);
    let config: BTreeSet<_> = config.lines().collect();
    assert_eq!(
        config,
        [
            "/etc/sysconfig/kvmtop-export",
            "/etc/sysconfig/kvmtop-record"
        ]
        .into()
    );
    let needs = printed("rpm", &["-qRp", rpm]);
    assert!(
        needs.contains("libc.so.6") && !needs.contains("libvirt"),
        "{needs}"
    );

    // Its scripts need a shell; the books are rpm's own, wherever this distribution keeps them.
    let Some(root) = clean_debian(test) else {
        return;
    };
    let root = root.path();
    let of_rpm = |f: &String| f.contains("rpmdb") || f.starts_with("/var/lib/rpm");
    let looked_at = || {
        files(root)
            .into_iter()
            .filter(|f| !of_rpm(f))
            .collect::<BTreeSet<_>>()
    };
    let before = looked_at();
    printed("rpm", &["--root", text(root), "--initdb"]);
    // A Debian has the libraries, not in the books of rpm.
    printed(
        "rpm",
        &["--root", text(root), "-i", "--nodeps", "--ignorearch", rpm],
    );
    runs_in(root, "kvmtop");
    links_lead_somewhere(&root.join("usr/share/doc/kvmtop"));
    let versions = printed(
        "readelf",
        &[
            "--wide",
            "--version-info",
            text(&root.join("usr/bin/kvmtop")),
        ],
    );
    let minor = |part: &str| {
        part.split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|n| n.parse::<u32>().ok())
    };
    let newest = versions.split("GLIBC_2.").skip(1).filter_map(minor).max();
    assert!(
        newest.is_some_and(|minor| minor <= 34),
        "RHEL 9 has glibc 2.34: {newest:?}"
    );
    // An upgrade restarts the services that run.
    let systemctl = root.join("usr/bin/systemctl");
    std::fs::write(&systemctl, "#!/bin/sh\necho \"$*\" >> /calls\n").expect("a script");
    std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755)).expect("a script");
    printed(
        "rpm",
        &[
            "--root",
            text(root),
            "-U",
            "--replacepkgs",
            "--nodeps",
            "--ignorearch",
            rpm,
        ],
    );
    let calls = std::fs::read_to_string(root.join("calls")).expect("calls");
    assert!(
        calls.contains("try-restart kvmtop-record.service kvmtop-export.service"),
        "{calls}"
    );
    assert!(!calls.contains("disable"), "{calls}");
    printed("rpm", &["--root", text(root), "-e", "--nodeps", "kvmtop"]);
    let left: Vec<_> = looked_at().difference(&before).cloned().collect();
    let left: Vec<_> = left.iter().filter(|f| f.contains("kvmtop")).collect();
    let calls = std::fs::read_to_string(root.join("calls")).expect("calls");
    assert!(
        calls.contains("disable --now kvmtop-record.service kvmtop-export.service"),
        "{calls}"
    );
    assert!(left.is_empty(), "left behind: {left:#?}");
    common::ran(test);
}

#[test]
fn static_binary_runs_in_an_empty_root() {
    let test = "static_binary_runs_in_an_empty_root";
    let Some(archive) = package(test, "-linux-static.tar.gz", &["tar", "readelf"]) else {
        return;
    };
    let root = tempfile::tempdir().expect("folder");
    printed(
        "tar",
        &[
            "-xzf",
            text(&archive),
            "--strip-components=1",
            "-C",
            text(root.path()),
        ],
    );
    let root = root.path();
    let binary = root.join("kvmtop");
    let headers = printed("readelf", &["-ld", text(&binary)]);
    assert!(
        !headers.contains("INTERP") && !headers.contains("NEEDED"),
        "{headers}"
    );
    for file in [
        "LICENSE-MIT",
        "man/kvmtop.1",
        "completions/zsh/_kvmtop",
        "kvmtop-record.service",
        "kvmtop-export.service",
        "assets/prometheus/kvmtop-alerts.yml",
        "assets/grafana/kvmtop.json",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    links_lead_somewhere(root);
    runs_in(root, "/kvmtop");
    // It blames neither the host nor its administrator for what the build lacks.
    let said = run(
        text(&binary),
        &["--batch", "--json", "-n", "1", "-d", "0.2"],
    );
    let interval: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let sources = interval["sources"].as_array().expect("sources");
    let libvirt = sources
        .iter()
        .find(|s| s["name"] == "libvirt")
        .expect("libvirt");
    assert_eq!(libvirt["state"], "missing");
    assert!(
        libvirt["cause"]
            .as_str()
            .expect("a cause")
            .contains("this build of kvmtop cannot use it"),
        "{libvirt}"
    );
    common::ran(test);
}

#[test]
fn lintian_finds_nothing() {
    let test = "lintian_finds_nothing";
    let Some(deb) = package(test, DEB, &["lintian"]) else {
        return;
    };
    let out = run(
        "lintian",
        &["--allow-root", "--fail-on", "error,warning", text(&deb)],
    );
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
    common::ran(test);
}

/// `make packages` takes the program that `make run` has built: cargo compiles C code again where
/// the variable has changed.
#[test]
fn the_time_of_the_archives_is_set_after_the_builds() {
    let script = include_str!("../../assets/packaging/build.sh");
    assert!(script.find("export SOURCE_DATE_EPOCH") > script.rfind("$CARGO "));
}

#[test]
fn source_archive_holds_the_commit() {
    let test = "source_archive_holds_the_commit";
    let name = concat!("/kvmtop-", env!("CARGO_PKG_VERSION"), ".tar.gz");
    let Some(archive) = package(test, name, &["tar", "git"]) else {
        return;
    };
    let listed = printed("tar", &["-tzf", text(&archive)]);
    let head = concat!("kvmtop-", env!("CARGO_PKG_VERSION"), "/");
    let in_it: BTreeSet<_> = listed
        .lines()
        .filter_map(|l| l.strip_prefix(head))
        .filter(|f| !f.is_empty() && !f.ends_with('/'))
        .collect();
    let committed = printed(
        "git",
        &["-C", text(tree()), "ls-tree", "-r", "--name-only", "HEAD"],
    );
    assert_eq!(in_it, committed.lines().collect());
    common::ran(test);
}

/// The commands that have a unit.
const SERVICES: [&str; 2] = ["record", "export"];

/// A copy of the unit that starts the program under test: systemd wants to find it.
fn unit(folder: &Path, command: &str) -> PathBuf {
    let name = format!("kvmtop-{command}.service");
    let unit = std::fs::read_to_string(tree().join("assets/packaging").join(&name)).expect("unit");
    assert!(unit.contains(&format!("ExecStart=/usr/bin/kvmtop {command} ")));
    let path = folder.join(name);
    std::fs::write(
        &path,
        unit.replace(
            "/usr/bin/kvmtop ",
            &format!("{} ", env!("CARGO_BIN_EXE_kvmtop")),
        ),
    )
    .expect("unit");
    path
}

/// systemd takes the units without a word, and rates their exposure "OK": below 5 of 10.
#[test]
fn the_units_are_sound_and_confined() {
    let test = "the_units_are_sound_and_confined";
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return common::skipped(test, "systemd-analyze is not installed");
    }
    let folder = tempfile::tempdir().expect("folder");
    let readme = std::fs::read_to_string(tree().join("README.md")).expect("README.md");
    let stated: Vec<&str> = readme.split("rates its exposure at").skip(1).collect();
    assert_eq!(
        stated.len(),
        SERVICES.len(),
        "the README states the score of each"
    );
    for (command, stated) in SERVICES.into_iter().zip(stated) {
        let unit = unit(folder.path(), command);
        let out = run("systemd-analyze", &["verify", "--man=no", text(&unit)]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && !said.contains("kvmtop-"), "{said}");
        let out = run(
            "systemd-analyze",
            &[
                "security",
                "--offline=true",
                "--no-pager",
                "--threshold=49",
                text(&unit),
            ],
        );
        let said = String::from_utf8_lossy(&out.stdout);
        let rating = said
            .lines()
            .find(|l| l.contains("Overall exposure"))
            .unwrap_or_default();
        assert!(
            out.status.success() && rating.contains(" OK"),
            "{rating} {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let number = |text: &str| {
            text.split_whitespace()
                .find_map(|word| word.parse::<f64>().ok())
                .expect("a score")
        };
        let stated = number(stated);
        // Each version of systemd weighs a little differently.
        assert!(
            (number(rating) - stated).abs() < 0.5,
            "the README says {stated}: {rating}"
        );
    }
    common::ran(test);
}

/// `cargo install --path .` from a checkout, and a crate that can be published and is small. cargo
/// builds each crate from its archive alone; a config file of this checkout would reach neither
/// that build nor `cargo install --git`.
#[test]
fn cargo_installs_and_packs_it() {
    let test = "cargo_installs_and_packs_it";
    if std::env::var_os("KVMTOP_TEST_PACKAGES").is_none() {
        return common::skipped(test, "`make packages-test` runs it");
    }
    let folder = tempfile::tempdir().expect("folder");
    let target = tree().join("target");
    let cargo = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        let out = command
            .current_dir(tree())
            .env_remove("DOCS_RS")
            .args(args)
            .arg("--locked")
            .arg("--target-dir")
            .arg(&target)
            .output();
        let out = out.expect("cargo");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "cargo {args:?}: {said}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert!(!tree().join(".cargo").exists());
    cargo(&["install", "--path", ".", "--root", text(folder.path())]);
    let version = printed(text(&folder.path().join("bin/kvmtop")), &["--version"]);
    assert_eq!(
        version.trim(),
        concat!("kvmtop ", env!("CARGO_PKG_VERSION"))
    );
    cargo(&["package", "--workspace", "--allow-dirty", "--offline"]);
    let name = concat!("package/kvmtop-", env!("CARGO_PKG_VERSION"), ".crate");
    let size = std::fs::metadata(target.join(name))
        .expect("the crate")
        .len();
    assert!(size < 2 << 20, "the crate has {size} bytes");
    common::ran(test);
}

/// The units' commands are ones that kvmtop takes, with the options of the shipped defaults.
#[test]
fn the_units_start_what_kvmtop_takes() {
    use clap::Parser as _;
    let read = |file: &str| {
        std::fs::read_to_string(tree().join("assets/packaging").join(file)).expect("a file")
    };
    for name in SERVICES {
        let (unit, defaults) = (
            read(&format!("kvmtop-{name}.service")),
            read(&format!("sysconfig/kvmtop-{name}")),
        );
        let command = unit
            .lines()
            .find_map(|l| l.strip_prefix("ExecStart="))
            .expect("a command");
        let variable = format!("KVMTOP_{}_OPTIONS", name.to_uppercase());
        let options = |text: &str, start: &str| {
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix(start))
                .expect("options");
            line.trim_matches('"').to_owned()
        };
        let of_unit = options(&unit, &format!("Environment=\"{variable}="));
        let of_file = options(&defaults, &format!("#{variable}="));
        for options in [of_unit, of_file] {
            let line = command.replace(&format!("${variable}"), &options);
            kvmtop::cli::Cli::try_parse_from(line.split_whitespace())
                .unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }
}
