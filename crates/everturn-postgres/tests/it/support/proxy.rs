//! Proxies before a server: one cuts and stalls connections at random, one is closed and opened by a test.

use std::time::Duration;

use everturn_testkit::real_pause;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// One in so many messages of a client meets a fault.
const ODDS: u32 = 12;

/// How many messages a connection needs to be opened, in which it is left alone.
const OPENING: usize = 2;

/// What happens to a message of a client and to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The message never arrives.
    CutBefore,
    /// Half of the message arrives.
    CutInside,
    /// The message arrives and is carried out, and the answer is lost.
    CutAfter,
    /// The answer is delayed until the call has timed out.
    Stall,
}

/// A proxy. It ends with the runtime that it was started on.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    faults: watch::Sender<usize>,
}

impl Proxy {
    /// Starts a proxy before the server on a port. It holds stalled answers back for `stall`.
    pub(crate) async fn start(server: u16, stall: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = watch::Sender::new(0);
        let counted = faults.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counted = counted.clone();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
                        pass(client, server, stall, &counted).await;
                    }
                });
            }
        });
        Self { port, faults }
    }

    /// Waits until there were so many faults.
    pub(crate) async fn faults(&self, count: usize) {
        let reached = self
            .faults
            .subscribe()
            .wait_for(|faults| *faults >= count)
            .await
            .is_ok();
        assert!(reached, "the proxy counts its faults");
    }
}

/// Passes bytes both ways until a side ends or a fault happens.
async fn pass(mut client: TcpStream, mut server: TcpStream, stall: Duration, faults: &watch::Sender<usize>) {
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut messages = 0;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(len @ 1..) = read else { return };
                messages += 1;
                let fault = (messages > OPENING && fastrand::u32(..ODDS) == 0).then(fault);
                if fault.is_some() {
                    faults.send_modify(|faults| *faults += 1);
                }
                let sent = match fault {
                    Some(Fault::CutBefore) => return,
                    Some(Fault::CutInside) => len / 2,
                    _ => len,
                };
                if server.write_all(&asked[..sent]).await.is_err() { return }
                match fault {
                    Some(Fault::CutInside) => return,
                    // The first bytes of the answer show that the statement was carried out.
                    Some(Fault::CutAfter) => {
                        let _ = server.read(&mut answered).await;
                        return;
                    }
                    Some(Fault::Stall) => real_pause(stall, "a server that does not answer").await,
                    Some(Fault::CutBefore) | None => {}
                }
            }
            read = server.read(&mut answered) => {
                let Ok(len @ 1..) = read else { return };
                if client.write_all(&answered[..len]).await.is_err() { return }
            }
        }
    }
}

fn fault() -> Fault {
    match fastrand::u32(..4) {
        0 => Fault::CutBefore,
        1 => Fault::CutInside,
        2 => Fault::CutAfter,
        _ => Fault::Stall,
    }
}

/// A proxy that stops passing bytes on, in one direction or in both, and passes them on when it is opened
/// again. Connections stay open meanwhile, and what a client sent before it left arrives in the end.
pub(crate) struct Gate {
    pub(crate) port: u16,
    asks: watch::Sender<bool>,
    answers: watch::Sender<bool>,
}

impl Gate {
    /// Starts an open gate before the server on a port.
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asks, answers) = (watch::Sender::new(true), watch::Sender::new(true));
        let (may_ask, may_answer) = (asks.subscribe(), answers.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
                    continue;
                };
                let (asked, answer) = client.into_split();
                let (answered, ask) = server.into_split();
                tokio::spawn(pass_if_open(asked, ask, may_ask.clone()));
                tokio::spawn(pass_if_open(answered, answer, may_answer.clone()));
            }
        });
        Self { port, asks, answers }
    }

    /// Holds back what clients send, and what the server answers.
    pub(crate) fn close(&self) {
        self.asks.send_replace(false);
        self.answers.send_replace(false);
    }

    /// Holds back what the server answers.
    pub(crate) fn hold_answers(&self) {
        self.answers.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.asks.send_replace(true);
        self.answers.send_replace(true);
    }
}

async fn pass_if_open(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut open: watch::Receiver<bool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        let passed = async {
            open.wait_for(|open| *open).await.ok()?;
            to.write_all(&bytes[..len]).await.ok()
        };
        if passed.await.is_none() {
            return;
        }
    }
}

/// Starts a proxy before the server on a port, which waits for `before` whenever a client sends a statement
/// with this text. Returns its port.
pub(crate) async fn waylay<F: Future<Output = ()> + Send>(
    server: u16,
    text: &'static str,
    before: impl Fn() -> F + Clone + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let (mut asked, answer) = client.into_split();
            let (answered, mut ask) = server.into_split();
            tokio::spawn(pass_if_open(
                answered,
                answer,
                watch::Sender::new(true).subscribe(),
            ));
            let before = before.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(len @ 1..) = asked.read(&mut bytes).await {
                    let sent = &bytes[..len];
                    if String::from_utf8_lossy(sent).contains(text) {
                        before().await;
                    }
                    if ask.write_all(sent).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}
