//! The program, started as by its operator.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use everturn::prelude::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

const PEOPLE: &str =
    "ann=token-of-ann, ben=token-of-ben, carl:staff=token-of-carl, olga:operator=token-of-olga";

/// The serving program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    url: String,
    log: JoinHandle<String>,
    client: reqwest::Client,
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// Returns a field of the output.
    pub(crate) fn result(&self, pointer: &str) -> &Value {
        self.body["result"].pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Returns the text of the answer.
    pub(crate) fn text(&self) -> &str {
        self.result("/message/content/0/text")
            .as_str()
            .unwrap_or_default()
    }
}

fn command(data: &Path, model_url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_support_desk"));
    command
        .env_clear()
        .env("ADDRESS", "127.0.0.1:0")
        .env("DATA", data)
        .env("MODEL_URL", model_url)
        .env("PEOPLE", PEOPLE)
        // No collector listens there, so traces are dropped.
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Program {
    /// Starts the program and waits until it serves.
    pub(crate) async fn start(data: &Path, model_url: &str) -> Self {
        let mut child = command(data, model_url).spawn().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let log = tokio::spawn(async move {
            let mut log = String::new();
            errors.read_to_string(&mut log).await.unwrap();
            log
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap_or_default();
        let Some(url) = line.strip_prefix("Serving on ") else {
            panic!("the program said {line:?} and logged {}", log.await.unwrap());
        };
        everturn::core::install_tls_provider();
        Self {
            child,
            url: url.to_owned(),
            log,
            client: reqwest::Client::new(),
        }
    }

    /// Posts JSON as a caller: `ann`, or `carl for ann`.
    pub(crate) async fn post(&self, who: &str, path: &str, body: &Value) -> Answer {
        let (name, customer) = who
            .split_once(" for ")
            .map_or((who, None), |(name, of)| (name, Some(of)));
        let mut request = self.client.post(format!("{}{path}", self.url));
        request = request.bearer_auth(format!("token-of-{name}")).json(body);
        if let Some(customer) = customer {
            request = request.header("x-customer", customer);
        }
        let answer = request.send().await.unwrap();
        Answer {
            status: answer.status().as_u16(),
            body: answer.json().await.unwrap(),
        }
    }

    /// Sends a message in a session.
    pub(crate) async fn say(&self, who: &str, session: &str, text: &str) -> Answer {
        let message = json!({"role": "user", "content": [{"text": text}]});
        self.turn(who, session, &json!({"message": message})).await
    }

    /// Sends a message in a session, reads the answer as it is streamed, and returns it.
    pub(crate) async fn listen(&self, who: &str, session: &str, text: &str) -> String {
        let message = json!({"role": "user", "content": [{"text": text}]});
        let body = json!({"data": {"message": message}, "init": {"sessionId": session}});
        let request = self.client.post(format!("{}/agents/desk", self.url));
        let request = request.bearer_auth(format!("token-of-{who}")).json(&body);
        let answer = request
            .header("accept", "text/event-stream")
            .send()
            .await
            .unwrap();
        answer.text().await.unwrap()
    }

    /// Runs a turn in a session.
    pub(crate) async fn turn(&self, who: &str, session: &str, input: &Value) -> Answer {
        let body = json!({"data": input, "init": {"sessionId": session}});
        self.post(who, "/agents/desk", &body).await
    }

    /// Reads a text as the operator.
    pub(crate) async fn get(&self, path: &str) -> String {
        let request = self.client.get(format!("{}{path}", self.url));
        let answer = request.bearer_auth("token-of-olga").send().await.unwrap();
        answer.text().await.unwrap()
    }

    /// Kills the process at once, as `kill -9` does, and returns its log.
    pub(crate) async fn kill(mut self) -> String {
        self.child.kill().await.unwrap();
        self.log.await.unwrap()
    }
}

/// Returns the files of a folder whose contents or name contain a text.
pub(crate) fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let named = path.display().to_string().contains(text);
            if named || bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}
