//! Writes the seeds of each target into a folder of its name: `seeds FOLDER`.

use kvmtop_fuzz::targets;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).expect("usage: seeds FOLDER");
    for target in targets::ALL {
        let folder = Path::new(&folder).join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (n, seed) in target.seeds().into_iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{n}")), seed)?;
        }
    }
    Ok(())
}
