//! The live screen: a collector behind it, and what the screen asks of the collector.

use super::live::{self, Live};
use super::narrow::Narrowed;
use super::record::{Tape, Taped};
use crate::cli::Settings;
use crate::source::live::Command;
use crate::ui::{self, Control, UiOptions};
use std::sync::mpsc::{Receiver, Sender, channel};

/// `kvmtop`.
pub fn run(settings: &Settings) -> anyhow::Result<u8> {
    let Live { feed, commands } = live::start(settings);
    let (control, asked) = channel();
    let (tape, taping) = channel();
    translate(asked, commands, tape)?;
    let options = UiOptions {
        ascii: settings.look.ascii,
        no_color: !settings.look.color,
        interval_s: settings.interval.as_secs_f64(),
        lint: settings.findings.clone(),
        ..UiOptions::default()
    };
    let narrowed = Narrowed::new(feed, settings.domains.clone());
    ui::run(Box::new(Taped::new(narrowed, taping, settings.limits)), Some(control), options)?;
    Ok(0)
}

/// Passes on what the screen asks: the collector hears it even while it waits for the next tick, the recorder with the next sample.
fn translate(asked: Receiver<Control>, commands: Sender<Command>, tape: Sender<Tape>) -> std::io::Result<()> {
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for control in asked {
            // Who is gone is asked for nothing more.
            let _ = match control {
                Control::SetEngineLevel(level) => commands.send(Command::Level(level)).ok(),
                Control::SetKvmEvents(on) => commands.send(Command::KvmEvents(on)).ok(),
                Control::Quit => commands.send(Command::Stop).ok(),
                Control::StartRecord(path) => tape.send(Tape::Start(path)).ok(),
                Control::StopRecord => tape.send(Tape::Stop).ok(),
            };
        }
    })?;
    Ok(())
}
