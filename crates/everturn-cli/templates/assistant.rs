//! The assistant: an agent that takes notes.

use everturn::prelude::*;

/// The assistant's state. Clients receive each change as it happens.
#[payload]
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Notebook {
    pub notes: Vec<String>,
}

/// Writes a note.
#[tool]
async fn note(text: String, notebook: Session<Notebook>) -> Result<String> {
    notebook.update_custom(|notebook| notebook.notes.push(text.clone()));
    Ok(format!("noted: {text}"))
}

/// Defines the assistant, whose conversations are kept in the store.
pub fn define(app: &Everturn, store: impl SessionStore) -> Result<Agent<Notebook>> {
    app.agent("assistant")
        .description("takes notes and answers questions about them")
        .custom::<Notebook>()
        .system("You are a helpful assistant. Your notes so far: {{@custom.notes}}.")
        .tool(note)
        .store(store)
        .define()
}

#[cfg(test)]
mod tests {
    use everturn::testkit::{Reply, ScriptedModel};

    use super::*;

    #[tokio::test]
    async fn a_note_is_there_when_the_conversation_is_resumed() -> Result<()> {
        let model = ScriptedModel::new()
            .reply(Reply::tool("note", json!({ "text": "buy leeks" })))
            .reply("I noted it.");
        let app = Everturn::builder()
            .model("scripted", model)
            .default_model("scripted")
            .build()
            .await?;
        let assistant = define(&app, MemoryStore::new())?;

        let reply = assistant.run_text("Note that I have to buy leeks").await?;

        assert_eq!(reply.text(), "I noted it.");
        let chat = assistant.chat().resume(reply.session_id()).open().await?;
        assert_eq!(chat.custom()?.notes, ["buy leeks"]);
        Ok(())
    }
}
