//! What a request gets: `/metrics`, `/healthz` and nothing else.

use super::published::LastMetrics;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use judge::figures;
use metrics::{HostMetrics, openmetrics, prometheus_text};
use std::cell::RefCell;
use std::sync::Arc;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A response with its whole body.
pub type Answer = Response<Full<Bytes>>;

/// The texts of the last metrics that were asked for: several scrapes of one sample share them.
#[derive(Debug, Default)]
pub struct Texts {
    last: RefCell<Option<SampleTexts>>,
}

#[derive(Debug)]
struct SampleTexts {
    of: Arc<HostMetrics>,
    openmetrics: Bytes,
    prometheus: Option<Bytes>,
}

impl Texts {
    /// Answers a request, whose body is not looked at.
    pub fn answer<B>(&self, request: &Request<B>, last: LastMetrics) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(last, wants_openmetrics(request)),
            "/healthz" => health(&last),
            _ => text(StatusCode::NOT_FOUND, "there is /metrics and /healthz\n"),
        }
    }

    fn metrics(&self, last: LastMetrics, wants_openmetrics: bool) -> Answer {
        let Some(metrics) = last.metrics else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the first sample is not taken yet\n");
        };
        let (kind, body) = if wants_openmetrics {
            (OPENMETRICS, self.openmetrics(&metrics))
        } else {
            (PROMETHEUS, self.prometheus(&metrics))
        };
        match body {
            Some(body) => response(StatusCode::OK, kind, body),
            None => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
        }
    }

    fn openmetrics(&self, metrics: &Arc<HostMetrics>) -> Option<Bytes> {
        let mut last = self.last.borrow_mut();
        if let Some(texts) = last.as_ref().filter(|texts| Arc::ptr_eq(&texts.of, metrics)) {
            return Some(texts.openmetrics.clone());
        }
        let text = Bytes::from(openmetrics(metrics).ok()?);
        *last = Some(SampleTexts { of: metrics.clone(), openmetrics: text.clone(), prometheus: None });
        Some(text)
    }

    fn prometheus(&self, metrics: &Arc<HostMetrics>) -> Option<Bytes> {
        let openmetrics = self.openmetrics(metrics)?;
        let mut last = self.last.borrow_mut();
        let known = &mut last.as_mut()?.prometheus;
        if known.is_none() {
            *known = Some(Bytes::from(prometheus_text(std::str::from_utf8(&openmetrics).ok()?)));
        }
        known.clone()
    }
}

/// Prometheus lists the formats that it takes, its favourite first; others take the older text.
fn wants_openmetrics<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(ACCEPT);
    accepted.iter().any(|list| list.to_str().is_ok_and(|list| list.contains("application/openmetrics-text")))
}

fn health(last: &LastMetrics) -> Answer {
    if last.metrics.is_some() && last.age <= last.oldest {
        return text(StatusCode::OK, "ok\n");
    }
    let age = figures::seconds(last.age.as_secs_f64());
    text(StatusCode::SERVICE_UNAVAILABLE, format!("no sample was taken in the last {age}\n"))
}

/// For a client without a user's password.
pub fn unauthorized() -> Answer {
    let mut refused = text(StatusCode::UNAUTHORIZED, "a user and a password are needed\n");
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"kvmtop\""));
    refused
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    response(status, PLAIN, body.into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
