//! Resources: content behind a URI, inserted into a conversation where a message links to it.

mod expansion;
mod template;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, DynAction, Error, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use self::expansion::expand_resources;
use self::template::Template;
use crate::primitive::run;
use crate::{Content, JsonObject, Part};

/// A request for a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceInput {
    /// The URI.
    pub uri: String,
    /// The values of the template's variables in the URI.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// The content of a resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceOutput {
    /// The parts that replace the link.
    pub content: Vec<Part>,
}

type ResourceAction = Action<ResourceInput, ResourceOutput>;

/// Content behind one URI, or behind all URIs of a template. Cloning is cheap.
///
/// ```
/// use everturn_ai::{Resource, define_resource};
/// use everturn_core::{Registry, Result};
///
/// # fn main() -> Result<()> {
/// let registry = Registry::new();
/// let recipes = Resource::template("recipe://{dish}", |input| async move {
///     Ok(format!("How to cook {}.", input.variables["dish"]))
/// })?;
/// define_resource(&registry, &recipes)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Resource {
    pattern: Arc<Pattern>,
    action: Arc<dyn DynAction>,
}

enum Pattern {
    Uri(String),
    Template(Template),
}

impl Resource {
    /// Creates the resource with exactly this URI.
    pub fn new<F, Fut, C>(uri: impl Into<String>, function: F) -> Self
    where
        F: Fn(ResourceInput) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<C>> + Send + 'static,
        C: Into<Content>,
    {
        let uri = uri.into();
        Self::build(&uri, Pattern::Uri(uri.clone()), function)
    }

    /// Creates a resource for all URIs that match a template such as `recipe://{dish}`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the template has anything but plain `{name}` expressions.
    pub fn template<F, Fut, C>(template: &str, function: F) -> Result<Self>
    where
        F: Fn(ResourceInput) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<C>> + Send + 'static,
        C: Into<Content>,
    {
        Ok(Self::build(
            template,
            Pattern::Template(Template::parse(template)?),
            function,
        ))
    }

    fn build<F, Fut, C>(name: &str, pattern: Pattern, function: F) -> Self
    where
        F: Fn(ResourceInput) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<C>> + Send + 'static,
        C: Into<Content>,
    {
        let function = Arc::new(function);
        let action: ResourceAction = Action::new(ActionType::RESOURCE, name, move |input, _context| {
            let function = Arc::clone(&function);
            async move {
                Ok(ResourceOutput {
                    content: function(input).await?.into().into_parts(),
                })
            }
        });
        let metadata = JsonObject::from_iter([
            ("type".to_owned(), json!("resource")),
            (
                "resource".to_owned(),
                json!({ "uri": pattern.uri(), "template": pattern.template() }),
            ),
        ]);
        Self {
            pattern: Arc::new(pattern),
            action: Arc::new(action.with_metadata(metadata)),
        }
    }

    /// Returns the resource behind a registered action; `None` if the action does not declare its URIs.
    pub fn from_action(action: Arc<dyn DynAction>) -> Option<Self> {
        let entry = action.descriptor().metadata.get("resource")?;
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let pattern = match (text("uri"), text("template")) {
            (Some(uri), _) => Pattern::Uri(uri.to_owned()),
            (None, Some(template)) => Pattern::Template(Template::parse(template).ok()?),
            (None, None) => return None,
        };
        Some(Self {
            pattern: Arc::new(pattern),
            action,
        })
    }

    /// Returns the resource's name: its URI or template, unless the action declares another one.
    pub fn name(&self) -> &str {
        &self.action.descriptor().name
    }

    /// Returns the values of the template's variables in `uri`; `None` if this resource does not serve it.
    pub fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        match &*self.pattern {
            Pattern::Uri(own) => (own == uri).then(BTreeMap::new),
            Pattern::Template(template) => template.matches(uri),
        }
    }

    async fn read(&self, input: ResourceInput, context: Context) -> Result<Vec<Part>> {
        let output: ResourceOutput = run(Arc::clone(&self.action), input, context).await?;
        Ok(output.content)
    }

    /// Returns the origin that the parts of the content record.
    fn provenance(&self, uri: &str) -> Value {
        match self.pattern.template() {
            Some(template) => json!({ "uri": uri, "template": template }),
            None => json!({ "uri": uri }),
        }
    }
}

impl Pattern {
    fn uri(&self) -> Option<&str> {
        match self {
            Self::Uri(uri) => Some(uri),
            Self::Template(_) => None,
        }
    }

    fn template(&self) -> Option<&str> {
        match self {
            Self::Uri(_) => None,
            Self::Template(template) => Some(template.as_str()),
        }
    }
}

everturn_core::opaque_debug!(Resource, action);

/// Registers a resource, so that every generation finds it.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a resource of that name.
pub fn define_resource(registry: &Registry, resource: &Resource) -> Result<()> {
    registry.register(Arc::clone(&resource.action))
}

/// Looks up the registered resource with that name or key.
pub(crate) async fn lookup_resource(registry: &Registry, name: &str) -> Result<Resource> {
    let key = if name.starts_with('/') {
        name.to_owned()
    } else {
        ActionType::RESOURCE.key(name)
    };
    let action = registry.lookup(&key).await?;
    action.and_then(Resource::from_action).ok_or_else(|| {
        Error::not_found(format!("no resource '{name}' is registered"))
            .with_reason(crate::reason::RESOURCE_NOT_FOUND)
    })
}
