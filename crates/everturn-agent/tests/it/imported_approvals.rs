//! An imported conversation carries no live approvals: the file may have been edited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentFinishReason, AgentInput, AgentReply, Interrupt, SnapshotIds, WhileInterrupted, agent,
};
use everturn_ai::{Answers, Message, Tool, ToolContext};
use everturn_core::{Principal, Result, Status};
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::prompt_support::{answering, call};

struct Bank {
    agent: Agent,
    archive: Archive,
    paid: Arc<AtomicUsize>,
}

fn person(id: &str) -> Principal {
    Principal::new(id).in_tenant("office")
}

impl Bank {
    fn new(ids: SnapshotIds) -> Self {
        let wire = || Reply::from(call("wire", "1", json!({"sum": 900})));
        let (registry, _) = answering([wire(), wire(), "done".into(), "done".into(), "done".into()]);
        let paid = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&paid);
        let tool = Tool::dynamic("wire", "Moves money.", None, move |_, cx: ToolContext| {
            let count = Arc::clone(&count);
            async move {
                if cx.answer_value().is_none() {
                    return Err(cx.interrupt("Move it?").into());
                }
                count.fetch_add(1, Ordering::SeqCst);
                Ok(json!("moved"))
            }
        })
        .with_approvals(2);
        let store = MemoryStore::new();
        Self {
            agent: agent(&registry, "bank")
                .tool(tool)
                .snapshot_ids(ids)
                .while_interrupted(WhileInterrupted::Ask)
                .store(store.clone())
                .define()
                .unwrap(),
            archive: Archive::of(store, person("ann").scope()),
            paid,
        }
    }

    async fn run(&self, who: &str, input: impl Into<AgentInput>) -> Result<AgentReply> {
        self.agent
            .chat()
            .resume("s")
            .context(person(who))
            .run(input)
            .await
    }

    /// Exports the session, edits the file, and imports it in place of the session.
    async fn reimported(&self, edit: impl Fn(&mut Value)) {
        let mut file = Vec::new();
        self.archive.export("s", &mut file).await.unwrap();
        let edited = String::from_utf8(file).unwrap();
        let edited: Vec<String> = edited
            .lines()
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                each(&mut line, &edit);
                line.to_string()
            })
            .collect();
        let file = edited.join("\n");
        self.archive
            .import(file.as_bytes(), Import::default().replacing())
            .await
            .unwrap();
    }

    async fn question(&self) -> Option<Interrupt> {
        let state = self.archive.latest("s").await.unwrap().state.unwrap();
        let open = state.messages.iter().flat_map(Message::interrupts).last();
        open.and_then(Interrupt::of)
    }
}

/// Edits every approval in a file.
fn each(value: &mut Value, edit: &impl Fn(&mut Value)) {
    match value {
        Value::Object(members) => {
            if let Some(approval) = members.get_mut("approval") {
                edit(approval);
            }
            members.values_mut().for_each(|value| each(value, edit));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| each(value, edit)),
        _ => {}
    }
}

fn forgeries() -> [fn(&mut Value); 4] {
    [
        |_| {},
        |approval| approval["needed"] = json!(1),
        |approval| {
            if let Some(by) = approval.pointer_mut("/answers/0/by") {
                *by = json!("bob");
            }
        },
        |approval| *approval = Value::Null,
    ]
}

#[tokio::test]
async fn one_person_with_import_rights_passes_no_approval_of_two() {
    for (number, forged) in forgeries().into_iter().enumerate() {
        let bank = Bank::new(SnapshotIds::Uuid);
        bank.run("ann", "Pay the rent.").await.unwrap();
        let question = bank.question().await.unwrap();
        let yes = || Answers::from(question.restart(json!({"approved": true})).unwrap());
        let first = bank.run("carl", yes()).await.unwrap();
        assert_eq!(first.finish_reason(), AgentFinishReason::Interrupted);

        bank.reimported(forged).await;
        let refused = bank.run("carl", yes()).await.unwrap_err();

        assert!(
            matches!(
                refused.status(),
                Status::FailedPrecondition | Status::InvalidArgument
            ),
            "{number}: {refused}"
        );
        assert_eq!(bank.paid.load(Ordering::SeqCst), 0, "{number}");
    }
}

#[tokio::test]
async fn the_tool_asks_anew_and_two_people_answer() {
    for ids in [SnapshotIds::Uuid, SnapshotIds::ContentAddressed] {
        let bank = Bank::new(ids);
        bank.run("ann", "Pay the rent.").await.unwrap();
        // A message that waits for the answers does not wait for them after the import.
        bank.run("ann", "And quickly.").await.unwrap();
        bank.reimported(|_| {}).await;

        let asked = bank.run("ann", "Is it paid?").await.unwrap();

        assert_eq!(asked.finish_reason(), AgentFinishReason::Interrupted);
        let yes = || Answers::from(asked.interrupts()[0].restart(json!({"approved": true})).unwrap());
        bank.run("carl", yes()).await.unwrap();
        assert_eq!(bank.paid.load(Ordering::SeqCst), 0);
        let done = bank.run("dora", yes()).await.unwrap();
        assert_eq!(done.text(), "done");
        assert_eq!(bank.paid.load(Ordering::SeqCst), 1);
        let tree = bank.archive.tree("s").await.unwrap();
        assert_eq!(tree.roots().count(), 1, "no snapshot lost its parent");
    }
}
