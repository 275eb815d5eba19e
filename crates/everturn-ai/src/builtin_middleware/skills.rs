//! Folders with instructions that the model can read on demand.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use everturn_core::HandlerResult;
use schemars::JsonSchema;
use serde::Deserialize;

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

const SKILL_FILE: &str = "SKILL.md";

/// The largest `SKILL.md`.
const MAX_SKILL_BYTES: u64 = 1024 * 1024;

/// All skills, by name.
#[derive(Debug, Default)]
struct Library(BTreeMap<String, Skill>);

#[derive(Debug)]
struct Skill {
    description: Option<String>,
    /// The open skill path that holds the skill's folder.
    place: Arc<Dir>,
    folder: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FrontMatter {
    name: Option<String>,
    description: Option<String>,
}

impl Library {
    /// Reads the skills below the paths; skips unreadable ones.
    fn scan(paths: &[PathBuf]) -> Self {
        let mut library = Self::default();
        for path in paths {
            match library.add_all(path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    tracing::debug!(path = %path.display(), "there is no such folder of skills");
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a folder of skills cannot be read");
                }
            }
        }
        library
    }

    fn add_all(&mut self, path: &Path) -> io::Result<()> {
        let place = Arc::new(Dir::open_ambient_dir(path, ambient_authority())?);
        let mut folders = Vec::new();
        for entry in place.entries()? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && !name.starts_with('.')
                && entry.file_type()?.is_dir()
            {
                folders.push(name);
            }
        }
        // A folder lists its entries in no defined order, and the choice between two skills with one name
        // must not depend on it.
        folders.sort_unstable();
        for folder in folders {
            match read(&place, &folder) {
                Ok(text) => self.add(&place, folder, &text),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(folder, %error, "a skill cannot be read"),
            }
        }
        Ok(())
    }

    fn add(&mut self, place: &Arc<Dir>, folder: String, text: &str) {
        let FrontMatter { name, description } = front_matter(text).unwrap_or_else(|error| {
            tracing::warn!(folder, %error, "the front matter of a skill cannot be read");
            FrontMatter::default()
        });
        let name = name.map_or_else(|| folder.clone(), |name| on_one_line(&name));
        let description = description
            .map(|text| on_one_line(&text))
            .filter(|text| !text.is_empty());
        self.0.insert(
            name,
            Skill {
                description,
                place: Arc::clone(place),
                folder,
            },
        );
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns one line for each skill, sorted by name.
    fn listing(&self) -> String {
        let line = |(name, skill): (&String, &Skill)| match &skill.description {
            Some(description) => format!(" - {name} - {description}\n"),
            None => format!(" - {name}\n"),
        };
        self.0.iter().map(line).collect()
    }

    /// Returns the `SKILL.md` of the skill with that name or folder. If it cannot be read, the returned text
    /// reports that to the model.
    fn text(&self, name: &str) -> String {
        let by_folder = || self.0.values().find(|skill| skill.folder == name);
        let Some(skill) = self.0.get(name).or_else(by_folder) else {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            return format!(
                "There is no skill '{name}'. The skills are: {}.",
                names.join(", ")
            );
        };
        read(&skill.place, &skill.folder)
            .unwrap_or_else(|error| format!("The skill '{name}' cannot be read: {error}."))
    }
}

/// Reads the text of a skill. No link inside its folder can make the text come from outside the folder.
fn read(place: &Dir, folder: &str) -> io::Result<String> {
    let folder = place.open_dir(folder)?;
    if !folder.metadata(SKILL_FILE)?.is_file() {
        return Err(io::Error::other(format!("{SKILL_FILE} is not a file")));
    }
    let mut text = String::new();
    let length = folder
        .open(SKILL_FILE)?
        .take(MAX_SKILL_BYTES + 1)
        .read_to_string(&mut text)?;
    if length as u64 > MAX_SKILL_BYTES {
        return Err(io::Error::other(format!(
            "{SKILL_FILE} is larger than {MAX_SKILL_BYTES} bytes"
        )));
    }
    Ok(text)
}

fn front_matter(text: &str) -> Result<FrontMatter, yaml_serde::Error> {
    let text = text.trim_start_matches('\u{feff}');
    let Some(after_first_line) = text.strip_prefix("---").and_then(|rest| rest.split_once('\n')) else {
        return Ok(FrontMatter::default());
    };
    let (rest_of_line, body) = after_first_line;
    if !rest_of_line.trim().is_empty() {
        return Ok(FrontMatter::default());
    }
    let mut yaml = String::new();
    for line in body.lines() {
        if line.trim_end() == "---" {
            return Ok(yaml_serde::from_str::<Option<FrontMatter>>(&yaml)?.unwrap_or_default());
        }
        yaml.push_str(line);
        yaml.push('\n');
    }
    Ok(FrontMatter::default())
}

/// Joins a description to one line, because the list of skills has one line for each.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_front_matter(text: &str) -> (Option<String>, Option<String>) {
        let FrontMatter { name, description } = front_matter(text).unwrap();
        (name, description)
    }

    #[test]
    fn front_matter_may_have_other_keys_and_any_line_ends() {
        let text = "---\r\nname: soup\r\nlicense: MIT\r\ndescription: >\r\n  All about\r\n  soup.\r\n---\r\nBoil it.";

        let (name, description) = read_front_matter(text);

        assert_eq!(name.as_deref(), Some("soup"));
        assert_eq!(on_one_line(&description.unwrap()), "All about soup.");
    }

    #[test]
    fn a_text_without_front_matter_is_a_skill_without_description() {
        for text in [
            "",
            "# Soup",
            "---",
            "---\nname: never closed",
            "--- not\nname: a\n---",
            "---\n---\nBoil it.",
        ] {
            assert_eq!(read_front_matter(text), (None, None), "{text}");
        }
    }

    #[test]
    fn broken_yaml_is_an_error() {
        assert!(front_matter("---\nname: [\n---\n").is_err());
    }
}
