//! HTTP basic authentication (RFC 7617) against bcrypt hashes.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// bcrypt takes twice as long for each step; beyond this, seconds.
const MAX_COST: u32 = 15;
/// After a wrong password the next one waits this many times as long as the check took: guessing never takes more than
/// a tenth of a CPU.
const PAUSE_FACTOR: u32 = 9;

/// Checks under way and waiting; with more a scrape would wait for longer than Prometheus does.
const MAX_CHECKS: usize = 4;
/// Those of one client.
const MAX_CHECKS_OF_ONE: usize = 2;

/// Users and the hashes of their passwords; without users, everybody may read.
#[derive(Debug, Default)]
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// Digests of passwords that were right: a scrape need not pay for bcrypt each time.
    right: Mutex<BTreeMap<String, [u8; 32]>>,
    /// One check at a time.
    gate: tokio::sync::Mutex<()>,
    /// The clients that wait for a check, each as long as it has the other copy of its pointer.
    waiting: Mutex<Vec<(IpAddr, Arc<()>)>>,
}

impl Users {
    /// Users by their name.
    ///
    /// # Errors
    /// A sentence about text that is not a bcrypt hash.
    pub fn new(hashes: BTreeMap<String, String>) -> anyhow::Result<Self> {
        for (user, hash) in &hashes {
            let parts = hash.parse::<bcrypt::HashParts>().ok().with_context(|| {
                format!("the password of {user} is no bcrypt hash; make one with `htpasswd -nB {user}`")
            })?;
            anyhow::ensure!(
                parts.get_cost() <= MAX_COST,
                "the bcrypt hash of {user} has a cost above {MAX_COST}, which takes seconds; `htpasswd -nB -C 10 \
                 {user}` makes one with 10"
            );
        }
        Ok(Self { hashes, ..Self::default() })
    }

    /// Whether everybody may read.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// A client's place among those that wait, until it is dropped.
    fn place(&self, client: IpAddr) -> Option<Arc<()>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(_, place)| Arc::strong_count(place) > 1);
        let of_client = waiting.iter().filter(|(other, _)| *other == client).count();
        (waiting.len() < MAX_CHECKS && of_client < MAX_CHECKS_OF_ONE).then(|| {
            let place = Arc::new(());
            waiting.push((client, place.clone()));
            place
        })
    }

    /// Whether a client's request with this `Authorization` may read; `None`: too many passwords are being checked.
    pub async fn allow(&self, authorization: Option<&HeaderValue>, client: IpAddr) -> Option<bool> {
        if self.is_empty() {
            return Some(true);
        }
        let Some((user, password)) = authorization.and_then(basic) else { return Some(false) };
        let digest: [u8; 32] = Sha256::digest(password.as_bytes()).into();
        if self.right.lock().unwrap_or_else(PoisonError::into_inner).get(&user) == Some(&digest) {
            return Some(true);
        }
        let _place = self.place(client)?;
        let _alone = self.gate.lock().await;
        let began = Instant::now();
        let hash = self.hashes.get(&user);
        // An unknown user takes as long as a known one.
        let checked = hash.or_else(|| self.hashes.values().next());
        let is_right = checked.is_some_and(|hash| bcrypt::verify(&password, hash).unwrap_or(false)) && hash.is_some();
        if is_right {
            self.right.lock().unwrap_or_else(PoisonError::into_inner).insert(user, digest);
        } else {
            tokio::time::sleep(began.elapsed() * PAUSE_FACTOR).await;
        }
        Some(is_right)
    }
}

/// User and password.
fn basic(authorization: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = authorization.to_str().ok()?.split_once(' ')?;
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':').filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_client_leaves_places_to_others() {
        let users = Users::default();
        let (busy, other) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
        let mut places: Vec<_> = (0..9).filter_map(|_| users.place(busy)).collect();
        assert_eq!(places.len(), MAX_CHECKS_OF_ONE);
        let of_other = users.place(other);
        assert!(of_other.is_some());
        places.clear();
        assert!(users.place(busy).is_some(), "its places are free again");
    }
}
