//! A tool that asks before it acts, answered by another process.
//!
//! ```text
//! cargo run -p everturn-ai --example ask_before_acting -- ask > conversation.json
//! cargo run -p everturn-ai --example ask_before_acting -- approve Ada < conversation.json
//! ```
//!
//! The first process runs until the tool asks, writes the conversation down and ends. The second knows
//! nothing but what was written, answers with a typed value and goes on. The model is played by a function,
//! so that no key is needed.

use everturn_ai::{
    Generate, Message, ModelInfo, ModelRequest, ModelResponse, Part, Role, Tool, ToolContext, ToolRequest,
};
use everturn_ai::{define_model, set_default_model};
use everturn_core::{Error, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Transfer {
    to: String,
    euros: u32,
}

/// The question of the tool.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    limit: u32,
}

/// The answer of a person.
#[derive(Debug, Serialize, Deserialize)]
struct Approval {
    by: String,
}

fn transfer() -> Tool {
    Tool::new(
        "transfer",
        "Sends money.",
        |order: Transfer, cx: ToolContext| async move {
            let limit = 100;
            match cx.answer::<Approval>()? {
                None if order.euros > limit => Err(cx.interrupt(Question { limit }).into()),
                None => Ok(format!("sent {} euros to {}", order.euros, order.to)),
                Some(approval) => Ok(format!(
                    "sent {} euros to {}, approved by {}",
                    order.euros, order.to, approval.by
                )),
            }
        },
    )
}

/// A model that requests the tool, and then repeats the tool's output.
fn bank_clerk(request: &ModelRequest) -> ModelResponse {
    let last = request
        .messages
        .last()
        .filter(|message| message.role() == Role::Tool);
    let answer = last.and_then(|message| message.content().first()?.as_tool_response()?.output.clone());
    if let Some(output) = answer {
        return ModelResponse::text_of(format!("Done: {output}"));
    }
    let input = serde_json::json!({ "to": "Grace", "euros": 500 });
    ModelResponse::new(Message::model(Part::from(ToolRequest::new("transfer", input))))
}

fn registry() -> Result<Registry> {
    let registry = Registry::new();
    define_model(
        &registry,
        "clerk",
        ModelInfo::default(),
        |request, _emitter, _context| async move { Ok(bank_clerk(&request)) },
    )?;
    set_default_model(&registry, "clerk");
    Ok(registry)
}

async fn ask() -> Result<()> {
    let reply = Generate::new(&registry()?)
        .prompt("Send 500 euros to Grace.")
        .tool(transfer())
        .await?;
    for waiting in reply.interrupts() {
        let question: Question = serde_json::from_value(waiting.interrupt().cloned().unwrap_or_default())?;
        eprintln!("more than {} euros: who approves?", question.limit);
    }
    println!("{}", serde_json::to_string(&reply.messages())?);
    Ok(())
}

async fn approve(by: String) -> Result<()> {
    let messages: Vec<Message> = serde_json::from_reader(std::io::stdin())?;
    let waiting = messages
        .last()
        .and_then(|message| message.interrupts().next())
        .cloned();
    let waiting = waiting.ok_or_else(|| Error::failed_precondition("nothing waits for an answer"))?;
    let reply = Generate::new(&registry()?)
        .messages(messages)
        .tool(transfer())
        .restart(transfer().restart(&waiting, Approval { by })?)
        .await?;
    println!("{}", reply.text());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("ask") | None, None) => ask().await,
        (Some("approve"), Some(by)) => approve(by).await,
        _ => Err(Error::invalid_argument("say `ask`, or `approve <name>`")),
    }
}
