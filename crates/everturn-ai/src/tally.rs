//! Counts over messages, kept as running sums so that reading them does not walk a long history.

use std::ops::{Add, AddAssign, Sub};

use crate::{Media, Part, Role, metadata};

/// The counts over a sequence of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Characters of all text parts.
    pub characters: u64,
    /// Image parts.
    pub images: u32,
    /// Video parts.
    pub videos: u32,
    /// Audio parts.
    pub audio_files: u32,
    features: [u32; Feature::COUNT],
}

/// A property of a message that generation has to find in a whole conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// The message is a system message.
    System,
    /// The message has a media part.
    Media,
    /// The message has a link to a resource.
    Resource,
    /// The message has output format instructions.
    OutputInstructions,
    /// The message has a place kept for output format instructions.
    PendingOutput,
    /// The message has tool requests.
    ToolRequest,
}

impl Feature {
    const COUNT: usize = 6;
}

impl Tally {
    /// Returns how many of the messages have a feature.
    pub fn messages_with(&self, feature: Feature) -> u32 {
        self.features[feature as usize]
    }

    pub(crate) fn of(role: Role, content: &[Part]) -> Self {
        let mut tally = Self::default();
        if role == Role::System {
            tally.mark(Feature::System);
        }
        for part in content {
            tally.add_part(part);
        }
        tally
    }

    fn add_part(&mut self, part: &Part) {
        if let Some(text) = part.as_text() {
            self.characters += text.chars().count() as u64;
        }
        if let Some(media) = part.as_media() {
            self.mark(Feature::Media);
            self.add_media(media);
        }
        if part.as_resource().is_some() {
            self.mark(Feature::Resource);
        }
        if part.as_tool_request().is_some() {
            self.mark(Feature::ToolRequest);
        }
        if part.purpose() == Some(metadata::PURPOSE_OUTPUT) {
            self.mark(if part.is_pending() {
                Feature::PendingOutput
            } else {
                Feature::OutputInstructions
            });
        }
    }

    fn add_media(&mut self, media: &Media) {
        match media.mime_type().and_then(|mime| mime.split('/').next()) {
            Some("image") => self.images += 1,
            Some("video") => self.videos += 1,
            Some("audio") => self.audio_files += 1,
            _ => {}
        }
    }

    /// Counts a feature once within one message.
    fn mark(&mut self, feature: Feature) {
        self.features[feature as usize] = 1;
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.characters += other.characters;
        self.images += other.images;
        self.videos += other.videos;
        self.audio_files += other.audio_files;
        for (mine, theirs) in self.features.iter_mut().zip(other.features) {
            *mine += theirs;
        }
    }
}

/// Subtracts the tally of a prefix from that of the whole sequence.
impl Sub for Tally {
    type Output = Self;

    fn sub(mut self, prefix: Self) -> Self {
        self.characters -= prefix.characters;
        self.images -= prefix.images;
        self.videos -= prefix.videos;
        self.audio_files -= prefix.audio_files;
        for (mine, theirs) in self.features.iter_mut().zip(prefix.features) {
            *mine -= theirs;
        }
        self
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}
