//! Programming the model's answers.

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use everturn_core::{Error, Result};
use everturn_testkit::Reply;
use everturn_testkit::conformance::replies;
use serde::Deserialize;
use serde_json::{Value, json};
use testbed::ProgrammableModel;

/// The model's next answers: the `modelResponses` and `streamChunks` of the cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    responses: Vec<Value>,
    #[serde(default)]
    chunks: Vec<Vec<Value>>,
}

/// Creates the route `POST /testbed/program`.
pub(crate) fn router(model: ProgrammableModel) -> Router {
    let program = move |body: Bytes| async move {
        match read(&body) {
            Ok(replies) => {
                model.program_without_end(replies);
                answer(StatusCode::OK, &json!({}))
            }
            Err(error) => answer(StatusCode::BAD_REQUEST, &json!({ "message": error.message() })),
        }
    };
    Router::new().route("/testbed/program", post(program))
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, body.to_string()).into_response()
}

fn read(body: &[u8]) -> Result<Vec<Reply>> {
    let Program { responses, chunks } = serde_json::from_slice(body).map_err(|error| {
        Error::invalid_argument(format!(
            r#"a program is of the form {{"responses": […], "chunks": [[…]]}}: {error}"#
        ))
    })?;
    replies(&json!({ "modelResponses": responses, "streamChunks": chunks }))
}
