//! The state of a session: its messages, its custom state and its artifacts.

use std::marker::PhantomData;
use std::sync::Arc;

use everturn_ai::{History, JsonObject};
use everturn_core::{Error, Reason, Result};
use everturn_macros::wire;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};

use crate::{Artifact, SessionId};

/// The stored custom state of a session is not of the agent's type: `FAILED_PRECONDITION`. The stored state
/// is unchanged.
pub const STATE_UNREADABLE: Reason = Reason::new("state-unreadable");

/// Marks the types of an agent: its custom state, its status and its output.
pub(crate) type AgentTypes<S, T, O> = PhantomData<fn() -> (S, T, O)>;

/// A type that can be an agent's custom state. It is implemented for all plain data with a default.
pub trait CustomState:
    Serialize + DeserializeOwned + JsonSchema + Default + Clone + Send + Sync + 'static
{
}

impl<T: Serialize + DeserializeOwned + JsonSchema + Default + Clone + Send + Sync + 'static> CustomState
    for T
{
}

/// Decodes the custom state; an absent or null one is the default.
///
/// A state from before a field was added to the type lacks that field, which is then taken from the type's
/// default.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the field at fault if the state still is not an `S`.
pub(crate) fn decode_custom<S: CustomState>(custom: Option<&Value>) -> Result<S> {
    let custom = match custom {
        None | Some(Value::Null) => return Ok(S::default()),
        Some(custom) => custom,
    };
    S::deserialize(custom)
        .or_else(|_| {
            let default = serde_json::to_value(S::default())?;
            // Fields that the type reads under another name are not missing, so only the fields that it
            // requires are filled. Types that do not name them get all: an object inside may be another
            // variant than the default's, so objects inside are filled last.
            with_missing_fields(custom, &default)
                .or_else(|_| S::deserialize(filled(custom, &default, false)))
                .or_else(|_| S::deserialize(filled(custom, &default, true)))
        })
        .or_else(|_| serde_path_to_error::deserialize(custom).map_err(|error| unfit(&error)))
}

/// Decodes a state after adding each field that the type reports as missing, from the same place of the
/// default.
fn with_missing_fields<S: CustomState>(custom: &Value, default: &Value) -> serde_json::Result<S> {
    let mut filled = custom.clone();
    loop {
        let error: serde_path_to_error::Error<serde_json::Error> =
            match serde_path_to_error::deserialize(&filled) {
                Ok(decoded) => return Ok(decoded),
                Err(error) => error,
            };
        let text = error.inner().to_string();
        let field = text
            .strip_prefix("missing field `")
            .and_then(|rest| rest.split('`').next());
        let place = pointer(error.path());
        let added = field.zip(place).and_then(|(field, place)| {
            let value = default.pointer(&place)?.get(field)?;
            let members = filled.pointer_mut(&place)?.as_object_mut()?;
            // A field reported as missing although it is present would be added forever.
            members
                .insert(field.to_owned(), value.clone())
                .is_none()
                .then_some(())
        });
        if added.is_none() {
            return Err(error.into_inner());
        }
    }
}

/// Returns the JSON pointer of a path; `None` where the path is not known.
fn pointer(path: &Path) -> Option<String> {
    path.iter()
        .try_fold(String::new(), |pointer, segment| match segment {
            Segment::Seq { index } => Some(format!("{pointer}/{index}")),
            Segment::Map { key } => Some(format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
}

/// Returns an object with the fields of the default that it lacks, `deep` also those of the objects inside.
fn filled(custom: &Value, default: &Value, deep: bool) -> Value {
    let (Value::Object(custom), Value::Object(default)) = (custom, default) else {
        return custom.clone();
    };
    let mut filled = custom.clone();
    for (name, value) in default {
        match filled.get_mut(name) {
            None => {
                filled.insert(name.clone(), value.clone());
            }
            Some(present) if deep => *present = self::filled(present, value, deep),
            Some(_) => {}
        }
    }
    filled.into()
}

fn unfit(error: &serde_path_to_error::Error<serde_json::Error>) -> Error {
    Error::invalid_argument(format!(
        "the custom state does not fit the agent: field '{}': {}; let the type read it, or give the session a state that fits",
        error.path(),
        error.inner()
    ))
}

/// Converts the error of a custom state that does not fit into that of a stored one, of the type named.
/// Clients read nothing of its content.
pub(crate) fn unreadable(error: &Error, custom_type: &str) -> Error {
    Error::failed_precondition(format!(
        "the stored custom state is no {custom_type}, and is unchanged: {}",
        without_quotation(error.message())
    ))
    .with_reason(STATE_UNREADABLE)
    .with_public_message(
        "this version of the agent cannot read the stored state of the session, which is unchanged",
    )
    .with_details(json!({"reason": STATE_UNREADABLE.name()}))
}

/// Returns the message without the stored text that it quotes, which does not belong into a log.
fn without_quotation(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) if from < to => format!("{}…{}", &message[..=from], &message[to..]),
        _ => message.to_owned(),
    }
}

/// The state of a session at one moment.
///
/// A clone shares its content with the original: the messages are a position in a shared history, and the
/// rest is behind shared pointers. On the wire it is a plain object; unknown fields survive.
#[wire]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SessionState {
    /// The session's id.
    pub session_id: Option<SessionId>,
    /// The messages.
    #[serde(default)]
    pub messages: History,
    /// The custom state; absent is `null`.
    #[schemars(with = "Option<Value>")]
    pub custom: Option<Arc<Value>>,
    /// The artifacts.
    #[serde(default, skip_serializing_if = "no_artifacts")]
    #[schemars(with = "Vec<Artifact>")]
    pub artifacts: Arc<Vec<Artifact>>,
    /// The prompt input of the whole conversation.
    #[schemars(with = "Option<Value>")]
    pub prompt_input: Option<Arc<Value>>,
    /// Fields of other versions.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl SessionState {
    /// Creates the state of an empty session.
    pub(crate) fn beginning(session: &SessionId) -> Self {
        Self {
            session_id: Some(session.clone()),
            ..Self::default()
        }
    }

    /// Returns the custom state as its type; the default if there is none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the custom state is not an `S`.
    pub fn custom_as<S: CustomState>(&self) -> Result<S> {
        decode_custom(self.custom.as_deref())
    }

    /// Returns the state with another custom state.
    ///
    /// # Errors
    /// `INTERNAL` if the custom state cannot be written as JSON.
    pub fn with_custom(self, custom: &impl Serialize) -> Result<Self> {
        Ok(Self {
            custom: Some(Arc::new(serde_json::to_value(custom)?)),
            ..self
        })
    }

    /// Returns whether the state equals an earlier one. Shared content is not compared.
    pub(crate) fn is_unchanged_since(&self, earlier: &Self) -> bool {
        fn same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
            Arc::ptr_eq(one, other) || one == other
        }
        fn both<T: PartialEq>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => same(one, other),
                (one, other) => one.is_none() && other.is_none(),
            }
        }
        self.session_id == earlier.session_id
            && self.messages == earlier.messages
            && both(self.custom.as_ref(), earlier.custom.as_ref())
            && same(&self.artifacts, &earlier.artifacts)
            && both(self.prompt_input.as_ref(), earlier.prompt_input.as_ref())
            && self.extra == earlier.extra
    }
}

fn no_artifacts(artifacts: &Arc<Vec<Artifact>>) -> bool {
    artifacts.is_empty()
}
