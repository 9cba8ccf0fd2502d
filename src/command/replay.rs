//! `kvmtop replay`: a recorded session on the screen, or interval by interval as text or JSON.

use super::batch::Batch;
use super::narrow::Narrowed;
use super::sessions::{Played, TapeDeck};
use crate::cli::Settings;
use crate::cli::args::ReplayArgs;
use crate::ui::{self, Player, UiOptions};

/// Runs it.
pub fn run(args: &ReplayArgs, settings: &Settings) -> anyhow::Result<u8> {
    let mut tape = TapeDeck::open(&args.file)?;
    let start_ms = args.at.map(|at| tape.resolve(at)).transpose()?;
    if args.batch.batch {
        // One sample earlier: the first interval printed is the one asked for.
        let from = start_ms.map_or(0, |ms| tape.index_at(ms).saturating_sub(1));
        Batch::new(settings, &args.batch, "session").run(&mut Played { tape, next: from })?;
        return Ok(0);
    }
    super::needs_terminal()?;
    let options = UiOptions {
        ascii: settings.look.ascii,
        no_color: !settings.look.color,
        source: ui::Source::Replay,
        title: args.file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        interval_s: tape.interval_s(),
        lint: settings.findings.clone(),
        start_ms,
    };
    ui::replay(Box::new(Narrowed::new(tape, settings.domains.clone())), options)?;
    Ok(0)
}
