//! Two processes of the desk on one database.

use std::process::Stdio;
use std::sync::Arc;

use everturn::prelude::{Value, json};
use jsonwebtoken::{EncodingKey, Header};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

const SECRET: &str = "a secret of at least thirty-two bytes";

/// The processes. Each is killed when it is dropped.
pub(crate) struct Desks {
    database: String,
    booking_url: String,
    processes: [Mutex<Process>; 2],
    client: reqwest::Client,
}

struct Process {
    child: Child,
    url: Arc<str>,
}

/// A response over HTTP.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Desks {
    pub(crate) async fn start(database: &str, booking_url: &str) -> Self {
        Self {
            database: database.to_owned(),
            booking_url: booking_url.to_owned(),
            processes: [
                Mutex::new(Process::start(database, booking_url).await),
                Mutex::new(Process::start(database, booking_url).await),
            ],
            client: reqwest::Client::new(),
        }
    }

    /// Kills one of the processes, as `kill -9` does, and starts another in its place.
    pub(crate) async fn kill(&self, index: usize) {
        let mut process = self.processes[index].lock().await;
        process.child.kill().await.unwrap();
        *process = Process::start(&self.database, &self.booking_url).await;
    }

    /// Posts to one of the processes; `None` if no response arrives, because the process is killed.
    pub(crate) async fn post(&self, index: usize, token: &str, path: &str, body: &Value) -> Option<Response> {
        let url = Arc::clone(&self.processes[index].lock().await.url);
        let request = self.client.post(format!("{url}{path}")).bearer_auth(token).json(body);
        let response = request.send().await.ok()?;
        Some(Response {
            status: response.status().as_u16(),
            body: response.json().await.ok()?,
        })
    }

    /// Runs a turn.
    pub(crate) async fn turn(&self, index: usize, token: &str, session: &str, input: &Value) -> Option<Response> {
        let body = json!({"data": input, "init": {"sessionId": session}});
        self.post(index, token, "/agents/desk", &body).await
    }

    /// Returns the latest state of a session, or null if it has none.
    pub(crate) async fn state(&self, index: usize, token: &str, session: &str) -> Option<Value> {
        let body = json!({"data": {"sessionId": session}});
        let response = self.post(index, token, "/agents/desk/getSnapshot", &body).await?;
        Some(response.body["result"]["state"].clone())
    }
}

impl Process {
    async fn start(database: &str, booking_url: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_travel_desk"))
            .env_clear()
            .env("ADDRESS", "127.0.0.1:0")
            .env("DATABASE", database)
            .env("BOOKING_URL", booking_url)
            .env("JWT_SECRET", SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap_or_default();
        let url = line.strip_prefix("Serving on ").expect("the process serves");
        Self {
            child,
            url: url.into(),
        }
    }
}

/// Returns the token of a customer.
pub(crate) fn customer(name: &str) -> String {
    signed(&json!({"sub": name, "tenant": name}))
}

/// Returns the token of a member of staff who serves that customer.
pub(crate) fn staff_for(name: &str) -> String {
    signed(&json!({"sub": "carl", "tenant": name, "roles": ["staff"]}))
}

fn signed(claims: &Value) -> String {
    let mut claims = claims.clone();
    claims["aud"] = json!("travel-desk");
    claims["exp"] = json!(4_000_000_000_u64);
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::default(), &claims, &key).unwrap()
}
