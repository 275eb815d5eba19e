//! Limits are checked before each call, counted in what is stored, and leave a session that can go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use everturn_agent::store::{MemoryStore, Scope, UsageLedger};
use everturn_agent::{
    Agent, AgentInit, AgentInput, AgentReply, Budget, Clock, Delegation, Limits, SnapshotStatus, Timestamp,
    agent, set_limits,
};
use everturn_ai::builtin_middleware::Retry;
use everturn_ai::{
    Message, ModelInfo, ModelRequest, ModelResponse, Part, Price, Prices, Replay, Role, Tool, ToolRequest,
    Usage, define_model, reason,
};
use everturn_core::{Error, JsonCall, Principal, Reason, Registry, Status};
use everturn_testkit::{Reply, ScriptedModel, elapse};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// A model that asks for the tool `stock` with a new number in each round, `rounds` times in each turn, and
/// then answers. Each call uses ten tokens.
fn asking(rounds: usize) -> ScriptedModel {
    ScriptedModel::new().otherwise(move |request: &ModelRequest| {
        let messages: Vec<_> = request.messages.iter().collect();
        let asked = messages
            .iter()
            .rev()
            .take_while(|m| m.role() != Role::User)
            .count()
            / 2;
        let message = if asked < rounds {
            Message::model(Part::from(ToolRequest::new("stock", json!({ "number": asked }))))
        } else {
            Message::model("Soup.")
        };
        Reply::response(ModelResponse::new(message).with_usage(Usage {
            input_tokens: Some(8),
            output_tokens: Some(2),
            ..Usage::default()
        }))
    })
}

struct Kitchen {
    registry: Registry,
    cook: Agent,
    model: ScriptedModel,
    /// How often the tool has run.
    stocked: Arc<AtomicU32>,
}

impl Kitchen {
    fn stocked(&self) -> u32 {
        self.stocked.load(Ordering::SeqCst)
    }

    async fn ask(&self, text: &str) -> Result<AgentReply, Error> {
        self.cook.chat().resume("s").run(text).await
    }

    /// Goes on with the turn that failed.
    async fn retry(&self) -> Result<AgentReply, Error> {
        self.cook.chat().resume("s").run(AgentInput::default()).await
    }
}

fn kitchen(model: ScriptedModel, store: &MemoryStore, limits: Limits) -> Kitchen {
    let registry = Registry::new();
    registry.provide(Prices::new().model("scripted", Price::per_million(100_000.0, 100_000.0)));
    model.register(&registry, "scripted").unwrap();
    let stocked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&stocked);
    let stock = Tool::new("stock", "Stocks.", move |_: Value, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok("done") }
    })
    .with_replay(Replay::Once);
    let cook = agent(&registry, "cook")
        .model("scripted")
        .max_rounds(100)
        .tool(stock)
        .store(store.clone())
        .limits(limits)
        .define()
        .unwrap();
    Kitchen {
        registry,
        cook,
        model,
        stocked,
    }
}

/// A reply's error came over the agent's wire, which keeps the reason among the details.
#[track_caller]
fn assert_reason(error: &Error, reason: Reason) {
    assert_eq!(error.details().unwrap()["reason"], reason.name(), "{error}");
}

#[track_caller]
fn assert_limit(outcome: Result<AgentReply, Error>, per: &str, of: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.status(), Status::ResourceExhausted, "{error}");
    assert_reason(&error, reason::LIMIT_REACHED);
    let limit = &error.details().unwrap()["limit"];
    assert_eq!(
        (&limit["per"], &limit["of"]),
        (&json!(per), &json!(of)),
        "{error}"
    );
}

#[tokio::test]
async fn each_limit_of_a_turn_stops_it_before_the_call_that_would_exceed_it() {
    // Every model call uses ten tokens, which cost one unit.
    for (budget, of, model_calls, tool_calls) in [
        (Budget::new().model_calls(2), "modelCalls", 2, 2),
        (Budget::new().rounds(3), "rounds", 3, 3),
        (Budget::new().tool_calls(2), "toolCalls", 3, 2),
        (Budget::new().tokens(15), "tokens", 2, 1),
        (Budget::new().money(2.0), "money", 2, 1),
    ] {
        let store = MemoryStore::new();
        let kitchen = kitchen(asking(9), &store, Limits::new().per_turn(budget));

        assert_limit(kitchen.ask("Soup?").await, "turn", of);

        kitchen.model.assert_calls(model_calls);
        assert_eq!(kitchen.stocked(), tool_calls, "{of}");
    }
}

