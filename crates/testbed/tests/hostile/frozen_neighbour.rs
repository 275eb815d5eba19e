//! A process that is stopped while it holds the store's lock costs other processes only the saves of that
//! time.

use std::time::{Duration, Instant};

use everturn_agent::SnapshotStatus;
use everturn_agent::store::{Detail, Scope};
use everturn_testkit::blocking_real_pause;
use testbed::worker::StorePlace;

use crate::observer::Observer;
use crate::processes::{Process, Site};
use crate::served::Testbed;
use crate::{MEGABYTE, alone};

const ROUNDS: usize = 20;

/// The number of turns that wait for the lock.
const TURNS: usize = 8;

const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// How late a turn may be answered after its deadline on a busy machine.
const GRACE: Duration = Duration::from_secs(15);

/// The timeout of a run on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server, and a neighbour that was stopped during a save.
struct Scene {
    site: Site,
    server: Testbed,
}

impl Scene {
    fn new(site: Site) -> Self {
        let store = match &site.store {
            StorePlace::Sqlite(path) => format!("sqlite:{}", path.display()),
            StorePlace::Files(path) => format!("file:{}", path.display()),
            StorePlace::Postgres { .. } => unreachable!("no lock is held in the middle of a save"),
        };
        let timeout = BUSY_TIMEOUT.as_millis().to_string();
        let server = Testbed::start_with(&["--store", &store, "--busy-timeout", &timeout]);
        server.program(r#"{"responses":[{"message":{"role":"model","content":[{"text":"soup"}]}}]}"#);
        Self { site, server }
    }

    fn frozen_neighbour(&self) -> Process {
        let mut orders = self.site.orders(Duration::from_secs(1));
        orders.holds = true;
        let neighbour = Process::start(&orders);
        neighbour.expect_line("holding");
        neighbour.signal("STOP");
        neighbour
    }

    fn turn(&self, session: &str) -> String {
        let body = format!(
            r#"{{"data":{{"message":{{"role":"user","content":[{{"text":"hi"}}]}}}},"init":{{"sessionId":"{session}"}}}}"#
        );
        self.server.request("POST", "/promptAgentWithStore", &body)
    }

    fn snapshot(&self, session: &str) -> String {
        let body = format!(r#"{{"data":{{"sessionId":"{session}"}}}}"#);
        self.server
            .request("POST", "/promptAgentWithStore/getSnapshot", &body)
    }

    fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.server.id())).map_or(0, Iterator::count)
    }

    /// Turns fail together at their deadline, while everything else
    /// is answered.
    fn assert_only_saves_wait(&self, round: usize) {
        let asked = Instant::now();
        std::thread::scope(|scope| {
            let turns: Vec<_> = (0..TURNS)
                .map(|turn| scope.spawn(move || (self.turn(&format!("r{round}-{turn}")), asked.elapsed())))
                .collect();
            // Reads do not wait: they are answered before saves that were requested earlier.
            let answer = self.snapshot("before");
            assert!(answer.starts_with("HTTP/1.1 200 "), "round {round}: {answer}");
            let threads = self.threads();
            assert!(threads < 64, "{threads} threads wait");
            for turn in turns {
                let (answer, took) = turn.join().unwrap();
                assert!(answer.contains("UNAVAILABLE"), "round {round}: {answer}");
                assert!(took < BUSY_TIMEOUT + GRACE, "round {round} took {took:?}");
            }
        });
    }
}

fn a_frozen_neighbour_costs_the_saves_of_the_meantime(site: Site) {
    let _alone = alone();
    let scene = Scene::new(site);
    assert!(scene.turn("before").starts_with("HTTP/1.1 200 "));
    let observer = Observer::of(&scene.server);

    for round in 0..ROUNDS {
        let neighbour = scene.frozen_neighbour();

        scene.assert_only_saves_wait(round);

        if round % 2 == 0 {
            neighbour.signal("CONT");
            neighbour.let_go();
        } else {
            neighbour.kill();
        }
        let answer = scene.turn(&format!("r{round}-0"));
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("soup"),
            "the lock is free: {answer}"
        );
    }

    observer.assert_unharmed("a frozen neighbour", 32 * MEGABYTE);
}

