//! The harness has every agent of the cases, and the agents for Everturn's additions.

use everturn_agent::store::MemoryStore;
use testbed::{ProgrammableModel, harness};

#[test]
fn every_agreed_agent_is_there_and_registered() {
    let harness = harness(MemoryStore::new()).unwrap();

    let names: Vec<&str> = harness.names().collect();

    assert_eq!(
        names,
        [
            "customAgentBlocking",
            "customAgentFailing",
            "customAgentWithArtifacts",
            "customAgentWithArtifactsStore",
            "customAgentWithCustomState",
            "customAgentWithCustomStateStore",
            "customAgentWithMultiCustomState",
            "echoAgent",
            "extendedAgent",
            "extendedAgentWithStore",
            "extendedPromptAgent",
            "promptAgent",
            "promptAgentInline",
            "promptAgentOpenToClients",
            "promptAgentWithApproval",
            "promptAgentWithInterrupt",
            "promptAgentWithRestartTool",
            "promptAgentWithState",
            "promptAgentWithStore",
            "promptAgentWithTools",
        ]
    );
    for name in names {
        assert!(
            harness.registry().get(&format!("/agent/{name}")).is_some(),
            "{name} is not registered"
        );
    }
    assert!(
        harness
            .registry()
            .get(&format!("/model/{}", ProgrammableModel::NAME))
            .is_some()
    );
}
