//! What was done to the world outside, in the order in which it was done.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file with one line per effect, which any number of processes append to.
#[derive(Debug, Clone)]
pub struct Effects(PathBuf);

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// In which session.
    pub session: String,
    /// What was done, such as `tool 3`.
    pub what: String,
    /// When, since 1970.
    pub at: Duration,
}

impl Effects {
    /// The effects noted in that file.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Notes an effect. A line is written at once, so lines of several processes do not mix.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn note(&self, session: &str, what: &str) -> io::Result<()> {
        let line = format!("{session}\t{what}\t{}\n", now().as_micros());
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.0)?
            .write_all(line.as_bytes())
    }

    /// All effects so far.
    ///
    /// # Errors
    /// What the file system reports; a file that does not exist yet has none.
    pub fn all(&self) -> io::Result<Vec<Effect>> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        Ok(text.lines().filter_map(Effect::parse).collect())
    }
}

impl Effect {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        Some(Self {
            session: fields.next()?.to_owned(),
            what: fields.next()?.to_owned(),
            at: Duration::from_micros(fields.next()?.parse().ok()?),
        })
    }
}

/// The time since 1970, which processes of one machine share.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
