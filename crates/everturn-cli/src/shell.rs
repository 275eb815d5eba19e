//! `everturn completions` and `everturn man`.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::arguments::Arguments;
use crate::failure::{Exit, Outcome, about_file};
use crate::output::Output;

pub(crate) fn completions(shell: Shell, output: Output) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "everturn", &mut script);
    let script = String::from_utf8_lossy(&script);
    output.show(&json!({ "shell": shell.to_string(), "script": script }), || {
        script.to_string()
    })?;
    Ok(Exit::Done)
}

pub(crate) fn man(folder: &Path, output: Output) -> Outcome {
    clap_mangen::generate_to(Arguments::command(), folder).map_err(about_file(folder))?;
    output.show(&json!({ "folder": folder }), || {
        format!("Read them with: man -l {}\n", folder.join("everturn.1").display())
    })?;
    Ok(Exit::Done)
}
