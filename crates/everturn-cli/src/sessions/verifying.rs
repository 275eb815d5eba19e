//! `everturn sessions verify`.

use std::fmt::Write;

use everturn_core::Error;

use crate::archive::{AnyArchive, on};
use crate::arguments::Whose;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{GREEN, Output, RED, clean};
use crate::place::{Place, refuse_agent, scope};
use crate::progress;
use crate::store::Checked;

/// Checks a whole store.
pub(super) async fn store(place: &Place, whose: &Whose, output: Output) -> Outcome {
    let Place::Store(store) = place else {
        return Err(Failure::wrong("a server does not let its whole store be checked")
            .or_next("name the session to check, or give the store itself with --store"));
    };
    refuse_agent(whose)?;
    let sign_of_life = progress::spinner(output, "checking");
    let checked = store.verify(&scope(whose)).await;
    sign_of_life.finish_and_clear();
    report(&checked?, output)
}

/// Reads every snapshot of a session, and checks those that are named after what they hold.
pub(super) async fn session(archive: &AnyArchive, session: &str, output: Output) -> Outcome {
    let tree = on!(archive, archive => archive.tree(session).await)?;
    let bar = progress::bar(output, "checking", tree.snapshots().len() as u64);
    let mut checked = Checked {
        snapshots: 0,
        problems: Vec::new(),
    };
    for listed in tree.snapshots() {
        let id = &listed.snapshot_id;
        match on!(archive, archive => archive.get(id).await) {
            Ok(snapshot) if id.is_content_addressed() && !snapshot.verify()? => {
                checked
                    .problems
                    .push(format!("snapshot '{id}' does not hold what it is named after"));
            }
            Ok(_) => {}
            Err(error) => checked.problems.push(unreadable(id.as_str(), &error)),
        }
        checked.snapshots += 1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report(&checked, output)
}

fn unreadable(id: &str, error: &Error) -> String {
    format!("snapshot '{id}' cannot be read: {}", error.message())
}

fn report(checked: &Checked, output: Output) -> Outcome {
    output.show(checked, || {
        let mut text = String::new();
        for problem in &checked.problems {
            let _ = writeln!(text, "{RED}{}{RED:#}", clean(problem));
        }
        if checked.problems.is_empty() {
            text = format!("{GREEN}no problem{GREEN:#} in {} snapshots\n", checked.snapshots);
        }
        text
    })?;
    Ok(if checked.problems.is_empty() {
        Exit::Done
    } else {
        Exit::No
    })
}
