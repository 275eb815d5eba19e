//! The files of the page: embedded in the program, or read from a folder.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use everturn_server::axum::body::Bytes;

/// The source folder of the files, on the machine that built the program.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");

macro_rules! embedded {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../assets/", $name)))),*]
    };
}

/// Every file of the page. A test compares the list with the folder.
static EMBEDDED: &[(&str, &[u8])] = embedded!(
    "css/base.css"
    "css/conversation.css"
    "css/inspector.css"
    "css/layout.css"
    "icon.svg"
    "index.html"
    "js/agents-list.js"
    "js/api.js"
    "js/app.js"
    "js/approval.js"
    "js/artifacts-tab.js"
    "js/background-runs.js"
    "js/composer.js"
    "js/conversation-log.js"
    "js/conversation.js"
    "js/copy.js"
    "js/dialogs.js"
    "js/differences.js"
    "js/divider.js"
    "js/emitter.js"
    "js/entry-view.js"
    "js/events-tab.js"
    "js/inspector.js"
    "js/json-tree.js"
    "js/keys.js"
    "js/line-diff.js"
    "js/live-entry.js"
    "js/local-sessions.js"
    "js/markdown-view.js"
    "js/markdown.js"
    "js/messages.js"
    "js/part-view.js"
    "js/patch.js"
    "js/router.js"
    "js/runs.js"
    "js/schema-form.js"
    "js/session-header.js"
    "js/sessions-list.js"
    "js/share.js"
    "js/spans.js"
    "js/state-tab.js"
    "js/stream.js"
    "js/studio.js"
    "js/tabs.js"
    "js/theme.js"
    "js/time.js"
    "js/timeline-layout.js"
    "js/timeline-tab.js"
    "js/tool-card.js"
    "js/trace-tab.js"
    "js/turn.js"
    "js/usage.js"
    "js/view.js"
    "js/welcome.js"
);

/// A file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) content: Bytes,
    pub(crate) content_type: &'static str,
    /// A hash of the content.
    pub(crate) tag: String,
}

/// The location of the files.
#[derive(Debug, Clone)]
pub(crate) struct Assets {
    folder: Option<PathBuf>,
}

impl Default for Assets {
    fn default() -> Self {
        let folder = PathBuf::from(SOURCE);
        Self {
            folder: (cfg!(debug_assertions) && folder.is_dir()).then_some(folder),
        }
    }
}

impl Assets {
    pub(crate) fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: Some(folder.into()),
        }
    }

    /// Returns the names of the page's modules.
    pub(crate) fn modules() -> impl Iterator<Item = &'static str> {
        let names = EMBEDDED.iter().map(|(name, _)| *name);
        names.filter(|name| name.starts_with("js/"))
    }

    /// Returns a file by its name, if it exists.
    pub(crate) fn find(&self, name: &str) -> Option<Asset> {
        let content: Cow<'static, [u8]> = match &self.folder {
            // Only a known name, or one that stays inside the folder, is read.
            Some(folder) if is_plain(name) => std::fs::read(folder.join(name)).ok()?.into(),
            Some(_) => return None,
            None => EMBEDDED.iter().find(|(known, _)| *known == name)?.1.into(),
        };
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Some(Asset {
            content_type: content_type(name),
            tag: format!("\"{:016x}\"", hasher.finish()),
            content: match content {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => bytes.into(),
            },
        })
    }
}

fn is_plain(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    name.bytes().all(is_allowed)
        && !name.starts_with('/')
        && name.split('/').all(|part| !part.starts_with('.'))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn files(folder: &Path, below: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                files(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let mut found = BTreeSet::new();
        files(Path::new(SOURCE), "", &mut found);

        let embedded: BTreeSet<String> = EMBEDDED.iter().map(|(name, _)| (*name).to_owned()).collect();

        assert_eq!(embedded, found);
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = EMBEDDED.iter().map(|(_, content)| content.len()).sum();

        assert!(bytes < 200 * 1024, "{bytes} bytes");
    }

    #[test]
    fn names_do_not_lead_out_of_the_folder() {
        let assets = Assets::in_folder(SOURCE);

        for name in [
            "../Cargo.toml",
            "/etc/passwd",
            "js/../../Cargo.toml",
            ".",
            "",
            "%2e%2e/Cargo.toml",
        ] {
            assert!(assets.find(name).is_none(), "{name}");
        }
        assert!(assets.find("index.html").is_some());
    }
}
