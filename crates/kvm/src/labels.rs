//! What its manager calls a guest besides its name.

use crate::sanitize;
use serde::{Deserialize, Serialize};

/// At most this many tags of a guest are kept.
const MAX_TAGS: usize = 32;
/// At most this many characters of a label are kept.
const MAX_LABEL: usize = 128;

/// A guest's title, owner and tags, sanitized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// libvirt's `<title>`, or the name that nova's users gave it.
    pub title: Option<String>,
    /// nova's project, `KubeVirt`'s namespace, Proxmox's pool.
    pub owner: Option<String>,
    /// Proxmox's tags.
    pub tags: Vec<String>,
}

impl Labels {
    /// The tags that Proxmox's configuration of a guest has, above its first snapshot
    /// (qm.conf(5)).
    pub fn of_proxmox(config: &str) -> Self {
        let mut present = config.lines().take_while(|line| !line.starts_with('['));
        let tags = present.find_map(|line| line.strip_prefix("tags:"));
        Self::with_tags(tags.unwrap_or_default())
    }

    /// Tags as Proxmox writes them.
    pub fn with_tags(tags: &str) -> Self {
        let tags = tags.split([';', ',', ' ']).filter_map(label);
        Self {
            tags: tags.take(MAX_TAGS).collect(),
            ..Self::default()
        }
    }

    /// Takes over what it lacks.
    pub fn fill(&mut self, other: Self) {
        self.title = self.title.take().or(other.title);
        self.owner = self.owner.take().or(other.owner);
        if self.tags.is_empty() {
            self.tags = other.tags;
        }
    }

    /// Cuts what no source gives.
    pub fn normalise(&mut self) {
        self.title = self.title.take().and_then(|title| label(&title));
        self.owner = self.owner.take().and_then(|owner| label(&owner));
        self.tags.truncate(MAX_TAGS);
        for tag in &mut self.tags {
            *tag = sanitize(tag, MAX_LABEL);
        }
    }
}

/// The pool of a guest in Proxmox's list of users and pools (`pool:NAME:comment:100,101:storages:`
/// of `/etc/pve/user.cfg`).
pub fn proxmox_pool(users: &str, vmid: &str) -> Option<String> {
    let mut pools = users.lines().filter_map(|line| line.strip_prefix("pool:"));
    pools.find_map(|pool| {
        let mut fields = pool.split(':');
        let name = fields.next()?;
        let mut guests = fields.nth(1)?.split([',', ' ']);
        guests.find(|id| *id == vmid)?;
        label(name)
    })
}

/// A text that is not empty, sanitized.
pub(crate) fn label(text: &str) -> Option<String> {
    let text = sanitize(text.trim(), MAX_LABEL);
    if text.is_empty() { None } else { Some(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_the_present_configuration() {
        let config = "cores: 4\ntags: prod;db,\u{1b}[2Jblue\n[before]\ntags: old\n";
        assert_eq!(Labels::of_proxmox(config).tags, ["prod", "db", "blue"]);
        assert!(Labels::of_proxmox("[a]\ntags: old\n").tags.is_empty());
    }

    #[test]
    fn the_pool_that_has_the_guest() {
        let users =
            "user:root@pam:1:0:::::\npool:shop:web and db:100,1010:local:\npool:lab::101::\n";
        let pool = |vmid| proxmox_pool(users, vmid);
        assert_eq!(pool("1010").as_deref(), Some("shop"));
        assert_eq!(pool("101").as_deref(), Some("lab"));
        assert_eq!(pool("10"), None);
    }
}
