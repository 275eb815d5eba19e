//! Agents and flows are listed, and flows run.

use everturn::prelude::*;

use crate::support::Kitchen;

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_listed_with_their_descriptions() {
    let kitchen = Kitchen::on_a_server().await;

    let text = kitchen.program(&["agents"]).run().exits(0);
    let json = kitchen.program(&["agents", "--json"]).run().exits(0).json();

    assert!(
        text.out.contains("chef") && text.out.contains("cooks soup"),
        "{}",
        text.out
    );
    let agents = json["agents"].as_array().unwrap();
    let names: Vec<&str> = agents
        .iter()
        .map(|agent| agent["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["banker", "chef", "planner", "waiter"]);
    assert!(
        agents[1]["actions"].as_array().unwrap().contains(&json!("fork")),
        "{json}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_accepts_json_or_text_and_streams() {
    let kitchen = Kitchen::on_a_server().await;
    let result = json!({ "theme": "soup", "dishes": 3 });

    let list = kitchen.program(&["run", "--json"]).run().exits(0).json();
    let json_input = kitchen
        .program(&["run", "menu", "\"soup\"", "--json"])
        .run()
        .exits(0)
        .json();
    let text = kitchen
        .program(&["run", "menu", "--text", "soup", "--json"])
        .run()
        .exits(0)
        .json();
    let piped = kitchen
        .program(&["run", "menu", "-", "--json"])
        .input("\"soup\"")
        .run()
        .exits(0)
        .json();
    let streamed = kitchen
        .program(&["run", "menu", "--text", "soup", "--stream", "--json"])
        .run()
        .exits(0);

    assert_eq!(list["flows"][0]["name"], "menu");
    assert_eq!([&json_input, &text, &piped], [&result; 3]);
    assert_eq!(
        streamed.json_lines(),
        [json!({ "message": "soup" }), json!({ "result": result })]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_input_is_refused_with_the_way_out() {
    let kitchen = Kitchen::on_a_server().await;

    let no_json = kitchen.program(&["run", "menu", "soup"]).run().exits(2);
    let no_text = kitchen.program(&["run", "menu", "{}"]).run().exits(2);
    let unknown = kitchen.program(&["run", "dance"]).run().exits(3);

    assert!(no_json.err.contains("--text"), "{}", no_json.err);
    assert!(no_text.err.contains("string"), "{}", no_text.err);
    assert!(unknown.err.contains("menu"), "{}", unknown.err);
}
