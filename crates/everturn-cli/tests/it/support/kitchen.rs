//! Agents with a store, with and without a server.

use std::sync::Arc;

use everturn::agent::IntoStore;
use everturn::agent::store::{Expense, JournalKey, Scope, SessionExpense, SessionStore, UsageTotal};
use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};
use everturn_server::{ArchiveAccess, BearerTokens, Server};
use schemars::JsonSchema;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::Program;

#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Pantry {
    pub(crate) dishes: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Confirmation {
    question: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Decision {
    approved: bool,
}

/// Moves money.
#[tool]
async fn transfer(amount: u64, context: &ToolContext) -> Result<String> {
    match context.answer::<Decision>()? {
        None => Err(context.interrupt(Confirmation {
            question: format!("Move {amount}?"),
        })),
        Some(Decision { approved: true }) => Ok(format!("moved {amount}")),
        Some(Decision { approved: false }) => Ok("declined".to_owned()),
    }
}

/// Counts the cups.
#[tool]
async fn count() -> Result<u32> {
    Ok(12)
}

/// Agents whose sessions are in one store, and how the program reaches them.
pub(crate) struct Kitchen {
    pub(crate) folder: TempDir,
    /// The arguments and variables with which the program reaches the chef's sessions.
    pub(crate) place: Vec<String>,
    pub(crate) chef: Agent<Pantry>,
    pub(crate) planner: Agent,
    /// The planner finishes one plan for each permit.
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) store: String,
    kept: Arc<dyn SessionStore>,
    serving: Option<JoinHandle<Result<()>>>,
}

impl Kitchen {
    /// A server without restrictions, over an SQLite store.
    pub(crate) async fn on_a_server() -> Self {
        Self::served(|server| server.archive(ArchiveAccess::everyone())).await
    }

    pub(crate) async fn with_tokens() -> Self {
        let tokens = BearerTokens::new([("alice", "alice-token")]);
        Self::served(|server| server.context(tokens).archive(ArchiveAccess::role("nobody"))).await
    }

    pub(crate) async fn served(set_up: impl FnOnce(Server) -> Server) -> Self {
        let (mut kitchen, app) = Self::sqlite().await;
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let server = set_up(app.server()).bind(local).await.unwrap();
        kitchen.place = vec!["--url".to_owned(), format!("http://{}", server.address())];
        kitchen.serving = Some(tokio::spawn(server.run()));
        kitchen
    }

    pub(crate) async fn in_sqlite() -> Self {
        Self::sqlite().await.0
    }

