//! Choosing the model: the requested one, else the first that the environment configures, else the offline
//! model.

use std::fmt;
use std::time::Duration;

use everturn::core::Plugin;
use everturn::models::{Anthropic, Gemini, Ollama, OpenAi};
use everturn::prelude::{Price, Prices};
use everturn::{Error, EverturnBuilder, Result};

use crate::demo_model::DemoModel;

/// The name of the offline model, which needs neither a key nor a network.
pub(crate) const OFFLINE: &str = "offline";

/// The variable that names a model, like `--model`.
const MODEL_VARIABLE: &str = "EVERTURN_MODEL";

/// A provider of models, and the variables that configure it.
enum Provider {
    OpenAi(OpenAi),
    Anthropic(Anthropic),
    Gemini(Gemini),
    Ollama(Ollama),
}

/// The providers in order of preference, each with the variables that configure it.
const VARIABLES: [(&str, &[&str]); 4] = [
    ("openai", &["OPENAI_API_KEY", "OPENAI_BASE_URL"]),
    (
        "anthropic",
        &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"],
    ),
    (
        "gemini",
        &[
            "GEMINI_API_KEY",
            "GOOGLE_API_KEY",
            "GOOGLE_GENAI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
        ],
    ),
    ("ollama", &["OLLAMA_HOST"]),
];

impl Provider {
    fn named(name: &str) -> Option<Self> {
        match name {
            "openai" => Some(Self::OpenAi(OpenAi::from_env())),
            "anthropic" => Some(Self::Anthropic(Anthropic::from_env())),
            "gemini" => Some(Self::Gemini(Gemini::from_env())),
            "ollama" => Some(Self::Ollama(Ollama::from_env())),
            _ => None,
        }
    }

    fn plugin(&self) -> &dyn Plugin {
        match self {
            Self::OpenAi(plugin) => plugin,
            Self::Anthropic(plugin) => plugin,
            Self::Gemini(plugin) => plugin,
            Self::Ollama(plugin) => plugin,
        }
    }

    fn add_to(self, app: EverturnBuilder) -> EverturnBuilder {
        match self {
            Self::OpenAi(plugin) => app.plugin(plugin),
            Self::Anthropic(plugin) => app.plugin(plugin),
            Self::Gemini(plugin) => app.plugin(plugin),
            Self::Ollama(plugin) => app.plugin(plugin),
        }
    }

    /// Returns the initial model: the provider's default at its own address, the first listed one at another.
    async fn usual_model(&self) -> Result<String> {
        let (usual, base_url) = match self {
            Self::OpenAi(_) => (OpenAi::DEFAULT_MODEL, "OPENAI_BASE_URL"),
            Self::Anthropic(_) => (Anthropic::DEFAULT_MODEL, "ANTHROPIC_BASE_URL"),
            Self::Gemini(_) => (Gemini::DEFAULT_MODEL, "GOOGLE_GEMINI_BASE_URL"),
            Self::Ollama(_) => ("", "OLLAMA_HOST"),
        };
        let name = self.plugin().name();
        if !usual.is_empty() && variable(base_url).is_none() {
            return Ok(format!("{name}/{usual}"));
        }
        let listed = match self {
            Self::OpenAi(plugin) => plugin.chat_models().await,
            Self::Anthropic(plugin) => plugin.chat_models().await,
            Self::Gemini(plugin) => plugin.chat_models().await,
            Self::Ollama(plugin) => plugin.chat_models().await,
        };
        let advice = format!("no model to begin with; name one with --model {name}/NAME");
        let listed = listed.map_err(|error| error.context(&advice))?;
        match listed.first() {
            Some(first) => Ok(format!("{name}/{first}")),
            None => Err(Error::not_found(format!("{name} lists {advice}"))),
        }
    }
}

/// The chosen model and the configured providers.
pub(crate) struct Choice {
    name: String,
    providers: Vec<Provider>,
}

impl Choice {
    /// Chooses the requested model, or else the first that the environment configures.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown provider; the error of the provider that lists the models.
    pub(crate) async fn make(wanted: Option<String>) -> Result<Self> {
        let is_there = |(_, names): &&(&str, &[&str])| names.iter().any(|name| variable(name).is_some());
        let mut providers: Vec<Provider> = VARIABLES
            .iter()
            .filter(is_there)
            .filter_map(|(name, _)| Provider::named(name))
            .filter(|provider| provider.plugin().check().is_ok())
            .collect();
        let name = match wanted.or_else(|| variable(MODEL_VARIABLE)) {
            Some(wanted) => wanted,
            None => match providers.first() {
                Some(first) => first.usual_model().await?,
                None => OFFLINE.to_owned(),
            },
        };
        let provider = name.split_once('/').map(|(provider, _)| provider);
        let is_known = |wanted: &str| {
            providers
                .iter()
                .any(|provider| provider.plugin().name() == wanted)
        };
        match provider {
            // A provider requested by name may need no variables; otherwise its own error names the missing
            // one.
            Some(wanted) if !is_known(wanted) => {
                let added = Provider::named(wanted).ok_or_else(|| unknown(&name))?;
                added.plugin().check()?;
                providers.push(added);
            }
            None if name != OFFLINE => return Err(unknown(&name)),
            _ => {}
        }
        Ok(Self { name, providers })
    }

    /// Adds the providers and the default model to an application.
    pub(crate) fn add_to(self, app: EverturnBuilder, pace: Duration) -> EverturnBuilder {
        let name = self.name.clone();
        let app = self
            .providers
            .into_iter()
            .fold(app, |app, provider| provider.add_to(app));
        app.model(OFFLINE, DemoModel::new(pace))
            .default_model(name)
            .prices(prices())
    }
}

/// Returns example prices of the default models in dollars, so that the page shows costs. Check your
/// provider's price list.
fn prices() -> Prices {
    Prices::new()
        .model("openai/gpt-5-mini", Price::per_million(0.25, 2.00).cached(0.025))
        .model(
            "anthropic/claude-sonnet-*",
            Price::per_million(3.00, 15.00).cached(0.30),
        )
        .model(
            "gemini/gemini-2.5-flash",
            Price::per_million(0.30, 2.50).cached(0.03),
        )
}

fn unknown(name: &str) -> Error {
    Error::invalid_argument(format!(
        "'{name}' is no model: write openai/NAME, anthropic/NAME, gemini/NAME, ollama/NAME or {OFFLINE}"
    ))
}

/// Returns the value of a variable, unless it is unset or blank.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    let trimmed = value.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// Describes the model for people.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name == OFFLINE {
            f.write_str("The model is a handful of rules")?;
        } else {
            write!(f, "The model is {}", self.name)?;
        }
        let others: Vec<String> = self
            .providers
            .iter()
            .map(|provider| provider.plugin().name())
            .filter(|name| self.name.split('/').next() != Some(name))
            .map(|name| format!("{name}/NAME"))
            .collect();
        if others.is_empty() {
            f.write_str(".")
        } else {
            write!(f, "; --model {} would do as well.", others.join(" or --model "))
        }
    }
}
