//! The web configuration file that Prometheus' exporters share
//! (<https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md>): who may read, and by TLS.

use super::users::Users;
use crate::command::say;
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
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

/// A file that access depends on, and how it looked.
type FileState = (PathBuf, Option<FileLook>);
/// Device, inode, size, and when it changed: seconds and nanoseconds.
type FileLook = (u64, u64, u64, i64, i64);

/// What the configuration says now.
#[derive(Default)]
pub struct WebAccess {
    /// The configuration, then the files that it names.
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
        Self::read(path).with_context(|| format!("web configuration {}", path.display()))
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        // Before it is read: a change in between is seen later.
        let mut files = vec![(path.to_owned(), look_of(path))];
        let mut text = String::new();
        File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
        // An empty file is one without restrictions, as for other exporters.
        let config: Option<WebConfig> = serde_norway::from_str(&text)?;
        let config = config.unwrap_or_default();
        let users = Users::new(config.basic_auth_users.unwrap_or_default())?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let tls = config.tls_server_config.map(|tls| {
            let [certificate, key] = [tls.cert_file, tls.key_file].map(|file| folder.join(file));
            files.extend([&certificate, &key].map(|file| (file.clone(), look_of(file))));
            tls_acceptor(&certificate, &key)
        });
        let access = Arc::new(Access { tls: tls.transpose()?, users });
        Ok(Self { files, access })
    }

    /// Whether the server speaks TLS, and whether it asks for passwords.
    pub fn protection(&self) -> (bool, bool) {
        (self.access.tls.is_some(), !self.access.users.is_empty())
    }

    /// The access as the files say now. One that cannot be read changes nothing and is reported once.
    pub fn current(&mut self) -> Arc<Access> {
        if self.files.iter().any(|(path, look)| look_of(path) != *look) {
            match Self::open(self.files.first().map(|(path, _)| path.as_path())) {
                Ok(new) => *self = new,
                Err(e) => {
                    say(&format!("{e:#}; going on with what it said before"));
                    self.files.iter_mut().for_each(|(path, look)| *look = look_of(path));
                }
            }
        }
        self.access.clone()
    }
}

fn look_of(path: &Path) -> Option<FileLook> {
    let data = path.metadata().ok()?;
    Some((data.dev(), data.ino(), data.len(), data.ctime(), data.ctime_nsec()))
}

fn tls_acceptor(cert_file: &Path, key_file: &Path) -> anyhow::Result<TlsAcceptor> {
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
