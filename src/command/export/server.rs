//! The HTTP server and its thread. A request never waits for a sample, nor a sample for a request.
//!
//! One request a connection: a scrape comes every few seconds, and with a deadline for the whole connection nobody can
//! hold one.

use super::request::{Answers, busy, unauthorized};
use super::web_config::{Access, WebAccess};
use anyhow::Context;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Connections at a time. Another one takes the place that [`gives_way`].
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
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a connection may take for its answer while others wait for its place.
const MAX_ANSWER: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted, for example because the process is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, its client, whether its request has come, and since when it is open.
struct Connection {
    task: AbortHandle,
    client: IpAddr,
    has_asked: Rc<Cell<bool>>,
    since: Instant,
}

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
        // A certificate that is renewed is root's.
        let _ = rights::keep(rights::for_files(&access.files(), None));
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, serve(listener, access, Rc::new(answers)));
    })?;
    Ok(thread)
}

async fn serve(listener: tokio::net::TcpListener, mut access: WebAccess, answers: Rc<Answers>) {
    let mut open: Vec<Connection> = Vec::new();
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let client = client(address.ip());
        loop {
            open.retain(|connection| !connection.task.is_finished());
            if open.len() < MAX_CONNECTIONS {
                break;
            }
            let all: Vec<_> = open.iter().map(|c| (c.client, c.has_asked.get(), c.since.elapsed())).collect();
            match gives_way(&all) {
                Some(at) => open.remove(at).task.abort(),
                // What comes meanwhile waits in the kernel's queue.
                None => tokio::time::sleep(PATIENCE / 10).await,
            }
        }
        let (access, answers, has_asked) = (access.current(), answers.clone(), Rc::new(Cell::new(false)));
        let asked = has_asked.clone();
        let task = tokio::task::spawn_local(async move {
            // A mistake or the silence of a client ends its connection alone.
            let _ = tokio::time::timeout(DEADLINE, connection((stream, client), &access, &answers, &asked)).await;
        });
        open.push(Connection { task: task.abort_handle(), client, has_asked, since: Instant::now() });
    }
}

/// A client by its address. Whoever is on this host may use any of its loopback addresses.
fn client(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() { Ipv4Addr::LOCALHOST.into() } else { address }
}

/// The connection that gives way to a new one, of all by client, whether the request has come, and age, oldest first:
/// the one that has been silent for longest, or else the oldest one of the client that has most.
fn gives_way(open: &[(IpAddr, bool, Duration)]) -> Option<usize> {
    let silent = open.iter().position(|(_, has_asked, age)| !has_asked && *age >= PATIENCE);
    let of_client = |client: IpAddr| open.iter().filter(|other| other.0 == client).count();
    let most = open.iter().map(|(client, ..)| of_client(*client)).max();
    let is_slow = |(client, _, age): &(IpAddr, bool, Duration)| *age >= MAX_ANSWER && Some(of_client(*client)) == most;
    silent.or_else(|| open.iter().position(is_slow))
}

async fn connection((stream, client): (TcpStream, IpAddr), access: &Access, answers: &Answers, asked: &Cell<bool>) {
    match &access.tls {
        None => answer((stream, client), access, answers, asked).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_DEADLINE, tls.accept(stream)).await {
                answer((stream, client), access, answers, asked).await;
            }
        }
    }
}

async fn answer(
    (stream, client): (impl AsyncRead + AsyncWrite + Unpin, IpAddr),
    access: &Access,
    answers: &Answers,
    asked: &Cell<bool>,
) {
    let service = service_fn(async |request: Request<Incoming>| {
        asked.set(true);
        Ok::<_, Infallible>(match access.users.allow(request.headers().get(AUTHORIZATION), client).await {
            Some(true) => answers.answer(&request),
            Some(false) => unauthorized(),
            None => busy(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_give_way_then_the_slow_of_whom_there_are_most() {
        let here = client(Ipv4Addr::new(127, 0, 0, 9).into());
        assert_eq!(here, client(Ipv4Addr::new(127, 1, 2, 3).to_ipv6_mapped().into()));
        let there = IpAddr::from([192, 0, 2, 1]);
        let [new, waits, slow] = [0, 300, 2000].map(Duration::from_millis);
        assert_eq!(gives_way(&[(there, true, slow), (here, false, waits), (here, false, new)]), Some(1));
        assert_eq!(gives_way(&[(there, true, slow), (here, true, slow), (here, true, new)]), Some(1));
        assert_eq!(gives_way(&[(there, true, waits), (here, true, waits), (here, false, new)]), None);
    }
}
