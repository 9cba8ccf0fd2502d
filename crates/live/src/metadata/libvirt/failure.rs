//! Why libvirt does not answer, and what to do about it: absent, stopped and refusing have
//! different cures.

use super::connection::sentence;
use kvm::shell_quoted;
use virt::error::Error;

/// Brings back a daemon that is stopped, hangs, or runs without its socket. `systemctl start` would
/// do nothing about a daemon that hangs or lacks its socket.
pub const RESTART: &str = "`systemctl restart libvirtd` (or virtqemud.socket); its guests go on \
    running";

/// Why libvirt cannot be used, and what to do.
#[derive(Debug)]
pub struct LibvirtFailure {
    pub cause: String,
    pub fix: String,
}

/// No daemon listens on this host.
pub fn absent() -> LibvirtFailure {
    LibvirtFailure {
        cause: "libvirt is not used: no libvirt daemon listens in /run/libvirt".into(),
        fix: format!("if libvirt runs the guests here: {RESTART}"),
    }
}

/// The client library cannot be used.
pub fn without_library(why: &str) -> LibvirtFailure {
    LibvirtFailure {
        cause: format!("libvirt is not used: {why}"),
        fix: "if libvirt runs the guests here, install its client library: libvirt0 on Debian and \
              Ubuntu, libvirt-libs on Fedora"
            .into(),
    }
}

/// Words in the messages of libvirt and of the system to somebody who may not connect. Messages are
/// in English, as kvmtop sets no locale. libvirt asks polkit over the system's bus.
const REFUSALS: [&str; 6] = [
    "denied",
    "forbidden",
    "not permitted",
    "authentication",
    "system bus",
    "polkit",
];

/// A call to the daemon failed.
pub fn from_error(uri: &str, error: &Error) -> LibvirtFailure {
    explain(uri, &sentence(error))
}

fn explain(uri: &str, message: &str) -> LibvirtFailure {
    let user = rustix::process::geteuid().as_raw();
    let is_refused = REFUSALS.into_iter().any(|part| message.contains(part));
    let has_no_socket =
        message.contains("connect socket") && message.contains("No such file or directory");
    let (cause, fix) = if is_refused {
        let fix = format!(
            "run kvmtop as root, or add its user to the group libvirt and log in again: \
             `usermod -aG libvirt \"$(id -un {user})\"`"
        );
        (format!("runs but refuses kvmtop as user {user}"), fix)
    } else if has_no_socket || message.contains("Connection refused") {
        ("is stopped".into(), RESTART.into())
    } else {
        let list = format!("virsh -r -c {} list", shell_quoted(uri));
        (
            "does not answer".into(),
            format!("{list} tells whether others are answered; or name another with --libvirt-uri"),
        )
    };
    LibvirtFailure {
        cause: format!("libvirt at {uri} {cause}: {message}"),
        fix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_stopped_and_refusing_have_different_cures() {
        let socket = |why: &str| {
            format!("Failed to connect socket to '/run/libvirt/libvirt-sock-ro': {why}")
        };
        let polkit = "authentication unavailable: no polkit agent available to authenticate action \
                      'org.libvirt.unix.monitor'";
        let bus = "internal error: Unable to get system bus connection: Could not connect: No such \
            file or directory";
        let cases = [
            (
                socket("No such file or directory"),
                "is stopped",
                "systemctl restart libvirtd",
            ),
            (
                socket("Connection refused"),
                "is stopped",
                "systemctl restart libvirtd",
            ),
            (
                socket("Permission denied"),
                "refuses kvmtop",
                "group libvirt",
            ),
            (polkit.into(), "refuses kvmtop", "group libvirt"),
            (bus.into(), "refuses kvmtop", "group libvirt"),
            (
                "authentication failed: access denied by policy".into(),
                "refuses kvmtop",
                "group libvirt",
            ),
            (
                "no connection driver available".into(),
                "does not answer",
                "virsh -r",
            ),
        ];
        for (message, cause, fix) in cases {
            let said = explain("qemu:///system", &message);
            assert!(
                said.cause.contains(cause) && said.cause.contains(&message),
                "{said:?}"
            );
            assert!(said.fix.contains(fix), "{said:?}");
        }
        let hostile = explain("x'; reboot #", "");
        assert!(
            hostile
                .fix
                .starts_with(r"virsh -r -c 'x'\''; reboot #' list"),
            "{}",
            hostile.fix
        );
        assert!(absent().fix.contains("if libvirt runs the guests here"));
    }
}
