//! `#[tool]` on functions of every form that it accepts.

// Stands for the crate `everturn`, in which the generated code looks by default.
extern crate self as everturn;

pub(crate) use everturn_ai::__private;

mod elsewhere {
    pub(crate) use crate::__private;
}

use everturn_ai::{
    FromToolContext, IntoTool, MultipartToolResponse, Part, Repeat, Replay, Requirement, Tool, ToolContext,
    ToolReference,
};
use everturn_core::{Context, Error, HandlerResult, Result, Status};
use everturn_macros::tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Moves money, with the approval of two people.
#[tool(expires = "24h", approvals = 2, second_person, editable, repeat = "ask")]
async fn wire(sum: u32, call: &ToolContext) -> Result<u32> {
    call.answer_value()
        .map(|_| sum)
        .ok_or_else(|| call.interrupt("Move it?"))
}

/// Moves money as the model says.
#[tool(editable = false)]
async fn wire_as_is(sum: u32) -> Result<u32> {
    Ok(sum)
}

#[test]
fn a_tool_declares_what_makes_an_answer_an_approval() {
    assert_eq!(wire.tool().repeat(), Repeat::Ask);
    assert_eq!(wire.tool().editable_input(), Some(true));
    assert_eq!(wire_as_is.tool().editable_input(), Some(false));
    assert_eq!(wire_as_is.tool().repeat(), Repeat::Recorded);
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SeasonQuery {
    /// The month, 1 to 12.
    month: u8,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Season {
    dishes: Vec<String>,
}

/// Looks up what is
/// in season.
#[tool]
async fn in_season(input: SeasonQuery) -> Result<Season> {
    if input.month > 12 {
        return Err(Error::invalid_argument("no such month"));
    }
    Ok(Season {
        dishes: vec!["leek soup".to_owned()],
    })
}

/// Plans meals.
#[tool]
async fn plan(
    /// Who eats.
    guests: Vec<String>,
    #[serde(default)] mut days: u8,
    /// What to avoid.
    without: Option<String>,
    context: &ToolContext,
) -> Result<String> {
    days += 1;
    let caller = context
        .context()
        .auth()
        .and_then(Value::as_str)
        .unwrap_or("nobody");
    Ok(format!(
        "{} guests, {days} days, without {}, for {caller}",
        guests.len(),
        without.as_deref().unwrap_or("nothing")
    ))
}

/// The language of the caller.
#[derive(Clone)]
struct Language(String);

impl FromToolContext for Language {
    fn requirement() -> Option<Requirement> {
        Some(Requirement::new::<Language>("caller"))
    }

    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        let language = context.context().value("language").and_then(Value::as_str);
        let missing = || Error::failed_precondition("the caller names no language");
        Ok(Self(language.ok_or_else(missing)?.to_owned()))
    }
}

/// Says good night.
#[tool]
async fn good_night(
    #[context] language: &Language,
    name: String,
    context: Context,
    tool: &ToolContext,
    #[context] again: Language,
) -> String {
    assert!(tool.request().is_none());
    assert_eq!(context.value("language"), Some(&json!(again.0)));
    format!("Good night in {}, {name}.", language.0)
}

/// Greets.
#[tool]
async fn greet(name: String) -> String {
    format!("Good evening, {name}.")
}

/// Asks before acting.
#[tool(name = "kitchen/turnOff")]
async fn turn_off(context: ToolContext) -> Result<()> {
    if context.is_restarted() {
        Ok(())
    } else {
        Err(context.interrupt("really?"))
    }
}

#[tool(description = "Rings the bell.")]
async fn ring() {}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mood {
    Proud,
}

/// Sets the mood.
#[tool(fields)]
async fn set_mood(mood: Mood) -> &'static str {
    match mood {
        Mood::Proud => "proud",
    }
}

/// Paints the dish.
#[tool]
async fn paint(SeasonQuery { month }: SeasonQuery) -> MultipartToolResponse {
    MultipartToolResponse {
        output: Some(month.into()),
        content: vec![Part::media("data:image/png;base64,AA==")],
        ..MultipartToolResponse::default()
    }
}

/// Parses a number.
#[tool]
async fn r#box(text: String) -> Result<i64, std::num::ParseIntError> {
    text.parse()
}

fn input_schema(tool: &Tool) -> &Value {
    tool.input_schema().expect("the macro always gives one").as_json()
}

#[tokio::test]
async fn the_doc_comment_and_the_types_describe_the_tool() {
    let tool = in_season.tool();

    assert_eq!(tool.name(), "in_season");
    assert_eq!(tool.description(), "Looks up what is\nin season.");
    assert_eq!(
        input_schema(&tool)["properties"]["month"]["description"],
        "The month, 1 to 12."
    );
    assert_eq!(
        tool.output_schema().unwrap().as_json()["required"],
        json!(["dishes"])
    );
}

#[tokio::test]
async fn the_tool_runs_the_function() {
    let response = in_season.tool().run(json!({"month": 2})).await.unwrap();
    let error = in_season.tool().run(json!({"month": 13})).await.unwrap_err();

    assert_eq!(response.output, Some(json!({"dishes": ["leek soup"]})));
    assert_eq!(error.status(), Status::InvalidArgument);
    assert_eq!(error.message(), "no such month");
}

#[tokio::test]
async fn the_function_can_be_called_as_it_was_written() {
    let season = in_season::call(SeasonQuery { month: 2 }).await.unwrap();

    assert_eq!(
        season,
        Season {
            dishes: vec!["leek soup".to_owned()]
        }
    );
}

