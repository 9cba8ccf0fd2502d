//! The HTTP server and its thread. A request never waits for a sample, nor a sample for a request.
//!
//! One request a connection: a scrape comes every few seconds, and with a deadline for the whole
//! connection nobody can hold one.

use super::request::Answers;
use anyhow::Context;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Connections at a time. Another one takes the place of the oldest one that is slow.
const MAX_CONNECTIONS: usize = 32;
/// Maximum size of a request's head, bytes.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of header lines.
const MAX_HEADERS: usize = 64;
/// Deadline for the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Deadline for a whole connection: Prometheus gives up after 10 s by default.
const DEADLINE: Duration = Duration::from_secs(15);
/// How long a connection may be silent while others wait for its place.
const MAX_SILENCE: Duration = Duration::from_millis(250);
/// How long a connection may take for its answer while others wait for its place.
const MAX_ANSWER: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted, for example because the process is out of file
/// descriptors.
const PAUSE: Duration = Duration::from_millis(100);

struct Connection {
    task: AbortHandle,
    /// Whether its request has come.
    has_asked: Rc<Cell<bool>>,
    since: Instant,
}

impl Connection {
    fn is_slow(&self) -> bool {
        self.since.elapsed()
            >= if self.has_asked.get() {
                MAX_ANSWER
            } else {
                MAX_SILENCE
            }
    }
}

/// Starts the server.
///
/// # Errors
/// A sentence that names what the system refused.
pub fn start(listener: TcpListener, answers: Answers) -> anyhow::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = runtime.context("cannot start the HTTP server")?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    Ok(crate::spawn("kvmtop/http", move || {
        rights::keep_none();
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, serve(listener, Rc::new(answers)));
    })?)
}

async fn serve(listener: tokio::net::TcpListener, answers: Rc<Answers>) {
    let mut open: Vec<Connection> = Vec::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        loop {
            open.retain(|connection| !connection.task.is_finished());
            if open.len() < MAX_CONNECTIONS {
                break;
            }
            match open.iter().position(Connection::is_slow) {
                Some(at) => open.remove(at).task.abort(),
                // What comes meanwhile waits in the kernel's queue.
                None => tokio::time::sleep(MAX_SILENCE / 10).await,
            }
        }
        let (answers, has_asked) = (answers.clone(), Rc::new(Cell::new(false)));
        let asked = has_asked.clone();
        let task = tokio::task::spawn_local(async move {
            // A mistake or the silence of a client ends its connection alone.
            let _ = tokio::time::timeout(DEADLINE, connection(stream, &answers, &asked)).await;
        });
        open.push(Connection {
            task: task.abort_handle(),
            has_asked,
            since: Instant::now(),
        });
    }
}

async fn connection(stream: TcpStream, answers: &Answers, asked: &Cell<bool>) {
    let service = service_fn(async |request: Request<Incoming>| {
        asked.set(true);
        Ok::<_, Infallible>(answers.answer(&request))
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
