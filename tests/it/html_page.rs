//! The page of `report --html` in a real browser: it draws, zooms, reports no error, loads nothing,
//! and shows the same figures as `report --json`.

use crate::chromium;
use crate::chromium::Tab;
use crate::common;
use judge::figures;
use kvm::Space;
use sample::Direction;
use serde_json::Value;
use session::{Limits, Recorder};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use testkit::random::{RandomHost, storming, working};
use testkit::{Fixture, Guest, Host};

/// A session of these samples.
fn session(dir: &Path, samples: impl Iterator<Item = sample::Sample>) -> PathBuf {
    let path = dir.join("night.kvmtop");
    let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
    samples.for_each(|s| recorder.append(&s).unwrap());
    recorder.close().unwrap();
    path
}

fn run(args: &[&str]) -> (Vec<u8>, String) {
    let out = common::kvmtop()
        .args(args)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .expect("kvmtop runs");
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{args:?}: {stderr}");
    (out.stdout, stderr)
}

/// A browser with the page of this input, and the input's JSON report; `None` where no browser is
/// installed.
fn opened(test: &str, dir: &TempDir, input: &Path) -> Option<(Tab, String, Value)> {
    if let Some(why) = chromium::missing() {
        common::skipped(test, &why);
        return None;
    }
    let (page, input) = (dir.path().join("page.html"), input.to_str().unwrap());
    run(&["report", "--html", page.to_str().unwrap(), input]);
    let report = serde_json::from_slice(&run(&["report", "--json", input]).0).unwrap();
    let url = format!("file://{}", page.display());
    let mut tab = Tab::open(dir.path(), 1400, 900);
    tab.go(&url);
    common::ran(test);
    Some((tab, url, report))
}

/// Pixels of each chart that are not blank.
const PAINTED: &str = "charts.map((c) => {
  const k = c.plot.ctx.canvas;
  return c.plot.ctx.getImageData(0, 0, k.width, k.height).data.reduce((n, v, i) => n + (i % 4 === 3 && v > 0), 0);
})";

#[test]
fn it_draws_zooms_and_has_the_figures_of_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = RandomHost::new(
        3,
        3,
        4,
        |g, r| if g == 0 { storming(r) } else { working(r) },
    );
    let input = session(dir.path(), (0..120).map(|_| host.tick()));
    let Some((mut tab, url, report)) = opened("the HTML page in a browser", &dir, &input) else {
        return;
    };

    let held = tab.eval("document.getElementById('report').textContent");
    let held: Value = serde_json::from_str(held.as_str().unwrap()).unwrap();
    assert!(
        held == report,
        "the page does not hold the report as --json prints it"
    );
    let painted = tab.eval(PAINTED);
    let painted = painted.as_array().unwrap();
    assert!(painted.len() >= 4, "{painted:?}");
    assert!(
        painted.iter().all(|n| n.as_u64() > Some(2000)),
        "blank charts: {painted:?}"
    );

    // Dragged over the middle half of the first chart.
    let place = tab.eval(
        "(charts[0].box.scrollIntoView({block: 'center'}), (({left, top, width, height}) => [left, top, width, height])
         (charts[0].plot.over.getBoundingClientRect()))",
    );
    let at = |i: usize| place[i].as_f64().unwrap();
    let (y, x) = (at(1) + at(3) / 2.0, |part: f64| at(0) + at(2) * part);
    tab.drag((x(0.25), y), (x(0.75), y));
    let shown = tab.eval(
        "charts.map((c) => (c.plot.scales.x.max - c.plot.scales.x.min) / (whole[1] - whole[0]))",
    );
    for part in shown.as_array().unwrap() {
        assert!(
            (part.as_f64().unwrap() - 0.5).abs() < 0.02,
            "all charts show the stretch: {shown}"
        );
    }
    // By key, and back.
    tab.eval("charts[0].box.focus()");
    tab.press("+");
    let quarter = tab
        .eval("(view.stretch[1] - view.stretch[0]) / (whole[1] - whole[0])")
        .as_f64()
        .unwrap();
    assert!((quarter - 0.25).abs() < 0.02, "{quarter}");
    tab.press("0");
    assert_eq!(tab.eval("view.stretch"), tab.eval("whole"));

    // Each guest: drawn, and the means of the legend are the report's figures.
    for (i, domain) in report["domains"].as_array().unwrap().iter().enumerate() {
        tab.eval(&format!("select({i}, null)"));
        let legend = tab.eval(
            "Object.fromEntries(charts[0].spec.lines.map((l) =>
            [l.name, overStretch(l, times.guests, whole).mean]))",
        );
        for kind in ["guest", "usr", "sys", "wait"] {
            let (page, json) = (
                legend[kind].as_f64().unwrap(),
                domain["cpu"][kind].as_f64().unwrap(),
            );
            assert!(
                (page - json).abs() <= 1e-3 * json.max(0.1),
                "{kind}: {page}, in JSON {json}"
            );
        }
        let vcpus = domain["vcpus"].as_u64().unwrap();
        for vcpu in 0..vcpus {
            tab.eval(&format!("select({i}, {vcpu})"));
            assert!(tab.eval("charts.length").as_u64() >= Some(3), "vCPU {vcpu}");
        }
        let cell = "[...document.querySelectorAll('#tables tbody tr')].length";
        assert!(tab.eval(cell).as_u64() > Some(3));
    }
    assert_eq!(tab.complaints(&url), [""; 0]);
}