#[tokio::test]
async fn several_arguments_are_the_fields_of_one_object() {
    let schema = input_schema(&plan.tool()).clone();

    assert_eq!(schema["title"], "plan");
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["guests"]));
    assert_eq!(schema["properties"]["guests"]["description"], "Who eats.");
    assert_eq!(schema["properties"]["without"]["description"], "What to avoid.");
}

#[tokio::test]
async fn fields_and_context_reach_their_arguments() {
    let context = ToolContext::new(Context::new().with_value("auth", "the cook"));

    let response = plan
        .tool()
        .run_in(Some(json!({"guests": ["a", "b"], "days": 2})), context)
        .await
        .unwrap();

    assert_eq!(
        response.output,
        Some(json!("2 guests, 3 days, without nothing, for the cook"))
    );
}

#[tokio::test]
async fn one_plain_argument_is_a_field_too() {
    assert_eq!(input_schema(&greet.tool())["required"], json!(["name"]));
    assert_eq!(
        greet.tool().run(json!({"name": "Ada"})).await.unwrap().output,
        Some(json!("Good evening, Ada."))
    );
}

#[tokio::test]
async fn an_enum_can_be_made_a_field() {
    assert_eq!(
        input_schema(&set_mood.tool())["properties"]["mood"]["enum"],
        json!(["proud"])
    );
    assert_eq!(
        set_mood
            .tool()
            .run(json!({"mood": "proud"}))
            .await
            .unwrap()
            .output,
        Some(json!("proud"))
    );
}

#[tokio::test]
async fn a_context_alone_is_no_input() {
    let tool = turn_off.tool();

    let error = tool.run(json!({})).await.unwrap_err();

    assert_eq!(tool.name(), "kitchen/turnOff");
    assert_eq!(everturn_ai::interrupt_data(&error), Some(&json!("really?")));
    assert_eq!(input_schema(&tool).get("properties"), None);
}

#[tokio::test]
async fn a_function_that_takes_and_gives_nothing_is_a_tool() {
    assert_eq!(ring.tool().description(), "Rings the bell.");
    assert_eq!(
        ring.tool()
            .run(Value::Null)
            .await
            .unwrap()
            .output
            .unwrap_or_default(),
        Value::Null
    );
}

#[tokio::test]
async fn a_multipart_response_is_sent_as_it_is() {
    let tool = paint.tool();

    let response = tool.run(json!({"month": 2})).await.unwrap();

    assert!(tool.is_multipart());
    assert_eq!(response.output, Some(json!(2)));
    assert_eq!(response.content.len(), 1);
}

#[tokio::test]
async fn any_error_converts_and_a_raw_name_loses_its_mark() {
    let tool = r#box.tool();

    let error = tool.run(json!({"text": "seven"})).await.unwrap_err();

    assert_eq!(tool.name(), "box");
    assert_eq!(input_schema(&tool)["title"], "box");
    assert!(error.find_source::<std::num::ParseIntError>().is_some());
}

/// Orders vegetables.
#[tool(replay = "keyed")]
async fn order(what: String, context: &ToolContext) -> String {
    format!("{what} under {}", context.effect_id())
}

#[test]
fn a_tool_declares_how_it_may_be_called_again() {
    assert_eq!(order.tool().replay(), Replay::Keyed);
    assert_eq!(greet.tool().replay(), Replay::Once);
}

#[test]
fn the_struct_is_given_where_tools_are_taken() {
    fn name(tool: impl IntoTool) -> Option<String> {
        match tool.into_tool() {
            ToolReference::Tool(tool) => Some(tool.name().to_owned()),
            ToolReference::Name(_) => None,
        }
    }

    assert_eq!(name(in_season).as_deref(), Some("in_season"));
    assert_eq!(name(in_season).as_deref(), Some("in_season"), "it is Copy");
}

#[test]
fn a_tool_can_be_defined_inside_a_function() {
    struct Local;

    impl Local {
        fn tool() -> Tool {
            /// Counts.
            #[tool]
            async fn count(up_to: u8) -> u8 {
                up_to
            }

            count.tool()
        }
    }

    assert_eq!(Local::tool().name(), "count");
}

/// Counts.
#[cfg(test)]
#[tool(crate = "crate::elsewhere")]
async fn count(up_to: u8, by: u8) -> u8 {
    up_to / by
}

#[tokio::test]
async fn the_crate_path_can_be_any_path() {
    let response = count.tool().run(json!({"up_to": 6, "by": 2})).await.unwrap();

    assert_eq!(response.output, Some(json!(3)));
}

#[tokio::test]
async fn arguments_from_the_context_stand_anywhere_and_are_no_part_of_the_input() {
    let tool = good_night.tool();
    let caller = Context::new().with_value("language", json!("Welsh"));

    let said = tool
        .run_in(Some(json!({ "name": "Ann" })), ToolContext::new(caller))
        .await
        .unwrap();

    assert_eq!(said.output, Some(json!("Good night in Welsh, Ann.")));
    assert_eq!(input_schema(&tool)["required"], json!(["name"]));
    assert_eq!(tool.requirements(), [Requirement::new::<Language>("caller")]);
}

#[tokio::test]
async fn an_argument_that_the_context_cannot_give_fails_the_call_and_nothing_runs() {
    let error = good_night.tool().run(json!({ "name": "Ann" })).await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.message().contains("names no language"), "{error}");
}
