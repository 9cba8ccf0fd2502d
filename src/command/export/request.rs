//! What a request gets: `/metrics`, `/healthz` and links to them.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use judge::figures;
use metrics::{HostMetrics, openmetrics};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const LINKS: &[u8] = b"<title>kvmtop</title><p><a href=metrics>metrics</a> <a \
    href=healthz>healthz</a>\n";

/// A response with its whole body.
pub type Answer = Response<Full<Bytes>>;

/// The last metrics and when they came, by which the sampling thread and the server hold a lock for
/// as long as it takes to copy a pointer; `None` before the first sample.
pub type Published = Mutex<Option<(Arc<HostMetrics>, Instant)>>;

/// Replaces the metrics.
pub fn publish(published: &Published, metrics: Arc<HostMetrics>) {
    let mut last = published.lock().unwrap_or_else(PoisonError::into_inner);
    *last = Some((metrics, Instant::now()));
}

/// Answers requests.
pub struct Answers {
    /// The metrics.
    pub published: Arc<Published>,
    /// Maximum age of metrics while samples are taken.
    pub max_age: Duration,
    /// The last metrics that were asked for, and their text: several scrapes of one sample share
    /// it.
    pub text: RefCell<Option<(Arc<HostMetrics>, Bytes)>>,
}

impl Answers {
    /// Answers a request, whose body is not looked at.
    pub fn answer<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return with(
                ALLOW,
                "GET, HEAD",
                text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"),
            );
        }
        let last = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match (request.uri().path(), last) {
            ("/metrics", None) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the first sample is not taken yet\n",
            ),
            ("/metrics", Some((metrics, _))) => match self.text(metrics) {
                Some(text) => response(StatusCode::OK, OPENMETRICS, text),
                None => text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the metrics cannot be written\n",
                ),
            },
            ("/healthz", Some((_, at))) if at.elapsed() <= self.max_age => {
                text(StatusCode::OK, "ok\n")
            }
            ("/healthz", last) => {
                let age = last.map(|(_, at)| {
                    format!(
                        " in the last {}",
                        figures::seconds(at.elapsed().as_secs_f64())
                    )
                });
                let age = age.unwrap_or_else(|| " yet".into());
                text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("no sample was taken{age}\n"),
                )
            }
            ("/", _) => response(StatusCode::OK, HTML, Bytes::from_static(LINKS)),
            _ => text(StatusCode::NOT_FOUND, "there is /metrics and /healthz\n"),
        }
    }

    fn text(&self, metrics: Arc<HostMetrics>) -> Option<Bytes> {
        let mut last = self.text.borrow_mut();
        if let Some((_, text)) = last.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &metrics)) {
            return Some(text.clone());
        }
        let text = Bytes::from(openmetrics(&metrics).ok()?);
        *last = Some((metrics, text.clone()));
        Some(text)
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    response(status, PLAIN, body.into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    with(
        CONTENT_TYPE,
        kind,
        with(CACHE_CONTROL, "no-store", response),
    )
}

fn with(name: HeaderName, value: &'static str, mut answer: Answer) -> Answer {
    answer
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
    answer
}