/// A guest that came late has one mean: of all the time, in the table as in the legends. Tables are
/// sorted by their heads, and an address leads to a guest.
#[test]
fn a_figure_is_the_same_everywhere_and_tables_are_sorted() {
    let dir = tempfile::tempdir().unwrap();
    let all = Fixture::busy_host();
    let early = Fixture {
        guests: all.guests[1..].to_vec(),
        ..all.clone()
    };
    let input = session(
        dir.path(),
        (0..40).map(|s| if s < 20 { &early } else { &all }.sample(f64::from(s))),
    );
    let Some((mut tab, url, report)) = opened("one mean for one figure", &dir, &input) else {
        return;
    };
    let late = report["domains"]
        .as_array()
        .unwrap()
        .iter()
        .position(|d| d["name"] == *all.guests[0].facts.name.value);
    let late = &report["domains"][late.unwrap()];
    let busy: f64 = ["guest", "usr", "sys"]
        .iter()
        .map(|kind| late["cpu"][kind].as_f64().unwrap())
        .sum();
    let name = late["name"].as_str().unwrap();
    let line = format!(
        "charts.find((c) => c.spec.id === 'cpu' && c.spec.title.includes('by guest')).spec.lines
        .find((l) => l.name === '{name}')"
    );
    let mean = tab
        .eval(&format!("overStretch({line}, times.guests, whole).mean"))
        .as_f64()
        .unwrap();
    assert!(
        (mean - busy).abs() < 0.01 * busy,
        "{mean} in the legend, {busy} in the report"
    );

    let bases = tab.eval("['guests-title', 'findings-title'].map((id) => byId(id).textContent)");
    assert_eq!(
        bases,
        serde_json::json!([
            "Guests, means over 39 s",
            "Findings, each when it weighed most"
        ])
    );
    let key = tab.eval("document.querySelector('#guests .legend').textContent");
    assert!(
        ["guest", "usr", "sys", "wait"]
            .iter()
            .all(|kind| key.as_str().unwrap().contains(kind)),
        "{key}"
    );
    for (head, column) in [
        (0, "guestOrder.map(({d}) => d.name).sort()"),
        (2, "guestOrder.map(({d}) => busy(d))"),
    ] {
        let sorted = tab.eval(&format!(
            "(() => {{
                const head = document.querySelectorAll('#guests th button')[{head}];
                const shown = () => [...document.querySelectorAll('#guests tbody tr')].map((r) => r.innerText);
                head.click();
                const first = shown();
                head.click();
                return [first.length, String(first.reverse()) === String(shown()), head.tabIndex];
            }})()"
        ));
        let rows = tab.eval(&format!("{column}.length"));
        assert_eq!(sorted, serde_json::json!([rows, true, 0]), "column {head}");
    }
    let top = tab.eval("document.querySelector('#guests tbody td').textContent");
    let least = tab.eval(
        "guestOrder.reduce((a, b) => (busy(b.d) ?? 1e9) < (busy(a.d) ?? 1e9) ? b : a).d.name",
    );
    assert_eq!(top, least, "from the smallest after the second click");
    assert_eq!(
        tab.eval("(all => new Set(all).size === all.length)(unjudged(null))"),
        true
    );

    tab.go("about:blank");
    tab.go(&format!("{url}#guest-{name}"));
    assert_eq!(tab.eval("shownName()"), name);
    let other = report["domains"]
        .as_array()
        .unwrap()
        .iter()
        .find(|d| d["name"] != name)
        .unwrap()["name"]
        .clone();
    let follow = format!(
        "addEventListener('hashchange', () => done(shownName())); location.hash = '#guest-' + \
            {other}"
    );
    assert_eq!(
        tab.eval(&format!("new Promise((done) => {{ {follow}; }})")),
        other
    );
    assert_eq!(tab.complaints(&url), [""; 0]);
}

