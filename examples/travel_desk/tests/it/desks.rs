//! Two processes of the desk on one database.

use std::process::Stdio;
use std::sync::Arc;
use std::time::SystemTime;

use everturn::prelude::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use travel_desk::tokens::{AUDIENCE, signed, token};
use travel_desk::tools::STAFF;

const SECRET: &str = "a secret of at least thirty-two bytes";

/// The settings that both processes share.
pub(crate) struct Place {
    pub(crate) database: String,
    pub(crate) schema: String,
    pub(crate) booking_url: String,
}

/// The processes; killed when dropped.
pub(crate) struct Desks {
    place: Place,
    processes: [Mutex<Process>; 2],
    client: reqwest::Client,
}

struct Process {
    child: Child,
    url: Arc<str>,
}

/// A caller: a customer, or staff who act for a customer.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    token: String,
    acts_for: Option<String>,
}

impl Caller {
    pub(crate) fn customer(name: &str) -> Self {
        Self {
            token: token(SECRET, name, &[]),
            acts_for: None,
        }
    }

    /// Returns a member of staff with these roles who serves a customer.
    pub(crate) fn serving(customer: &str, roles: &[&str]) -> Self {
        Self {
            token: token(SECRET, "carl", roles),
            acts_for: Some(customer.to_owned()),
        }
    }

    /// Returns callers whose tokens have the claims of this member of staff and are invalid: signed with another
    /// secret, expired, not signed.
    pub(crate) fn invalid(&self) -> [Self; 3] {
        let forged = token("another secret of at least thirty-two bytes", "carl", &[STAFF]);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let claims = json!({"sub": "carl", "roles": [STAFF], "aud": AUDIENCE, "exp": now.as_secs() - 3600});
        let expired = signed(SECRET, claims);
        let claims = self.token.split('.').nth(1).unwrap();
        // The header is `{"alg":"none","typ":"JWT"}`.
        let unsigned = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{claims}.");
        [forged, expired, unsigned].map(|token| Self {
            token,
            acts_for: self.acts_for.clone(),
        })
    }

    /// Returns the caller, who claims to serve a customer.
    pub(crate) fn claiming_to_serve(self, customer: &str) -> Self {
        Self {
            acts_for: Some(customer.to_owned()),
            ..self
        }
    }
}

/// An input of a turn, with its request id.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Desks {
    pub(crate) async fn start(place: Place) -> Self {
        let processes = [Process::start(&place).await, Process::start(&place).await];
        everturn::core::install_tls_provider();
        Self {
            place,
            processes: processes.map(Mutex::new),
            client: reqwest::Client::new(),
        }
    }

    /// Kills one of the processes, as `kill -9` does, and starts another in its place.
    pub(crate) async fn kill(&self, index: usize) {
        let mut process = self.processes[index].lock().await;
        process.child.kill().await.unwrap();
        *process = Process::start(&self.place).await;
    }

    /// Posts to one of the processes. Returns `None` if no response arrives, because the process is killed.
    async fn post(&self, index: usize, caller: &Caller, path: &str, id: &str, body: &Value) -> Option<Value> {
        let url = Arc::clone(&self.processes[index].lock().await.url);
        let request = self.client.post(format!("{url}/agents/{path}"));
        let request = request.bearer_auth(&caller.token).header("x-request-id", id);
        let request = match &caller.acts_for {
            Some(customer) => request.header("x-customer", customer),
            None => request,
        };
        request.json(body).send().await.ok()?.json().await.ok()
    }

    /// Runs a turn. Returns its output or its error.
    pub(crate) async fn turn(
        &self,
        index: usize,
        caller: &Caller,
        session: &str,
        input: &Input,
    ) -> Option<Value> {
        let body = json!({"data": input.data, "init": {"sessionId": session}});
        let response = self.post(index, caller, "desk", &input.id, &body).await?;
        Some(match response.get("result") {
            Some(output) => output.clone(),
            None => json!({ "error": response }),
        })
    }

    /// Returns the latest snapshot of a session, or the error.
    pub(crate) async fn snapshot(&self, caller: &Caller, session: &str) -> Value {
        let body = json!({"data": {"sessionId": session}});
        // Another attack may kill the process during the request.
        for index in [0, 1].into_iter().cycle() {
            if let Some(response) = self.post(index, caller, "desk/getSnapshot", "read", &body).await {
                return response["result"].clone();
            }
        }
        unreachable!("the processes are started again")
    }

    /// Calls the sub-agent as if it were public.
    pub(crate) async fn call_scout(&self, caller: &Caller) -> Option<Value> {
        let body = json!({"data": {"message": {"role": "user", "content": [{"text": "Rome"}]}}});
        self.post(0, caller, "scout", "scout", &body).await
    }
}

impl Process {
    async fn start(place: &Place) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_travel_desk"))
            .env_clear()
            .env("ADDRESS", "127.0.0.1:0")
            .env("DATABASE", &place.database)
            .env("SCHEMA", &place.schema)
            .env("BOOKING_URL", &place.booking_url)
            .env("BOOKING_TIMEOUT", "100")
            .env("TURN_LEASE", "2000")
            .env("JWT_SECRET", SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
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
