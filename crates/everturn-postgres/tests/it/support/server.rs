//! A database server of a test's own, which the test may stop and start.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A server in a temporary folder. It is stopped when this is dropped.
pub(crate) struct Server {
    bin: PathBuf,
    folder: TempDir,
    port: u16,
}

impl Server {
    /// Starts a server; `None`, with a printed reason, where its programs are not.
    pub(crate) fn start() -> Option<Self> {
        let Ok(bin) = std::env::var("EVERTURN_TEST_POSTGRES_BIN") else {
            println!("skipped: EVERTURN_TEST_POSTGRES_BIN names no programs; ./test finds them");
            return None;
        };
        let server = Self::in_new_folder(bin.into());
        succeed(
            server
                .program("initdb")
                .args(["--username=everturn", "--auth=trust", "--no-sync", "--pgdata"])
                .arg(server.data()),
        );
        server.go();
        Some(server)
    }

    fn in_new_folder(bin: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        if is_root() {
            succeed(Command::new("chown").arg("postgres:").arg(folder.path()));
        }
        Self { bin, folder, port }
    }

    /// Starts a standby of this server, which follows it.
    pub(crate) fn standby(&self) -> Self {
        let standby = Self::in_new_folder(self.bin.clone());
        succeed(
            self.base_backup()
                .arg("--write-recovery-conf")
                .arg("--pgdata")
                .arg(standby.data()),
        );
        standby.go();
        standby
    }

    /// Makes a standby the primary server.
    pub(crate) fn promote(&self) {
        succeed(self.control("promote").arg("--wait"));
    }

    pub(crate) fn url(&self) -> String {
        Self::url_by(self.port)
    }

    /// The connection string by way of a port, which may be a proxy's.
    pub(crate) fn url_by(port: u16) -> String {
        format!("postgres://everturn@127.0.0.1:{port}/postgres")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts the server again and waits until it answers.
    pub(crate) fn go(&self) {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off",
            self.port
        );
        let log = self.folder.path().join("log");
        succeed(
            self.control("start")
                .arg("--wait")
                .arg("--log")
                .arg(log)
                .arg("--options")
                .arg(options),
        );
    }

    /// Stops the server as if it had crashed.
    pub(crate) fn crash(&self) {
        succeed(self.control("stop").args(["--mode=immediate", "--wait"]));
    }

    /// Copies the database while the server runs.
    pub(crate) fn back_up(&self) {
        succeed(self.base_backup().arg("--pgdata").arg(self.copy()));
    }

    fn base_backup(&self) -> Command {
        let mut command = self.program("pg_basebackup");
        command
            .args([
                "--checkpoint=fast",
                "--no-sync",
                "--host=127.0.0.1",
                "--username=everturn",
            ])
            .arg(format!("--port={}", self.port));
        command
    }

    /// Stops the server, puts the copy in the place of the database, and starts it again.
    pub(crate) fn restore(&self) {
        self.crash();
        std::fs::remove_dir_all(self.data()).unwrap();
        std::fs::rename(self.copy(), self.data()).unwrap();
        self.go();
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn control(&self, what: &str) -> Command {
        let mut command = self.program("pg_ctl");
        command.arg(what).arg("--pgdata").arg(self.data());
        command
    }

    /// A program of the server, which refuses to run as root.
    fn program(&self, name: &str) -> Command {
        let program = self.bin.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["--user", "postgres", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.folder.path());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped already.
        let _ = self
            .control("stop")
            .arg("--mode=immediate")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0)
}

fn succeed(command: &mut Command) {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
