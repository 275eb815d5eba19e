//! Where JSON enters and leaves an action: measured, validated and decoded on the way in, encoded and validated on the
//! way out.
//!
//! Everything here is written for hostile input. Nothing recurses before the depth is known, messages and details stay
//! small whatever the value, and an invalid value is named by its JSON pointer.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::schema::{Size, Violation, dismantle};
use crate::{Descriptor, Error, Reason, Result, Schema};

/// What a value enters an action as.
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

/// The cause of an error about a value that does not fit: which action it did not fit.
///
/// What is wrong with an input is for whoever sent it to know, and for nobody else: a transport finds out with this
/// whether its own caller sent it or some code on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBy(String);

impl RefusedBy {
    /// The key of the action.
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
pub(crate) struct Admitted<'a> {
    value: Value,
    size: Size,
    entrance: Entrance,
    descriptor: &'a Descriptor,
}

impl<'a> Admitted<'a> {
    /// Refuses a value that is nested too deeply, and takes it apart without recursion.
    pub(crate) fn new(descriptor: &'a Descriptor, entrance: Entrance, value: Value) -> Result<Self> {
        match Size::of(&value) {
            Ok(size) => Ok(Self {
                value,
                size,
                entrance,
                descriptor,
            }),
            Err(error) => {
                dismantle(value);
                Err(entrance.refuse(descriptor, error))
            }
        }
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Validates and decodes the value.
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Result<T> {
        let Self {
            value,
            size,
            entrance,
            descriptor,
        } = self;
        let valid = entrance
            .schema(descriptor)
            .map_or(Ok(()), |schema| schema.check(&value, size));
        valid
            .and_then(|()| serde_path_to_error::deserialize(value).map_err(|error| undecodable(&error)))
            .map_err(|error| entrance.refuse(descriptor, error))
    }
}

/// The error for a value that no schema objects to and the type still does.
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

/// Encodes and validates what an action returned.
pub(crate) fn encode<T: Serialize>(descriptor: &Descriptor, output: &T) -> Result<Value> {
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
