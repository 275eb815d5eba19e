//! External effects, in order.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file with one line per effect, to which any number of processes append.
#[derive(Debug, Clone)]
pub struct Effects(PathBuf);

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The session.
    pub session: String,
    /// The effect, such as `tool 3`.
    pub what: String,
    /// The time since 1970.
    pub at: Duration,
}

impl Effects {
    /// Opens the file of effects.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Records an effect. A line is written in one call, so lines of several processes do not interleave.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn note(&self, session: &str, what: &str) -> io::Result<()> {
        let line = format!("{session}\t{what}\t{}\n", now().as_micros());
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.0)?
            .write_all(line.as_bytes())
    }

    /// Returns all effects so far.
    ///
    /// # Errors
    /// The error of the file system; a missing file has no effects.
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

/// Returns the time since 1970, which all processes of a machine share.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
