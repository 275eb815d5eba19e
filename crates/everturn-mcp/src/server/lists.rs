//! The lists of a server, and their changes.

use everturn_core::RegistryChanges;
use rmcp::model::{NotificationNoParam, Prompt, Resource, ResourceTemplate, ServerNotification, Tool};

use super::{Exposed, prompts, resources, tools};

/// The lists that a client has read.
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
    /// The notification of a change of the list.
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
    /// Returns the current lists.
    pub(super) fn new(exposed: &Exposed) -> Self {
        Self {
            // Taken before the lists are read, so that no change is missed.
            changes: exposed.registry.changes(),
            tools: tools::list(exposed),
            prompts: prompts::list(exposed),
            resources: resources::all(exposed),
        }
    }

    /// Waits until lists have changed, and returns which. Many registered actions are on no list.
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

/// Replaces a list. Returns whether it has changed.
fn replace<T: PartialEq>(known: &mut T, current: T) -> bool {
    let is_other = *known != current;
    *known = current;
    is_other
}
