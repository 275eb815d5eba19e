//! Nothing of one caller is there for another.

use everturn_core::Error;
use everturn_server::{BearerTokens, CallRequest, Provided, context_fn};
use everturn_testkit::ScriptedModel;
use serde_json::{Value, json};

use crate::support::{Answer, Served, answer};

async fn served() -> Served {
    let model = ScriptedModel::new().replies(["one", "two", "three"]);
    let tokens = BearerTokens::new([("ann", "ann"), ("bob", "bob")]);
    Served::with(model, |server| server.context(tokens)).await
}

async fn asked(server: &Served, who: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
    let request = server.request(method, path).bearer_auth(who.to_owned());
    answer(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

#[tokio::test]
async fn ids_of_another_caller_lead_to_nothing() {
    let server = served().await;
    let body = json!({"model": "keeper", "input": "secret", "conversation": "c"});
    let anns = asked(&server, "ann", "POST", "/responses", Some(body))
        .await
        .json();
    let id = anns["id"].as_str().unwrap();

    for (method, path) in [
        ("GET", format!("/responses/{id}")),
        ("GET", format!("/responses/{id}?stream=true")),
        ("GET", format!("/responses/{id}/input_items")),
        ("POST", format!("/responses/{id}/cancel")),
        ("DELETE", format!("/responses/{id}")),
        ("GET", "/conversations/c".into()),
        ("GET", "/conversations/c/items".into()),
        ("DELETE", "/conversations/c".into()),
    ] {
        let foreign = asked(&server, "bob", method, &path, None).await;
        let missing_path = path
            .replace(id, "resp_0199_6b6565706572")
            .replace("conversations/c", "conversations/nothing");
        let missing = asked(&server, "bob", method, &missing_path, None).await;
        assert_eq!(foreign.error().0, 404, "{method} {path}");
        assert_eq!(foreign.error(), missing.error(), "{method} {path}");
    }
    let previous = json!({"model": "keeper", "input": "x", "previous_response_id": id});
    let foreign = asked(&server, "bob", "POST", "/responses", Some(previous)).await;
    assert_eq!(foreign.error().1, "previous_response_not_found");
    let item = json!({"type": "item_reference", "id": anns["output"][0]["id"]});
    let sent = json!({"model": "keeper", "input": [item, {"role": "user", "content": "x"}]});
    let foreign = asked(&server, "bob", "POST", "/responses", Some(sent)).await;
    assert_eq!(foreign.error().1, "item_not_found");

    server.model.assert_calls(1);
    let still = asked(&server, "ann", "GET", &format!("/responses/{id}"), None)
        .await
        .json();
    assert_eq!(still["output"], anns["output"]);
}

#[tokio::test]
async fn models_are_the_agents_that_the_caller_may_use() {
    let model = ScriptedModel::new().replies(["one"]);
    let guard = context_fn(|request: &CallRequest<'_>| {
        let is_refused = request.path == "/agents/keeper" && request.header("x-guest").is_some();
        if is_refused {
            return Err(Error::permission_denied("not for guests").with_public().into());
        }
        Ok(Provided::anonymous("all"))
    });
    let server = Served::with(model, |server| server.context(guard)).await;
    let guest = |method: &str, path: &str| server.request(method, path).header("x-guest", "1");
    let ids = |list: Value| {
        let models = list["data"].as_array().unwrap().iter();
        models.map(|model| model["id"].clone()).collect::<Vec<_>>()
    };

    assert_eq!(
        ids(server.get("/models").await.json()),
        ["forgetful", "keeper", "shaper", "strict"]
    );
    assert_eq!(
        ids(answer(guest("GET", "/models")).await.json()),
        ["forgetful", "shaper", "strict"]
    );
    let turn = json!({"model": "keeper", "input": "hi"});
    let refused = answer(guest("POST", "/responses").json(&turn)).await;
    assert_eq!(refused.error(), (404, "model_not_found".into(), json!("model")));
    server.model.assert_calls(0);
}
