//! Faults between a provider and Everturn, handled alike for each provider.

use std::time::Duration;

use everturn_ai::ModelRequest;
use everturn_core::Status;
use everturn_models::openai::{Api, OpenAi};
use everturn_models::{Anthropic, Gemini, Ollama};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::asking::{Asked, ask, question, question_with};
use crate::server::{Reply, Server, named_sse, sse};
use crate::{anthropic_server, chat, gemini_server, responses_server};

const TEXT: &str = "Grüße, 🥕 und \u{2028} Lauch!";

/// The properties of a provider that the tests need.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Provider {
    Anthropic,
    Chat,
    Gemini,
    Ollama,
    Responses,
}

const ALL: [Provider; 5] = [
    Provider::Anthropic,
    Provider::Chat,
    Provider::Gemini,
    Provider::Ollama,
    Provider::Responses,
];

impl Provider {
    fn events(self) -> Vec<Value> {
        match self {
            Self::Anthropic => {
                anthropic_server::Answer::of([json!({ "type": "text", "text": TEXT })]).events()
            }
            Self::Gemini => {
                let (first, rest) = TEXT.split_once(", ").unwrap();
                let parts = [json!({ "text": format!("{first}, ") }), json!({ "text": rest })];
                gemini_server::Answer::of(parts).events()
            }
            Self::Chat => {
                let (first, rest) = TEXT.split_once(", ").unwrap();
                let choices = [
                    chat::delta(json!({ "content": format!("{first}, ") })),
                    chat::delta(json!({ "content": rest })),
                    chat::end("stop"),
                ];
                choices.map(|choice| json!({ "choices": [choice] })).to_vec()
            }
            Self::Ollama => {
                let (first, rest) = TEXT.split_once(", ").unwrap();
                let said = |text: &str| json!({ "message": { "content": text }, "done": false });
                let done = json!({ "message": { "content": "" }, "done": true, "done_reason": "stop" });
                vec![said(&format!("{first}, ")), said(rest), done]
            }
            Self::Responses => {
                responses_server::Answer::of([responses_server::message("msg_1", TEXT)]).events()
            }
        }
    }

    fn wire(self, events: &[Value]) -> String {
        match self {
            Self::Anthropic | Self::Responses => named_sse(events),
            Self::Chat => sse(events),
            Self::Gemini => sse(events).replace('\n', "\r\n"),
            Self::Ollama => {
                let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
                lines.concat()
            }
        }
    }

    /// The server's keep-alive, which clients skip.
    fn keep_alive(self) -> &'static str {
        match self {
            Self::Ollama => "\n \r\n",
            _ => ": keep-alive\n\n:\nid: 7\n",
        }
    }

    /// An event that is not JSON.
    fn malformed(self) -> &'static str {
        match self {
            Self::Ollama => "{\"type\": oops}\n",
            _ => "data: {\"type\": oops}\n\n",
        }
    }

    fn stream(self) -> String {
        self.wire(&self.events())
    }

    /// A failure as the provider words it: overloaded, and named so.
    fn overloaded(self) -> (Value, u16) {
        match self {
            Self::Anthropic => (anthropic_server::error("overloaded_error", "Overloaded"), 529),
            Self::Gemini => (gemini_server::error(503, "UNAVAILABLE", "Overloaded"), 503),
            Self::Chat | Self::Responses => {
                (json!({ "error": { "message": "Overloaded", "code": 503 } }), 503)
            }
            Self::Ollama => (json!({ "error": "Overloaded" }), 503),
        }
    }

    /// The status of the failure inside a stream, without an HTTP status. Ollama sends only a text.
    fn overloaded_in_stream(self) -> Status {
        match self {
            Self::Ollama => Status::Internal,
            _ => Status::Unavailable,
        }
    }

    async fn ask_patiently(self, url: &str, patience: Duration, request: ModelRequest) -> Asked {
        match self {
            Self::Anthropic => {
                let plugin = Anthropic::new("sk-secret").base_url(url).timeout(patience);
                ask(plugin, "anthropic/claude-sonnet-5", request).await
            }
            Self::Gemini => {
                let plugin = Gemini::new("sk-secret").base_url(url).timeout(patience);
                ask(plugin, "gemini/gemini-3-pro", request).await
            }
            Self::Ollama => {
                let plugin = Ollama::new().key("sk-secret").base_url(url).timeout(patience);
                ask(plugin, "ollama/m", request).await
            }
            Self::Chat | Self::Responses => {
                let api = if self == Self::Chat {
                    Api::Chat
                } else {
                    Api::Responses
                };
                let plugin = OpenAi::new("sk-secret").base_url(url).timeout(patience).api(api);
                ask(plugin, "openai/m", request).await
            }
        }
    }

    async fn ask(self, server: &Server) -> Asked {
        let patience = Duration::from_secs(20);
        self.ask_patiently(server.url(), patience, question("Leeks?"))
            .await
    }

    async fn answered(self, reply: Reply) -> Asked {
        self.ask(&Server::replies([reply]).await).await
    }
}

