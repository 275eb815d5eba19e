//! The page is served where configured, behind the server's checks, and with headers that block foreign
//! scripts.

use everturn_core::Registry;
use everturn_server::{BearerTokens, Server};
use everturn_studio::{ServeStudio, Studio};
use reqwest::{Client, Response, StatusCode};

/// A server at its own address, until the test ends.
struct Served {
    url: String,
    _running: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn start(server: Server) -> Self {
        everturn_core::install_tls_provider();
        let server = server.bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", server.address());
        let running = tokio::spawn(async move { server.run().await.unwrap() });
        Self {
            url,
            _running: running,
        }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Client::new().get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }
}

fn server() -> Server {
    Server::new(&Registry::new())
}

#[tokio::test]
async fn the_page_and_its_files_are_at_the_root() {
    let served = Served::start(server().studio(Studio::new())).await;

    let page = served.get("/", &[]).await;
    let policy = page.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    let text = page.text().await.unwrap();
    let script = served.get("/studio/js/app.js", &[]).await;
    let missing = served.get("/studio/js/none.js", &[]).await;
    let outside = served.get("/studio/..%2fCargo.toml", &[]).await;

    assert!(text.contains("studio/js/app.js"), "{text}");
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(script.headers()["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(script.headers()["x-content-type-options"], "nosniff");
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert_eq!(outside.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_file_that_the_browser_has_is_not_sent_again() {
    let served = Served::start(server().studio(Studio::new())).await;
    let first = served.get("/studio/css/base.css", &[]).await;
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();

    let again = served
        .get("/studio/css/base.css", &[("if-none-match", &tag)])
        .await;

    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert!(again.bytes().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_page_may_be_at_another_path() {
    let served = Served::start(server().studio(Studio::new().at("/ops"))).await;

    let page = served.get("/ops", &[]).await;
    let root = served.get("/", &[]).await;
    let script = served.get("/ops/studio/js/app.js", &[]).await;

    assert_eq!(page.url().path(), "/ops/");
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(script.status(), StatusCode::OK);
    assert_eq!(root.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn other_origins_and_foreign_hosts_get_nothing() {
    let served = Served::start(server().studio(Studio::new())).await;
    let own = served.url.clone();

    for path in ["/", "/studio/js/app.js", "/agents"] {
        assert_eq!(
            served.get(path, &[("origin", &own)]).await.status(),
            200,
            "{path}"
        );
        for headers in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("host", "evil.example"),
        ] {
            assert_eq!(
                served.get(path, &[headers]).await.status(),
                403,
                "{path} {headers:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_page_is_loaded_without_a_token_and_the_agents_are_not() {
    let guarded = server()
        .context(BearerTokens::new([("alice", "a-long-random-token")]))
        .studio(Studio::new().at("/ops"));
    let served = Served::start(guarded).await;
    let token = [("authorization", "Bearer a-long-random-token")];

    for path in ["/ops", "/ops/", "/ops/studio/js/app.js"] {
        assert_eq!(served.get(path, &[]).await.status(), 200, "{path}");
    }
    assert_eq!(served.get("/agents", &[]).await.status(), 401);
    assert_eq!(served.get("/agents", &token).await.status(), 200);
}

#[tokio::test]
async fn a_server_has_no_page_unless_configured() {
    let served = Served::start(server()).await;

    assert_eq!(served.get("/", &[]).await.status(), StatusCode::NOT_FOUND);
}