#[tokio::test]
async fn each_turn_has_its_own_budget() {
    let kitchen = kitchen(
        asking(1),
        &MemoryStore::new(),
        Limits::new().per_turn(Budget::new().model_calls(2)),
    );

    for _ in 0..3 {
        kitchen.ask("Soup?").await.unwrap();
    }
}

#[tokio::test]
async fn a_turn_continues_where_it_stopped_once_the_limit_is_raised() {
    let store = MemoryStore::new();
    let poor = kitchen(
        asking(3),
        &store,
        Limits::new().per_turn(Budget::new().tool_calls(2)),
    );
    assert_limit(poor.ask("Soup?").await, "turn", "toolCalls");
    assert_eq!(poor.stocked(), 2);

    let rich = kitchen(asking(3), &store, Limits::new());
    let reply = rich.retry().await.unwrap();

    // The calls that were made are journaled, and the one that the limit forbade did not begin.
    assert_eq!(reply.text(), "Soup.");
    assert_eq!(rich.stocked(), 1);
    rich.model.assert_calls(1);
    let latest = rich.cook.latest_snapshot("s").await.unwrap();
    assert!(everturn_ai::history::checked(&latest.state.unwrap().messages).is_empty());
}

#[tokio::test]
async fn a_session_is_counted_in_its_snapshots_and_a_branch_starts_with_the_cost_of_its_past() {
    let store = MemoryStore::new();
    let limits = Limits::new().per_session(Budget::new().model_calls(3));
    let first = kitchen(asking(0), &store, limits.clone());
    let early = first.ask("One.").await.unwrap();
    first.ask("Two.").await.unwrap();
    first.ask("Three.").await.unwrap();

    // Another process on the same store.
    let second = kitchen(asking(0), &store, limits);
    assert_limit(second.ask("Four.").await, "session", "modelCalls");
    assert_limit(second.ask("Four.").await, "session", "modelCalls");
    let branch = |id: String| second.cook.chat().snapshot(id);
    let early = early.snapshot_id().unwrap().as_str().to_owned();
    let other = branch(early).run("Two, otherwise.").await.unwrap();
    let other = other.snapshot_id().unwrap().as_str().to_owned();
    let other = branch(other).run("Three.").await.unwrap();
    let other = other.snapshot_id().unwrap().as_str().to_owned();
    let archive = second.cook.archive().unwrap();
    archive.fork(other.as_str(), "forked").await.unwrap();
    assert_limit(branch(other).run("Four.").await, "session", "modelCalls");
    let forked = second.cook.chat().resume("forked").run("Four.").await;
    assert_limit(forked, "session", "modelCalls");

    let raised = kitchen(
        asking(0),
        &store,
        Limits::new().per_session(Budget::new().model_calls(9)),
    );
    assert_eq!(raised.ask("Four.").await.unwrap().text(), "Soup.");
}

