//! Values given to the application, and the caller, as arguments of tools, turn loops and flows.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

/// Orders by customer.
#[derive(Debug)]
struct Orders(Vec<(&'static str, &'static str)>);

impl Orders {
    fn of(&self, customer: &str) -> Vec<String> {
        let own = self.0.iter().filter(|(owner, _)| *owner == customer);
        own.map(|(_, order)| (*order).to_owned()).collect()
    }
}

fn orders() -> Orders {
    Orders(vec![("alice", "leeks"), ("bob", "butter")])
}

/// Lists the caller's orders.
#[tool]
async fn list_orders(db: Dep<Orders>, caller: &Principal) -> Result<Vec<String>> {
    Ok(db.of(caller.id()))
}

/// Returns the caller, if there is one.
#[tool]
async fn whoami(caller: Option<Principal>, prices: Option<Dep<u64>>) -> Result<String> {
    let caller = caller.map_or_else(|| "nobody".to_owned(), |caller| caller.id().to_owned());
    Ok(format!("{caller} {}", prices.map_or(0, |prices| *prices)))
}

async fn app(model: &ScriptedModel) -> Everturn {
    let app = Everturn::builder().with(orders());
    let app = app.model("scripted", model.clone()).default_model("scripted");
    app.build().await.unwrap()
}

fn answer_of(model: &ScriptedModel, call: usize) -> Value {
    let requests = model.requests();
    let last = requests[call].messages.last().unwrap();
    let response = last.content().iter().find_map(|part| part.as_tool_response());
    response.unwrap().output.clone().unwrap()
}

#[tokio::test]
async fn a_tool_receives_the_database_of_the_application_and_the_caller() {
    let model = ScriptedModel::new()
        .reply(Reply::tool("list_orders", json!({})))
        .reply("Leeks.");
    let app = app(&model).await;
    let desk = app.agent("desk").tool(list_orders).define().unwrap();

    let alice = Principal::new("alice");
    desk.chat().context(&alice).run("My orders?").await.unwrap();

    assert_eq!(answer_of(&model, 1), json!(["leeks"]));
    let shown = list_orders.tool().definition().input_schema.unwrap().to_string();
    assert!(!shown.contains("db") && !shown.contains("caller"), "{shown}");
}

#[tokio::test]
async fn a_tool_fails_without_a_caller_unless_it_is_optional() {
    let model = ScriptedModel::new()
        .reply(Reply::tool("list_orders", json!({})))
        .reply(Reply::tool("whoami", json!({})))
        .reply("Who are you?");
    let app = app(&model).await;
    let desk = app.agent("desk").tool(list_orders).tool(whoami).define().unwrap();

    desk.run_text("My orders?").await.unwrap();

    let refused = answer_of(&model, 1).to_string();
    assert!(refused.contains("needs an identified caller"), "{refused}");
    assert_eq!(answer_of(&model, 2), json!("nobody 0"));
}

#[tokio::test]
async fn flows_and_turn_loops_take_them_too() {
    let app = app(&ScriptedModel::new()).await;
    let list = app
        .flow("list", |(): (), db: Dep<Orders>, caller: Principal| async move {
            Ok(db.of(caller.id()))
        })
        .unwrap();
    let words = app
        .streaming_flow(
            "words",
            |(): (), out: Emitter<String>, db: Dep<Orders>| async move {
                for (_, order) in &db.0 {
                    out.send((*order).to_owned()).await?;
                }
                Ok(db.0.len())
            },
        )
        .unwrap();
    let desk = app
        .custom_agent(
            "desk",
            |session: AgentSession, db: Dep<Orders>, caller: Principal| async move {
                let found = db.of(caller.id()).join(", ");
                session
                    .run(|turn| {
                        turn.add_message(Message::model(found.clone()));
                        async { Ok(()) }
                    })
                    .await?;
                Ok(session.result())
            },
        )
        .define()
        .unwrap();
    let bob = Principal::new("bob");

    assert_eq!(bob.context().scope(list.run(())).await.unwrap(), ["butter"]);
    assert_eq!(words.run(()).await.unwrap(), 2);
    let reply = desk.chat().context(&bob).run("My orders?").await.unwrap();
    assert_eq!(reply.text(), "butter");
    let anonymous = list.run(()).await.unwrap_err();
    assert_eq!(anonymous.status(), Status::Unauthenticated);
}

#[tokio::test]
async fn code_without_arguments_finds_them_in_its_context() {
    let app = app(&ScriptedModel::new()).await;
    let count = app
        .flow("count", |(): ()| async {
            let orders = Context::current().dep::<Orders>()?;
            Ok(orders.0.len())
        })
        .unwrap();

    assert_eq!(count.run(()).await.unwrap(), 2);
    let outside = Context::new().dep::<Orders>().unwrap_err();
    assert_eq!(outside.status(), Status::FailedPrecondition);
}

#[tokio::test]
async fn a_missing_value_is_an_error_when_the_agent_or_flow_is_defined() {
    let app = Everturn::builder()
        .model("scripted", ScriptedModel::new())
        .tool(list_orders)
        .build()
        .await
        .unwrap();

    let given = app.agent("given").tool(list_orders).define().unwrap_err();
    let named = app.agent("named").tool("list_orders").define().unwrap_err();
    let looped = app
        .custom_agent("looped", |session: AgentSession, _db: Dep<Orders>| async move {
            Ok(session.result())
        })
        .define()
        .unwrap_err();
    let flow = app
        .flow("flow", |(): (), _db: Dep<Orders>| async { Ok(()) })
        .unwrap_err();

    for (error, name) in [
        (given, "tool 'list_orders' of agent 'given'"),
        (named, "tool 'list_orders' of agent 'named'"),
        (looped, "agent 'looped'"),
        (flow, "flow 'flow'"),
    ] {
        assert_eq!(error.status(), Status::FailedPrecondition);
        let message = error.message();
        assert!(message.contains(name), "{message}");
        assert!(message.contains("Orders"), "{message}");
        assert!(message.contains(".with("), "{message}");
    }
}

#[tokio::test]
async fn a_value_that_each_call_brings_is_declared_and_hides_the_applications() {
    let app = Everturn::builder()
        .with(1_u32)
        .with_each_call::<Orders>()
        .build()
        .await
        .unwrap();
    let flow = app
        .flow("flow", |(): (), db: Dep<Orders>, number: Dep<u32>| async move {
            Ok(format!("{} {}", db.0.len(), *number))
        })
        .unwrap();

    let missing = flow.run(()).await.unwrap_err();
    let call = Context::new().with(orders()).with(2_u32);
    let given = call.scope(flow.run(())).await.unwrap();

    assert_eq!(missing.status(), Status::FailedPrecondition);
    assert_eq!(given, "2 2");
}
