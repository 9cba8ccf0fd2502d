use super::super::{ImportOptions, load};
use crate::model::{Base, Model};
use std::path::PathBuf;

#[test]
fn lab() {
    let Ok(root) = std::env::var("PERF") else { return };
    for f in root.split(':') {
        for perf_times in [false, true] {
            let t = std::time::Instant::now();
            let i = load(&[PathBuf::from(f)], &ImportOptions { perf_times, ..Default::default() });
            println!(
                "== {f} {} base {:?} {:?} {:?} events {} fires {:?} lost {} in {:?} host {:?}",
                i.source,
                i.base,
                i.errors,
                i.notes,
                i.sample.engine.events,
                i.sample.engine.fires_kvm_exit,
                i.sample.engine.lost,
                t.elapsed(),
                i.sample.host.facts
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
                    println!(
                        "   {:>20} {:>10} {:.2} {:.2} {:.2} ( +- {:.2} )",
                        r.reason,
                        r.span.count,
                        r.span.min_ns.unwrap() as f64 / 1e3,
                        r.span.max_ns.unwrap() as f64 / 1e3,
                        r.span.mean_us().unwrap(),
                        r.span.stderr_percent().unwrap()
                    );
                }
                for r in &d.accesses {
                    println!(
                        "   {:?} {} {:?} {} {:?} {:?} mean {:?} +- {:?}",
                        r.space,
                        r.address_text(),
                        r.direction,
                        r.span.count,
                        r.span.min_ns,
                        r.span.max_ns,
                        r.span.mean_us(),
                        r.span.stderr_percent()
                    );
                }
            }
        }
    }
}
