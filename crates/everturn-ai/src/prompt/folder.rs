//! A folder of `.prompt` files.
//!
//! | file | is |
//! |---|---|
//! | `chef.prompt` | the prompt `chef` |
//! | `chef.french.prompt` | its variant `french`, found as `chef.french` |
//! | `kitchen/chef.prompt` | the prompt `kitchen/chef` |
//! | `_style.prompt` | the partial `style`, in any folder |

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use everturn_core::{Error, Registry, Result};
use parking_lot::Mutex;

use super::definition::Parts;
use super::{Mistakes, PromptSource, define_partial, file, prompt_action};

/// The limit on nested folders; a link to a parent folder would otherwise never end.
const MAX_NESTING: usize = 32;

/// Defines every prompt and partial of a folder and its sub-folders.
///
/// Files are read and their templates compiled at once, so mistakes are found here.
/// [`check_names`](super::check_names) finds models, tools and middleware that are not registered.
///
/// # Errors
/// `NOT_FOUND` if the folder does not exist; `ALREADY_EXISTS` if a prompt of a name is already defined;
/// `INVALID_ARGUMENT` for files that cannot be used: a frontmatter that is not YAML or has unknown keys, a
/// template that does not compile or includes an unknown partial. One error lists all mistakes of all files,
/// with file, line and column.
pub fn load_prompts(registry: &Registry, folder: impl AsRef<Path>) -> Result<PromptFolder> {
    let mut mistakes = Mistakes::default();
    let folder = PromptFolder::load(registry, folder.as_ref(), Reload::Never, &mut mistakes)?;
    mistakes.into_result()?;
    Ok(folder)
}

/// A loaded folder of prompts.
#[derive(Debug, Clone)]
pub struct PromptFolder {
    names: Vec<String>,
}

/// Whether files that change are read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// A file is read once.
    Never,
    /// A prompt whose file, or any partial, has changed is read again when it is next used.
    WhenChanged,
}

impl PromptFolder {
    /// Like [`load_prompts`], for development: if a prompt's file or any partial has changed, the prompt is
    /// read again when it is next used. A change that does not compile fails that use.
    ///
    /// # Errors
    /// As [`load_prompts`].
    pub fn reloading(registry: &Registry, folder: impl AsRef<Path>) -> Result<Self> {
        let mut mistakes = Mistakes::default();
        let folder = Self::load(registry, folder.as_ref(), Reload::WhenChanged, &mut mistakes)?;
        mistakes.into_result()?;
        Ok(folder)
    }

    /// Returns the names of the prompts, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Defines the prompts of a folder like [`load_prompts`], and adds mistakes in files to those of other
    /// folders.
    ///
    /// # Errors
    /// As [`load_prompts`], but for the mistakes in files.
    pub fn load(registry: &Registry, root: &Path, reload: Reload, mistakes: &mut Mistakes) -> Result<Self> {
        if !root.is_dir() {
            return Err(Error::not_found(format!(
                "there is no folder of prompts at '{}'",
                root.display()
            )));
        }
        let files = Arc::new(Files::scan(root)?);
        // Partials first: prompts include them when they are compiled.
        for partial in &files.partials {
            define_partial(registry, &partial.name, read(&partial.path)?);
        }
        let mut names = Vec::new();
        for entry in &files.prompts {
            let prompt = FilePrompt {
                entry: entry.clone(),
                partials: Arc::clone(&files),
                reload,
                compiled: Mutex::new(None),
            };
            let stamp = prompt.stamp();
            let Some(parts) = prompt.parse(registry, mistakes)? else {
                continue;
            };
            *prompt.compiled.lock() = Some((stamp, Arc::new(parts)));
            let source: Arc<dyn PromptSource> = Arc::new(prompt);
            prompt_action::register(registry, &entry.name, &source)?;
            names.push(entry.name.clone());
        }
        names.sort_unstable();
        Ok(Self { names })
    }
}

/// A file and what it defines.
#[derive(Debug, Clone)]
struct Entry {
    path: PathBuf,
    name: String,
    variant: Option<String>,
}

