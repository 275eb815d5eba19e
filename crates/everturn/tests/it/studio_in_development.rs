//! In development an application serves the studio and its traces without configuration; otherwise it does
//! not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use everturn::prelude::*;
use everturn::testkit::eventually;

/// The variable that holds the address to listen on.
const PORT: &str = "EVERTURN_TEST_PORT";

/// Runs the program below in a separate process, because its environment decides.
struct Program {
    child: Child,
    port: u16,
}

impl Program {
    async fn start(environment: Option<&str>) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        // The developer tools leave a file in the folder of the program.
        let folder = std::env::temp_dir().join(format!("everturn-studio-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "studio_in_development::the_program",
                "--exact",
                "--include-ignored",
            ])
            .env_remove("GENKIT_ENV")
            .env_remove("EVERTURN_ENV")
            .env(PORT, port.to_string())
            .current_dir(folder)
            .stdout(Stdio::null());
        if let Some(name) = environment {
            command.env(name, "dev");
        }
        let child = command.spawn().unwrap();
        let listens = async || TcpStream::connect(("127.0.0.1", port)).is_ok();
        eventually("the program listens", listens).await;
        Self { child, port }
    }

    /// Returns the whole response to a request.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn in_development_the_studio_and_the_traces_are_served() {
    for variable in ["EVERTURN_ENV", "GENKIT_ENV"] {
        let program = Program::start(Some(variable)).await;

        let page = program.get("/");
        let traces = program.get("/dev/traces");
        let agents = program.get("/agents");

        assert!(page.starts_with("HTTP/1.1 200 "), "{variable}: {page}");
        assert!(page.contains("<title>Everturn</title>"), "{variable}: {page}");
        assert!(traces.contains("\"traces\""), "{variable}: {traces}");
        assert!(agents.contains("\"delete\""), "{variable}: {agents}");
    }
}

#[tokio::test]
async fn otherwise_neither_is_served() {
    let program = Program::start(None).await;

    for path in ["/", "/dev/traces"] {
        let answer = program.get(path);

        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
}

#[tokio::test]
#[ignore = "the program of the tests above; it does nothing without its variable"]
async fn the_program() {
    let Ok(port) = std::env::var(PORT) else {
        return;
    };
    let app = Everturn::builder().build().await.unwrap();
    app.custom_agent(
        "parrot",
        |session: AgentSession| async move { Ok(session.result()) },
    )
    .store(MemoryStore::new())
    .define()
    .unwrap();

    app.serve(([127, 0, 0, 1], port.parse().unwrap())).await.unwrap();
}
