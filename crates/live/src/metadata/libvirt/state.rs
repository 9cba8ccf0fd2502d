//! Whether a domain runs. libvirt knows this without asking QEMU.

use crate::metadata::status_xml::PAUSES;
use sample::StopReason;
use virt::domain::{Domain, DomainCrashedReason, DomainPausedReason, DomainStateReason};
use virt::enumutil::Enum;

/// Why a domain does not run at this moment; `None` if it does, or libvirt does not say.
pub(super) fn stop_reason(domain: &Domain) -> Option<StopReason> {
    stop_reason_of(state_reason(domain)?)
}

fn state_reason(domain: &Domain) -> Option<DomainStateReason> {
    match domain.state() {
        Ok((_, Enum::Known(reason))) => Some(reason),
        _ => None,
    }
}

fn stop_reason_of(reason: DomainStateReason) -> Option<StopReason> {
    Some(match reason {
        DomainStateReason::PMSuspended(_) => StopReason::Suspended,
        DomainStateReason::Crashed(reason) if reason.is(DomainCrashedReason::Panicked) => {
            StopReason::GuestPanicked
        }
        DomainStateReason::Crashed(_) => StopReason::Crashed,
        DomainStateReason::Paused(reason) => {
            let number = usize::try_from(reason.to_raw()).unwrap_or(0);
            PAUSES
                .get(number)
                .map_or(StopReason::Unknown, |(_, reason)| *reason)
        }
        _ => return None,
    })
}

/// The step of a migration to which the domain's state belongs, by QEMU's names.
pub(super) fn migration_status(domain: &Domain) -> &'static str {
    match state_reason(domain) {
        Some(DomainStateReason::Paused(reason)) if reason.is(DomainPausedReason::PostCopy) => {
            "postcopy-active"
        }
        Some(DomainStateReason::Paused(reason))
            if reason.is(DomainPausedReason::PostCopyFailed) =>
        {
            "postcopy-paused"
        }
        _ => "active",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use virt::domain::{DomainCrashedReasonEnum, DomainPausedReasonEnum, DomainRunningReason};

    #[test]
    fn reasons_of_libvirt() {
        let paused = |reason| DomainStateReason::Paused(DomainPausedReasonEnum::from_raw(reason));
        let crashed =
            |reason| DomainStateReason::Crashed(DomainCrashedReasonEnum::from_raw(reason));
        let of = |reason| stop_reason_of(reason).map(StopReason::as_str);
        assert_eq!(
            of(DomainStateReason::Running(
                DomainRunningReason::Booted.into()
            )),
            None
        );
        assert_eq!(
            [of(paused(5)), of(paused(10))],
            [Some("io-error"), Some("guest-panicked")]
        );
        assert_eq!(
            [of(paused(1)), of(paused(0)), of(paused(99))],
            [Some("user"), Some("unknown"), Some("unknown")]
        );
        assert_eq!(
            [of(crashed(1)), of(crashed(0))],
            [Some("guest-panicked"), Some("crashed")]
        );
        assert_eq!(
            [of(paused(12)), of(paused(13))],
            [Some("migration"), Some("postcopy-failed")]
        );
    }
}
