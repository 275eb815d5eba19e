//! A proxy that breaks connections.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Forwards connections to a server and cuts some of them.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Proxy {
    /// Cuts each of the first `cuts` connections after its second event.
    pub(crate) async fn start(server: SocketAddr, cuts: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&heads);
        let serving = tokio::spawn(async move {
            let mut connections = 0;
            while let Ok((client, _)) = listener.accept().await {
                connections += 1;
                let events = if connections <= cuts { 2 } else { usize::MAX };
                tokio::spawn(pass_on(client, server, events, Arc::clone(&log)));
            }
        });
        Self {
            address,
            heads,
            serving,
        }
    }

    /// The heads of the forwarded requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Forwards bytes in both directions, up to the end of that many events.
async fn pass_on(mut client: TcpStream, server: SocketAddr, events: usize, heads: Arc<Mutex<Vec<String>>>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    let (mut request, mut reply) = ([0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read {
                Ok(n) if n > 0 && server.write_all(&request[..n]).await.is_ok() => {
                    asked.extend_from_slice(&request[..n]);
                    if let Some(head) = taken_head(&mut asked) {
                        heads.lock().push(head);
                    }
                }
                _ => return,
            },
            read = server.read(&mut reply) => match read {
                Ok(n) if n > 0 => {
                    let before = answered.len();
                    answered.extend_from_slice(&reply[..n]);
                    let end = end_of_event(&answered, events);
                    let passed = &answered[before..end.unwrap_or(answered.len())];
                    if client.write_all(passed).await.is_err() || end.is_some() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

/// Returns the head of the only request on a connection, once it is complete.
fn taken_head(asked: &mut Vec<u8>) -> Option<String> {
    let text = String::from_utf8_lossy(asked).to_lowercase();
    let (head, _) = text.split_once("\r\n\r\n")?;
    asked.clear();
    Some(head.to_owned())
}

fn end_of_event(answered: &[u8], events: usize) -> Option<usize> {
    let mut blank_lines = answered
        .windows(2)
        .enumerate()
        .filter(|(_, window)| window == b"\n\n");
    blank_lines.nth(events - 1).map(|(start, _)| start + 2)
}
