//! Properties of OpenAI's models, by rules over their names. A rule only avoids requests that the API would
//! reject.

use std::borrow::Cow;

use everturn_core::ActionType;

use super::Api;

/// The purpose of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Chat.
    Chat,
    /// Embeddings.
    Embedding,
    /// Pictures, speech, moderation: not supported.
    Other,
}

impl Kind {
    pub(super) fn of(id: &str) -> Self {
        const OTHER: [&str; 8] = [
            "gpt-image",
            "dall-e",
            "tts-",
            "whisper",
            "omni-moderation",
            "sora",
            "gpt-realtime",
            "gpt-audio",
        ];
        // Routers put the provider before the name.
        let name = id.rsplit('/').next().unwrap_or(id);
        if name.starts_with("text-embedding") || name.contains("embed") {
            Self::Embedding
        } else if OTHER.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with("-transcribe") {
            Self::Other
        } else {
            Self::Chat
        }
    }

    /// Returns the type of the actions for such models, if there is one.
    pub(super) fn action_type(self) -> Option<ActionType> {
        match self {
            Self::Chat => Some(ActionType::MODEL),
            Self::Embedding => Some(ActionType::EMBEDDER),
            Self::Other => None,
        }
    }
}

/// Returns whether a model of OpenAI's reasons, and so rejects sampling settings.
pub(super) fn is_reasoning(id: &str) -> bool {
    if id.ends_with("-chat-latest") {
        return false;
    }
    let number_after = |prefix: &str| {
        let rest = id.strip_prefix(prefix)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    number_after("o").is_some() || number_after("gpt-").is_some_and(|number| number >= 5)
}

/// Returns the most tokens of a request to one of OpenAI's models; `None` for unknown names. The longest
/// prefix counts.
pub(super) fn max_input_tokens(id: &str) -> Option<u64> {
    const SIZES: [(&str, u64); 9] = [
        ("gpt-3.5", 16_385),
        ("gpt-4-turbo", 128_000),
        ("gpt-4.1", 1_047_576),
        ("gpt-4.5", 128_000),
        ("gpt-4o", 128_000),
        ("gpt-4", 8_192),
        ("gpt-5", 272_000),
        ("o1", 128_000),
        ("o", 200_000),
    ];
    if id.starts_with('o') && !is_reasoning(id) {
        return None;
    }
    let known = SIZES.iter().filter(|(prefix, _)| id.starts_with(prefix));
    known
        .max_by_key(|(prefix, _)| prefix.len())
        .map(|(_, size)| *size)
}

/// A kind of server, recognised by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// OpenAI itself.
    OpenAi,
    /// OpenAI's models at Microsoft.
    Azure,
    /// Mistral rejects unknown fields, and has its own rules for call ids.
    Mistral,
    /// Any other.
    Generic,
}

impl Dialect {
    pub(super) fn of(base_url: &str) -> Self {
        let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        match host {
            "api.openai.com" => Self::OpenAi,
            _ if host.ends_with(".openai.com") => Self::OpenAi,
            _ if host.ends_with(".azure.com") => Self::Azure,
            _ if host.ends_with("mistral.ai") => Self::Mistral,
            _ => Self::Generic,
        }
    }

    /// Returns the preferred protocol of these servers.
    pub(super) fn api(self) -> Api {
        if self.is_openai() {
            Api::Responses
        } else {
            Api::Chat
        }
    }

    /// Returns whether the models are OpenAI's, and its rules apply.
    pub(super) fn is_openai(self) -> bool {
        matches!(self, Self::OpenAi | Self::Azure)
    }

    /// Returns a call id in the server's form. Mistral requires nine letters and digits.
    pub(super) fn call_id(self, id: &str) -> Cow<'_, str> {
        let is_short = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if self != Self::Mistral || is_short {
            return Cow::Borrowed(id);
        }
        Cow::Owned(short_id(id))
    }
}

/// Returns nine letters and digits for a longer id: the same for the same id.
fn short_id(id: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // FNV-1a: short, and stable across versions.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let digit = |place: u32| {
        let index = hash / 62_u64.pow(place) % 62;
        char::from(DIGITS[usize::try_from(index).unwrap_or_default()])
    };
    (0..9).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_hold_for_names_that_do_not_exist_yet() {
        for id in [
            "o1",
            "o3-mini",
            "o4-mini-2025-04-16",
            "gpt-5",
            "gpt-5.6-mini",
            "gpt-12",
        ] {
            assert!(is_reasoning(id), "{id}");
        }
        for id in ["gpt-4o", "gpt-4.1", "gpt-5-chat-latest", "llama-3", "omni"] {
            assert!(!is_reasoning(id), "{id}");
        }
    }

    #[test]
    fn the_size_of_a_model_is_known_by_the_longest_prefix() {
        let sizes = [
            "gpt-4-0613",
            "gpt-4o-mini",
            "gpt-5-mini",
            "o1-mini",
            "o4-mini",
            "omni",
            "llama-3",
        ];

        assert_eq!(
            sizes.map(max_input_tokens),
            [
                Some(8_192),
                Some(128_000),
                Some(272_000),
                Some(128_000),
                Some(200_000),
                None,
                None
            ]
        );
    }

    #[test]
    fn models_are_recognised_by_name() {
        assert_eq!(Kind::of("openai/text-embedding-3-small"), Kind::Embedding);
        assert_eq!(Kind::of("gpt-4o-transcribe"), Kind::Other);
        assert_eq!(Kind::of("anything"), Kind::Chat);
    }

    #[test]
    fn mistral_gets_the_ids_it_wants_and_others_what_there_is() {
        let id = Dialect::Mistral.call_id("call_0123456789");

        assert_eq!(id.len(), 9);
        assert_eq!(Dialect::Mistral.call_id("call_0123456789"), id);
        assert_ne!(Dialect::Mistral.call_id("call_0123456780"), id);
        assert_eq!(Dialect::Mistral.call_id("abcdefgh1"), "abcdefgh1");
        assert_eq!(Dialect::Generic.call_id("call_1"), "call_1");
    }

    #[test]
    fn a_server_is_known_by_its_host() {
        assert_eq!(Dialect::of("https://api.openai.com/v1"), Dialect::OpenAi);
        assert_eq!(
            Dialect::of("https://me.openai.azure.com/openai/v1"),
            Dialect::Azure
        );
        assert_eq!(Dialect::of("https://api.mistral.ai/v1"), Dialect::Mistral);
        assert_eq!(
            Dialect::of("http://localhost:8080/api.openai.com"),
            Dialect::Generic
        );
    }
}