    async fn sqlite() -> (Self, Everturn) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("kitchen.db");
        let store = SqliteStore::open(&path).await.unwrap();
        Self::around(folder, format!("sqlite:{}", path.display()), store).await
    }

    pub(crate) async fn in_files() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("sessions");
        let store = FileStore::open(&path).await.unwrap();
        Self::around(folder, format!("file:{}", path.display()), store)
            .await
            .0
    }

    /// Creates a separate schema; `None`, with a printed reason, without a server.
    pub(crate) async fn in_postgres() -> Option<Self> {
        let Ok(server) = std::env::var("EVERTURN_TEST_POSTGRES") else {
            println!("skipped: EVERTURN_TEST_POSTGRES names no server; ./test starts one");
            return None;
        };
        let name = SessionId::generate().as_str().replace('-', "_");
        let name = format!("kitchen_{name}");
        let (client, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        client
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .unwrap();
        connection.abort();
        let (server, _) = server.rsplit_once('/').unwrap();
        let url = format!("{server}/{name}");
        let store = PostgresStore::open(&url).await.unwrap();
        let (kitchen, _) = Self::around(TempDir::new().unwrap(), url, store).await;
        Some(kitchen)
    }

    async fn around(folder: TempDir, named: String, store: impl IntoStore) -> (Self, Everturn) {
        let model = ScriptedModel::new()
            .reply(Reply::tool("transfer", json!({ "amount": 50 })))
            .reply("Done.");
        let failing = ScriptedModel::new()
            .reply(Reply::tool("count", json!({})))
            .reply(Error::unavailable("the model is busy").with_public())
            .reply("Here you are.");
        let builder = Everturn::builder()
            .model("scripted", model)
            .model("failing", failing);
        let app = builder.default_model("scripted").build().await.unwrap();
        let (gate, store) = (Arc::new(Semaphore::new(0)), store.into_store());
        let chef = app
            .custom_agent("chef", |session: AgentSession<Pantry>| async move {
                session.run(cook).await?;
                Ok(session.result())
            })
            .description("cooks soup")
            .store(Arc::clone(&store))
            .define()
            .unwrap();
        app.agent("banker")
            .tool(transfer)
            .store(Arc::clone(&store))
            .define()
            .unwrap();
        app.agent("waiter")
            .model("failing")
            .tool(count)
            .store(Arc::clone(&store))
            .define()
            .unwrap();
        let kept = Arc::clone(&store);
        let planner = planner(&app, &gate).store(store).define().unwrap();
        app.streaming_flow("menu", |theme: String, words: Emitter<String>| async move {
            words.send(theme.clone()).await?;
            Ok(json!({ "theme": theme, "dishes": 3 }))
        })
        .unwrap();
        let kitchen = Self {
            folder,
            place: vec!["--store".to_owned(), named.clone()],
            chef,
            planner,
            gate,
            store: named,
            kept,
            serving: None,
        };
        (kitchen, app)
    }

    /// Returns a command line for this place, about the chef's sessions.
    pub(crate) fn sessions(&self, arguments: &[&str]) -> Program {
        let mut all = vec!["sessions"];
        if self.serving.is_some() {
            all.extend(["--agent", "chef"]);
        }
        all.extend(arguments);
        self.program(&all)
    }

    pub(crate) fn program(&self, arguments: &[&str]) -> Program {
        Program::new(arguments).with(&self.place)
    }

    /// Runs a turn of the chef and returns the id of its snapshot.
    pub(crate) async fn cook(&self, session: &str, text: &str) -> String {
        let reply = self.chef.chat().resume(session).run(text).await.unwrap();
        reply.snapshot_id().unwrap().to_string()
    }

    /// Runs a turn of the chef on behalf of a principal.
    pub(crate) async fn cook_for(&self, principal: &str, session: &str, text: &str) {
        let chat = self
            .chef
            .chat()
            .context(Principal::new(principal))
            .resume(session);
        chat.run(text).await.unwrap();
    }

    /// Adds an amount to the ledger, for a tenant and one of its sessions.
    pub(crate) async fn spend(&self, scope: &Scope, session: &str) -> UsageTotal {
        let mut used = UsageTotal::default();
        used.model_calls = 7;
        let branch = JournalKey::of_branch(session.into(), None);
        let of_session = SessionExpense::new(branch, UsageTotal::default(), used);
        let expense = Expense::new().of_tenant(used).of_session(of_session);
        let ledger = self.kept.ledger().unwrap();
        ledger.spend(scope, &expense).await.unwrap()
    }

    /// Starts a run of the planner, and returns its id.
    pub(crate) async fn plan(&self) -> String {
        let mut chat = self.planner.chat().open().await.unwrap();
        chat.detach("Plan the week")
            .await
            .unwrap()
            .snapshot_id()
            .to_string()
    }
}

async fn cook(turn: Turn<Pantry>) -> HandlerResult<FinishReason> {
    turn.update_custom(|pantry| pantry.dishes += 1);
    let asked = turn
        .message()
        .map(|message| message.text().into_owned())
        .unwrap_or_default();
    if asked == "a wrong provider key" {
        return Err(Error::unauthenticated("the API key is wrong")
            .with_public()
            .into());
    }
    let answer = format!("Soup for: {asked}");
    turn.send_chunk(answer.as_str()).await?;
    turn.add_message(Message::model(answer));
    Ok(FinishReason::Stop)
}

fn planner(
    app: &Everturn,
    gate: &Arc<Semaphore>,
) -> everturn::agent::AgentBuilder<Value, everturn::agent::Custom<Value>> {
    let gate = Arc::clone(gate);
    app.custom_agent("planner", move |session: AgentSession| {
        let gate = Arc::clone(&gate);
        async move {
            session
                .run(move |turn| {
                    let gate = Arc::clone(&gate);
                    async move {
                        turn.send_status("planning Monday").await?;
                        gate.acquire().await.unwrap().forget();
                        turn.add_message(Message::model("Planned."));
                        Ok(FinishReason::Stop)
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
}

impl Drop for Kitchen {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}
