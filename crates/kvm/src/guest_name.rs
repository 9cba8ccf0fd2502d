//! Names of guests without libvirt, from the VMM's command line or cgroup.
//!
//! A process id changes with each start of a guest. These names do not, so two recordings of a
//! guest show the same.

use super::pattern::{Pattern, group};
use super::sanitize;

/// File names that any guest may have.
static ANY_GUEST: Pattern = Pattern::new(concat!(
    "^(?:api|boot|ch|clh-api|cloud-hypervisor|control|crosvm|disk0?|drive|firecracker|hda|",
    "images?|root|rootfs|run|socket|system|tmp|vda|vm)$",
));
/// A disk image that is not firmware.
static IMAGE: Pattern = Pattern::new(r"[^/]\.(?:qcow2|img|raw|vmdk|vdi|ext4|squashfs|iso)$");
static FIRMWARE: Pattern = Pattern::new("(?:^|/)(?:OVMF|AAVMF|edk2|efi)[^/]*$");
/// A scope of systemd-machined; libvirt numbers its guests.
static SCOPE: Pattern = Pattern::new(r"machine-(?:qemu\\x2d[0-9]+\\x2d)?(?P<name>[^/ ]*?)\.scope");
/// `(vm='web')`, `/var/lib/libvirt/qemu/domain-3-web/`, `/dev/hugepages/libvirt/qemu/3-web`.
static BY_LIBVIRT: Pattern =
    Pattern::new(r"(?:\(vm='|libvirt/qemu/(?:domain-)?[0-9]+-)(?P<name>[^',/ )]+)");
static ESCAPE: Pattern = Pattern::new(r"\\x(?P<code>[0-7][0-9a-f])");
/// A container's scope or folder. An id is 64 hexadecimal digits, of which its tools show twelve.
static CONTAINER: Pattern =
    Pattern::new(r"^(?:(?P<tool>.*)-)?(?P<id>[0-9a-fA-F]{12})[0-9a-fA-F]{52}(?:\.scope)?$");

/// The name that the command line gives: `--id` of Firecracker (docs/jailer.md), `--name` of crosvm
/// and kvmtool, else the API socket that a management tool made for this guest.
pub fn of_command(argv: &[String]) -> Option<String> {
    let (program, args) = argv.split_first()?;
    let program = program.rsplit('/').next().unwrap_or(program);
    let names: &[&str] = if program.starts_with("firecracker") {
        &["--id"]
    } else {
        &["--name", "-name"]
    };
    let given = option(args, names).filter(|id| *id != "anonymous-instance");
    let given = given.map(|name| {
        name.strip_prefix("guest=")
            .unwrap_or(name)
            .split(',')
            .next()
            .unwrap_or(name)
    });
    let sockets: &[&str] = match program {
        "crosvm" => &["--socket", "-s"],
        _ => &["--api-socket", "--api-sock"],
    };
    match given {
        Some(name) if !name.is_empty() && !name.starts_with('-') => Some(name.to_owned()),
        _ => of_socket(option(args, sockets)?),
    }
}

/// The value of an option: `--id web`, `--id=web`. The first one counts.
fn option<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(index, arg)| {
        if names.contains(&arg.as_str()) {
            return args.get(index + 1).map(String::as_str);
        }
        arg.split_once('=')
            .filter(|(name, _)| name.starts_with("--") && names.contains(name))
            .map(|(_, value)| value)
    })
}

/// The guest of an API socket: `/run/ch/web.sock`, `path=/run/vc/vm/web/clh-api.sock`.
pub fn of_socket(option: &str) -> Option<String> {
    own_file(option.split(',').next()?).map(|name| sanitize(name, 80))
}

/// The first disk image of the command line, without folder and extension. Several guests may run
/// from one.
pub fn of_disk(argv: &[String]) -> Option<String> {
    let parts = argv.iter().skip(1).flat_map(|arg| arg.split([',', '"']));
    let paths = parts.map(|part| part.split_once('=').map_or(part, |(_, value)| value));
    let mut images = paths.filter(|path| IMAGE.is_match(path) && !FIRMWARE.is_match(path));
    images.find_map(own_file).map(str::to_owned)
}

/// The name of a file without its extension, or of its folder if any guest may have a file of this
/// name.
fn own_file(path: &str) -> Option<&str> {
    let path = path.strip_prefix("path=").unwrap_or(path);
    path.rsplit('/')
        .take(2)
        .map(|name| name.split_once('.').map_or(name, |(stem, _)| stem))
        .find(|name| !name.is_empty() && !ANY_GUEST.is_match(name))
}

/// Reads `/proc/PID/cgroup`: of its paths the innermost folder that names a machine, as
/// systemd-machined or libvirt registered it, and a container or pod that the VMM runs in,
/// `docker-0a1b2c3d4e5f`. Others may run in it too.
pub fn of_cgroup(text: &str) -> (Option<String>, Option<String>) {
    let mut machine = None;
    let mut of_container = None;
    // `0::/machine.slice/machine-web.scope`: the path is the third part of a line.
    let paths = text
        .lines()
        .take(64)
        .filter_map(|line| line.splitn(3, ':').nth(2));
    for folder in paths.flat_map(|path| path.rsplit('/')) {
        machine = machine.or_else(|| of_scope(folder));
        of_container = of_container.or_else(|| container(folder));
    }
    (machine, of_container)
}

