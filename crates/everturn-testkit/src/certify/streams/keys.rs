//! Checks that a stream is identified by its whole key.

use std::sync::Arc;

use everturn_core::Status;
use everturn_core::stream_log::{JsonText, Position, StreamEvent, StreamKey, StreamLog, StreamSubject};

use super::super::ensure;
use super::{LogUnderTest, Verdict, expected, finish, key, list_promises, read, rest, same, write};

list_promises! {
    "a stream that was never opened is unknown" => unknown,
    "a key is opened once" => once,
    "of many concurrent openings of a key one succeeds" => one_of_many,
    "a stream is out of reach in other scopes" => scopes_are_apart,
    "similar and hostile keys are apart or refused" => hostile_keys,
    "erased streams are removed, and no others" => erasure,
}

/// Returns the status and message with which both reading and stopping a stream are rejected.
async fn refusals(log: &dyn StreamLog, key: &StreamKey) -> Result<(Status, String), String> {
    let Err(read) = log.read(key, Position::START).await else {
        return Err(format!("{key:?} can be read"));
    };
    let Err(stop) = log.stop(key).await else {
        return Err(format!("{key:?} can be stopped"));
    };
    ensure!(
        read.status() == stop.status(),
        "{key:?} is refused with {read} when it is read and with {stop} when it is stopped"
    );
    Ok((read.status(), read.message().replace(key.id(), "…")))
}

async fn unknown(log: Arc<LogUnderTest>) -> Verdict {
    finish(log.open("known").await?).await?;

    let (status, _) = refusals(&*log.log, &key("unknown")).await?;
    ensure!(status == Status::NotFound, "an unknown stream is {status}");
    Ok(())
}

async fn once(log: Arc<LogUnderTest>) -> Verdict {
    let taken = async || {
        let again = log.log.open(&key("s")).await;
        match again.err().map(|error| error.status()) {
            Some(Status::AlreadyExists) => Ok(()),
            other => Err(format!("opening a used key returned {other:?}")),
        }
    };
    let writer = log.open("s").await?;
    taken().await?;
    write(&*writer, 1..=3).await?;
    taken().await?;
    finish(writer).await?;
    taken().await?;
    same(&rest(log.read("s", 0).await?).await?, &expected(0, 3))
}

async fn one_of_many(log: Arc<LogUnderTest>) -> Verdict {
    for round in 0..10 {
        let name = format!("s{round}");
        let opening = (0..8).map(|_| {
            let (log, key) = (Arc::clone(&log), key(&name));
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                log.log.open(&key).await
            })
        });
        let opened = futures::future::join_all(opening.collect::<Vec<_>>()).await;
        let mut writers = Vec::new();
        for outcome in opened {
            match outcome.map_err(|error| format!("opening panicked: {error}"))? {
                Ok(writer) => writers.push(writer),
                Err(error) => ensure!(
                    error.status() == Status::AlreadyExists,
                    "opening a used key returned {error}"
                ),
            }
        }
        ensure!(writers.len() == 1, "{} writers have one stream", writers.len());
    }
    Ok(())
}

async fn scopes_are_apart(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("foreign").await?;
    write(&*writer, 1..=3).await?;
    let (foreign, missing) = (StreamKey::new("bob", "foreign"), StreamKey::new("bob", "missing"));

    let (foreign_said, missing_said) = (
        refusals(&*log.log, &foreign).await?,
        refusals(&*log.log, &missing).await?,
    );
    ensure!(
        foreign_said == missing_said,
        "a foreign stream is distinguished from a missing one: {foreign_said:?} and {missing_said:?}"
    );
    ensure!(
        !writer.stop_requested().is_cancelled(),
        "a stranger stopped the stream"
    );

    let own = log.log.open(&foreign).await;
    let own = own.map_err(|error| format!("another scope cannot have the same id: {error}"))?;
    finish(own).await?;
    write(&*writer, 4..=5).await?;
    finish(writer).await?;
    same(&rest(log.read("foreign", 0).await?).await?, &expected(0, 5))?;
    same(&rest(read(&*log.log, &foreign, 0).await?).await?, &expected(0, 0))
}

