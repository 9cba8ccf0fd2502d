//! Why libvirt does not answer, and what to do about it: absent, stopped and refusing have different cures.

use super::client::LibvirtError;
use kvm::shell_quoted;

/// Brings back a daemon that is stopped, hangs, or runs without its socket; `start` would do nothing for the last two.
pub const RESTART: &str = "`systemctl restart libvirtd` (or virtqemud.socket); its guests go on running";

/// Cause and fix of a failure.
pub type LibvirtFailure = (String, String);

/// A static binary.
pub fn not_in_this_build() -> LibvirtFailure {
    (
        "libvirt is not used: this build of kvmtop cannot use it, as the static binary cannot load libraries".into(),
        "if libvirt runs the guests here, use kvmtop's .deb or .rpm, or build it from source (make build)".into(),
    )
}

/// No daemon listens on this host.
pub fn absent() -> LibvirtFailure {
    (
        "libvirt is not used: no libvirt daemon listens in /run/libvirt".into(),
        format!("if libvirt runs the guests here: {RESTART}"),
    )
}

/// The client library cannot be used.
pub fn without_library(why: &str) -> LibvirtFailure {
    (
        format!("libvirt is not used: {why}"),
        "if libvirt runs the guests here, install its client library: libvirt0 on Debian and Ubuntu, libvirt-libs on \
         Fedora"
            .into(),
    )
}

/// Errors of somebody who may not connect: `VIR_ERR_OPERATION_DENIED`, `VIR_ERR_AUTH_FAILED`, `VIR_ERR_AUTH_CANCELLED`,
/// `VIR_ERR_ACCESS_DENIED` and `VIR_ERR_AUTH_UNAVAILABLE`.
const REFUSALS: [i32; 5] = [29, 45, 79, 88, 94];

/// A call failed.
pub fn from_error(uri: &str, LibvirtError { number, message }: &LibvirtError) -> LibvirtFailure {
    let says = |part: &str| message.contains(part);
    let user = rustix::process::geteuid().as_raw();
    let refuses = format!("runs but refuses kvmtop as user {user}");
    let (cause, fix) = if REFUSALS.contains(number) {
        (refuses, format!("run kvmtop as root, or allow its user in polkit, as root: {}", polkit_rule(user)))
    } else if says("Permission denied") || says("Operation not permitted") {
        // Of the socket. libvirt passes on the system's sentence, in English: kvmtop sets no locale.
        let join = format!("usermod -aG libvirt \"$(id -un {user})\"");
        (refuses, format!("run kvmtop as root, or add its user to the group libvirt and log in again: `{join}`"))
    } else if says("system bus") || says("polkit") {
        // Before a missing socket: libvirt reaches polkit over the bus, and the error about a missing bus reads much
        // alike. It looks for the bus once, when it first needs it (src/util/virgdbus.c, virGDBusGetSystemBus).
        let fix = "run kvmtop as root, or start the bus and polkit, and libvirt again, which looks for the bus only \
                   once: `systemctl start dbus polkit && systemctl restart libvirtd` (or virtqemud); its guests go on \
                   running";
        ("runs but cannot ask polkit about kvmtop's user".into(), fix.into())
    } else if says("connect socket") && says("No such file or directory") || says("Connection refused") {
        ("is stopped".into(), RESTART.into())
    } else {
        let list = format!("virsh -r -c {} list", shell_quoted(uri));
        (
            "does not answer".into(),
            format!("{list} tells whether others are answered; or name another with --libvirt-uri"),
        )
    };
    (format!("libvirt at {uri} {cause}: {message}"), fix)
}

/// The command that lets a user look at guests. polkit reads rules in the order of their files' names, and the first
/// answer counts (polkit(8)); members of the group libvirt may manage guests, which is another action.
fn polkit_rule(user: u32) -> String {
    format!(
        "echo 'polkit.addRule(function(action, subject) {{ if (action.id == \"org.libvirt.unix.monitor\" && \
         subject.user == \"'\"$(id -un {user})\"'\") return polkit.Result.YES; }});' \
         > /etc/polkit-1/rules.d/00-kvmtop.rules"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_stopped_and_refusing_have_different_cures() {
        let socket = |why: &str| format!("Failed to connect socket to '/run/libvirt/libvirt-sock-ro': {why}");
        let polkit = "authentication unavailable: no polkit agent available to authenticate action \
                      'org.libvirt.unix.monitor'";
        let bus = "internal error: Unable to get system bus connection: Could not connect: No such file or directory";
        let cases = [
            (0, socket("No such file or directory"), "is stopped", "systemctl restart libvirtd"),
            (0, socket("Connection refused"), "is stopped", "systemctl restart libvirtd"),
            (0, bus.into(), "cannot ask polkit", "polkit && systemctl restart libvirtd"),
            (0, socket("Permission denied"), "refuses kvmtop", "group libvirt"),
            (94, polkit.into(), "refuses kvmtop", "> /etc/polkit-1/rules.d/00-kvmtop.rules"),
            (45, "authentication failed: access denied by policy".into(), "refuses kvmtop", "rules.d"),
            (0, "no connection driver available".into(), "does not answer", "--libvirt-uri"),
        ];
        for (number, message, cause, fix) in cases {
            let error = LibvirtError { number, message };
            let said = from_error("qemu:///system", &error);
            assert!(said.0.contains(cause) && said.0.contains(&error.message), "{said:?}");
            assert!(said.1.contains(fix), "{said:?}");
        }
        let hostile = from_error("x'; reboot #", &LibvirtError { number: 0, message: String::new() });
        assert!(hostile.1.starts_with(r"virsh -r -c 'x'\''; reboot #' list"), "{}", hostile.1);
        assert!(absent().1.contains("if libvirt runs the guests here"));
    }
}
