//! Media over HTTP, from a server on this machine.

use std::io::{Read, Write};
use std::net::TcpListener;

use everturn_ai::{FetchedMedia, HttpMediaFetcher, MediaFetcher};
use everturn_core::Status;

/// Serves one response and gives the URL to ask for it.
fn serve(head: &'static str, body: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let _ = connection.read(&mut [0; 1024]).unwrap();
        let head = format!(
            "HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        connection.write_all(head.as_bytes()).unwrap();
        // A client that has seen enough may be gone.
        let _ = connection.write_all(body);
    });
    format!("http://{address}/cat")
}

#[tokio::test]
async fn content_and_its_type_are_fetched() {
    let url = serve("200 OK\r\ncontent-type: image/png", b"abc");

    let media = HttpMediaFetcher::default().fetch(&url, 3).await.unwrap();

    let expected = FetchedMedia {
        content_type: Some("image/png".to_owned()),
        bytes: b"abc".to_vec(),
    };
    assert_eq!(media, expected);
}

#[tokio::test]
async fn content_over_the_limit_is_refused_and_not_truncated() {
    let url = serve("200 OK", b"abcd");

    let error = HttpMediaFetcher::default().fetch(&url, 3).await.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_refusal_is_an_error_with_the_servers_words() {
    let url = serve("404 Not Found", b"no cat here");

    let error = HttpMediaFetcher::default().fetch(&url, 3).await.unwrap_err();

    assert!(
        error.message().contains("404") && error.message().contains("no cat here"),
        "{error}"
    );
}
