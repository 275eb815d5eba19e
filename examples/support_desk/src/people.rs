//! Who calls: customers, who see their own conversations, and staff, who see those of the customer whom they name.

use std::collections::HashMap;

use everturn::core::async_trait;
use everturn::prelude::*;
use everturn::server::{CallRequest, ContextProvider, Principal, Provided};

/// The header in which staff name the customer whose conversations they look at.
const CUSTOMER: &str = "x-customer";

/// The people who have a token.
#[derive(Debug, Clone)]
pub struct People {
    by_token: HashMap<String, Person>,
}

#[derive(Debug, Clone)]
struct Person {
    name: String,
    is_staff: bool,
}

impl People {
    /// Reads people from a text such as `ann=token-1, ben=token-2, carl:staff=token-3`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the entry that is not of that form.
    pub fn parse(text: &str) -> Result<Self> {
        let mut by_token = HashMap::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((who, token)) = entry.split_once('=').filter(|(_, token)| token.len() >= 8) else {
                return Err(Error::invalid_argument(format!(
                    "'{entry}' is not like name=token, with a token of at least 8 characters"
                )));
            };
            let (name, is_staff) = match who.strip_suffix(":staff") {
                Some(name) => (name, true),
                None => (who, false),
            };
            let name = name.to_owned();
            by_token.insert(token.to_owned(), Person { name, is_staff });
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
        let customer = match request.header(CUSTOMER) {
            Some(customer) if person.is_staff => customer,
            Some(_) => {
                let refusal =
                    Error::permission_denied("only staff may look at another customer's conversations");
                return Err(refusal.with_public().into());
            }
            None => person.name.as_str(),
        };
        let auth = json!({"customer": customer, "name": person.name, "isStaff": person.is_staff});
        Ok(Provided::new()
            .with_value("auth", auth)
            .with_principal(Principal::new(customer.to_owned())))
    }
}

/// The caller, as tools see them.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// The customer whom the conversation is with.
    pub customer: String,
    /// Whether a member of staff calls.
    pub is_staff: bool,
}

impl Caller {
    /// Returns the caller of a context.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if nobody was identified.
    pub fn of(context: &Context) -> Result<Self> {
        let nobody = || Error::unauthenticated("nobody is signed in").with_public();
        let auth = context.auth().ok_or_else(nobody)?;
        Ok(Self {
            customer: auth["customer"].as_str().ok_or_else(nobody)?.to_owned(),
            is_staff: auth["isStaff"].as_bool().unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

    use super::*;

    #[test]
    fn people_are_read_with_their_roles() {
        let people = People::parse("ann=token-of-ann, carl:staff=token-of-carl").unwrap();

        assert!(!people.by_token["token-of-ann"].is_staff);
        assert!(people.by_token["token-of-carl"].is_staff);
        assert_eq!(people.by_token["token-of-carl"].name, "carl");
        assert!(
            People::parse("ann=short")
                .unwrap_err()
                .message()
                .contains("ann=short")
        );
    }
}
