//! A collector that is absent, slow or broken does not affect the program.

use std::time::{Duration, Instant};

use everturn_core::{Registry, run};
use everturn_otlp::{Otlp, Telemetry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::collector::ONE_AT_A_TIME;

async fn work(count: usize) {
    let flow = Registry::new()
        .define_flow("busy", |(): ()| async {
            Ok(run("step", || async { Ok(()) }).await?)
        })
        .unwrap();
    for _ in 0..count {
        flow.run(()).await.unwrap();
    }
}

fn exporting(url: &str) -> Telemetry {
    Otlp::new().endpoint(url).start().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_for_a_collector_that_is_absent_or_answers_nonsense_are_counted_as_lost() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let nonsense = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let garbage = format!("http://{}", nonsense.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        loop {
            let (mut peer, _) = nonsense.accept().await.unwrap();
            let mut head = [0; 512];
            let _ = peer.read(&mut head).await;
            let _ = peer.write_all(b"\x00\x01 I am not HTTP\r\n\r\n").await;
        }
    });

    for url in [closed, garbage] {
        let telemetry = exporting(&url);
        work(10).await;
        telemetry.flush().await;

        assert_eq!(telemetry.dropped(), 20, "{url}");
    }
    answering.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_blocks_nothing_and_the_queue_is_bounded() {
    let _alone = ONE_AT_A_TIME.lock().await;
    // The operating system accepts the connection, and nothing reads from it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let telemetry = exporting(&format!("http://{}", silent.local_addr().unwrap()));

    let began = Instant::now();
    work(20_000).await;
    let took = began.elapsed();

    // 40,000 spans: some are being sent, 16,384 are queued, and the others are counted as lost.
    assert!(
        telemetry.dropped() >= 40_000 - 16_384 - 1024,
        "{}",
        telemetry.dropped()
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
    let began = Instant::now();
    tokio::task::spawn_blocking(move || drop(telemetry))
        .await
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
