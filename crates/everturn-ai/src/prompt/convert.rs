//! Converting the messages of templates to messages of requests.

use everturn_core::{Error, Result};

use crate::{JsonObject, Media, Message, Part, Role, metadata};

pub(super) fn message(rendered: dotprompt::Message) -> Result<Message> {
    let role = match rendered.role.as_str() {
        "system" => Role::System,
        "user" => Role::User,
        "model" => Role::Model,
        "tool" => Role::Tool,
        other => {
            return Err(Error::invalid_argument(format!(
                "'{other}' is not a role: use system, user, model or tool"
            )));
        }
    };
    let parts = rendered
        .content
        .iter()
        .cloned()
        .map(part)
        .collect::<Result<Vec<_>>>()?;
    let message = Message::new(role, parts);
    Ok(match rendered.metadata {
        Some(metadata) => message.with_metadata(JsonObject::clone(&metadata)),
        None => message,
    })
}

fn part(rendered: dotprompt::Part) -> Result<Part> {
    Ok(match rendered {
        dotprompt::Part::Text(text) => Part::text(text),
        dotprompt::Part::Media(rendered) => {
            let media = Media::new(rendered.url);
            match rendered.content_type {
                Some(content_type) => media.with_content_type(content_type).into(),
                None => media.into(),
            }
        }
        dotprompt::Part::Section(name) => Part::text("")
            .with_metadata_entry(metadata::PURPOSE, name)
            .with_metadata_entry(metadata::PENDING, true),
        dotprompt::Part::Other(fields) => serde_json::from_value(fields.into())?,
    })
}