#[test]
fn a_server_that_ends_leaves_one_complete_file() {
    let scene = Scene::new(Site::sqlite());
    assert!(scene.turn("before").starts_with("HTTP/1.1 200 "));
    let StorePlace::Sqlite(path) = &scene.site.store else {
        panic!("the site is a database")
    };

    scene.server.signal("TERM");
    let status = scene.server.wait();

    assert!(status.success(), "{status}");
    for log in ["sessions.db-wal", "sessions.db-streams-wal"] {
        assert!(!path.with_file_name(log).exists(), "{log} is still there");
    }
    let size = std::fs::metadata(path).unwrap().len();
    assert!(size > 16 * 1024, "the file has only {size} bytes");
}

fn a_server_ends_while_its_neighbour_is_frozen(site: Site) {
    let scene = Scene::new(site);
    assert!(scene.turn("before").starts_with("HTTP/1.1 200 "));
    let neighbour = scene.frozen_neighbour();

    let ended = std::thread::scope(|scope| {
        for turn in 0..TURNS {
            let scene = &scene;
            scope.spawn(move || scene.turn(&format!("last-{turn}")));
        }
        blocking_real_pause(
            BUSY_TIMEOUT / 4,
            "turns that began wait for the lock of the frozen neighbour",
        );
        scene.server.signal("TERM");
        Instant::now()
    });
    let status = scene.server.wait();

    assert!(status.success(), "{status}");
    let took = ended.elapsed();
    assert!(took < BUSY_TIMEOUT + GRACE, "the server took {took:?} to end");
    neighbour.kill();
}

#[test]
fn a_frozen_neighbour_costs_the_saves_of_the_meantime_on_sqlite() {
    a_frozen_neighbour_costs_the_saves_of_the_meantime(Site::sqlite());
}

#[test]
fn a_frozen_neighbour_costs_the_saves_of_the_meantime_on_files() {
    a_frozen_neighbour_costs_the_saves_of_the_meantime(Site::files());
}

#[test]
fn a_server_ends_while_its_neighbour_is_frozen_on_sqlite() {
    a_server_ends_while_its_neighbour_is_frozen(Site::sqlite());
}

#[test]
fn a_server_ends_while_its_neighbour_is_frozen_on_files() {
    a_server_ends_while_its_neighbour_is_frozen(Site::files());
}

/// A run whose worker died while a neighbour is frozen is taken over once the lock is free.
fn a_lost_run_is_taken_over_once_the_lock_is_free(site: Site) {
    let lease = Duration::from_secs(2);
    let scene = Scene::new(site);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(scene.site.store.open()).unwrap();
    let mut orders = scene.site.orders(lease);
    orders.recover_every = Some(Duration::from_millis(50));
    let rescuer = Process::start(&orders);
    rescuer.expect_line("ready");
    let mut orders = scene.site.orders(lease);
    orders.tasks = vec![("lost".to_owned(), "go".to_owned())];
    // Slow enough to be running when it is killed.
    orders.pace = Duration::from_secs(1);
    let worker = Process::start(&orders);
    let id = worker.accepted();
    worker.kill();
    let neighbour = scene.frozen_neighbour();
    let scope = Scope::default();
    let status = || {
        let row = store.get(&scope, &id, Detail::Metadata);
        runtime.block_on(row).unwrap().unwrap().status
    };

    blocking_real_pause(2 * lease, "the lease expires, and nobody can take the run over");
    assert_eq!(status(), SnapshotStatus::Pending);
    neighbour.kill();

    let free = Instant::now();
    while !status().is_final() {
        assert!(free.elapsed() < PATIENCE, "nobody takes the run over");
        blocking_real_pause(Duration::from_millis(50), "between two readings of the row");
    }
}

#[test]
fn a_lost_run_is_taken_over_once_the_lock_is_free_on_sqlite() {
    a_lost_run_is_taken_over_once_the_lock_is_free(Site::sqlite());
}

#[test]
fn a_lost_run_is_taken_over_once_the_lock_is_free_on_files() {
    a_lost_run_is_taken_over_once_the_lock_is_free(Site::files());
}
