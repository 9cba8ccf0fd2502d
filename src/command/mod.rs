//! What each command does: arguments in, output and an exit status out. Everything that reads,
//! waits and prints is here; [`::report`] and [`crate::ui`] decide what is shown.

mod batch;
mod check;
mod doctor;
mod export;
mod html_file;
#[cfg(test)]
mod json_schema_tests;
mod live;
mod plan;
mod profile;
mod record;
mod recorded_intervals;
mod replay;
mod report;
mod report_session;
pub(crate) mod screen;

use crate::cli::args::{BatchArgs, ChoiceArgs, Cli, Command, SamplingArgs, ScreenArgs};
use crate::cli::{Settings, config};
use clap::{CommandFactory, Parser};
use judge::analysis::JudgedInterval;
use rights::LaterCalls;
use rustix::thread::CapabilitySet;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The current folder, into which the screen writes its files.
const HERE: &str = ".";

/// Exit status of a command that could not do what it was asked for.
const FAILED: u8 = 1;

/// Runs this process's command line, with an environment and rights that only it needs.
pub fn start() -> ExitCode {
    if let Err(why) = rights::start_clean() {
        say(&why);
        let args: Vec<OsString> = std::env::args_os().collect();
        return ExitCode::from(if is_check(&args) {
            check::COULD_NOT_LOOK
        } else {
            FAILED
        });
    }
    say_kept(rights::renounce());
    run(std::env::args_os())
}

/// Runs a command line and returns its exit status. Errors go to stderr.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version come this way, too. A reader that is gone wants no complaint.
            let _ = e.print();
            let status = u8::try_from(e.exit_code()).unwrap_or(FAILED);
            return ExitCode::from(if status > 0 && is_check(&args) {
                check::COULD_NOT_LOOK
            } else {
                status
            });
        }
    };
    // A monitoring plugin whose result nobody can read has not said that all is well.
    let (failed, unread) = match &cli.command {
        Some(Command::Check(_)) => (check::COULD_NOT_LOOK, check::COULD_NOT_LOOK),
        _ => (FAILED, 0),
    };
    match dispatch(cli) {
        Ok(status) => ExitCode::from(status),
        Err(e) if reader_is_gone(&e) => ExitCode::from(unread),
        Err(e) => {
            say(&format!("{e:#}"));
            ExitCode::from(failed)
        }
    }
}

/// Whether a command line, maybe one with mistakes, is that of `kvmtop check`: the first command in
/// it counts.
fn is_check(args: &[OsString]) -> bool {
    let known = Cli::command();
    let command = args
        .iter()
        .skip(1)
        .find(|word| known.find_subcommand(word).is_some());
    command.is_some_and(|command| command == "check")
}

fn dispatch(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        None => {
            let is_batch = cli.batch.batch;
            let terminal = if is_batch { Ok(()) } else { needs_terminal() };
            let settings = terminal
                .and_then(|()| settings(Some(&cli.sampling), &cli.choice, Some(&cli.screen)))?;
            if is_batch {
                live::batch(&settings, &cli.batch)
            } else {
                screen::live(&settings)
            }
        }
        Some(Command::Plan(args)) => {
            let settings = settings(Some(&args.sampling), &args.choice, None)?;
            if !args.inputs.is_empty() {
                only_files(&args.inputs, None);
            }
            plan::run(&args, &settings)
        }
        Some(Command::Report(args)) => {
            let settings = settings(None, &args.choice, None)?;
            only_files(&args.inputs, args.html.as_deref().map(folder_of));
            match &args.html {
                Some(page) => report::html(&args.inputs, &args.reading, page, &settings),
                None => report::report(&args, &settings),
            }
        }
        Some(Command::Diff(args)) => {
            let settings = settings(None, &args.choice, None)?;
            only_files(&[args.before.clone(), args.after.clone()], None);
            report::diff(&args, &settings)
        }
        Some(Command::Record(args)) => {
            record::run(&args, &settings(Some(&args.sampling), &args.choice, None)?)
        }
        Some(Command::Replay(args)) => {
            let settings = settings(None, &args.choice, Some(&args.screen))?;
            only_files(std::slice::from_ref(&args.file), screen_folder(&args.batch));
            replay::run(&args, &settings)
        }
        Some(Command::Demo(args)) => {
            let settings = settings(None, &args.choice, Some(&args.screen))?;
            only_files(&[], screen_folder(&args.batch));
            replay::demo(&args, &settings)
        }
        Some(Command::Check(args)) => {
            check::run(&args, &settings(Some(&args.sampling), &args.choice, None)?)
        }
        Some(Command::Profile(args)) => profile::run(&args),
        Some(Command::Doctor(args)) => {
            let choice = ChoiceArgs {
                config: args.config.clone(),
                ..ChoiceArgs::default()
            };
            doctor::run(&args, &settings(Some(&args.sampling), &choice, None)?)
        }
        Some(Command::Export(args)) => {
            export::run(&args, &settings(Some(&args.sampling), &args.choice, None)?)
        }
    }
}

