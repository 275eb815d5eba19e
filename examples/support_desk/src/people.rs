//! The callers: customers, who see their own conversations; staff, who see those of the customer they name;
//! and operators.

use std::collections::HashMap;

use everturn::core::async_trait;
use everturn::prelude::*;
use everturn::server::{CallRequest, ContextProvider, Provided};

/// The role of staff who decide about refunds.
pub const STAFF: &str = "staff";

/// The role of operators who erase customers.
pub const OPERATOR: &str = "operator";

/// The header in which staff name the customer whose conversations they read.
const CUSTOMER: &str = "x-customer";

/// The people with a token.
#[derive(Debug, Clone)]
pub struct People {
    by_token: HashMap<String, Principal>,
}

impl People {
    /// Parses people from a text such as `ann=token-1, carl:staff=token-2, olga:operator=token-3`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the malformed entry.
    pub fn parse(text: &str) -> Result<Self> {
        let mut by_token = HashMap::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((who, token)) = entry.split_once('=').filter(|(_, token)| token.len() >= 8) else {
                return Err(Error::invalid_argument(format!(
                    "'{entry}' is not like name=token, with a token of at least 8 characters"
                )));
            };
            let person = match who.split_once(':') {
                None => Principal::new(who),
                Some((name, role @ (STAFF | OPERATOR))) => Principal::new(name).with_role(role),
                Some((_, role)) => {
                    return Err(Error::invalid_argument(format!(
                        "'{entry}' has the role '{role}', and there are {STAFF} and {OPERATOR}"
                    )));
                }
            };
            by_token.insert(token.to_owned(), person);
        }
        Ok(Self { by_token })
    }
}

#[async_trait]
impl ContextProvider for People {
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        let unknown = || Error::unauthenticated("a bearer token is needed").with_public();
        let token = request.bearer_token().ok_or_else(unknown)?;
        let person = self.by_token.get(token).ok_or_else(unknown)?;
        let person = match request.header(CUSTOMER) {
            Some(customer) if person.has_role(STAFF) => person.clone().in_tenant(customer),
            Some(_) => {
                let refusal =
                    Error::permission_denied("only staff may look at another customer's conversations");
                return Err(refusal.with_public().into());
            }
            None => person.clone(),
        };
        Ok(Provided::new()
            .with_value("auth", json!({"customer": person.tenant()}))
            .with_principal(person))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

    use super::*;

    #[test]
    fn people_are_read_with_their_roles() {
        let people = People::parse("ann=token-of-ann, carl:staff=token-of-carl").unwrap();

        assert!(!people.by_token["token-of-ann"].has_role(STAFF));
        assert!(people.by_token["token-of-carl"].has_role(STAFF));
        assert_eq!(people.by_token["token-of-carl"].id(), "carl");
        for wrong in ["ann=short", "ann:boss=token-of-ann"] {
            let refused = People::parse(wrong).unwrap_err();
            assert!(refused.message().contains(wrong), "{refused}");
        }
    }
}