#[test]
fn figures_are_printed_as_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let input = session(
        dir.path(),
        (0..5).map(|s| Fixture::busy_host().sample(f64::from(s))),
    );
    let Some((mut tab, ..)) = opened("figures of the HTML page", &dir, &input) else {
        return;
    };
    let values: Vec<f64> = (-5..14)
        .flat_map(|e| [1.0, 1.2344, 2.996, 9.994, 9.996, 9.9996, 99.96].map(|m| m * 10_f64.powi(e)))
        .chain([
            0.0, 999.4, 119.4, 120.2, 7199.0, 7200.0, 9999.4, 9999.6, 999_499.0, 999_501.0,
        ])
        .collect();
    for (name, print) in [
        ("rate", figures::rate as fn(f64) -> String),
        ("percent", figures::percent),
        ("micros", figures::micros),
        ("duration", figures::duration),
        ("seconds", figures::seconds),
    ] {
        let page = tab.eval(&format!("{values:?}.map({name})"));
        for (value, text) in values.iter().zip(page.as_array().unwrap()) {
            assert_eq!(
                text.as_str(),
                Some(print(*value).as_str()),
                "{name}({value})"
            );
        }
    }
}

#[test]
fn hostile_names_are_text() {
    let dir = tempfile::tempdir().unwrap();
    let evil = "</script><script>alert(1)</script><img src=http://192.0.2.1/ \
        onerror=alert(2)>\u{202e}\"'`{{data}}";
    let fixture = [evil, "__proto__", "constructor", "<b>bold</b>&amp;"]
        .iter()
        .enumerate()
        .fold(Fixture::new(Host::numa(1, 2, 1)), |f, (i, name)| {
            f.guest(
                Guest::new(name, 3000 + 100 * i32::try_from(i).unwrap()).vcpus(2, |v, t| {
                    let t = t
                        .cpu(50.0, 1.0, 1.0, 1.0)
                        .on(v)
                        .exits(name, 50.0, 1.0)
                        .exits("IO_INSTRUCTION", 20_000.0, 4.0);
                    t.access(Space::Pio, 0x608, Direction::Read, 20_000.0, Some(4.0))
                }),
            )
        });
    let input = session(dir.path(), (0..30).map(|s| fixture.sample(f64::from(s))));
    let Some((mut tab, url, report)) = opened("hostile names in the HTML page", &dir, &input)
    else {
        return;
    };
    for i in 0..report["domains"].as_array().unwrap().len() {
        tab.eval(&format!(
            "select({i}, null); document.querySelectorAll('details').forEach((d) => {{ d.open = \
                true; }})"
        ));
        tab.eval(&format!("select({i}, 0)"));
    }
    let first = report["domains"][0]["name"].as_str().unwrap();
    let shown =
        tab.eval("[...document.querySelectorAll('.guests .name')].map((b) => b.textContent)");
    assert!(
        shown.as_array().unwrap().iter().any(|n| n == first),
        "{shown}"
    );
    assert_eq!(
        tab.eval("[document.images.length, document.scripts.length]"),
        serde_json::json!([0, 3])
    );
    assert_eq!(tab.complaints(&url), [""; 0]);
}