/// Keeps what a command needs that reads these files and writes into this folder, as the user who
/// started it, or writes nothing.
fn only_files(inputs: &[PathBuf], output: Option<&Path>) {
    match output {
        Some(_) => give_up_all_but(rights::for_files(inputs, output)),
        None => say_kept(rights::keep_to_read(inputs)),
    }
    rights::forbid_system_calls(LaterCalls::default());
}

/// Where the screen of a recording writes its files; text needs none.
fn screen_folder(args: &BatchArgs) -> Option<&'static Path> {
    if args.batch {
        None
    } else {
        Some(HERE.as_ref())
    }
}

/// The calling thread gives up all rights but these.
fn give_up_all_but(rights: CapabilitySet) {
    say_kept(rights::keep(rights));
}

fn say_kept(given_up: Result<(), rustix::io::Errno>) {
    if let Err(e) = given_up {
        say(&format!(
            "rights that are not needed cannot be given up ({e}): kvmtop goes on with them"
        ));
    }
}

/// The folder of a file.
fn folder_of(file: &Path) -> &Path {
    file.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(HERE.as_ref())
}

/// Fails without a terminal, and names what to use instead.
fn needs_terminal() -> anyhow::Result<()> {
    let (input, output) = (io::stdin().is_terminal(), io::stdout().is_terminal());
    anyhow::ensure!(
        input && output,
        "the screen needs a terminal, and standard {} is none; `kvmtop --batch` prints text, \
         `kvmtop --batch --json` prints JSON",
        if output { "input" } else { "output" }
    );
    Ok(())
}

fn settings(
    sampling: Option<&SamplingArgs>,
    choice: &ChoiceArgs,
    screen: Option<&ScreenArgs>,
) -> anyhow::Result<Settings> {
    let config = config::load(choice.config.as_deref())?;
    Ok(Settings::new(&config, sampling, choice, screen))
}

/// Prints a message on stderr, each of its lines with the tool's name.
fn say(message: &str) {
    let mut err = io::stderr().lock();
    for line in message.lines() {
        // A message that stderr does not take is lost.
        let _ = writeln!(err, "kvmtop: {}", kvm::sanitize(line, 2000));
    }
}

/// What a report shows of an interval.
fn view<'a>(
    interval: &'a JudgedInterval,
    source: &'a str,
    settings: &'a Settings,
) -> ::report::View<'a> {
    ::report::View {
        model: &interval.model,
        findings: &interval.report,
        source,
        filter: &settings.domains,
    }
}

/// Reports on stderr which `--domain` patterns match nothing; JSON has them as sources.
fn say_unmatched(view: &::report::View<'_>) {
    for s in view
        .filter
        .unmatched(view.model.domains.iter().map(|d| &*d.facts))
    {
        say(&s.sentence());
    }
}

/// Whether the reader of the output has gone (`kvmtop … | head`), which is not an error.
fn reader_is_gone(e: &anyhow::Error) -> bool {
    e.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// How wide text is: as the terminal, where the standard output is one.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout())
        .ok()
        .filter(|size| size.ws_col > 0);
    size.map_or(::report::table::COLUMNS, |size| size.ws_col.into())
}

/// Prints a text that ends in a line break, all of it at once.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(kvm::without_hidden(text).as_bytes())
        .and_then(|()| out.flush());
    written.map_err(|e| {
        // A terminal that is gone, as a pipe without a reader.
        let gone = e.raw_os_error() == Some(libc::EIO) && is_device(&out);
        let kind = if gone {
            io::ErrorKind::BrokenPipe
        } else {
            e.kind()
        };
        io::Error::new(kind, format!("cannot write to the standard output: {e}"))
    })
}

fn is_device(file: impl std::os::fd::AsFd) -> bool {
    let mode = rustix::fs::fstat(file).map(|stat| stat.st_mode);
    mode.is_ok_and(|mode| {
        rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::CharacterDevice
    })
}
