//! A background run of one server is watched, and a stream of one is continued, through another server that
//! shares its store.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::served::{self, Testbed};

/// Returns the events of a streamed response, independent of its pieces.
fn events(answer: &str) -> Vec<Value> {
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|json| serde_json::from_str(json).unwrap()).collect()
}

#[test]
fn chunks_of_a_run_in_one_process_are_shown_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("testbed.db").display());
    let (runs, elsewhere) = (Testbed::start(&store), Testbed::start(&store));
    let answers = json!({
        "responses": [{
            "message": {"role": "model", "content": [{"text": "Monday Tuesday"}]},
            "finishReason": "stop",
        }],
        "chunks": [[{"content": [{"text": "Monday "}]}, {"content": [{"text": "Tuesday"}]}]],
    });
    runs.program(&answers.to_string());
    let message = json!({"role": "user", "content": [{"text": "plan"}]});
    let detach = json!({"data": {"message": message, "detach": true}});

    let detached = runs.post("/promptAgentWithStore", &detach.to_string());
    let (_, detached) = detached.split_once("\r\n\r\n").unwrap();
    let detached: Value = serde_json::from_str(detached).unwrap();
    let run = json!({"data": {"snapshotId": detached["result"]["snapshotId"]}});
    let shown = elsewhere.post("/promptAgentWithStore/watch?stream=true", &run.to_string());

    let events = events(&shown);
    let texts: Vec<_> = events
        .iter()
        .filter_map(|event| event["message"]["modelChunk"]["content"][0]["text"].as_str())
        .collect();
    assert_eq!(texts, ["Monday ", "Tuesday"], "{shown}");
    assert_eq!(
        events.last().unwrap()["result"]["finishReason"],
        "stop",
        "{shown}"
    );
}

/// How often a server is killed while it streams.
const KILLS: usize = 20;

/// A stream as its client reads it: its lines, and its id.
struct Reading {
    lines: std::io::Lines<BufReader<TcpStream>>,
    id: String,
}

impl Reading {
    /// Calls a counting flow, or reads its stream again.
    fn begin(server: &Testbed, flow: &str, again: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(server.host()).unwrap();
        let header = again.map_or_else(String::new, |id| format!("x-genkit-stream-id: {id}\r\n"));
        let body = json!({"data": 10_000}).to_string();
        write!(
            stream,
            "POST /flows/{flow}?stream=true HTTP/1.1\r\nhost: {}\r\n{header}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            server.host(),
            body.len(),
        )
        .unwrap();
        let mut lines = BufReader::new(stream).lines();
        let is_id = |line: &String| line.starts_with("x-genkit-stream-id: ");
        let id = lines.by_ref().map(Result::unwrap).find(is_id).unwrap();
        let id = id.rsplit_once(' ').unwrap().1.to_owned();
        Self { lines, id }
    }

    /// Returns the next event; `None` if the connection broke.
    fn next(&mut self) -> Option<String> {
        let mut events = self.lines.by_ref().map_while(Result::ok);
        events.find(|line| line.starts_with("data: "))
    }
}

/// Kills servers in the middle of streams, and continues the streams through another server.
fn chunks_survive_kills(store: &str) {
    let elsewhere = Testbed::start(store);
    let mut random = fastrand::Rng::with_seed(34);
    for kill in 0..KILLS {
        let server = Testbed::start(store);
        // One flow pauses between its chunks and the other does not.
        let flow = ["slowly", "streamy"][kill % 2];
        let mut reading = Reading::begin(&server, flow, None);
        let wanted = random.usize(1..6);
        let mut seen: Vec<String> = (0..wanted).map(|_| reading.next().unwrap()).collect();
        server.signal("KILL");
        server.wait();
        // Events in flight were sent.
        seen.extend(std::iter::from_fn(|| reading.next()));

        let mut again = Reading::begin(&elsewhere, flow, Some(&reading.id));
        for (index, event) in seen.iter().enumerate() {
            let kept = again.next();
            assert_eq!(
                kept.as_ref(),
                Some(event),
                "event {index} of {} after kill {kill}",
                seen.len()
            );
        }
    }
}

#[test]
fn events_that_a_client_has_read_survive_the_kill_of_their_server_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();

    chunks_survive_kills(&format!("sqlite:{}", folder.path().join("testbed.db").display()));
}

#[tokio::test]
async fn events_that_a_client_has_read_survive_the_kill_of_their_server_in_postgres() {
    let Some(store) = served::new_postgres_database("EVERTURN_TEST_POSTGRES").await else {
        return;
    };

    tokio::task::spawn_blocking(move || chunks_survive_kills(&store))
        .await
        .unwrap();
}
