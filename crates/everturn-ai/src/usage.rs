//! The resources that a model call used.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{MessageStats, number};

/// Tokens, characters and media in the request and response of a model call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "GenerationUsage")]
pub struct Usage {
    /// Tokens of the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_tokens: Option<u64>,
    /// Tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_tokens: Option<u64>,
    /// Tokens of both, as the provider counts them.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub total_tokens: Option<u64>,
    /// Characters of the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_characters: Option<u64>,
    /// Characters of the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_characters: Option<u64>,
    /// Images in the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_images: Option<u64>,
    /// Images in the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_images: Option<u64>,
    /// Videos in the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_videos: Option<u64>,
    /// Videos in the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_videos: Option<u64>,
    /// Audio files in the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_audio_files: Option<u64>,
    /// Audio files in the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_audio_files: Option<u64>,
    /// Tokens that the model spent on reasoning.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub thoughts_tokens: Option<u64>,
    /// Tokens that the provider took from its cache.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub cached_content_tokens: Option<u64>,
    /// Other numbers that the provider reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<BTreeMap<String, serde_json::Number>>,
}

impl Usage {
    /// Fills in the characters and media that the provider did not count itself.
    pub fn fill_counts(&mut self, input: MessageStats, output: MessageStats) {
        self.input_characters.get_or_insert(input.characters);
        self.input_images.get_or_insert(input.images.into());
        self.input_videos.get_or_insert(input.videos.into());
        self.input_audio_files.get_or_insert(input.audio_files.into());
        self.output_characters.get_or_insert(output.characters);
        self.output_images.get_or_insert(output.images.into());
        self.output_videos.get_or_insert(output.videos.into());
        self.output_audio_files.get_or_insert(output.audio_files.into());
    }
}
