//! The boundary of an action, where JSON is measured, validated and decoded on the way in, and encoded and
//! validated on the way out.
//!
//! This module is written for hostile input: nothing recurses before the depth is known, messages and details
//! stay small for any value, the JSON pointer of an invalid value is reported, and heavy values leave the
//! runtime's threads.

use std::fmt;
use std::sync::Arc;

use futures::{FutureExt, future};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::offload::{is_heavy, is_heavy_to_serialize, offload};
use crate::schema::{Size, Untrusted, Violation, dismantle};
use crate::{Descriptor, Error, Reason, Result, Schema};

/// The role in which a value enters an action.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entrance {
    Input,
    Init,
}

impl Entrance {
    fn schema(self, descriptor: &Descriptor) -> Option<&Schema> {
        match self {
            Self::Input => descriptor.input_schema.as_ref(),
            Self::Init => descriptor.init_schema.as_ref(),
        }
    }

    fn refuse(self, descriptor: &Descriptor, error: Error) -> Error {
        let name = match self {
            Self::Input => "input",
            Self::Init => "init",
        };
        error
            .context(format_args!("invalid {name} for '{}'", descriptor.key))
            .with_reason(Reason::INVALID_INPUT)
            .with_source(RefusedBy(descriptor.key.clone()))
    }
}

/// The source of an error about an invalid input; names the action that rejected it.
///
/// Only the sender of an input may see its violations. A transport compares this key with that of the action
/// it called: if they differ, other code sent the input, and the transport's caller must not see the details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBy(String);

impl RefusedBy {
    /// Returns the key of the action.
    pub fn key(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RefusedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused by '{}'", self.0)
    }
}

impl std::error::Error for RefusedBy {}

/// A value from outside whose depth is bounded, so that it may be walked, cloned and printed recursively.
pub(crate) struct Admitted {
    value: Value,
    size: Size,
    is_heavy: bool,
    entrance: Entrance,
    descriptor: Arc<Descriptor>,
}

impl Admitted {
    /// Admits a value unless it is nested too deeply; a refused value is dropped without recursion.
    pub(crate) fn admit(
        descriptor: &Arc<Descriptor>,
        entrance: Entrance,
        value: Value,
    ) -> impl Future<Output = Result<Self>> + use<> {
        let descriptor = Arc::clone(descriptor);
        let is_heavy = is_heavy(&value);
        let value = Untrusted::new(value);
        offload_if(is_heavy, move || {
            Self::new(descriptor, entrance, value.into_value(), is_heavy)
        })
    }

    /// Like [`Admitted::admit`], on this thread.
    pub(crate) fn admit_now(descriptor: &Arc<Descriptor>, entrance: Entrance, value: Value) -> Result<Self> {
        Self::new(Arc::clone(descriptor), entrance, value, false)
    }

    fn new(descriptor: Arc<Descriptor>, entrance: Entrance, value: Value, is_heavy: bool) -> Result<Self> {
        match Size::of(&value) {
            Ok(size) => Ok(Self {
                value,
                size,
                is_heavy,
                entrance,
                descriptor,
            }),
            Err(error) => {
                dismantle(value);
                Err(entrance.refuse(&descriptor, error))
            }
        }
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Validates and decodes the value.
    pub(crate) fn decode<T: DeserializeOwned + Send + 'static>(self) -> impl Future<Output = Result<T>> {
        offload_if(self.is_heavy, move || self.decode_now())
    }

    /// Like [`Admitted::decode`], on this thread.
    pub(crate) fn decode_now<T: DeserializeOwned>(self) -> Result<T> {
        let Self {
            value,
            size,
            entrance,
            descriptor,
            ..
        } = self;
        let valid = entrance
            .schema(&descriptor)
            .map_or(Ok(()), |schema| schema.check(&value, size));
        valid
            .and_then(|()| serde_path_to_error::deserialize(value).map_err(|error| undecodable(&error)))
            .map_err(|error| entrance.refuse(&descriptor, error))
    }
}

/// Creates the error for a value that matches the schema and still does not decode to the type.
fn undecodable(error: &serde_path_to_error::Error<serde_json::Error>) -> Error {
    let segments = error.path().iter().map(|segment| match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key: name } | Segment::Enum { variant: name } => {
            format!("/{}", name.replace('~', "~0").replace('/', "~1"))
        }
        Segment::Unknown => String::new(),
    });
    let pointer = segments.collect();
    Violation::error([Violation::new(pointer, error.inner().to_string())])
}

/// Encodes and validates an action's output.
pub(crate) fn encode<T: Serialize + Send + 'static>(
    descriptor: &Arc<Descriptor>,
    output: T,
) -> impl Future<Output = Result<Value>> + use<T> {
    let descriptor = Arc::clone(descriptor);
    let is_heavy = is_heavy_to_serialize(&output);
    offload_if(is_heavy, move || encode_now(&descriptor, &output))
}

/// Does the work at once or, if it is heavy, on a thread that may block.
///
/// The future does not store the work itself, which is seldom heavy.
fn offload_if<T: Send + 'static>(
    is_heavy: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> impl Future<Output = Result<T>> {
    if is_heavy {
        offload(work).boxed().left_future()
    } else {
        future::ready(work()).right_future()
    }
}

fn encode_now(descriptor: &Descriptor, output: &impl Serialize) -> Result<Value> {
    let invalid = |error: Error| {
        Error::internal(format!("invalid output of '{}': {error}", descriptor.key))
            .with_reason(Reason::INVALID_OUTPUT)
    };
    let value = serde_json::to_value(output).map_err(|error| invalid(error.into()))?;
    if let Some(schema) = &descriptor.output_schema {
        schema.validate(&value).map_err(invalid)?;
    }
    Ok(value)
}
