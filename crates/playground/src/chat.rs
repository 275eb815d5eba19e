//! Chatting with the agents on the terminal, or through a pipe.

mod chat_loop;
mod command;
mod conversation;
mod lines;
mod listing;
mod screen;

use std::path::Path;

use everturn::Result;

use self::chat_loop::ChatLoop;
use self::lines::Lines;
use self::screen::Screen;
use crate::agents;
use crate::database::Database;
use crate::model::Choice;

/// Runs the chat until the user quits.
pub(crate) async fn chat(database: &Path, model: Option<String>) -> Result<()> {
    let model = Choice::make(model).await?;
    let description = model.to_string();
    let files = Database::open(database).await?;
    let (_app, demos) = agents::define(&files, model, Screen::pace()).await?;
    let mut screen = Screen::new();
    screen.greet(&demos, &description, database);
    ChatLoop::new(demos, Lines::open(), screen).await?.run().await;
    files.close().await
}
