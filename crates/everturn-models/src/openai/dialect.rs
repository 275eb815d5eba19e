//! Differences between servers.

use std::borrow::Cow;

use super::Api;

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
