//! What is written in the parentheses of `#[tool(..)]`.

use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, LitStr, Path, Result, Type, parse_quote};

/// The options of one `#[tool]`.
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    /// Whether a single argument becomes a field whatever its type.
    pub(crate) fields: bool,
    /// The variant of `Replay` that says how the tool may be called again.
    pub(crate) replay: Option<Ident>,
    /// The variant of `AnswerForm` in which interrupted calls may be answered.
    pub(crate) answer: Option<Ident>,
    /// The type of the decision with which an interrupted call is restarted.
    pub(crate) decision: Option<Type>,
    /// Who may answer interrupted calls.
    pub(crate) by: Option<Answerer>,
    /// Who may settle calls whose outcome is unknown.
    pub(crate) outcome_by: Option<Answerer>,
    /// The crate that re-exports what the generated code refers to.
    pub(crate) root: Path,
}

/// Who may answer an interrupted call.
pub(crate) enum Answerer {
    /// Everyone who may use the session.
    Caller,
    /// Callers with a role.
    Role(LitStr),
    /// Callers for whom a function of the principal and the call returns true.
    When(Expr),
}

impl Parse for Answerer {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(LitStr) {
            return Ok(Self::When(input.parse()?));
        }
        let role: LitStr = input.parse()?;
        Ok(match role.value().trim() {
            "" => return Err(syn::Error::new(role.span(), "this must not be empty")),
            "caller" => Self::Caller,
            _ => Self::Role(role),
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            description: None,
            fields: false,
            replay: None,
            answer: None,
            decision: None,
            by: None,
            outcome_by: None,
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
        } else if meta.path.is_ident("answer") {
            set_answer(&mut self.answer, meta)
        } else if meta.path.is_ident("decision") {
            set(&mut self.decision, meta)
        } else if meta.path.is_ident("by") {
            set(&mut self.by, meta)
        } else if meta.path.is_ident("outcome_by") {
            set(&mut self.outcome_by, meta)
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
            let known = "`name`, `description`, `replay`, `answer`, `decision`, `by`, `outcome_by`, `fields` and `crate`";
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

fn set<T: Parse>(option: &mut Option<T>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    if option.replace(meta.value()?.parse()?).is_some() {
        return Err(meta.error("this option is given twice"));
    }
    Ok(())
}

fn set_answer(option: &mut Option<Ident>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let word: LitStr = meta.value()?.parse()?;
    let variant = match word.value().as_str() {
        "any" => "Any",
        "restart" => "Restart",
        "respond" => "Respond",
        _ => {
            let advice = "an interrupted tool is answered by `restart`, `respond` or `any`";
            return Err(syn::Error::new(word.span(), advice));
        }
    };
    if option.replace(Ident::new(variant, word.span())).is_some() {
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
