//! Talking to the agents on the terminal, or through a pipe.

mod command;
mod conversation;
mod lines;
mod listing;
mod screen;
mod visit;

use std::path::Path;

use everturn::Result;

use self::lines::Lines;
use self::screen::Screen;
use self::visit::Visit;
use crate::agents;
use crate::database::Database;
use crate::model::Choice;

/// Runs the chat until the visitor leaves.
pub(crate) async fn chat(database: &Path, model: Option<String>) -> Result<()> {
    let model = Choice::make(model).await?;
    let told = model.to_string();
    let files = Database::open(database).await?;
    let (_app, demos) = agents::define(&files, model, Screen::pace()).await?;
    let mut screen = Screen::new();
    screen.greet(&demos, &told, database);
    Visit::new(demos, Lines::open(), screen).await?.stay().await;
    files.close().await
}
