#![doc = include_str!("../README.md")]
#![doc = ""]
#![doc = "# Helpers and template language"]
#![doc = include_str!("docs/helpers.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Defines builder methods that change one setting and return the builder: each block is the whole change.
macro_rules! setters {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident(mut $self:ident $(, $value:ident: $type:ty)*) $change:block
    )*) => {$(
        $(#[$attribute])*
        #[must_use]
        $visibility fn $name(mut $self $(, $value: $type)*) -> Self {
            $change;
            $self
        }
    )*};
}

mod data;
mod document;
mod dotprompt;
mod error;
mod frontmatter;
mod helper;
mod limits;
mod message;
mod metadata;
mod output;
mod picoschema;
mod position;
mod prompt;
mod resolve;
mod store;
mod template;
mod transcript;
mod whitespace;

pub use self::data::Data;
pub use self::document::ParsedPrompt;
pub use self::dotprompt::Dotprompt;
pub use self::error::{Error, ErrorKind, Location};
pub use self::helper::{Fragment, Helper, HelperCall, HelperError, HelperOutput};
pub use self::limits::{Limit, Limits};
pub use self::message::{Media, Message, Part, Role};
pub use self::metadata::Metadata;
pub use self::picoschema::picoschema;
pub use self::prompt::{Prompt, Rendered};
pub use self::resolve::{ResolveError, ToolDefinition};
pub use self::store::{DirStore, PromptRef, PromptStore, StoreError, StoreErrorKind, StoredPrompt};
pub use self::transcript::{Piece, Placement};

// Its `Value` appears in public signatures.
pub use serde_json;
