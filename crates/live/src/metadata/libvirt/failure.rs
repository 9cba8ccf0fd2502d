//! Why libvirt does not answer, and what to do about it: absent, stopped and refusing have
//! different cures.

use super::connection::sentence;
use kvm::shell_quoted;
use virt::error::{Error, ErrorNumber};

/// Brings back a daemon that is stopped, hangs, or runs without its socket; `start` would do
/// nothing for the last two.
pub const RESTART: &str = "`systemctl restart libvirtd` (or virtqemud.socket); its guests go on \
    running";

/// Cause and fix of a failure.
pub type LibvirtFailure = (String, String);

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
        "if libvirt runs the guests here, install its client library: libvirt0 on Debian and \
         Ubuntu, libvirt-libs on Fedora"
            .into(),
    )
}

/// Errors of somebody who may not connect.
const REFUSALS: [ErrorNumber; 5] = [
    ErrorNumber::OperationDenied,
    ErrorNumber::AuthFailed,
    ErrorNumber::AuthCancelled,
    ErrorNumber::AccessDenied,
    ErrorNumber::AuthUnavailable,
];

/// A call failed.
pub fn from_error(uri: &str, error: &Error) -> LibvirtFailure {
    let is_refused = error
        .code()
        .known()
        .is_some_and(|number| REFUSALS.contains(&number));
    explain(uri, is_refused, &sentence(error))
}

fn explain(uri: &str, is_refused: bool, message: &str) -> LibvirtFailure {
    let says = |part: &str| message.contains(part);
    let user = rustix::process::geteuid().as_raw();
    let refuses = format!("runs but refuses kvmtop as user {user}");
    let (cause, fix) = if is_refused {
        (
            refuses,
            format!(
                "run kvmtop as root, or allow its user in polkit, as root: {}",
                polkit_rule(user)
            ),
        )
    } else if says("Permission denied") || says("Operation not permitted") {
        // Of the socket. libvirt passes on the system's sentence, in English: kvmtop sets no
        // locale.
        let join = format!("usermod -aG libvirt \"$(id -un {user})\"");
        (
            refuses,
            format!(
                "run kvmtop as root, or add its user to the group libvirt and log in again: \
            `{join}`"
            ),
        )
    } else if says("system bus") || says("polkit") {
        // Before a missing socket: libvirt reaches polkit over the bus, and the error about a
        // missing bus reads much alike. It looks for the bus once, when it first needs it
        // (src/util/virgdbus.c, virGDBusGetSystemBus).
        let fix = "run kvmtop as root, or start the bus and polkit, and libvirt again, which looks \
                   for the bus only once: `systemctl start dbus polkit && systemctl restart \
                   libvirtd` (or virtqemud); its guests go on running";
        (
            "runs but cannot ask polkit about kvmtop's user".into(),
            fix.into(),
        )
    } else if says("connect socket") && says("No such file or directory")
        || says("Connection refused")
    {
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

/// The command that lets a user look at guests. polkit reads rules in the order of their files'
/// names, and the first answer counts (polkit(8)); members of the group libvirt may manage guests,
/// which is another action.
fn polkit_rule(user: u32) -> String {
    format!(
        "echo 'polkit.addRule(function(action, subject) {{ if (action.id == \
         \"org.libvirt.unix.monitor\" && subject.user == \"'\"$(id -un {user})\"'\") return \
         polkit.Result.YES; }});' > /etc/polkit-1/rules.d/00-kvmtop.rules"
    )
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
                false,
                socket("No such file or directory"),
                "is stopped",
                "systemctl restart libvirtd",
            ),
            (
                false,
                socket("Connection refused"),
                "is stopped",
                "systemctl restart libvirtd",
            ),
            (
                false,
                bus.into(),
                "cannot ask polkit",
                "polkit && systemctl restart libvirtd",
            ),
            (
                false,
                socket("Permission denied"),
                "refuses kvmtop",
                "group libvirt",
            ),
            (
                true,
                polkit.into(),
                "refuses kvmtop",
                "> /etc/polkit-1/rules.d/00-kvmtop.rules",
            ),
            (
                true,
                "authentication failed: access denied by policy".into(),
                "refuses kvmtop",
                "rules.d",
            ),
            (
                false,
                "no connection driver available".into(),
                "does not answer",
                "--libvirt-uri",
            ),
        ];
        for (is_refused, message, cause, fix) in cases {
            let said = explain("qemu:///system", is_refused, &message);
            assert!(
                said.0.contains(cause) && said.0.contains(&message),
                "{said:?}"
            );
            assert!(said.1.contains(fix), "{said:?}");
        }
        let hostile = explain("x'; reboot #", false, "");
        assert!(
            hostile.1.starts_with(r"virsh -r -c 'x'\''; reboot #' list"),
            "{}",
            hostile.1
        );
        assert!(absent().1.contains("if libvirt runs the guests here"));
    }
}