async fn erasure(log: Arc<LogUnderTest>) -> Verdict {
    let dinner = StreamSubject::session("ann", "dinner");
    let known = key("known").about(dinner.clone());
    let (later, other, bobs) = (
        key("later"),
        key("other").about(StreamSubject::session("ann", "lunch")),
        StreamKey::new("bob", "bobs").about(StreamSubject::session("bob", "dinner")),
    );
    let open = async |key: &StreamKey| {
        let opened = log.log.open(key).await;
        opened.map_err(|error| format!("{key:?} cannot be opened: {error}"))
    };
    for key in [&known, &other, &bobs] {
        finish(open(key).await?).await?;
    }
    let writer = open(&later).await?;
    write(&*writer, 1..=2).await?;
    let about = writer.about(&dinner).await;
    about.map_err(|error| format!("setting the subject of a stream failed: {error}"))?;

    let erase = async |subject: &StreamSubject| {
        let erased = log.log.erase(subject).await;
        erased.map_err(|error| format!("{subject:?} cannot be erased: {error}"))
    };
    let erased = erase(&dinner).await?;
    ensure!(
        erased == 2,
        "two streams are about a session, and {erased} were erased"
    );
    for gone in [&known, &later] {
        let (status, _) = refusals(&*log.log, gone).await?;
        ensure!(status == Status::NotFound, "an erased stream is {status}");
    }
    ensure!(
        writer.finish(Ok(super::output())).await.is_err(),
        "an erased stream can still be written"
    );
    same(&rest(read(&*log.log, &other, 0).await?).await?, &expected(0, 0))?;
    let erased = erase(&StreamSubject::tenant("ann")).await?;
    ensure!(
        erased == 1,
        "one stream of the tenant was left, and {erased} were erased"
    );
    same(&rest(read(&*log.log, &bobs, 0).await?).await?, &expected(0, 0))
}

async fn hostile_keys(log: Arc<LogUnderTest>) -> Verdict {
    let endless = "x".repeat(10_000);
    let keys = [
        ("a", "b"),
        ("a/b", ""),
        ("a", "/b"),
        ("a/", "b"),
        ("", "a/b"),
        ("", "ab"),
        ("ab", ""),
        ("", ""),
        ("a", "B"),
        ("A", "b"),
        ("a", "b "),
        (" a", "b"),
        ("a", "b\0"),
        ("a\0", "b"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "../b"),
        ("a", "b.json"),
        ("a", "' OR 1=1 --"),
        ("a", "%"),
        ("a", "_"),
        ("a", "b\n"),
        ("küche", "スープ"),
        ("ku\u{308}che", "スープ"),
        ("👩‍🍳", "👩‍🍳"),
        ("a", endless.as_str()),
        (endless.as_str(), "a"),
    ];
    let mut writers = Vec::new();
    for (number, (scope, id)) in keys.into_iter().enumerate() {
        let key = StreamKey::new(scope, id);
        match log.log.open(&key).await {
            Ok(writer) => writers.push((number, key, writer)),
            Err(error) => ensure!(
                error.status() == Status::InvalidArgument,
                "{key:?} was refused with {error:?}"
            ),
        }
    }
    ensure!(
        writers.iter().any(|(number, ..)| *number == 0),
        "an ordinary key was refused"
    );
    for (number, key, writer) in &writers {
        let own = JsonText::of(number).map_err(|error| error.to_string())?;
        let written = writer.append(own).await;
        written.map_err(|error| format!("{key:?} cannot be written: {error}"))?;
    }
    for (number, key, writer) in writers {
        finish(writer).await?;
        let entries = rest(read(&*log.log, &key, 0).await?).await?;
        let own =
            matches!(&entries[0].event, StreamEvent::Chunk(text) if text.as_str() == number.to_string());
        ensure!(
            own && entries.len() == 2,
            "{key:?} holds what is another's: {entries:?}"
        );
    }
    Ok(())
}
