//! Folders with instructions that the model can read on demand.

mod library;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::HandlerResult;
use schemars::JsonSchema;
use serde::Deserialize;

use self::library::Library;
use crate::{
    GenerateRound, IntoMiddleware, Middleware, MiddlewareSource, ModelResponse, NextRound, Replay, Tool,
    place_system_part,
};

/// Lists the available skills to the model and lets it read one.
///
/// A skill is a folder with a file `SKILL.md`: instructions in Markdown, usually after front matter with
/// `name` and `description`. Each direct subfolder of a skill path is read, except those whose name begins
/// with a dot; links are not followed. The default name of a skill is its folder's. Of two skills with one
/// name the one from the later path is used. Folders are read once per generation; unreadable ones, and files
/// over 1 MiB, are skipped.
///
/// The system prompt gets a `<skills>` element with a line for each skill, in a part with the metadata entry
/// `skills-instructions: true`, and the model gets the tool `use_skill`, which returns the text of
/// `SKILL.md`. Without any skill neither is added.
///
/// The model receives the content of a skill as instructions; treat the folders like source code.
///
/// ```no_run
/// use everturn_ai::builtin_middleware::Skills;
///
/// let skills = Skills::new(["skills", "/usr/share/our-skills"]);
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Skills {
    /// The folders that hold folders of skills.
    skill_paths: Vec<PathBuf>,
}

/// The metadata entry that marks the part with the list of skills.
const MARKER: &str = "skills-instructions";

impl Default for Skills {
    /// Finds skills in the folder `skills`.
    fn default() -> Self {
        Self::new(["skills"])
    }
}

impl Skills {
    /// Creates middleware that finds skills in these folders.
    pub fn new(skill_paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            skill_paths: skill_paths.into_iter().map(Into::into).collect(),
        }
    }

    /// Reads the skill folders for one generate call.
    pub(super) fn scan(&self) -> Bundle {
        Bundle(Arc::new(Library::scan(&self.skill_paths)))
    }
}

/// Reads the folders for each generate call, so that a changed skill takes effect in the next one.
impl IntoMiddleware for Skills {
    fn into_middleware(self) -> MiddlewareSource {
        MiddlewareSource::factory(move |_| Ok(Arc::new(self.scan())))
    }
}

/// The skills middleware of one generate call.
pub(super) struct Bundle(Arc<Library>);

/// The input of the tool `use_skill`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UseSkill {
    /// The name of the skill.
    skill_name: String,
}

#[async_trait]
impl Middleware for Bundle {
    async fn generate(&self, mut round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        if !self.0.is_empty() {
            place_system_part(&mut round.request.messages, MARKER, instructions(&self.0));
        }
        Ok(next.run(round).await?)
    }

    fn tools(&self) -> Vec<Tool> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let library = Arc::clone(&self.0);
        let description = "Gives the instructions of a skill.";
        vec![
            Tool::new("use_skill", description, move |input: UseSkill, _| {
                let library = Arc::clone(&library);
                async move { Ok(tokio::task::spawn_blocking(move || library.text(&input.skill_name)).await?) }
            })
            .with_replay(Replay::Pure),
        ]
    }
}

fn instructions(library: &Library) -> String {
    format!(
        "<skills>\nThere are instructions for special tasks, called skills. When a task has to do with one of them, \
         call the tool use_skill with its name, once, before you begin. The skills are:\n{}</skills>",
        library.listing()
    )
}
