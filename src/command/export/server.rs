//! The HTTP server and its thread. A request never waits for a sample, nor a sample for a request.
//!
//! One request a connection: a scrape comes every few seconds, and with a deadline for the whole connection nobody can
//! hold one.

use super::request::{Answers, unauthorized};
use super::web_config::{Access, WebAccess};
use anyhow::Context;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Connections at a time; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 32;
/// Maximum size of a request's head, bytes.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of header lines.
const MAX_HEADERS: usize = 64;
/// Deadline for the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Deadline for a whole connection: Prometheus gives up after 10 s by default.
const DEADLINE: Duration = Duration::from_secs(15);
/// Pause after a connection could not be accepted, for example because the process is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the server.
///
/// # Errors
/// A sentence that names what the system refused.
pub fn start(listener: TcpListener, access: WebAccess, answers: Answers) -> anyhow::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.context("cannot start the HTTP server")?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
        rights::keep_none();
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, serve(listener, access, Rc::new(answers)));
    })?;
    Ok(thread)
}

async fn serve(listener: tokio::net::TcpListener, mut access: WebAccess, answers: Rc<Answers>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Only a closed semaphore refuses, and nothing closes it.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (access, answers) = (access.current(), answers.clone());
        tokio::task::spawn_local(async move {
            // A mistake or the silence of a client ends its connection alone.
            let _ = tokio::time::timeout(DEADLINE, connection(stream, &access, &answers)).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, access: &Access, answers: &Answers) {
    match &access.tls {
        None => answer(stream, access, answers).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_DEADLINE, tls.accept(stream)).await {
                answer(stream, access, answers).await;
            }
        }
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, access: &Access, answers: &Answers) {
    let service = service_fn(async |request: Request<Incoming>| {
        let may_read = access.users.allow(request.headers().get(AUTHORIZATION)).await;
        Ok::<_, Infallible>(if may_read { answers.answer(&request) } else { unauthorized() })
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A client may leave at any time.
    let _ = served.await;
}
