//! The lists of a server, and what changes on them.

use everturn_core::RegistryChanges;
use rmcp::model::{NotificationNoParam, Prompt, Resource, ResourceTemplate, ServerNotification, Tool};

use super::{Exposed, prompts, resources, tools};

/// The lists as a client knows them.
pub(super) struct Lists {
    changes: RegistryChanges,
    tools: Vec<Tool>,
    prompts: Vec<Prompt>,
    resources: (Vec<Resource>, Vec<ResourceTemplate>),
}

/// One of the lists.
#[derive(Debug, Clone, Copy)]
pub(super) enum List {
    Tools,
    Prompts,
    Resources,
}

impl List {
    /// What a client is told when the list has changed.
    pub(super) fn notification(self) -> ServerNotification {
        match self {
            Self::Tools => ServerNotification::ToolListChangedNotification(NotificationNoParam::default()),
            Self::Prompts => {
                ServerNotification::PromptListChangedNotification(NotificationNoParam::default())
            }
            Self::Resources => {
                ServerNotification::ResourceListChangedNotification(NotificationNoParam::default())
            }
        }
    }
}

impl Lists {
    /// The lists as they are now.
    pub(super) fn new(exposed: &Exposed) -> Self {
        Self {
            // Before the lists are read, so that no change is missed.
            changes: exposed.registry.changes(),
            tools: tools::list(exposed),
            prompts: prompts::list(exposed),
            resources: resources::all(exposed),
        }
    }

    /// Waits until lists are others than before, and returns which. Much of what an application registers is on none.
    pub(super) async fn changed(&mut self, exposed: &Exposed) -> Vec<List> {
        loop {
            self.changes.changed().await;
            let changed = [
                (List::Tools, replace(&mut self.tools, tools::list(exposed))),
                (List::Prompts, replace(&mut self.prompts, prompts::list(exposed))),
                (
                    List::Resources,
                    replace(&mut self.resources, resources::all(exposed)),
                ),
            ];
            let changed: Vec<List> = changed
                .into_iter()
                .filter_map(|(list, is_other)| is_other.then_some(list))
                .collect();
            if !changed.is_empty() {
                return changed;
            }
        }
    }
}

/// Replaces a list, and tells whether it was another one.
fn replace<T: PartialEq>(known: &mut T, current: T) -> bool {
    let is_other = *known != current;
    *known = current;
    is_other
}