#[test]
fn files_without_time_make_a_page_without_charts() {
    let dir = tempfile::tempdir().unwrap();
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/readme/vmexit.txt");
    let Some((mut tab, url, report)) = opened("the HTML page of a table", &dir, &table) else {
        return;
    };
    assert_eq!(
        tab.eval("[charts.length, document.getElementById('over-time').hidden]"),
        serde_json::json!([0, true])
    );
    let rows = tab.eval("document.querySelectorAll('#tables tbody tr').length");
    assert!(rows.as_u64() >= Some(report["domains"][0]["exits"].as_array().unwrap().len() as u64));
    assert_eq!(tab.complaints(&url), [""; 0]);
}

/// At the width of a phone nothing but tables is wider than the window; printing opens all
/// findings.
#[test]
fn a_phone_and_paper_show_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let input = session(
        dir.path(),
        (0..30).map(|s| Fixture::busy_host().sample(f64::from(s))),
    );
    let Some((mut tab, url, report)) = opened("the HTML page on a phone", &dir, &input) else {
        return;
    };
    let size =
        serde_json::json!({ "width": 400, "height": 800, "deviceScaleFactor": 2, "mobile": true });
    tab.call("Emulation.setDeviceMetricsOverride", &size);
    for scheme in ["dark", "light"] {
        let feature = serde_json::json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        tab.call("Emulation.setEmulatedMedia", &feature);
        tab.go(&url);
        for i in 0..report["domains"].as_array().unwrap().len() {
            tab.eval(&format!("select({i}, null)"));
            tab.eval("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
            let order = "['verdict', 'about', 'notes', 'guests'].map((id) => byId(id).offsetTop)";
            assert!(
                tab.eval(order)
                    .as_array()
                    .unwrap()
                    .is_sorted_by_key(Value::as_u64),
                "the verdict comes first"
            );
            let wide = tab.eval("document.documentElement.scrollWidth");
            assert!(wide.as_u64() <= Some(400), "guest {i} is {wide} wide");
        }
    }
    tab.eval("dispatchEvent(new Event('beforeprint'))");
    assert_eq!(
        tab.eval("[colour('ground'), document.querySelectorAll('details:not([open])').length]"),
        serde_json::json!(["rgb(255, 255, 255)", 0])
    );
    assert_eq!(tab.complaints(&url), [""; 0]);
}

/// What a script meets: the file, `-`, and refusals.
#[test]
fn the_file_is_private() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let dir = tempfile::tempdir().unwrap();
    let input = session(
        dir.path(),
        (0..5).map(|s| Fixture::busy_host().sample(f64::from(s))),
    );
    let (input, page) = (input.to_str().unwrap(), dir.path().join("page.html"));
    let (stdout, stderr) = run(&["report", input, "--html", page.to_str().unwrap()]);
    assert!(
        stdout.is_empty() && stderr.contains(page.to_str().unwrap()),
        "{stderr}"
    );
    assert_eq!(
        std::fs::metadata(&page).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let link = dir.path().join("link.html");
    symlink(&page, &link).unwrap();
    let refused = |args: &[&str]| {
        let out = common::kvmtop().args(args).output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let (status, said) = refused(&["report", "--html", link.to_str().unwrap(), input]);
    assert!(
        status == Some(1) && said.contains("symbolic link"),
        "{said}"
    );
    assert_eq!(
        refused(&["report", "--html", "x.html", "--json", input]).0,
        Some(2)
    );
}
