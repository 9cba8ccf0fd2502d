use super::*;
use crate::model::{Base, Model};

#[test]
fn cases() {
    let Ok(root) = std::env::var("CASES") else { return };
    let mut dirs: Vec<_> =
        std::fs::read_dir(root).unwrap().flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    dirs.sort();
    for d in dirs {
        let files: Vec<_> = folder(&d).unwrap().into_iter().filter(|f| f.extension().unwrap() != "toml").collect();
        let i = load(&files, &ImportOptions::default());
        let m = Model::new(&i.sample, Base::Whole(i.base));
        let exits: u64 = m.domains.iter().map(|d| d.exits.count).sum();
        let acc: u64 = m.domains.iter().flat_map(|d| &d.accesses).map(|a| a.span.count).sum();
        let want: Vec<String> = std::fs::read_to_string(d.join("case.toml"))
            .unwrap()
            .lines()
            .filter(|l| l.contains("_total"))
            .map(str::to_owned)
            .collect();
        println!(
            "{:30} {} doms {:?} exits {exits} acc {acc} base {:?} want {want:?} err {:?} notes {:?} fires {:?}",
            d.file_name().unwrap().to_string_lossy(),
            i.source,
            m.domains.iter().map(|d| d.name().to_owned()).collect::<Vec<_>>(),
            i.base,
            i.errors,
            i.notes,
            i.sample.engine.fires_kvm_exit
        );
        for d in &m.domains {
            for r in d.exits.rows.iter().take(20) {
                println!(
                    "   {:22} {:?} n {} mean {:?} se {:?} t% {:?}",
                    r.reason,
                    r.id,
                    r.span.count,
                    r.span.mean_us(),
                    r.span.stderr_percent(),
                    r.time_percent
                );
            }
        }
    }
}

#[test]
fn samples() {
    let Ok(root) = std::env::var("SAMPLES") else { return };
    for f in folder(Path::new(&root)).unwrap() {
        let i = load(std::slice::from_ref(&f), &ImportOptions::default());
        println!(
            "== {} {} base {:?} {:?} {:?} events {} fires {:?} lost {}",
            f.display(),
            i.source,
            i.base,
            i.errors,
            i.notes,
            i.sample.engine.events,
            i.sample.engine.fires_kvm_exit,
            i.sample.engine.lost
        );
        let m = Model::new(&i.sample, Base::Whole(i.base));
        for d in &m.domains {
            println!(
                "  {} threads {:?} kvm_events {:?}",
                d.name(),
                d.threads.iter().map(|t| (t.tid, &t.comm, t.role, t.index)).collect::<Vec<_>>(),
                d.kvm_events
            );
            for r in &d.exits.rows {
                println!("   {:22} {:?} n {} mean {:?}", r.reason, r.id, r.span.count, r.span.mean_us());
            }
            for r in &d.accesses {
                println!(
                    "   {:?} {} {:?} n {} mean {:?}",
                    r.space,
                    r.address_text(),
                    r.direction,
                    r.span.count,
                    r.span.mean_us()
                );
            }
            println!("   {:?}", d.userspace);
        }
    }
}
