//! What is written in the parentheses of `#[tool(..)]`.

use syn::meta::ParseNestedMeta;
use syn::{Ident, LitStr, Path, Result, parse_quote};

/// The options of one `#[tool]`.
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    /// Whether a single argument becomes a field whatever its type.
    pub(crate) fields: bool,
    /// The variant of `Replay` that says how the tool may be called again.
    pub(crate) replay: Option<Ident>,
    /// The crate that re-exports what the generated code refers to.
    pub(crate) root: Path,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            description: None,
            fields: false,
            replay: None,
            root: parse_quote!(::everturn),
        }
    }
}

impl Options {
    /// Reads one option.
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("name") {
            set_text(&mut self.name, meta)
        } else if meta.path.is_ident("description") {
            set_text(&mut self.description, meta)
        } else if meta.path.is_ident("replay") {
            set_replay(&mut self.replay, meta)
        } else if meta.path.is_ident("crate") {
            self.root = meta
                .value()?
                .parse::<LitStr>()?
                .parse_with(Path::parse_mod_style)?;
            Ok(())
        } else if meta.path.is_ident("fields") {
            self.fields = true;
            Ok(())
        } else {
            let known = "`name`, `description`, `replay`, `fields` and `crate`";
            Err(meta.error(format!("unknown option: `#[tool]` takes {known}")))
        }
    }
}

fn set_text(option: &mut Option<LitStr>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let text: LitStr = meta.value()?.parse()?;
    if text.value().trim().is_empty() {
        return Err(syn::Error::new(text.span(), "this must not be empty"));
    }
    if option.replace(text).is_some() {
        return Err(meta.error("this option is given twice"));
    }
    Ok(())
}

fn set_replay(option: &mut Option<Ident>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let word: LitStr = meta.value()?.parse()?;
    let variant = match word.value().as_str() {
        "pure" => "Pure",
        "idempotent" => "Idempotent",
        "keyed" => "Keyed",
        "once" => "Once",
        _ => {
            let advice = "a tool is `pure`, `idempotent`, `keyed` or `once`";
            return Err(syn::Error::new(word.span(), advice));
        }
    };
    if option.replace(Ident::new(variant, word.span())).is_some() {
        return Err(meta.error("this option is given twice"));
    }
    Ok(())
}