fn text(asked: &Asked) -> String {
    asked.result.as_ref().unwrap().text().into_owned()
}

#[tokio::test]
async fn how_the_bytes_are_cut_makes_no_difference() {
    for provider in ALL {
        for size in [1, 2, 3, 7] {
            let asked = provider
                .answered(Reply::events(provider.stream()).split(size))
                .await;

            assert_eq!(text(&asked), TEXT, "{provider:?}");
            assert_eq!(asked.streamed_text(), TEXT, "{provider:?}");
        }
    }
}

#[tokio::test]
async fn compressed_answers_are_read_as_they_come() {
    for provider in ALL {
        let asked = provider
            .answered(Reply::events(provider.stream()).split(11).gzip())
            .await;

        assert_eq!(asked.streamed_text(), TEXT, "{provider:?}");
    }
}

#[tokio::test]
async fn keep_alives_and_the_unknown_are_skipped() {
    for provider in ALL {
        let events = provider.events().into_iter().flat_map(|mut event| {
            event["from_the_future"] = json!({ "nested": [1] });
            [
                json!({ "type": "ping" }),
                json!({ "type": "unheard_of", "index": 7 }),
                event,
            ]
        });
        let stream = events.map(|event| format!("{}{}", provider.keep_alive(), provider.wire(&[event])));

        let asked = provider.answered(Reply::events(stream.collect::<String>())).await;

        assert_eq!(text(&asked), TEXT, "{provider:?}");
    }
}

