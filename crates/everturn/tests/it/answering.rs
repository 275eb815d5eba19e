//! Permissions and forms for answering an interrupted tool call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn::ai::outcome_unknown;
use everturn::client::Client;
use everturn::prelude::*;
use everturn::server::{Provided, context_fn};
use everturn::testkit::{Reply, ScriptedModel};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Approval {
    approved: bool,
}

/// Counts the payments.
#[derive(Default)]
struct Bank(AtomicUsize);

/// Pays money back.
#[tool(answer = "restart", decision = Approval, by = "staff")]
async fn refund(cents: u32, bank: Dep<Arc<Bank>>, call: &ToolContext) -> Result<String> {
    match call.answer::<Approval>()? {
        None => Err(call.interrupt("May it be paid back?")),
        Some(Approval { approved: true }) => {
            bank.0.fetch_add(1, Ordering::SeqCst);
            Ok(format!("{cents} paid back"))
        }
        Some(Approval { approved: false }) => Ok("refused".to_owned()),
    }
}

fn is_another(caller: Option<&Principal>, call: &ToolRequest) -> bool {
    let customer = call.input.as_ref().and_then(|input| input["customer"].as_str());
    caller.is_some_and(|caller| Some(caller.id()) != customer)
}

/// Closes an account.
#[tool(by = is_another)]
async fn close(customer: String, call: &ToolContext) -> Result<String> {
    match call.answer_value() {
        None => Err(call.interrupt("Really?")),
        Some(_) => Ok(format!("{customer} is closed")),
    }
}

/// Pays, and always loses the outcome.
#[tool(replay = "once", answer = "restart")]
async fn pay(call: &ToolContext) -> Result<String> {
    match call.answer_value() {
        None => Err(outcome_unknown(call.effect_id())),
        Some(_) => Ok("paid".to_owned()),
    }
}

