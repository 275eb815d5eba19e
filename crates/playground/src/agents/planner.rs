//! A planner: a custom turn loop that takes long enough for a background run.

use std::time::Duration;

use everturn::prelude::*;

use super::keep;
use crate::database::Database;

/// The simulated duration of planning one day.
const WORK: Duration = Duration::from_millis(500);

const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const DISHES: [&str; 5] = [
    "leek soup",
    "pea risotto",
    "bean stew",
    "roast pumpkin",
    "potato gratin",
];

/// The plan so far.
#[payload]
#[derive(Debug, Default, Clone)]
pub(super) struct Week {
    days: Vec<String>,
}

async fn plan(turn: Turn<Week>) -> HandlerResult<FinishReason> {
    turn.set_custom(Week::default());
    // Each turn starts at another position in the list, so that two weeks differ.
    let dishes = DISHES.iter().cycle().skip(turn.messages().len());
    for (day, dish) in DAYS.iter().zip(dishes) {
        tokio::time::sleep(WORK).await;
        let entry = format!("{day}: {dish}");
        turn.send_status(&entry).await?;
        turn.update_custom(|week| week.days.push(entry));
    }
    turn.send_artifact(Artifact::text("week.md", turn.custom().days.join("\n")))
        .await?;
    let answer = "The week is planned.";
    turn.send_chunk(answer).await?;
    turn.add_message(Message::model(answer));
    Ok(FinishReason::Stop)
}

pub(super) fn define(app: &Everturn, files: &Database) -> Result<Agent<Week>> {
    let planner = app
        .custom_agent("planner", |session: AgentSession<Week>| async move {
            session.run(plan).await?;
            Ok(session.result())
        })
        .description("plans a week of dinners, in the background too: “Plan the week”");
    keep(planner.public(), "planner", files).define()
}
