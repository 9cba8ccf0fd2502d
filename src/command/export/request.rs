//! What a request gets: `/metrics`, `/healthz` and links to them.

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use judge::figures;
use metrics::{HostMetrics, openmetrics, prometheus_text};
use std::cell::RefCell;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

const HTML: &str = "text/html; charset=utf-8";
const LINKS: &[u8] = b"<title>kvmtop</title><p><a href=metrics>metrics</a> <a href=healthz>healthz</a>\n";

/// A response with its whole body.
pub type Answer = Response<Full<Bytes>>;

/// The last metrics and when they came, by which the sampling thread and the server hold a lock for as long as it takes
/// to copy a pointer; `None` before the first sample.
pub type Published = Mutex<Option<(Arc<HostMetrics>, Instant)>>;

/// Replaces the metrics.
pub fn publish(published: &Published, metrics: Arc<HostMetrics>) {
    let new = Some((metrics, Instant::now()));
    drop(std::mem::replace(&mut *published.lock().unwrap_or_else(PoisonError::into_inner), new));
}

/// Answers requests.
pub struct Answers {
    /// The metrics.
    pub published: Arc<Published>,
    /// Maximum age of metrics while samples are taken.
    pub max_age: Duration,
    /// The last metrics that were asked for, as text 0.0.4 and as `OpenMetrics`: several scrapes of one sample share
    /// them.
    pub texts: RefCell<Option<(Arc<HostMetrics>, [Bytes; 2])>>,
}

impl Answers {
    /// Answers a request, whose body is not looked at.
    pub fn answer<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return with(ALLOW, "GET, HEAD", text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"));
        }
        let last = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (request.uri().path(), last) {
            ("/metrics", None) => text(StatusCode::SERVICE_UNAVAILABLE, "the first sample is not taken yet\n"),
            ("/metrics", Some((metrics, _))) => match self.texts(metrics) {
                Some([_, text]) if wants(request, ACCEPT, "application/openmetrics-text") => {
                    packed(request, response(StatusCode::OK, OPENMETRICS, text))
                }
                Some([text, _]) => packed(request, response(StatusCode::OK, PROMETHEUS, text)),
                None => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
            },
            ("/healthz", Some((_, at))) if at.elapsed() <= self.max_age => text(StatusCode::OK, "ok\n"),
            ("/healthz", last) => {
                let age = last.map(|(_, at)| format!(" in the last {}", figures::seconds(at.elapsed().as_secs_f64())));
                let age = age.unwrap_or_else(|| " yet".into());
                text(StatusCode::SERVICE_UNAVAILABLE, format!("no sample was taken{age}\n"))
            }
            ("/", _) => response(StatusCode::OK, HTML, Bytes::from_static(LINKS)),
            _ => text(StatusCode::NOT_FOUND, "there is /metrics and /healthz\n"),
        }
    }

    fn texts(&self, metrics: Arc<HostMetrics>) -> Option<[Bytes; 2]> {
        let mut last = self.texts.borrow_mut();
        if let Some((_, texts)) = last.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &metrics)) {
            return Some(texts.clone());
        }
        let text = openmetrics(&metrics).ok()?;
        let texts = [prometheus_text(&text), text].map(Bytes::from);
        *last = Some((metrics, texts.clone()));
        Some(texts)
    }
}

/// Whether a list of what the client takes has this. Prometheus lists its favourite format first; others take the older
/// text.
fn wants<B>(request: &Request<B>, list: HeaderName, what: &str) -> bool {
    request.headers().get_all(list).iter().any(|list| list.to_str().is_ok_and(|list| list.contains(what)))
}

/// The answer by gzip, for a client that takes it: a fifth of the bytes.
fn packed<B>(request: &Request<B>, answer: Answer) -> Answer {
    if !wants(request, ACCEPT_ENCODING, "gzip") || wants(request, ACCEPT_ENCODING, "gzip;q=0") {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    // Memory takes all of it.
    let _ = packed.write_all(body.into_inner().as_deref().unwrap_or_default());
    let body = Full::new(Bytes::from(packed.finish().unwrap_or_default()));
    with(CONTENT_ENCODING, "gzip", Response::from_parts(head, body))
}

/// For a client that has to ask again.
pub fn busy() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "too many passwords are being checked\n")
}

/// For a client without a user's password.
pub fn unauthorized() -> Answer {
    let refused = text(StatusCode::UNAUTHORIZED, "a user and a password are needed\n");
    with(WWW_AUTHENTICATE, "Basic realm=\"kvmtop\"", refused)
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    response(status, PLAIN, body.into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    with(CONTENT_TYPE, kind, with(CACHE_CONTROL, "no-store", response))
}

fn with(name: HeaderName, value: &'static str, mut answer: Answer) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}