#[derive(Debug, Default)]
struct Files {
    prompts: Vec<Entry>,
    partials: Vec<Entry>,
}

impl Files {
    fn scan(root: &Path) -> Result<Self> {
        let mut files = Self::default();
        files.scan_folder(root, "", 0)?;
        Ok(files)
    }

    fn scan_folder(&mut self, folder: &Path, prefix: &str, nesting: usize) -> Result<()> {
        if nesting > MAX_NESTING {
            return Err(Error::invalid_argument(format!(
                "'{}' is nested too deeply",
                folder.display()
            )));
        }
        let mut paths = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        // A folder lists its entries in no defined order, and errors should not depend on it.
        paths.sort_unstable();
        for path in paths {
            let Some(file_name) = path.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
                continue;
            };
            if path.is_dir() {
                self.scan_folder(&path, &format!("{prefix}{file_name}/"), nesting + 1)?;
            } else if let Some(stem) = file_name.strip_suffix(".prompt") {
                self.add(path, prefix, stem);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf, prefix: &str, stem: &str) {
        if let Some(name) = stem.strip_prefix('_') {
            self.partials.push(Entry {
                path,
                name: name.to_owned(),
                variant: None,
            });
            return;
        }
        let mut segments = stem.split('.');
        let base = segments.next().unwrap_or(stem);
        let variant = segments.next().map(str::to_owned);
        let name = match &variant {
            Some(variant) => format!("{prefix}{base}.{variant}"),
            None => format!("{prefix}{base}"),
        };
        self.prompts.push(Entry { path, name, variant });
    }
}

/// A prompt in a file.
struct FilePrompt {
    entry: Entry,
    partials: Arc<Files>,
    reload: Reload,
    compiled: Mutex<Option<(Stamp, Arc<Parts>)>>,
}

/// The times and sizes of the files of which a prompt may be made.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl FilePrompt {
    fn stamp(&self) -> Stamp {
        if self.reload == Reload::Never {
            return Stamp::new();
        }
        let paths = std::iter::once(&self.entry)
            .chain(&self.partials.partials)
            .map(|entry| &entry.path);
        let changed = |path: &PathBuf| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        paths.map(changed).collect()
    }

    fn compile(&self, registry: &Registry) -> Result<Arc<Parts>> {
        if self.reload == Reload::WhenChanged {
            // A changed partial is defined again before the prompts that include it are compiled.
            for partial in &self.partials.partials {
                define_partial(registry, &partial.name, read(&partial.path)?);
            }
        }
        let mut mistakes = Mistakes::default();
        let parts = self.parse(registry, &mut mistakes)?;
        mistakes.into_result()?;
        let unreadable = || {
            Error::internal(format!(
                "prompt '{}' has neither parts nor mistakes",
                self.entry.name
            ))
        };
        parts.map(Arc::new).ok_or_else(unreadable)
    }

    fn parse(&self, registry: &Registry, mistakes: &mut Mistakes) -> Result<Option<Parts>> {
        let Entry { path, name, variant } = &self.entry;
        let source = read(path)?;
        let file = path.display().to_string();
        Ok(file::parse(
            registry,
            name,
            variant.as_deref(),
            &file,
            &source,
            mistakes,
        ))
    }
}

impl PromptSource for FilePrompt {
    fn parts(&self, registry: &Registry) -> Result<Arc<Parts>> {
        // Taken before the files are read: a change in between is noticed at the next use.
        let stamp = self.stamp();
        // Held during compilation, which never waits: two first uses at the same time compile once.
        let mut compiled = self.compiled.lock();
        if let Some((compiled_at, parts)) = &*compiled
            && *compiled_at == stamp
        {
            return Ok(Arc::clone(parts));
        }
        let parts = self.compile(registry)?;
        *compiled = Some((stamp, Arc::clone(&parts)));
        Ok(parts)
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read '{}': {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(message),
            std::io::ErrorKind::InvalidData => Error::invalid_argument(message),
            _ => Error::unavailable(message),
        }
        .with_source(error)
    })
}
