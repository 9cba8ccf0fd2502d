//! The web configuration file that Prometheus' exporters share
//! (<https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md>): who may read, and by TLS.

use super::users::Users;
use crate::command::say;
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum size of a file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The part of the file that kvmtop knows; another field is an error, because it may be one that protects something.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WebConfig {
    tls_server_config: Option<TlsConfig>,
    basic_auth_users: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsConfig {
    cert_file: PathBuf,
    key_file: PathBuf,
}

/// Who may read, and how.
#[derive(Default)]
pub struct Access {
    /// By TLS; `None`: in the clear.
    pub tls: Option<TlsAcceptor>,
    /// The users.
    pub users: Users,
}

/// A file that access depends on, and how it looked: device, inode, size, and seconds and nanoseconds of its change.
type FileState = (PathBuf, Option<(u64, u64, u64, i64, i64)>);

/// What the configuration says now.
#[derive(Default)]
pub struct WebAccess {
    path: Option<PathBuf>,
    files: Vec<FileState>,
    access: Arc<Access>,
}

impl WebAccess {
    /// Reads the file; without one everybody may read, in the clear.
    ///
    /// # Errors
    /// A sentence about what is wrong, in which file.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let (config, files) = parse(path)?;
        let doing = || format!("web configuration {}", path.display());
        let users = Users::new(config.basic_auth_users.unwrap_or_default()).with_context(doing)?;
        let tls = config.tls_server_config.map(|tls| tls_acceptor(&tls)).transpose().with_context(doing)?;
        Ok(Self { path: Some(path.to_owned()), files, access: Arc::new(Access { tls, users }) })
    }

    /// Whether the server speaks TLS, and whether it asks for passwords.
    pub fn protection(&self) -> (bool, bool) {
        (self.access.tls.is_some(), !self.access.users.is_empty())
    }

    /// The access as the files say now. One that cannot be read changes nothing and is reported once.
    pub fn current(&mut self) -> Arc<Access> {
        if let Some(path) = self.path.clone()
            && self.files.iter().any(|(path, state)| state_of(path) != *state)
        {
            match Self::open(Some(&path)) {
                Ok(new) => *self = new,
                Err(e) => {
                    say(&format!("{e:#}; going on with what it said before"));
                    self.files.iter_mut().for_each(|(path, state)| *state = state_of(path));
                }
            }
        }
        self.access.clone()
    }
}

fn state_of(path: &Path) -> Option<(u64, u64, u64, i64, i64)> {
    let data = path.metadata().ok()?;
    Some((data.dev(), data.ino(), data.len(), data.ctime(), data.ctime_nsec()))
}

/// The configuration, with the files in it as whole paths, and how all of them look.
fn parse(path: &Path) -> anyhow::Result<(WebConfig, Vec<FileState>)> {
    let doing = || format!("web configuration {}", path.display());
    let mut text = String::new();
    // Before it is read: a change in between is seen later.
    let mut files = vec![(path.to_owned(), state_of(path))];
    let file = std::fs::File::open(path).with_context(doing)?;
    file.take(MAX_FILE).read_to_string(&mut text).with_context(doing)?;
    // An empty file is one without restrictions, as for other exporters.
    let config: Option<WebConfig> = serde_norway::from_str(&text).with_context(doing)?;
    let mut config = config.unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    if let Some(tls) = &mut config.tls_server_config {
        for file in [&mut tls.cert_file, &mut tls.key_file] {
            *file = folder.join(&*file);
            files.push((file.clone(), state_of(file)));
        }
    }
    Ok((config, files))
}

fn tls_acceptor(config: &TlsConfig) -> anyhow::Result<TlsAcceptor> {
    let TlsConfig { cert_file, key_file } = config;
    let chain = CertificateDer::pem_file_iter(cert_file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| format!("cannot read certificates of {}", cert_file.display()))?;
    ensure!(!chain.is_empty(), "no certificate in {}", cert_file.display());
    let key = PrivateKeyDer::from_pem_file(key_file);
    let key = key.with_context(|| format!("no private key in {}", key_file.display()))?;
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let server = server.with_safe_default_protocol_versions()?.with_no_client_auth().with_single_cert(chain, key);
    let mut server = server.with_context(|| format!("{} and {}", cert_file.display(), key_file.display()))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}
