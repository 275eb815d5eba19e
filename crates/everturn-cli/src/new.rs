//! `everturn new`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use everturn_core::Error;
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome, about_file};
use crate::output::{BOLD, DIM, Output};

/// The files of a project. The sources have no placeholders, so the tests of this crate compile and run them.
const FILES: [(&str, &str); 7] = [
    ("Cargo.toml", include_str!("../templates/manifest.txt")),
    ("src/main.rs", include_str!("../templates/main.rs")),
    ("src/assistant.rs", include_str!("../templates/assistant.rs")),
    ("Dockerfile", include_str!("../templates/dockerfile.txt")),
    ("README.md", include_str!("../templates/readme.txt")),
    (".gitignore", include_str!("../templates/ignored.txt")),
    (".dockerignore", include_str!("../templates/ignored.txt")),
];

/// Names that Cargo rejects for packages, and keywords of Rust.
const RESERVED: [&str; 12] = [
    "test",
    "core",
    "std",
    "alloc",
    "proc-macro",
    "build",
    "deps",
    "examples",
    "incremental",
    "self",
    "super",
    "crate",
];

#[derive(Debug, Args)]
pub(crate) struct NewArguments {
    /// The name of the project, and of its new folder
    name: String,

    /// Depend on a checkout of Everturn; by default on the one this program was built from if it exists, else
    /// on the published crate
    #[arg(long, value_name = "CHECKOUT")]
    path: Option<PathBuf>,
}

pub(crate) fn run(arguments: &NewArguments, output: Output) -> Outcome {
    let name = arguments.name.as_str();
    check(name)?;
    let checkout = match &arguments.path {
        Some(path) => Some(given_checkout(path)?),
        None => own_checkout(),
    };
    let folder = Path::new(name);
    if folder.exists() {
        return Err(
            Failure::from(Error::already_exists(format!("'{name}' already exists here")))
                .or_next("choose another name or another folder"),
        );
    }
    for (file, template) in FILES {
        let path = folder.join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(about_file(parent))?;
        }
        let text = filled(template, name, checkout.as_deref());
        fs::write(&path, text).map_err(about_file(&path))?;
    }
    let files = FILES.map(|(file, _)| file);
    output.show(&json!({ "folder": folder, "files": files, "checkout": checkout }), || {
        format!(
            "{BOLD}{name}/{BOLD:#} has an agent, a test and a Dockerfile.\n\n  cd {name}\n  cargo test\n  EVERTURN_ENV=dev cargo run\n\n\
             {DIM}then open http://127.0.0.1:8080, or in another terminal:{DIM:#}\n\n  everturn chat assistant\n"
        )
    })?;
    Ok(Exit::Done)
}

/// Checks that Cargo accepts the name.
fn check(name: &str) -> Outcome<()> {
    let is_plain = |character: char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || "-_".contains(character)
    };
    let fault = if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        "must begin with a lower-case letter"
    } else if !name.chars().all(is_plain) {
        "may have lower-case letters, digits, '-' and '_' only"
    } else if RESERVED.contains(&name) || name == "everturn" {
        "is taken by Rust, cargo or Everturn itself"
    } else {
        return Ok(());
    };
    Err(Failure::wrong(format!("the name '{name}' {fault}")).or_next("choose a name such as my-agent"))
}

/// Fills the placeholders of a template.
fn filled(template: &str, name: &str, checkout: Option<&Path>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (dependency, copy, build) = match checkout {
        None => (
            format!("version = \"{version}\""),
            String::new(),
            format!("docker build -t {name} ."),
        ),
        Some(checkout) => {
            let crate_path = checkout.join("crates/everturn");
            let shown = checkout.display();
            (
                // A path in a TOML literal string may contain backslashes.
                format!("path = '{}'", crate_path.display()),
                format!(
                    "# The checkout of Everturn that Cargo.toml names, from `--build-context everturn={shown}`.\nCOPY --from=everturn . {shown}\n"
                ),
                format!("docker build --build-context everturn={shown} -t {name} ."),
            )
        }
    };
    template
        .replace("{{name}}", name)
        .replace("{{rust}}", env!("CARGO_PKG_RUST_VERSION"))
        .replace("{{dependency}}", &dependency)
        .replace("{{copy}}", &copy)
        .replace("{{docker build}}", &build)
}

fn is_checkout(path: &Path) -> bool {
    path.join("crates/everturn/Cargo.toml").is_file()
}

fn given_checkout(path: &Path) -> Outcome<PathBuf> {
    let path = fs::canonicalize(path).map_err(about_file(path))?;
    if is_checkout(&path) {
        return Ok(path);
    }
    Err(
        Failure::wrong(format!("{} is not a checkout of Everturn", path.display()))
            .or_next("give the folder that contains crates/everturn"),
    )
}

/// Returns the checkout that this program was built from, if it exists.
fn own_checkout() -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    is_checkout(checkout).then(|| checkout.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_refuses_are_refused() {
        for right in ["my-agent", "a1", "kitchen_helper"] {
            assert!(check(right).is_ok(), "{right}");
        }
        for wrong in ["", "1a", "My", "a b", "../a", "a/b", "-a", "test", "everturn"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_placeholder_is_left() {
        for (file, template) in FILES {
            for checkout in [None, Some(Path::new("/somewhere"))] {
                let text = filled(template, "kitchen", checkout);
                assert!(
                    !text.contains("{{name")
                        && !text.contains("{{copy")
                        && !text.contains("{{d")
                        && !text.contains("{{rust"),
                    "{file}: {text}"
                );
            }
        }
    }

    #[test]
    fn without_a_checkout_the_project_depends_on_the_published_crate() {
        let manifest = filled(FILES[0].1, "kitchen", None);

        assert!(
            manifest.contains(concat!(
                "everturn = { version = \"",
                env!("CARGO_PKG_VERSION"),
                "\""
            )),
            "{manifest}"
        );
    }
}
