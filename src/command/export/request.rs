//! What a request gets: `/metrics`, `/healthz` and links to them.

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
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
                Some([_, text]) if takes_openmetrics(request.headers()) => {
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

/// Whether the client takes `OpenMetrics`. Prometheus lists its favourite format first; others take the older text.
fn takes_openmetrics(headers: &HeaderMap) -> bool {
    quality(headers, &ACCEPT, "application/openmetrics-text").is_some_and(|quality| quality > 0.0)
}

/// Whether the client takes gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let quality = |coding| quality(headers, &ACCEPT_ENCODING, coding);
    quality("gzip").or_else(|| quality("*")).is_some_and(|quality| quality > 0.0)
}

/// The quality of an item in a list of what the client takes, such as `gzip;q=0.5, *;q=0` (RFC 9110, 12.4.2): 1 without
/// a number; `None` if the item is not in the list.
fn quality(headers: &HeaderMap, list: &HeaderName, wanted: &str) -> Option<f32> {
    let lines = headers.get_all(list).iter().filter_map(|line| line.to_str().ok());
    for item in lines.flat_map(|line| line.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(wanted) {
            continue;
        }
        let number = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        // What is no number is not taken.
        return Some(number.map_or(1.0, |number| number.parse().unwrap_or(0.0)));
    }
    None
}

/// The answer by gzip, for a client that takes it: a fifth of the bytes.
fn packed<B>(request: &Request<B>, answer: Answer) -> Answer {
    if !takes_gzip(request.headers()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_its_lists_take() {
        let takes = |name: HeaderName, list: &'static str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(list))]);
            (takes_gzip(&headers), takes_openmetrics(&headers))
        };
        for (list, packed) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=1.0, *;q=0", true),
            ("GZIP ; Q=0.001", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0, *", false),
            ("gzip;q=none", false),
            ("*;q=0", false),
            ("notgzip, deflate", false),
            ("", false),
        ] {
            assert_eq!(takes(ACCEPT_ENCODING, list), (packed, false), "{list}");
        }
        for (list, open) in [
            ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5", true),
            ("application/openmetrics-text;q=0, text/plain", false),
            ("text/plain, */*;q=0.1", false),
        ] {
            assert_eq!(takes(ACCEPT, list), (false, open), "{list}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
