//! A banker: a tool that asks for a confirmation.

use everturn::prelude::*;

use super::keep;
use crate::database::Database;

/// The customer's account.
#[payload]
#[derive(Debug, Clone)]
pub(super) struct Account {
    balance: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self { balance: 200 }
    }
}

/// The confirmation that the customer gives before a transfer.
#[payload]
#[derive(Debug)]
pub(crate) struct Confirmation {
    pub(crate) question: String,
}

/// The customer's answer.
#[payload]
#[derive(Debug)]
pub(crate) struct Decision {
    #[serde(rename = "approved", alias = "is_approved")]
    pub(crate) is_approved: bool,
}

/// Transfers an amount to somebody.
#[tool]
async fn transfer(
    amount: u64,
    to: String,
    account: Session<Account>,
    context: &ToolContext,
) -> Result<String> {
    match context.answer::<Decision>()? {
        None => Err(context.interrupt(Confirmation {
            question: format!("Move {amount} to {to}?"),
        })),
        Some(Decision { is_approved: false }) => Ok("declined, nothing was moved".to_owned()),
        Some(Decision { is_approved: true }) => {
            Ok(
                account.update_custom(|account| match account.balance.checked_sub(amount) {
                    Some(left) => {
                        account.balance = left;
                        format!("moved {amount} to {to}, {left} left")
                    }
                    None => format!("refused, the balance is only {}", account.balance),
                }),
            )
        }
    }
}

/// Tells the balance of the account.
#[tool]
async fn balance(account: Session<Account>) -> u64 {
    account.custom().balance
}

pub(super) fn define(app: &Everturn, files: &Database) -> Result<Agent<Account>> {
    let banker = app
        .agent("banker")
        .description("asks before moving money: “Transfer 50 to Ann”, “What is my balance?”")
        .custom::<Account>()
        .system(
            "You are a careful banker. The balance is {{@custom.balance}}. \
             Money moves with transfer, which asks the customer itself.",
        )
        .tool(transfer)
        .tool(balance)
        // The customer confirms the transfer, or another amount.
        .allow_edited_inputs();
    keep(banker, "banker", files).define()
}
