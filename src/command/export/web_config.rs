//! The web configuration file that Prometheus' exporters share
//! (<https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md>): who may read, and by TLS.

use super::users::Users;
use crate::command::say;
use anyhow::{Context, anyhow, ensure};
use rights::open_regular;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

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
    #[serde(default)]
    client_auth_type: ClientAuth,
    client_ca_file: Option<PathBuf>,
    #[serde(default)]
    min_version: TlsVersion,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
enum ClientAuth {
    #[default]
    NoClientCert,
    RequireAndVerifyClientCert,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
enum TlsVersion {
    #[default]
    TLS12,
    TLS13,
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
        open_regular(path)?.take(MAX_FILE).read_to_string(&mut text)?;
        // An empty file is one without restrictions, as for other exporters.
        // Without what the file holds: whoever may start this program may not be allowed to read it.
        let config: Option<WebConfig> = serde_norway::from_str(&text).map_err(|e| {
            let line = e.location().map_or(1, |place| place.line());
            anyhow!("line {line} is not one of tls_server_config and basic_auth_users, or is not of its form")
        })?;
        let config = config.unwrap_or_default();
        let users = Users::new(config.basic_auth_users.unwrap_or_default())?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let tls = config.tls_server_config.map(|mut tls| {
            for file in [&mut tls.cert_file, &mut tls.key_file].into_iter().chain(tls.client_ca_file.as_mut()) {
                *file = folder.join(&*file);
                files.push((file.clone(), look_of(file)));
            }
            tls_acceptor(&tls)
        });
        let access = Arc::new(Access { tls: tls.transpose()?, users });
        Ok(Self { files, access })
    }

    /// Whether the server speaks TLS, and whether it asks for passwords.
    pub fn protection(&self) -> (bool, bool) {
        (self.access.tls.is_some(), !self.access.users.is_empty())
    }

    /// The configuration and the files that it names.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(path, _)| path.clone()).collect()
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

fn tls_acceptor(config: &TlsConfig) -> anyhow::Result<TlsAcceptor> {
    let chain = certificates(&config.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&config.key_file)
        .with_context(|| format!("no private key in {}", config.key_file.display()))?;
    let versions: &[_] = match config.min_version {
        TlsVersion::TLS12 => &[&TLS13, &TLS12],
        TlsVersion::TLS13 => &[&TLS13],
    };
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions)?;
    let server = match (&config.client_auth_type, &config.client_ca_file) {
        (ClientAuth::NoClientCert, None) => server.with_no_client_auth(),
        (ClientAuth::NoClientCert, Some(_)) => anyhow::bail!(
            "client_ca_file has no effect without `client_auth_type: RequireAndVerifyClientCert`; write it or drop both"
        ),
        (ClientAuth::RequireAndVerifyClientCert, ca) => {
            let ca = ca.as_ref().context("RequireAndVerifyClientCert needs client_ca_file")?;
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                roots.add(certificate).with_context(|| ca.display().to_string())?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            server.with_client_cert_verifier(verifier)
        }
    };
    let mut server = server
        .with_single_cert(chain, key)
        .with_context(|| format!("{} and {}", config.cert_file.display(), config.key_file.display()))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.with_context(|| format!("cannot read certificates of {}", path.display()))?;
    ensure!(!all.is_empty(), "no certificate in {}", path.display());
    Ok(all)
}