/// The guest of a scope in a text: `machine-qemu\x2d3\x2dweb.scope` is the guest `web`. systemd
/// escapes all but plain characters (systemd.unit(5)).
pub(crate) fn of_scope(text: &str) -> Option<String> {
    let scope = SCOPE.captures(text)?;
    let name = ESCAPE
        .regex()?
        .replace_all(group(&scope, "name")?, unescape);
    Some(sanitize(&name, 128)).filter(|name| !name.is_empty())
}

/// The character that an escape stands for.
fn unescape(escape: &regex::Captures<'_>) -> String {
    let code = group(escape, "code").and_then(|code| u8::from_str_radix(code, 16).ok());
    code.map(char::from).map(String::from).unwrap_or_default()
}

/// The guest of a line of a log: of its scope, or as libvirt names it in its messages and folders.
pub(crate) fn of_log_line(text: &str) -> Option<String> {
    of_scope(text).or_else(|| Some(sanitize(group(&BY_LIBVIRT.captures(text)?, "name")?, 128)))
}

/// `docker-<id>.scope`, `libpod-<id>.scope`, `cri-containerd-<id>.scope`, or the bare id of cgroup
/// v1.
fn container(folder: &str) -> Option<String> {
    let found = CONTAINER.captures(folder)?;
    let tool = match group(&found, "tool").unwrap_or("container") {
        "libpod" => "podman",
        tool => tool.strip_prefix("cri-").unwrap_or(tool),
    };
    Some(format!("{tool}-{}", group(&found, "id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_vmm_names_its_guest() {
        for (line, name) in [
            (
                "/firecracker --id 551e7604-e35c --start-time-us 1",
                Some("551e7604-e35c"),
            ),
            ("firecracker --id=web1 --api-sock /run/a.sock", Some("web1")),
            ("firecracker --api-sock /srv/fc/web2.socket", Some("web2")),
            (
                "firecracker --id anonymous-instance --api-sock /tmp/firecracker.socket",
                None,
            ),
            ("lkvm run --name build -k bzImage -c 2", Some("build")),
            (
                "crosvm run --name arcvm --cpus 4 -s /run/vm/1/crosvm.sock k",
                Some("arcvm"),
            ),
            (
                "crosvm run -s /run/vms/termina/crosvm.sock k",
                Some("termina"),
            ),
            (
                "cloud-hypervisor --api-socket path=/run/ch/db1.sock --cpus boot=4",
                Some("db1"),
            ),
            (
                "/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/5af9/clh-api.sock",
                Some("5af9"),
            ),
            ("my-qemu -name guest=b,debug-threads=on -m 1G", Some("b")),
            ("cloud-hypervisor --kernel vmlinux", None),
            ("vmm --name", None),
            ("", None),
        ] {
            assert_eq!(of_command(&argv(line)).as_deref(), name, "{line}");
        }
        assert_eq!(of_command(&[]), None);
    }

    #[test]
    fn a_disk_names_its_guest() {
        for (line, name) in [
            (
                "qemu-system-x86_64 -drive file=/vm/alpine.qcow2,if=virtio -cdrom a.iso",
                Some("alpine"),
            ),
            ("qemu-system-x86_64 -hda win10.img", Some("win10")),
            (
                r#"qemu-system-x86_64 -blockdev {"driver":"file","filename":"/vm/web/disk.qcow2"}"#,
                Some("web"),
            ),
            (
                "qemu-system-x86_64 -drive if=pflash,file=/usr/share/OVMF_CODE.raw -hda \
                /vm/web/disk.img",
                Some("web"),
            ),
            ("lkvm run -d rootfs.ext4", None),
            ("lkvm run -d /guests/ci/rootfs.ext4", Some("ci")),
            (
                "cloud-hypervisor --disk path=/vm/jammy.raw,readonly=on path=seed.img",
                Some("jammy"),
            ),
            ("qemu-system-x86_64 -m 1G", None),
        ] {
            assert_eq!(of_disk(&argv(line)).as_deref(), name, "{line}");
        }
    }

    #[test]
    fn a_cgroup_names_a_machine_or_a_container() {
        let machine = |text: &str| of_cgroup(text).0;
        assert_eq!(
            machine("0::/machine.slice/machine-qemu\\x2d3\\x2dweb\\x2d1.scope/libvirt/emulator"),
            Some("web-1".into())
        );
        assert_eq!(
            machine("0::/machine.slice/machine-db.scope\n"),
            Some("db".into())
        );
        assert_eq!(
            machine("0::/user.slice/user-0.slice/session-3.scope\n"),
            None
        );
        let id = "0a1b2c3d4e5f"
            .repeat(6)
            .chars()
            .take(64)
            .collect::<String>();
        let container = |text: String| of_cgroup(&text).1;
        assert_eq!(
            container(format!("0::/system.slice/docker-{id}.scope")),
            Some("docker-0a1b2c3d4e5f".into())
        );
        assert_eq!(
            container(format!("4:cpu:/docker/{id}\n")),
            Some("container-0a1b2c3d4e5f".into())
        );
        assert_eq!(
            container(format!(
                "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"
            )),
            Some("containerd-0a1b2c3d4e5f".into())
        );
        assert_eq!(
            container(format!("0::/machine.slice/libpod-{id}.scope/container")),
            Some("podman-0a1b2c3d4e5f".into())
        );
        assert_eq!(container("0::/system.slice/ssh.service".into()), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(words in proptest::collection::vec(".{0,40}", 0..6), text in ".{0,200}") {
            let _ = (of_command(&words), of_disk(&words), of_cgroup(&text));
            let _ = of_cgroup(&format!("0::/machine-{text}.scope"));
        }
    }
}