/// Pays, and lets its caller resolve the outcome.
#[tool(replay = "once", outcome_by = "caller")]
async fn tip(call: &ToolContext) -> Result<String> {
    match call.answer_value() {
        None => Err(outcome_unknown(call.effect_id())),
        Some(_) => Ok("paid".to_owned()),
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Discount {
    percent: u32,
}

/// A tool built without the macro: staff decide about small discounts.
fn discount() -> Tool {
    let grant = |discount: Discount, call: ToolContext| async move {
        match call.answer::<Approval>()? {
            None => Err(call.interrupt("May it be granted?").into()),
            Some(_) => Ok(format!("{} percent less", discount.percent)),
        }
    };
    let is_small = |caller: Option<&Principal>, call: &ToolRequest| {
        let percent = call.input.as_ref().and_then(|input| input["percent"].as_u64());
        caller.is_some_and(|caller| caller.has_role("staff")) && percent.is_some_and(|percent| percent <= 10)
    };
    Tool::new("discount", "Grants a discount.", grant)
        .with_answer_form(AnswerForm::Restart)
        .with_decision::<Approval>()
        .answered_by(AnsweredBy::when(is_small))
}

struct Desk {
    agent: Agent,
    bank: Arc<Bank>,
    app: Everturn,
}

/// The customer, and staff members and operators who act on the customer's behalf.
fn alice() -> Principal {
    Principal::new("alice")
}

fn bob(role: &'static str) -> Principal {
    Principal::new("bob").with_role(role).in_tenant("alice")
}

impl Desk {
    /// A desk whose model asks for a tool in Alice's session `s`.
    async fn asked(tool: &str, input: Value) -> (Self, Interrupt) {
        let model = ScriptedModel::new()
            .reply(Reply::tool(tool, input))
            .reply("Done.");
        let bank = Arc::new(Bank::default());
        let app = Everturn::builder().with(Arc::clone(&bank));
        let app = app.model("scripted", model).default_model("scripted");
        let app = app.build().await.unwrap();
        let agent = app.agent("desk").tool(refund).tool(close).tool(pay).tool(tip);
        let agent = agent.tool(discount()).allow_edited_inputs();
        let agent = agent.store(MemoryStore::new()).define().unwrap();
        let mut chat = agent.chat().resume("s").context(alice()).open().await.unwrap();
        let reply = chat.run("Please.").await.unwrap();
        let interrupt = reply.interrupts().first().unwrap().clone();
        let desk = Self { agent, bank, app };
        (desk, interrupt)
    }

    /// Answers on behalf of a caller, and returns the text of the reply.
    async fn answer(&self, caller: impl Into<Context>, answer: Part) -> Result<String> {
        let mut chat = self.agent.chat().resume("s").context(caller).open().await?;
        let reply = chat.answer(answer).await?.output().await?;
        Ok(reply.text().to_string())
    }
}

fn refused(outcome: Result<String>, status: Status, words: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(words), "{error}");
}

#[tokio::test]
async fn the_customer_cannot_approve_and_the_staff_can() {
    let (desk, asked) = Desk::asked("refund", json!({ "cents": 500 })).await;
    let approval = || asked.restart(Approval { approved: true }).unwrap();

    let customer = desk.answer(alice(), approval()).await;
    refused(customer, Status::PermissionDenied, "the role 'staff'");
    refused(
        desk.answer(Context::new().with(alice().scope()), approval())
            .await,
        Status::PermissionDenied,
        "staff",
    );
    refused(
        desk.answer(bob("cook"), approval()).await,
        Status::PermissionDenied,
        "staff",
    );
    assert_eq!(desk.bank.0.load(Ordering::SeqCst), 0);

    assert_eq!(desk.answer(bob("staff"), approval()).await.unwrap(), "Done.");
    assert_eq!(desk.bank.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_result_cannot_be_made_up_and_a_decision_has_its_type() {
    let (desk, asked) = Desk::asked("refund", json!({ "cents": 500 })).await;

    let invented = desk
        .answer(bob("staff"), asked.respond("500 paid back").unwrap())
        .await;
    refused(
        invented,
        Status::InvalidArgument,
        "can only be restarted with a decision",
    );
    let wrong = desk
        .answer(bob("staff"), asked.restart(json!({ "approved": "yes" })).unwrap())
        .await;
    refused(wrong, Status::InvalidArgument, "/approved");
    let without = desk.answer(bob("staff"), asked.restart(()).unwrap()).await;
    refused(
        without,
        Status::InvalidArgument,
        "invalid decision for tool 'refund'",
    );
    assert_eq!(desk.bank.0.load(Ordering::SeqCst), 0);

    let no = asked.restart(Approval { approved: false }).unwrap();
    assert_eq!(desk.answer(bob("staff"), no).await.unwrap(), "Done.");
    assert_eq!(desk.bank.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_function_of_the_principal_and_the_call_decides() {
    let (desk, asked) = Desk::asked("close", json!({ "customer": "alice" })).await;
    let yes = || asked.restart(true).unwrap();

    refused(
        desk.answer(alice(), yes()).await,
        Status::PermissionDenied,
        "close",
    );
    assert_eq!(desk.answer(bob("any"), yes()).await.unwrap(), "Done.");
}

#[tokio::test]
async fn the_rule_of_a_tool_is_also_for_arguments_that_the_answer_edits() {
    let (desk, asked) = Desk::asked("discount", json!({ "percent": 10 })).await;
    let approval = || Approval { approved: true };
    let edited = |percent| asked.restart_with(approval(), Discount { percent }).unwrap();

    let made_up = asked.respond("90 percent less").unwrap();
    refused(
        desk.answer(bob("staff"), made_up).await,
        Status::InvalidArgument,
        "restarted",
    );
    refused(
        desk.answer(alice(), edited(5)).await,
        Status::PermissionDenied,
        "discount",
    );
    refused(
        desk.answer(bob("staff"), edited(90)).await,
        Status::PermissionDenied,
        "discount",
    );

    assert_eq!(desk.answer(bob("staff"), edited(5)).await.unwrap(), "Done.");
}

#[tokio::test]
async fn declining_needs_the_right_to_answer_and_no_form() {
    let (desk, asked) = Desk::asked("refund", json!({ "cents": 500 })).await;
    let decline = || asked.respond(json!({ "denied": true })).unwrap();

    refused(
        desk.answer(alice(), decline()).await,
        Status::PermissionDenied,
        "staff",
    );

    assert_eq!(desk.answer(bob("staff"), decline()).await.unwrap(), "Done.");
    assert_eq!(desk.bank.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_custom_turn_loop_accepts_and_rejects_the_same_answers() {
    let (desk, _) = Desk::asked("tip", json!({})).await;
    let model = ScriptedModel::new()
        .reply(Reply::tool("refund", json!({ "cents": 500 })))
        .reply("Done.");
    model.register(desk.app.registry(), "house").unwrap();
    let own = desk.app.custom_agent("own", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let answers = turn.input().answers.clone();
                let ask = turn.generate().history().with(|generate| {
                    let generate = generate.model("house").tool(refund);
                    match answers {
                        Some(answers) => generate.answers(answers),
                        None => generate,
                    }
                });
                Ok(ask.await?.finish_reason())
            })
            .await?;
        Ok(session.result())
    });
    let own = own.store(MemoryStore::new()).define().unwrap();
    let asked = own
        .chat()
        .resume("o")
        .context(alice())
        .run("Please.")
        .await
        .unwrap();
    let asked = asked.interrupts().first().unwrap().clone();
    let answer = async |caller: Principal, answer: Part| {
        let mut chat = own.chat().resume("o").context(caller).open().await?;
        chat.answer(answer)
            .await?
            .output()
            .await
            .map(|reply| reply.text().to_string())
    };
    let yes = || asked.restart(Approval { approved: true }).unwrap();

    refused(answer(alice(), yes()).await, Status::PermissionDenied, "staff");
    let made_up = asked.respond("500 paid back").unwrap();
    refused(
        answer(bob("staff"), made_up).await,
        Status::InvalidArgument,
        "restarted",
    );

    assert_eq!(answer(bob("staff"), yes()).await.unwrap(), "Done.");
    assert_eq!(desk.bank.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn over_http_a_token_decides_and_the_refusal_has_a_reason() {
    let (desk, asked) = Desk::asked("refund", json!({ "cents": 500 })).await;
    let server = desk.app.server().context(context_fn(|request| {
        let caller = match request.bearer_token() {
            Some("token-of-alice") => alice(),
            Some("token-of-bob") => bob("staff"),
            _ => return Err(Error::unauthenticated("who are you?").with_public().into()),
        };
        Ok(Provided::new().with_principal(caller))
    }));
    let server = server.exposure(everturn::core::Exposure::Public);
    let server = server.bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/agents/desk", server.address());
    let serving = tokio::spawn(server.run());
    let answer = async |token: &str, answer: Part| {
        let client = Client::builder().header("authorization", &format!("Bearer {token}"));
        let agent = client.build()?.agent::<Value>(&url)?;
        let mut chat = agent.chat().resume("s").open().await?;
        chat.answer(answer)
            .await?
            .output()
            .await
            .map(|reply| reply.text().to_string())
    };
    let yes = || asked.restart(Approval { approved: true }).unwrap();

    let customer = answer("token-of-alice", yes()).await.unwrap_err();
    let made_up = answer("token-of-bob", asked.respond("500 paid back").unwrap()).await;
    let made_up = made_up.unwrap_err();
    let untyped = answer("token-of-bob", asked.restart(json!({ "approved": 1 })).unwrap()).await;
    let untyped = untyped.unwrap_err();
    let staff = answer("token-of-bob", yes()).await.unwrap();

    assert_eq!(customer.status(), Status::PermissionDenied, "{customer}");
    assert!(customer.message().contains("the role 'staff'"), "{customer}");
    assert_eq!(made_up.status(), Status::InvalidArgument, "{made_up}");
    assert!(
        made_up.message().contains("restarted with a decision"),
        "{made_up}"
    );
    assert_eq!(untyped.status(), Status::InvalidArgument, "{untyped}");
    assert!(untyped.message().contains("/approved"), "{untyped}");
    assert_eq!((staff.as_str(), desk.bank.0.load(Ordering::SeqCst)), ("Done.", 1));
    serving.abort();
}

#[tokio::test]
async fn an_operator_resolves_an_unknown_outcome_in_either_form() {
    for is_respond in [true, false] {
        let (desk, asked) = Desk::asked("pay", json!({})).await;
        let answer = || {
            let answer = if is_respond {
                asked.respond("paid")
            } else {
                asked.restart(())
            };
            answer.unwrap()
        };
        assert!(asked.is_outcome_unknown());

        refused(
            desk.answer(alice(), answer()).await,
            Status::PermissionDenied,
            "operator",
        );
        let stranger = Context::new().with(alice().scope()).for_client();
        refused(
            desk.answer(stranger, answer()).await,
            Status::PermissionDenied,
            "operator",
        );
        assert_eq!(desk.answer(bob("operator"), answer()).await.unwrap(), "Done.");
    }
}

#[tokio::test]
async fn the_program_itself_resolves_an_unknown_outcome() {
    let (desk, asked) = Desk::asked("pay", json!({})).await;
    let program = Context::new().with(alice().scope());

    let settled = desk.answer(program, asked.respond("paid").unwrap()).await;

    assert_eq!(settled.unwrap(), "Done.");
}

#[tokio::test]
async fn a_tool_may_let_its_caller_resolve_an_unknown_outcome() {
    let (desk, asked) = Desk::asked("tip", json!({})).await;

    assert_eq!(
        desk.answer(alice(), asked.restart(()).unwrap()).await.unwrap(),
        "Done."
    );
}

#[tokio::test]
async fn clients_learn_how_a_tool_is_answered() {
    let actions = refund.tool().actions();
    let traits = &actions[0].descriptor().metadata["tool"];

    assert_eq!(traits["answer"], "restart");
    assert_eq!(traits["answeredBy"], "staff");
    assert_eq!(traits["decision"]["properties"]["approved"]["type"], "boolean");
}
