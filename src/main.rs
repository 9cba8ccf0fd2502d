//! The `kvmtop` program: all of it is in the library.

fn main() -> std::process::ExitCode {
    kvmtop::start()
}