#[tokio::test]
async fn what_fails_before_the_answer_is_tried_again() {
    for provider in ALL {
        let (overloaded, status) = provider.overloaded();
        let soon = |reply: Reply| reply.header("retry-after-ms", "1");
        let server = Server::replies([
            soon(Reply::json(&overloaded).status(status)),
            soon(Reply::page("<html>Bad gateway</html>").status(502)),
            Reply::events(provider.stream()),
        ])
        .await;
        let slowed = Server::replies([
            Reply::json(&overloaded).status(429).header("retry-after", "0.01"),
            Reply::events(provider.stream()),
        ])
        .await;

        assert_eq!(text(&provider.ask(&server).await), TEXT, "{provider:?}");
        assert_eq!(server.requests().len(), 3);
        assert_eq!(text(&provider.ask(&slowed).await), TEXT, "{provider:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_made_again() {
    join_all(ALL.map(async |provider| {
        let server = Server::replies([Reply::refusal(), Reply::events(provider.stream())]).await;

        let asked = provider.ask(&server).await;

        assert_eq!(text(&asked), TEXT, "{provider:?}");
        assert_eq!(server.requests().len(), 2, "{provider:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    // The port of a stopped server.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    join_all(ALL.map(async |provider| {
        let patience = Duration::from_secs(20);

        let asked = provider.ask_patiently(&url, patience, question("Leeks?")).await;

        let error = asked.result.unwrap_err();
        assert_eq!(error.status(), Status::Unavailable, "{provider:?}");
        assert!(error.message().contains(&url), "{error}");
        assert_eq!(error.details().unwrap()["retryable"], true);
    }))
    .await;
}

#[tokio::test]
async fn the_error_of_a_server_that_always_fails_is_returned() {
    for provider in ALL {
        let failure = || {
            Reply::page("Something broke.")
                .status(500)
                .header("retry-after-ms", "1")
        };
        let server = Server::replies([failure(), failure(), failure()]).await;

        let error = provider.ask(&server).await.result.unwrap_err();

        assert_eq!(error.status(), Status::Internal, "{provider:?}");
        assert!(error.message().contains("500: Something broke."), "{error}");
        assert_eq!(server.requests().len(), 3, "{provider:?}");
    }
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_left_to_the_caller() {
    for provider in ALL {
        let (overloaded, status) = provider.overloaded();
        let server = Server::replies([Reply::json(&overloaded)
            .status(status)
            .header("retry-after", "3600")])
        .await;

        let error = provider.ask(&server).await.result.unwrap_err();

        assert_eq!(error.status(), Status::Unavailable, "{provider:?}");
        assert!(error.message().contains("Overloaded"), "{error}");
        let details = error.details().unwrap();
        assert_eq!(
            (&details["retryAfterMs"], &details["httpStatus"]),
            (&json!(3_600_000), &json!(status))
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_stream_without_its_end_is_never_an_answer() {
    for provider in ALL {
        let stream = provider.stream();
        let separator = match provider {
            Provider::Gemini => "\r\n\r\n",
            Provider::Ollama => "\n",
            _ => "\n\n",
        };
        let last = stream[..stream.len() - separator.len()].rfind(separator).unwrap() + separator.len();
        for reply in [
            Reply::events(stream[..last].to_owned()),
            Reply::events(stream.clone()).cut_at(last),
            Reply::events(stream.clone()).cut_at(last - 20),
        ] {
            let asked = provider.answered(reply).await;

            let error = asked.result.unwrap_err();
            assert_eq!(error.status(), Status::Unavailable, "{provider:?}: {error}");
            assert!(!asked.chunks.is_empty(), "what was streamed is in the stream");
        }
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_is_an_error() {
    for provider in ALL {
        let (overloaded, _) = provider.overloaded();
        let mut events = provider.events();
        let last = events.len() - 1;
        events[last] = overloaded;

        let asked = provider.answered(Reply::events(provider.wire(&events))).await;

        let error = asked.result.unwrap_err();
        assert_eq!(error.status(), provider.overloaded_in_stream(), "{provider:?}");
        assert!(error.message().contains("Overloaded"), "{error}");
        assert!(!asked.chunks.is_empty());
    }
}

#[tokio::test]
async fn an_event_that_is_not_json_is_an_error() {
    for provider in ALL {
        let events = provider.events();
        let stream = provider.wire(&events[..1]) + provider.malformed() + &provider.wire(&events[1..]);

        let error = provider.answered(Reply::events(stream)).await.result.unwrap_err();

        assert_eq!(error.status(), Status::Unavailable, "{provider:?}");
        assert!(error.message().contains("oops"), "{error}");
    }
}

#[tokio::test]
async fn a_page_instead_of_a_stream_is_explained() {
    for provider in ALL {
        let error = provider
            .answered(Reply::page("<html>Please log in</html>"))
            .await
            .result
            .unwrap_err();

        assert_eq!(error.status(), Status::FailedPrecondition, "{provider:?}");
        assert!(error.message().contains("Please log in"), "{error}");
    }
}

#[tokio::test]
async fn a_silent_server_is_left() {
    for provider in ALL {
        let length = provider.wire(&provider.events()[..1]).len();
        for bytes in [0, length] {
            let server = Server::replies([Reply::events(provider.stream()).silent_at(bytes)]).await;
            let url = server.url().to_owned();
            let patience = Duration::from_mins(1);
            let call =
                tokio::spawn(async move { provider.ask_patiently(&url, patience, question("Leeks?")).await });
            server.request_arrived().await;

            // From here on, time passes as soon as nothing else happens.
            tokio::time::pause();
            let error = call.await.unwrap().result.unwrap_err();
            tokio::time::resume();

            assert_eq!(error.status(), Status::DeadlineExceeded, "{provider:?}: {error}");
            server.client_left().await;
        }
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_closes_its_connection() {
    for provider in ALL {
        let length = provider.wire(&provider.events()[..1]).len();
        let server = Server::replies([Reply::events(provider.stream()).silent_at(length)]).await;
        let url = server.url().to_owned();
        let call = tokio::spawn(async move {
            provider
                .ask_patiently(&url, Duration::from_mins(1), question("Leeks?"))
                .await
        });
        server.request_arrived().await;

        call.abort();

        server.client_left().await;
    }
}

#[tokio::test]
async fn keys_are_in_no_error() {
    for provider in ALL {
        let body = json!({ "error": { "message": "invalid key sk-secret", "type": "authentication_error" } });
        let refused = provider.answered(Reply::json(&body).status(401)).await;

        let error = refused.result.unwrap_err();
        assert_eq!(error.status(), Status::Unauthenticated, "{provider:?}");
        assert!(!format!("{error:?} {error}").contains("sk-secret"), "{error:?}");
    }
}

#[tokio::test]
async fn keys_of_one_call_are_in_no_error_of_its_stream() {
    for provider in ALL {
        let first = provider.wire(&provider.events()[..1]);
        let reported =
            json!({ "type": "error", "error": { "message": "bad key sk-called", "code": "sk-called" } });
        let unreadable = provider.malformed().replace("oops", "sk-called");
        for stream in [
            first.clone() + &provider.wire(&[reported]),
            first.clone() + &unreadable,
        ] {
            let server = Server::replies([Reply::events(stream)]).await;
            let request = question_with(json!({ "apiKey": "sk-called" }));

            let patience = Duration::from_secs(20);
            let asked = provider.ask_patiently(server.url(), patience, request).await;

            let error = asked.result.unwrap_err();
            assert!(error.message().contains("<redacted>"), "{provider:?}: {error}");
            assert!(!format!("{error:?}").contains("sk-called"), "{error:?}");
        }
    }
}
