//! A chef: tools, and custom state that the prompt includes.

use everturn::prelude::*;

use super::keep;
use crate::database::Database;

/// The chef's custom state.
#[payload]
#[derive(Debug, Default, Clone)]
pub(super) struct Kitchen {
    pantry: Vec<String>,
    #[serde(default)]
    mood: String,
}

/// Looks up what is in season in a month.
#[tool]
async fn in_season(
    /// The month, 1 to 12.
    month: u8,
) -> Result<Vec<String>> {
    let vegetables: &[&str] = match month {
        1..=3 => &["leeks", "kale", "parsnips"],
        4..=6 => &["asparagus", "peas", "radishes"],
        7..=9 => &["tomatoes", "beans", "courgettes"],
        10..=12 => &["pumpkin", "beetroot", "cabbage"],
        _ => return Err(Error::invalid_argument(format!("there is no month {month}"))),
    };
    Ok(vegetables.iter().map(|&name| name.to_owned()).collect())
}

/// Puts something into the pantry.
#[tool]
async fn stock_pantry(item: String, kitchen: Session<Kitchen>) -> Result<String> {
    kitchen.update_custom(|kitchen| {
        kitchen.pantry.push(item);
        let mood = if kitchen.pantry.len() > 3 {
            "inspired"
        } else {
            "curious"
        };
        mood.clone_into(&mut kitchen.mood);
        Ok(format!("the pantry holds {}", kitchen.pantry.join(", ")))
    })
}

pub(super) fn define(app: &Everturn, files: &Database) -> Result<Agent<Kitchen>> {
    let chef = app
        .agent("chef")
        .description("has a pantry and knows the seasons: “Stock the pantry with leeks”, “What is in season in month 11?”, “What can I cook?”")
        .custom::<Kitchen>()
        .system(
            "You are a chef. The pantry holds {{@custom.pantry}}. \
             What you are given goes into it with stock_pantry; in_season knows the seasons.",
        )
        .tool(in_season)
        .tool(stock_pantry)
        .client_permissions(ClientPermissions::none().output_schema());
    keep(chef.public(), "chef", files).define()
}
