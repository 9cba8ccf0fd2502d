//! The live screen: a collector behind it, and what the screen asks of the collector.

use super::live::{self, Live};
use super::narrow::narrow;
use crate::cli::Settings;
use crate::source::live::CollectorCommand as Command;
use crate::source::session::{Tape, Taped};
use crate::ui::{self, Control, UiOptions};
use std::sync::mpsc::{Receiver, Sender, channel};

/// `kvmtop`.
pub fn run(settings: &Settings) -> anyhow::Result<u8> {
    let Live { feed, commands } = live::start(settings);
    let (control, asked) = channel();
    let (tape, taped) = channel();
    translate(asked, commands, tape)?;
    let options = UiOptions {
        ascii: settings.look.ascii,
        no_color: !settings.look.color,
        interval_s: settings.interval.as_secs_f64(),
        lint: settings.findings.clone(),
        domains: settings.domains.clone(),
        ..UiOptions::default()
    };
    let domains = settings.domains.clone();
    let feed = Taped::new(feed, taped, settings.limits).of(move |sample| narrow(sample, &domains));
    ui::run(Box::new(feed), Some(control), options)?;
    Ok(0)
}

/// Passes on what the screen asks: the collector hears it even while it waits for the next tick.
fn translate(asked: Receiver<Control>, commands: Sender<Command>, tape: Sender<Tape>) -> std::io::Result<()> {
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for control in asked {
            let command = match control {
                Control::SetEngineLevel(level) => Command::Level(level),
                Control::SetKvmEvents(on) => Command::KvmEvents(on),
                Control::Quit => Command::Stop,
                Control::StartRecord(path) => {
                    // The feed is there as long as the collector is.
                    let _ = tape.send(Tape::Start(path));
                    continue;
                }
                Control::StopRecord => {
                    let _ = tape.send(Tape::Stop);
                    continue;
                }
            };
            // A collector that is gone asks for nothing more.
            if commands.send(command).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
