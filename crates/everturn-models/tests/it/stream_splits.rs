//! How the bytes of a stream are cut on their way makes no difference: neither to the answer nor to its
//! chunks.

use everturn_models::Ollama;
use everturn_models::openai::{Api, OpenAi};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::asking::{Asked, ask, question};
use crate::server::{Reply, Server};

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Chat,
    Responses,
    Ollama,
}

impl Protocol {
    fn recorded(self) -> Reply {
        Reply::events(match self {
            Self::Chat => include_str!("../streams/chat.sse"),
            Self::Responses => include_str!("../streams/responses.sse"),
            Self::Ollama => include_str!("../streams/ollama.ndjson"),
        })
    }

    async fn answered(self, reply: Reply) -> Asked {
        let server = Server::replies([reply]).await;
        let openai = OpenAi::compatible("p", server.url());
        match self {
            Self::Chat => ask(openai, "p/m", question("Leeks?")).await,
            Self::Responses => ask(openai.api(Api::Responses), "p/m", question("Leeks?")).await,
            Self::Ollama => {
                ask(
                    Ollama::new().base_url(server.url()),
                    "ollama/m",
                    question("Leeks?"),
                )
                .await
            }
        }
    }

    /// The complete answer, and its chunks.
    async fn outcome(self, reply: Reply) -> Value {
        let asked = self.answered(reply).await;
        let streamed = asked.streamed();
        let mut response = asked.result.unwrap();
        response.latency_ms = None;
        json!([response, streamed])
    }
}

#[tokio::test]
async fn recorded_streams_hold_what_they_should() {
    for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Ollama] {
        let outcome = protocol.outcome(protocol.recorded()).await;

        let content = outcome[0]["message"]["content"].as_array().unwrap();
        let call = &content.last().unwrap()["toolRequest"];
        assert_eq!(call["input"], json!({ "city": "Orléans 🥕" }), "{protocol:?}");
        if !matches!(protocol, Protocol::Responses) {
            assert!(
                content[0]["reasoning"].as_str().unwrap().contains("Frühling?"),
                "{outcome}"
            );
            assert!(
                content[1]["text"]
                    .as_str()
                    .unwrap()
                    .ends_with("Grüße 🥕 \u{2028}!"),
                "{outcome}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn cuts_make_no_difference(sizes in prop::collection::vec(1_usize..200, 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Ollama] {
                let whole = protocol.outcome(protocol.recorded()).await;
                let cut = protocol.outcome(protocol.recorded().split_by(sizes.clone())).await;
                assert_eq!(cut, whole, "{protocol:?}");
            }
        });
    }
}
