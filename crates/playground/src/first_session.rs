//! A first session, so that the page is not empty.

use everturn::agent::archive::Import;
use everturn::agent::store::SessionQuery;
use everturn::{Error, Result};

use crate::agents::Demo;

/// An exported session of the chef, with a branch and a label.
const DINNER: &[u8] = include_bytes!("first_session.jsonl");

/// Imports the session if the chef has none.
pub(crate) async fn keep(demos: &[Demo]) -> Result<()> {
    let chef = demos.iter().find(|demo| demo.name == "chef");
    let archive = &chef.ok_or_else(|| Error::internal("there is no chef"))?.archive;
    let mut one = SessionQuery::default();
    one.limit = 1;
    if archive.sessions(&one).await?.items.is_empty() {
        archive.import(DINNER, Import::default()).await?;
    }
    Ok(())
}
