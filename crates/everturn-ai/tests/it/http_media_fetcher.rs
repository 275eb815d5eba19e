//! Media over HTTP, from a server on this machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_ai::{
    ClientMedia, FetchBudget, FetchRules, FetchedMedia, History, HttpMediaFetcher, MediaDownload,
    MediaFetcher, Message, ModelRequest, Part,
};
use everturn_core::{Context, Error, Result, Status};

/// A server that answers every request with a function, and counts the requests.
struct Pictures {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Pictures {
    fn serve(answer: impl Fn(&mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let _ = connection.read(&mut [0; 1024]).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                answer(&mut connection);
            }
        });
        Self { port, asked }
    }

    fn of(head: &str, body: &'static [u8]) -> Self {
        let head = format!(
            "HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        Self::serve(move |connection| {
            // A client that has seen enough may be gone.
            let _ = connection.write_all(head.as_bytes());
            let _ = connection.write_all(body);
        })
    }

    fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/cat", self.port)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Rules that allow this machine.
fn this_machine() -> FetchRules {
    FetchRules::hosts(["127.0.0.1", "localhost"])
        .allow_http()
        .allow_private_addresses()
}

async fn fetch(url: &str, rules: FetchRules) -> Result<FetchedMedia> {
    let budget = FetchBudget::new(rules);
    let fetch = budget.begin(url, usize::MAX)?;
    HttpMediaFetcher::default()
        .fetch(&fetch)
        .await
        .map_err(Error::from)
}

#[tokio::test]
async fn content_and_its_type_are_fetched() {
    let pictures = Pictures::of("200 OK\r\ncontent-type: image/png", b"abc");

    let media = fetch(&pictures.url("localhost"), this_machine().max_bytes(3))
        .await
        .unwrap();

    let expected = FetchedMedia {
        content_type: Some("image/png".to_owned()),
        bytes: b"abc".to_vec(),
    };
    assert_eq!(media, expected);
}

#[tokio::test]
async fn content_over_the_limit_is_refused_and_not_truncated() {
    let pictures = Pictures::of("200 OK", b"abcd");

    let error = fetch(&pictures.url("127.0.0.1"), this_machine().max_bytes(3))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_body_without_end_is_read_no_further_than_the_limit() {
    let pictures = Pictures::serve(|connection| {
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        // Ends when the client closes.
        while connection.write_all(&[b'x'; 16 * 1024]).is_ok() {}
    });

    let error = fetch(&pictures.url("127.0.0.1"), this_machine().max_bytes(1_000_000))
        .await
        .unwrap_err();

    assert!(error.message().contains("1000000"), "{error}");
}

#[tokio::test]
async fn an_error_response_is_not_quoted() {
    let pictures = Pictures::of("404 Not Found", b"an internal secret");

    let error = fetch(&pictures.url("127.0.0.1"), this_machine())
        .await
        .unwrap_err();

    assert!(error.message().contains("404"), "{error}");
    assert!(!error.message().contains("secret"), "{error}");
    assert!(error.public_message().is_none(), "{error}");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_not_reached_in_any_spelling() {
    let pictures = Pictures::of("200 OK", b"abc");
    let rules = || FetchRules::any_host().allow_http();

    for host in [
        "127.0.0.1",
        "localhost",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0.0.0.0",
    ] {
        let error = fetch(&pictures.url(host), rules()).await.unwrap_err();

        assert!(error.message().contains("public address"), "{host}: {error}");
    }
    assert_eq!(pictures.asked(), 0);
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_url_and_ends_somewhere() {
    let target = Pictures::of("200 OK", b"abc");
    let to = |url: &str| Pictures::of(&format!("302 Found\r\nlocation: {url}"), b"");
    let allowed = to(&target.url("localhost"));
    let elsewhere = to(&target.url("127.0.0.2"));
    let other_scheme = to("file:///etc/passwd");
    let circle = to("/cat");

    let media = fetch(&allowed.url("127.0.0.1"), this_machine()).await.unwrap();
    assert_eq!(media.bytes, b"abc");
    for refused in [&elsewhere, &other_scheme, &circle] {
        fetch(&refused.url("127.0.0.1"), this_machine())
            .await
            .unwrap_err();
    }
    assert_eq!((target.asked(), circle.asked()), (1, 4));
}

/// Downloads the media of a message as for a model, with the message as a client's conversation.
async fn downloaded(urls: &[String], rules: Option<&FetchRules>) -> Result<Vec<String>> {
    let message = Message::user(urls.iter().map(Part::media).collect::<Vec<_>>());
    let conversation = [message.clone()].into_iter().collect::<History>();
    let context = ClientMedia::enter(Context::new(), &conversation, Vec::new(), rules, "`fetch_media`");
    let mut seen = Vec::new();
    // Two rounds of one turn.
    for _ in 0..2 {
        let request = ModelRequest {
            messages: message.clone().into(),
            ..ModelRequest::default()
        };
        let download = MediaDownload::new(HttpMediaFetcher::default());
        let request = download.apply(request, &context).await?;
        seen = request
            .messages
            .iter()
            .flat_map(Message::media)
            .map(|media| media.url.clone())
            .collect();
    }
    Ok(seen)
}

#[tokio::test]
async fn media_of_a_conversation_is_fetched_only_where_clients_may() {
    let pictures = Pictures::of("200 OK", b"abc");
    let urls = [pictures.url("127.0.0.1")];

    let unset = downloaded(&urls, None).await.unwrap_err();
    let unlisted = downloaded(&urls, Some(&FetchRules::hosts(["x.test"]).allow_http()))
        .await
        .unwrap_err();
    let private = FetchRules::hosts(["127.0.0.1"]).allow_http();
    let private = downloaded(&urls, Some(&private)).await.unwrap_err();

    assert_eq!(pictures.asked(), 0);
    assert!(
        unset.public_message().unwrap().contains("`fetch_media`"),
        "{unset}"
    );
    assert!(unlisted.public_message().unwrap().contains("host"), "{unlisted}");
    assert_eq!(private.public_message(), Some("the media could not be fetched"));
    let seen = downloaded(&urls, Some(&this_machine())).await.unwrap();
    assert_eq!(seen, ["data:;base64,YWJj"]);
    assert_eq!(pictures.asked(), 1, "a turn fetches a URL once");
}

#[tokio::test]
async fn all_media_of_a_turn_is_bounded_together() {
    let pictures = Pictures::of("200 OK", b"abc");
    let urls: Vec<String> = (0..4)
        .map(|number| format!("{}/{number}", pictures.url("127.0.0.1")))
        .collect();

    let many = downloaded(&urls, Some(&this_machine().max_count(3)))
        .await
        .unwrap_err();
    let large = downloaded(&urls, Some(&this_machine().max_total_bytes(11)))
        .await
        .unwrap_err();
    let all = downloaded(&urls, Some(&this_machine().max_count(4).max_total_bytes(12))).await;

    assert!(many.public_message().unwrap().contains("more than 3"), "{many}");
    assert!(large.public_message().unwrap().contains("11 bytes"), "{large}");
    assert_eq!(all.unwrap().len(), 4);
}

#[tokio::test]
async fn a_server_that_does_not_answer_ends_the_call_in_time() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let pictures = Pictures::serve(move |_| {
        let _ = released.recv();
    });
    let rules = this_machine().time(Duration::from_millis(50));

    let error = downloaded(&[pictures.url("127.0.0.1")], Some(&rules))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::DeadlineExceeded);
    drop(release);
}