#[tokio::test]
async fn an_invocation_counts_all_its_turns() {
    let limits = Limits::new().per_invocation(Budget::new().model_calls(3));
    let kitchen = kitchen(asking(0), &MemoryStore::new(), limits);
    let mut connection = kitchen.cook.connect(AgentInit::session("s"));

    for _ in 0..4 {
        connection.send("Soup?").await.unwrap();
    }
    connection.close();
    let output = connection.output().await.unwrap();

    let details = output.error.unwrap().details.unwrap();
    assert_eq!(
        details["limit"],
        json!({"per": "invocation", "of": "modelCalls", "used": 3, "max": 3})
    );
    kitchen.model.assert_calls(3);
    // The next invocation has a new budget.
    assert!(kitchen.ask("Soup?").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn time_is_counted_by_the_clock_on_the_wall() {
    let registry = Registry::new();
    define_model(&registry, "slow", ModelInfo::default(), |_, _, _| async {
        elapse(Duration::from_secs(7)).await;
        let again = ToolRequest::new("stock", json!({}));
        Ok(ModelResponse::new(Message::model(Part::from(again))))
    })
    .unwrap();
    let stock = Tool::new("stock", "Stocks.", |_: Value, _| async { Ok("done") });
    let cook = agent(&registry, "cook")
        .model("slow")
        .tool(stock)
        .limits(Limits::new().per_turn(Budget::new().time(Duration::from_secs(10))))
        .define()
        .unwrap();

    let error = cook.run_text("Soup?").await.unwrap_err();

    assert_eq!(
        error.details().unwrap()["limit"],
        json!({"per": "turn", "of": "seconds", "used": 14.0, "max": 10.0})
    );
}

#[tokio::test]
async fn of_calls_at_the_same_time_as_many_run_as_the_limit_allows() {
    let many = (0..8).map(|number| Part::from(ToolRequest::new("stock", json!({ "number": number }))));
    let model = ScriptedModel::new().reply(Reply::response(ModelResponse::new(Message::model(
        many.collect::<Vec<_>>(),
    ))));
    let limits = Limits::new().per_turn(Budget::new().tool_calls(5));
    let kitchen = kitchen(model, &MemoryStore::new(), limits);

    assert_limit(kitchen.ask("Soup?").await, "turn", "toolCalls");

    assert_eq!(kitchen.stocked(), 5);
}

#[tokio::test]
async fn a_model_without_a_price_is_not_asked_while_money_is_limited() {
    let registry = Registry::new();
    let model = asking(0);
    model.register(&registry, "unknown").unwrap();
    let define = |name: &str, limits| {
        let cook = agent(&registry, name).model("unknown").limits(limits);
        cook.define().unwrap()
    };
    let limited = define("limited", Limits::new().per_session(Budget::new().money(1.0)));
    let free = define("free", Limits::new());

    let error = limited.run_text("Soup?").await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.message().contains("'unknown' has no price"), "{error}");
    model.assert_calls(0);
    assert!(free.run_text("Soup?").await.unwrap().usage().cost.is_zero());
}

#[tokio::test]
async fn the_cost_is_in_the_reply_and_adds_up_in_the_session() {
    let kitchen = kitchen(asking(1), &MemoryStore::new(), Limits::new());

    let reply = kitchen.ask("Soup?").await.unwrap();
    kitchen.ask("Stew?").await.unwrap();

    assert_eq!(reply.usage().cost, 2.0.into());
    let latest = kitchen.cook.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.usage().unwrap().cost, 4.0.into());
    assert_eq!(latest.usage().unwrap().rounds, 4);
    assert!(latest.usage().unwrap().turn_time > Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn retries_do_not_wait_for_a_limit() {
    let registry = Registry::new();
    asking(0).register(&registry, "scripted").unwrap();
    let cook = agent(&registry, "cook")
        .model("scripted")
        .use_middleware(Retry::default())
        .limits(Limits::new().per_turn(Budget::new().model_calls(0)))
        .define()
        .unwrap();
    let began = tokio::time::Instant::now();

    let error = cook.run_text("Soup?").await.unwrap_err();

    assert_reason(&error, reason::LIMIT_REACHED);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn the_limits_of_the_application_hold_where_an_agent_has_none() {
    let store = MemoryStore::new();
    let kitchen = kitchen(
        asking(1),
        &store,
        Limits::new().per_turn(Budget::new().tool_calls(5)),
    );
    set_limits(
        &kitchen.registry,
        Limits::new().per_turn(Budget::new().model_calls(1)),
    );
    assert_limit(kitchen.ask("Soup?").await, "turn", "modelCalls");

    // Raised while the application runs.
    set_limits(&kitchen.registry, Limits::new());
    assert!(kitchen.ask("Soup?").await.is_ok());
}

#[tokio::test]
async fn limits_may_differ_by_caller() {
    let registry = Registry::new();
    asking(1).register(&registry, "scripted").unwrap();
    let stock = Tool::new("stock", "Stocks.", |_: Value, _| async { Ok("done") });
    let cook = agent(&registry, "cook")
        .model("scripted")
        .tool(stock)
        .limits_for(|context| {
            let calls = context.value("calls").and_then(Value::as_u64).unwrap_or_default();
            Limits::new().per_turn(Budget::new().model_calls(calls))
        });
    let cook = cook.define().unwrap();
    let with = |calls: u64| everturn_core::Context::new().with_value("calls", calls);

    assert_limit(
        cook.chat().context(with(1)).run("Soup?").await,
        "turn",
        "modelCalls",
    );
    assert!(cook.chat().context(with(2)).run("Soup?").await.is_ok());
}

#[tokio::test]
async fn a_repeated_call_is_answered_with_a_message_and_then_ends_the_turn() {
    let again = || Reply::tool("stock", json!({"of": "leeks"}));
    let model = ScriptedModel::new().replies([again(), again(), again(), again()]);
    let store = MemoryStore::new();
    let kitchen = kitchen(model, &store, Limits::new().repeated_calls(2));

    let error = kitchen.ask("Soup?").await.unwrap_err();

    assert_reason(&error, reason::REPEATED_CALL);
    assert_eq!(error.status(), Status::ResourceExhausted);
    assert_eq!(kitchen.stocked(), 2);
    kitchen.model.assert_calls(4);
    let last = kitchen.model.last_request().unwrap();
    let told = serde_json::to_value(last.messages.last().unwrap()).unwrap();
    let told = told["content"][0]["toolResponse"]["output"]["error"]["message"]
        .as_str()
        .unwrap();
    assert!(
        told.starts_with("not called: 'stock' was called with these arguments 2 times"),
        "{told}"
    );
}

#[tokio::test]
async fn a_model_that_heeds_the_message_finishes_its_turn() {
    let again = || Reply::tool("stock", json!({"of": "leeks"}));
    let other = Reply::tool("stock", json!({"of": "carrots"}));
    let model = ScriptedModel::new()
        .replies([again(), again(), other])
        .reply("Soup.")
        .replies([again()])
        .reply("Stew.");
    let kitchen = kitchen(model, &MemoryStore::new(), Limits::new().repeated_calls(1));

    assert_eq!(kitchen.ask("Soup?").await.unwrap().text(), "Soup.");
    // The next turn starts a new count.
    assert_eq!(kitchen.ask("Stew?").await.unwrap().text(), "Stew.");
    assert_eq!(kitchen.stocked(), 3);
    let latest = kitchen.cook.latest_snapshot("s").await.unwrap();
    assert!(everturn_ai::history::checked(&latest.state.unwrap().messages).is_empty());
}

#[tokio::test]
async fn agents_that_an_agent_calls_count_for_it() {
    let registry = Registry::new();
    asking(0).register(&registry, "helper-model").unwrap();
    let helper = agent(&registry, "helper").model("helper-model").define().unwrap();
    let model = asking(9);
    model.register(&registry, "scripted").unwrap();
    let stock = Tool::new("stock", "Asks the helper.", move |_: Value, _| {
        let helper = helper.clone();
        async move { Ok(helper.run_text("Stock?").await?.text().to_string()) }
    });
    let lead = agent(&registry, "lead")
        .model("scripted")
        .tool(stock)
        .limits(Limits::new().per_turn(Budget::new().model_calls(3)))
        .define()
        .unwrap();

    // The lead's model, the helper's, the lead's; the helper's next call is the fourth.
    assert_limit(lead.run_text("Soup?").await, "turn", "modelCalls");

    model.assert_calls(2);
}

/// A model that asks for a tool, and then waits for ever.
fn dying() -> ScriptedModel {
    ScriptedModel::new().replies([Reply::tool("stock", json!({ "number": 0 })), Reply::never()])
}

/// Runs a turn up to the call that never returns, and drops it as the death of its process would.
async fn die(kitchen: &Kitchen, text: &str) {
    let mut turn = Box::pin(kitchen.ask(text));
    while kitchen.model.calls().len() < 2 {
        tokio::select! {
            _ = &mut turn => panic!("the turn ended"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(turn);
    // Unlike a dead process, this one still notes what the turn has used.
    kitchen.cook.idle().await;
}

#[tokio::test]
async fn a_turn_that_died_or_failed_counts_for_the_next_one_of_the_session() {
    let store = MemoryStore::new();
    let limits = Limits::new().per_session(Budget::new().model_calls(4));
    let first = kitchen(dying(), &store, limits.clone());
    die(&first, "Soup?").await;
    let down = ScriptedModel::new().reply(Reply::error(Error::unavailable("the model server is down")));
    let second = kitchen(down, &store, limits.clone());
    second.ask("Soup, at last?").await.unwrap_err();

    let third = kitchen(asking(5), &store, limits);
    assert_limit(third.ask("Something else?").await, "session", "modelCalls");

    // Two calls of the first process, one of the second.
    third.model.assert_calls(1);
    let archive = third.cook.archive().unwrap();
    assert_eq!(archive.session_usage("s").await.unwrap().model_calls, 4);
}

#[tokio::test]
async fn a_turn_that_is_tried_again_continues_with_its_own_budget() {
    let store = MemoryStore::new();
    let limits = Limits::new().per_turn(Budget::new().model_calls(3));
    let first = kitchen(dying(), &store, limits.clone());
    die(&first, "Soup?").await;

    // The first reply is journaled. The second may have been paid for, and is requested again.
    let second = kitchen(asking(5), &store, limits.clone());
    assert_limit(second.retry().await, "turn", "modelCalls");
    second.model.assert_calls(1);

    // Another turn has a new budget.
    let third = kitchen(asking(2), &store, limits);
    assert_eq!(third.ask("Stew?").await.unwrap().text(), "Soup.");
}

#[tokio::test]
async fn a_snapshot_holds_what_the_attempts_at_its_turn_have_used() {
    let store = MemoryStore::new();
    let limits = Limits::new().per_session(Budget::new().model_calls(100));
    let first = kitchen(dying(), &store, limits.clone());
    die(&first, "Soup?").await;

    let second = kitchen(asking(1), &store, limits);
    second.retry().await.unwrap();

    // Two calls of the process that died and one of this one, for which the first reply was known.
    let latest = second.cook.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.usage().unwrap().model_calls, 3);
    let open = store.of_session(&Scope::default(), &"s".into()).await.unwrap();
    // The account of the turn is dropped; the session's stays.
    let [session] = open.as_slice() else {
        panic!("{open:?}");
    };
    assert!(session.account.key().is_branch(), "{session:?}");
    assert_eq!(session.used.model_calls, 3);
    second.ask("More?").await.unwrap();
    let latest = second.cook.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.usage().unwrap().model_calls, 5);
}

#[tokio::test]
async fn a_tenant_has_one_budget_in_all_its_sessions_and_agents() {
    let store = MemoryStore::new();
    let limits = Limits::new().per_tenant(Budget::new().tokens(30));
    let (first, second) = (
        kitchen(asking(0), &store, limits.clone()),
        kitchen(asking(0), &store, limits),
    );
    let of = |tenant: &str| Principal::new(tenant.to_owned()).context();

    for kitchen in [&first, &second, &first] {
        kitchen.cook.chat().context(of("ann")).run("Soup?").await.unwrap();
    }
    let refused = second.cook.chat().context(of("ann")).run("Soup?").await;
    assert_limit(refused, "tenant", "tokens");
    second.cook.chat().context(of("ben")).run("Soup?").await.unwrap();

    let tenants = first.cook.tenants().unwrap();
    let spent = async |tenant: &str| {
        let archive = tenants.archive(Principal::new(tenant.to_owned()).scope());
        archive.tenant_usage().await.unwrap().unwrap()
    };
    assert_eq!(spent("ann").await.tokens(), 30);
    assert_eq!(spent("ann").await.cost, 3.0.into());
    assert_eq!(spent("ben").await.model_calls, 1);
    let raised = kitchen(
        asking(0),
        &store,
        Limits::new().per_tenant(Budget::new().tokens(40)),
    );
    raised.cook.chat().context(of("ann")).run("Soup?").await.unwrap();
}

/// A boss with a store, who delegates to a helper without one; the model that they share says where each call
/// belongs.
fn team(boss: Limits, all: Limits, model: &ScriptedModel) -> (Agent, Agent) {
    let registry = Registry::new();
    model.register(&registry, "scripted").unwrap();
    set_limits(&registry, all);
    let builder = agent(&registry, "boss").model("scripted").limits(boss);
    let builder = builder.use_middleware(Delegation::to(["helper"]));
    let boss = builder.store(MemoryStore::new()).define().unwrap();
    let helper = agent(&registry, "helper")
        .model("scripted")
        .public()
        .define()
        .unwrap();
    (boss, helper)
}

fn delegating() -> ScriptedModel {
    let task = Reply::tool("delegate_to_helper", json!({"task": "Look."}));
    ScriptedModel::new().replies([task, Reply::text("Found."), Reply::text("Done.")])
}

#[tokio::test]
async fn the_work_of_a_delegate_that_counts_no_tenant_counts_for_the_tenant_of_its_caller() {
    let counted = Limits::new().per_tenant(Budget::new().model_calls(3));
    // Limits of the agent that delegates, and of the application, under which a delegate without a store
    // works, too.
    for (own, all) in [(counted.clone(), Limits::new()), (Limits::new(), counted)] {
        let model = delegating();
        let (boss, _helper) = team(own, all, &model);
        let ann = || Principal::new("ann").context();

        let reply = boss.chat().context(ann()).run("Go.").await.unwrap();
        let refused = boss.chat().context(ann()).run("Again.").await;

        assert_eq!(reply.text(), "Done.");
        model.assert_calls(3);
        assert_limit(refused, "tenant", "modelCalls");
        let archive = boss.archive_in(&ann()).unwrap();
        assert_eq!(archive.tenant_usage().await.unwrap().unwrap().model_calls, 3);
    }
}

#[tokio::test]
async fn a_delegate_that_is_called_directly_has_the_limits_of_the_application() {
    let model = ScriptedModel::new().otherwise(|_| "Found.");
    let (_boss, helper) = team(
        Limits::new(),
        Limits::new().per_turn(Budget::new().model_calls(0)),
        &model,
    );
    assert_limit(helper.run_text("Look.").await, "turn", "modelCalls");

    // The usage of a tenant is counted in the store, so nothing runs without one.
    let (_boss, helper) = team(Limits::new(), Limits::new().per_tenant(Budget::new()), &model);
    let refused = helper.run_text("Look.").await.unwrap_err();
    assert_eq!(refused.status(), Status::FailedPrecondition, "{refused}");
    model.assert_calls(0);
}

#[tokio::test]
async fn a_tenant_cannot_be_counted_without_a_store() {
    let registry = Registry::new();
    let model = asking(0);
    model.register(&registry, "scripted").unwrap();
    let cook = agent(&registry, "cook")
        .model("scripted")
        .limits(Limits::new().per_tenant(Budget::new()));

    let error = cook.define().unwrap().run_text("Soup?").await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    model.assert_calls(0);
}

#[tokio::test]
async fn what_was_used_is_an_action_for_clients() {
    let kitchen = kitchen(
        asking(0),
        &MemoryStore::new(),
        Limits::new().per_tenant(Budget::new()),
    );
    kitchen.ask("Soup?").await.unwrap();
    let action = kitchen.registry.resolve("/agent-usage/cook").await.unwrap();

    let told = action
        .run_json(JsonCall::new(json!({ "sessionId": "s" })))
        .await
        .unwrap();

    for of in ["tenant", "session"] {
        assert_eq!(told[of]["modelCalls"], 1, "{told}");
        assert_eq!(told[of]["cost"], 1.0, "{told}");
    }
    let missing = action.run_json(JsonCall::new(json!({ "sessionId": "t" }))).await;
    assert_eq!(missing.unwrap_err().status(), Status::NotFound);
}

#[tokio::test]
async fn a_run_that_is_taken_over_continues_with_its_invocations_budget() {
    let store = MemoryStore::new();
    let limits = Limits::new().per_invocation(Budget::new().model_calls(3));
    let first = kitchen(
        ScriptedModel::new().replies([Reply::text("One."), Reply::never()]),
        &store,
        limits.clone(),
    );
    let mut connection = first.cook.connect(AgentInit::session("s"));
    connection.send("Soup?").await.unwrap();
    connection.send("Stew?").await.unwrap();
    connection.detach().await.unwrap();
    connection.output().await.unwrap();
    while first.model.calls().len() < 2 {
        tokio::task::yield_now().await;
    }
    // The heartbeat of the first worker is made to look old.
    let later = Clock::new(|| Timestamp::now() + SignedDuration::from_hours(1));

    let registry = Registry::new();
    let model = asking(9);
    model.register(&registry, "scripted").unwrap();
    let stock = Tool::new("stock", "Stocks.", |_: Value, _| async { Ok("done") });
    let second = agent(&registry, "cook")
        .model("scripted")
        .tool(stock)
        .store(store.clone())
        .clock(later)
        .limits(limits)
        .define()
        .unwrap();
    let recovery = second.recover().await;
    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    let latest = loop {
        let latest = second.latest_snapshot("s").await.unwrap();
        if latest.status != SnapshotStatus::Pending {
            break latest;
        }
        tokio::task::yield_now().await;
    };

    // Two calls of the first worker, the second of which never returned, and one of this one.
    model.assert_calls(1);
    let error = latest.error.unwrap();
    assert_eq!(error.details.unwrap()["limit"]["per"], "invocation");
}
