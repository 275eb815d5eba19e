//! A banker that asks before it transfers money.
//!
//! A tool interrupts the turn with a typed question. The turn is suspended and persisted: the process can
//! end, and a later process reads the question and supplies a typed answer. One question is answered in place
//! of the tool's result (`respond`); the other lets the tool continue (`restart`).

use std::sync::Arc;

use everturn::agent::store::{Detail, Mutation, Precondition, Scope};
use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

/// A question of the banker.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Question {
    question: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Account {
    Current,
    Savings,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Order {
    from: Account,
    to: String,
    amount: u32,
}

/// The confirmation that the customer gives before a transfer.
#[derive(Debug, Serialize, Deserialize)]
struct Confirmation {
    question: String,
    amount: u32,
}

/// The customer's answer.
#[derive(Debug, Serialize, Deserialize)]
struct Decision {
    approved: bool,
}

/// Transfers money to an account.
#[tool]
async fn transfer(order: Order, context: &ToolContext) -> Result<String> {
    let Order { from, to, amount } = order;
    match context.answer::<Decision>()? {
        None => Err(context.interrupt(Confirmation {
            question: format!("Move {amount} to {to}?"),
            amount,
        })),
        Some(Decision { approved: true }) => Ok(format!("{amount} moved from {from:?} to {to}")),
        Some(Decision { approved: false }) => Ok("the customer declined; nothing was moved".to_owned()),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = ScriptedModel::new()
        .reply(Reply::tool(
            "which_account",
            json!({"question": "From which account?"}),
        ))
        .reply(Reply::tool(
            "transfer",
            json!({"from": "savings", "to": "Ann", "amount": 500}),
        ))
        .reply("Ann has her 500. Your savings have seen better days.");

    println!("customer: Send Ann the 500 I owe her.");
    let mut store = Arc::new(MemoryStore::new());
    let mut reply = define_banker(&model, &store)
        .await?
        .run_text("Send Ann the 500 I owe her.")
        .await?;

    while reply.finish_reason() == AgentFinishReason::Interrupted {
        store = Arc::new(carried_over(&store, reply.session_id()).await?);
        let banker = define_banker(&model, &store).await?;
        let mut chat = banker.chat().resume(reply.session_id()).open().await?;
        let waiting = chat
            .messages()
            .last()
            .into_iter()
            .flat_map(Message::interrupts)
            .filter_map(Interrupt::of);
        let answers = waiting
            .map(|interrupt| answer(&interrupt))
            .collect::<Result<Vec<Part>>>()?;
        reply = chat.answer(answers).await?.output().await?;
    }

    println!("banker:   {}", reply.text());
    Ok(())
}

/// Defines the banker, as every process of the bank does.
async fn define_banker(model: &ScriptedModel, store: &Arc<MemoryStore>) -> Result<Agent> {
    let which_account = Tool::interrupt::<Question, Account>("which_account", "Asks which account to use.");
    let app = Everturn::builder()
        .model("scripted", model.clone())
        .default_model("scripted")
        .build()
        .await?;
    app.agent("banker")
        .system("You are a careful banker.")
        .tool(which_account)
        .tool(transfer)
        .store(Arc::clone(store))
        .define()
}

/// Returns the customer's answer to a question.
fn answer(interrupt: &Interrupt) -> Result<Part> {
    match interrupt.name() {
        "which_account" => {
            let Question { question } = interrupt.input()?;
            println!("banker:   {question}\ncustomer: {:?}", Account::Savings);
            interrupt.respond(Account::Savings)
        }
        "transfer" => {
            let Confirmation { question, amount } = interrupt.data()?;
            let approved = amount <= 1_000;
            println!(
                "banker:   {question}\ncustomer: {}",
                if approved { "Yes." } else { "Certainly not." }
            );
            interrupt.restart(Decision { approved })
        }
        other => Err(Error::unimplemented(format!(
            "nobody knows how to answer '{other}'"
        ))),
    }
}

/// Does at once what a durable store does over time: writes the conversation down and reads it in another
/// process.
async fn carried_over(store: &MemoryStore, session: impl Into<SessionId>) -> Result<MemoryStore> {
    let latest = store
        .latest(&Scope::default(), &session.into(), Detail::Whole)
        .await?;
    let written = serde_json::to_string(&latest)?;
    println!(
        "          (the process ends; {} bytes of conversation wait for the answer)",
        written.len()
    );

    let read: Option<Snapshot> = serde_json::from_str(&written)?;
    let elsewhere = MemoryStore::new();
    let id = read.as_ref().map(|row| row.snapshot_id.clone());
    elsewhere
        .save(
            &Scope::default(),
            id.as_ref(),
            Precondition::None,
            Mutation::new(move |_| Ok(read.clone())),
        )
        .await?;
    Ok(elsewhere)
}
