//! Tool definitions for models and registrations of tools. In the registry an action under `/tool/` returns
//! the tool's output, and one under `/tool.v2/` the whole response.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use everturn_core::{ActionType, Descriptor, DynAction, Error, JsonCall, Registry, Result, Schema, downcast};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{AnswerForm, Tool, ToolContext};
use crate::{JsonObject, MultipartToolResponse, Replay, ToolDefinition, reason};

static ENVELOPE: LazyLock<Schema> = LazyLock::new(Schema::of::<MultipartToolResponse>);

impl Tool {
    /// Returns the tool's definition for a model: a short name, its description and its schemas.
    pub fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.short_name().to_owned(),
            description: self.description().to_owned(),
            input_schema: Some(shown(self.input_schema())),
            output_schema: Some(shown(self.output_schema())),
            key: Some(self.key()),
            metadata: self.definition_metadata(),
        }
    }

    /// Returns the registry key of the tool.
    pub fn key(&self) -> String {
        self.0
            .key
            .clone()
            .unwrap_or_else(|| self.action_type().key(self.name()))
    }

    fn definition_metadata(&self) -> Option<JsonObject> {
        let mut metadata = JsonObject::new();
        if self.short_name() != self.name() {
            metadata.insert("originalName".to_owned(), self.name().into());
        }
        if self.0.strict {
            metadata.insert("strict".to_owned(), true.into());
        }
        (!metadata.is_empty()).then_some(metadata)
    }
}

/// Returns the schema in the form that clients expect: a tool without one shows the empty schema.
fn shown(schema: Option<&Schema>) -> Value {
    schema.map_or_else(
        || json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
        |schema| schema.as_json().clone(),
    )
}

/// One of the two registrations of a tool.
struct ToolAction {
    tool: Tool,
    descriptor: Descriptor,
}

impl Tool {
    /// Registers the tool, so that requests, prompts and developer tools find it by name.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a tool of that name.
    pub fn register(&self, registry: &Registry) -> Result<()> {
        self.actions()
            .into_iter()
            .try_for_each(|action| registry.register(action))
    }

    /// Returns the actions under which the tool is registered, for plugins that provide tools.
    pub fn actions(&self) -> Vec<Arc<dyn DynAction>> {
        let both = [ActionType::TOOL, ActionType::TOOL_V2];
        // A multipart response does not fit the first form.
        let forms = if self.is_multipart() { &both[1..] } else { &both };
        forms
            .iter()
            .map(|form| Arc::new(self.action(form)) as Arc<dyn DynAction>)
            .collect()
    }

    fn action(&self, action_type: &ActionType) -> ToolAction {
        let is_v2 = *action_type == ActionType::TOOL_V2;
        let mut descriptor = Descriptor::new(action_type.clone(), self.name());
        descriptor.description = Some(self.description().to_owned());
        descriptor.input_schema = self.input_schema().cloned();
        descriptor.output_schema = if is_v2 {
            Some(ENVELOPE.clone())
        } else {
            self.output_schema().cloned()
        };
        descriptor.metadata.clone_from(self.metadata());
        descriptor
            .metadata
            .insert("type".to_owned(), action_type.as_str().into());
        descriptor.metadata.insert("tool".to_owned(), self.traits());
        if let (true, Some(schema)) = (is_v2, self.output_schema()) {
            descriptor
                .metadata
                .insert("originalOutputSchema".to_owned(), schema.as_json().clone());
        }
        ToolAction {
            tool: self.clone(),
            descriptor,
        }
    }

    fn traits(&self) -> Value {
        let mut traits = json!({ "multipart": self.is_multipart() });
        if self.0.strict {
            traits["strict"] = true.into();
        }
        if !self.is_restartable() {
            traits["restartable"] = false.into();
        }
        if self.answer_form() != AnswerForm::Any {
            traits["answer"] = json!(self.answer_form());
        }
        if let Some(decision) = self.decision_schema() {
            traits["decision"] = decision.as_json().clone();
        }
        if let Some(role) = self.0.answering.by.needed_role() {
            traits["answeredBy"] = role.into();
        }
        if let Some(is_editable) = self.editable_input() {
            traits["editable"] = is_editable.into();
        }
        if let Some(replay) = self.0.replay {
            traits["replay"] = json!(replay);
        }
        traits
    }
}

/// Returns the replay declaration in an action's metadata. A prompt only renders, so it is pure.
pub(super) fn declared_replay(action_type: &ActionType, metadata: &JsonObject) -> Option<Replay> {
    if *action_type == ActionType::PROMPT {
        return Some(Replay::Pure);
    }
    let declared = metadata.get("tool")?.get("replay")?;
    serde_json::from_value(declared.clone()).ok()
}

/// Returns the tool behind a registered action if the action was made by this crate.
pub(super) fn tool_behind(action: &Arc<dyn DynAction>) -> Option<Tool> {
    downcast::<ToolAction>(Arc::clone(action)).map(|action| action.tool.clone())
}

impl DynAction for ToolAction {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn run_json(&self, call: JsonCall) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move {
            if call.init.is_some_and(|init| !init.is_null()) {
                let message = format!(
                    "'{}' is not a bidirectional action: call it without 'init'",
                    self.descriptor.key
                );
                return Err(Error::invalid_argument(message).with_public());
            }
            let response = self
                .tool
                .run_in(call.input, ToolContext::new(call.context))
                .await?;
            if self.descriptor.action_type == ActionType::TOOL_V2 {
                return Ok(serde_json::to_value(response)?);
            }
            Ok(response.output.unwrap_or_default())
        })
    }
}

/// Looks up the tool with that name or key; a prompt counts as a tool that returns its rendered messages.
///
/// # Errors
/// `NOT_FOUND` with [`reason::TOOL_NOT_FOUND`] if there is none, or the plugin's error.
pub async fn lookup_tool(registry: &Registry, name: &str) -> Result<Tool> {
    let keys = if name.starts_with('/') {
        vec![name.to_owned()]
    } else {
        [ActionType::TOOL, ActionType::TOOL_V2, ActionType::PROMPT]
            .iter()
            .map(|kind| kind.key(name))
            .collect()
    };
    for key in &keys {
        if let Some(action) = registry.lookup(key).await? {
            return Ok(Tool::from_action(action));
        }
    }
    Err(Error::not_found(format!("no tool '{name}' is registered")).with_reason(reason::TOOL_NOT_FOUND))
}

/// Looks up all tools whose names match `pattern`, a prefix and a closing `*` such as `files/*`, sorted by
/// name.
///
/// # Errors
/// `NOT_FOUND` with [`reason::TOOL_NOT_FOUND`] if there are none, or the plugin's error.
pub async fn lookup_tools(registry: &Registry, pattern: &str) -> Result<Vec<Tool>> {
    // A plugin registers its tools when one of its names is first looked up.
    registry.lookup(&ActionType::TOOL.key(pattern)).await?;
    let prefix = pattern.strip_suffix('*').unwrap_or(pattern);
    let mut found = BTreeMap::new();
    for kind in [ActionType::TOOL_V2, ActionType::TOOL] {
        let tools = registry.of_type(&kind).into_iter();
        found.extend(tools.filter(|(name, _)| name.starts_with(prefix)));
    }
    if found.is_empty() {
        let error = Error::not_found(format!("no tool is registered whose name begins with '{prefix}'"));
        return Err(error.with_reason(reason::TOOL_NOT_FOUND));
    }
    Ok(found.into_values().map(Tool::from_action).collect())
}
