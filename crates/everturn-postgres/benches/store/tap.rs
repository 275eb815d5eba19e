//! Records the statements that a store sends, to run the very same ones without the store.
//!
//! A tap is a proxy before the server. It reads the messages of PostgreSQL's protocol that carry a statement:
//! its text, the types of its parameters and their bytes.

use std::error::Error;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::config::Host;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, Statement};

/// A statement as it was sent.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) sql: String,
    types: Vec<Type>,
    params: Vec<Encoded>,
}

/// A parameter as it was sent; `None` is null.
#[derive(Debug)]
struct Encoded(Option<Bytes>);

impl Recorded {
    /// Runs the statement once more and returns the number of rows that it answers with.
    pub(crate) async fn run(&self, client: &Client) -> usize {
        let params = self.params.iter().zip(&self.types);
        let params: Vec<(&(dyn ToSql + Sync), Type)> = params
            .map(|(param, kind)| (param as &(dyn ToSql + Sync), kind.clone()))
            .collect();
        let rows = client.query_typed(&self.sql, &params).await;
        rows.expect("a statement that was carried out before").len()
    }

    pub(crate) async fn prepare(&self, client: &Client) -> Statement {
        let prepared = client.prepare_typed(&self.sql, &self.types).await;
        prepared.expect("a statement that was carried out before")
    }

    /// Like [`Recorded::run`], by a statement that was prepared from it.
    pub(crate) async fn run_prepared(&self, client: &Client, prepared: &Statement) -> usize {
        let params: Vec<&(dyn ToSql + Sync)> = self.params.iter().map(|param| param as _).collect();
        let rows = client.query(prepared, &params).await;
        rows.expect("a statement that was carried out before").len()
    }
}

impl ToSql for Encoded {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(bytes) = &self.0 else {
            return Ok(IsNull::Yes);
        };
        out.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A proxy that records. It ends with the runtime that it was started on.
pub(crate) struct Tap {
    /// The connection string that leads through the proxy.
    pub(crate) url: String,
    recorded: Arc<Mutex<Vec<Recorded>>>,
}

impl Tap {
    /// Starts a proxy before the server of a connection string that has a host and a port.
    pub(crate) async fn before(url: &str) -> Self {
        let config: Config = url.parse().expect("a connection string");
        let (Some(Host::Tcp(host)), Some(port)) = (config.get_hosts().first(), config.get_ports().first())
        else {
            panic!("the connection string must name a host and a port");
        };
        let server = format!("{host}:{port}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("a port").to_string();
        let recorded = Arc::<Mutex<Vec<Recorded>>>::default();
        let tap = Self {
            url: url.replacen(&server, &address, 1),
            recorded: Arc::clone(&recorded),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.expect("a server");
                let (client_in, mut client_out) = client.into_split();
                let (mut server_in, server_out) = server.into_split();
                let recorded = Arc::clone(&recorded);
                tokio::spawn(async move {
                    let answers = tokio::io::copy(&mut server_in, &mut client_out);
                    tokio::join!(answers, pass(client_in, server_out, &recorded))
                });
            }
        });
        tap
    }

    /// Returns the statements that were sent since the last call.
    pub(crate) fn take(&self) -> Vec<Recorded> {
        let mut recorded = self.recorded.lock();
        std::mem::take(&mut *recorded)
    }
}

/// Passes the messages of a client on and records them.
async fn pass(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, recorded: &Mutex<Vec<Recorded>>) {
    let (mut unread, mut has_begun) = (BytesMut::new(), false);
    let mut statement = Recorded::default();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len @ 1..) = client.read(&mut buffer).await {
        unread.extend_from_slice(&buffer[..len]);
        // A connection begins with a message without a type.
        while let Some(message) = message(&mut unread, usize::from(has_begun)) {
            has_begun = true;
            match message.first() {
                Some(b'P') => statement = parsed(message),
                Some(b'B') => {
                    let mut whole = std::mem::take(&mut statement);
                    whole.params = bound(message);
                    recorded.lock().push(whole);
                }
                _ => {}
            }
        }
        if server.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}

/// Takes a whole message: `type_bytes` bytes of its type, four of its length, and the rest.
fn message(unread: &mut BytesMut, type_bytes: usize) -> Option<Bytes> {
    let mut length = unread.get(type_bytes..type_bytes + 4)?;
    let length = type_bytes + usize::try_from(length.get_u32()).expect("a length");
    (unread.len() >= length).then(|| unread.split_to(length).freeze())
}

/// Reads a message of type `Parse`.
fn parsed(mut message: Bytes) -> Recorded {
    message.advance(5);
    word(&mut message);
    let sql = word(&mut message);
    let count = message.get_u16();
    let types = (0..count).map(|_| Type::from_oid(message.get_u32()).expect("a type of PostgreSQL's own"));
    Recorded {
        sql,
        types: types.collect(),
        params: Vec::new(),
    }
}

/// Reads the parameters in a message of type `Bind`.
fn bound(mut message: Bytes) -> Vec<Encoded> {
    message.advance(5);
    word(&mut message);
    word(&mut message);
    let formats = message.get_u16();
    message.advance(2 * usize::from(formats));
    let count = message.get_u16();
    let param = |_| {
        let length = usize::try_from(message.get_i32());
        Encoded(length.ok().map(|length| message.split_to(length)))
    };
    (0..count).map(param).collect()
}

/// Reads a text that ends with a zero.
fn word(message: &mut Bytes) -> String {
    let length = message.iter().position(|byte| *byte == 0).expect("an end");
    let word = message.split_to(length);
    message.advance(1);
    String::from_utf8(word.to_vec()).expect("a text")
}
