//! The options in the parentheses of `#[tool(..)]`.

use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, LitBool, LitInt, LitStr, Path, Result, Token, Type, parse_quote};

/// The options of one `#[tool]`.
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    /// Whether a single argument becomes a field, whatever its type.
    pub(crate) fields: bool,
    /// The variant of `Replay`.
    pub(crate) replay: Option<Ident>,
    /// The variant of `AnswerForm` in which interrupted calls may be answered.
    pub(crate) answer: Option<Ident>,
    /// The type of the decision with which an interrupted call is restarted.
    pub(crate) decision: Option<Type>,
    /// The callers who may answer interrupted calls.
    pub(crate) by: Option<Answerer>,
    /// The callers who may resolve calls whose outcome is unknown.
    pub(crate) outcome_by: Option<Answerer>,
    /// The number of seconds in which a question may be answered.
    pub(crate) expires: Option<u64>,
    /// The number of different people who must give the same answer.
    pub(crate) approvals: Option<LitInt>,
    /// Whether the person in whose turn the tool asks cannot answer.
    pub(crate) second_person: bool,
    /// Whether people who approve a call may edit its arguments.
    pub(crate) editable: Option<LitBool>,
    /// The variant of `Repeat` for approved calls that were made before.
    pub(crate) repeat: Option<Ident>,
    /// The crate that re-exports what the generated code refers to.
    pub(crate) root: Path,
}

/// The callers who may answer an interrupted call.
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
            "" => return Err(syn::Error::new(role.span(), "this value must not be empty")),
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
            expires: None,
            approvals: None,
            second_person: false,
            editable: None,
            repeat: None,
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
        } else if meta.path.is_ident("expires") {
            set_expires(&mut self.expires, meta)
        } else if meta.path.is_ident("approvals") {
            set_approvals(&mut self.approvals, meta)
        } else if meta.path.is_ident("second_person") {
            self.second_person = true;
            Ok(())
        } else if meta.path.is_ident("editable") {
            set_editable(&mut self.editable, meta)
        } else if meta.path.is_ident("repeat") {
            set_repeat(&mut self.repeat, meta)
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
            let known = "`name`, `description`, `replay`, `answer`, `decision`, `by`, `outcome_by`, `expires`, `approvals`, \
                         `second_person`, `editable`, `repeat`, `fields` and `crate`";
            Err(meta.error(format!("unknown option: `#[tool]` accepts {known}")))
        }
    }
}

fn set_text(option: &mut Option<LitStr>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let text: LitStr = meta.value()?.parse()?;
    if text.value().trim().is_empty() {
        return Err(syn::Error::new(text.span(), "this value must not be empty"));
    }
    if option.replace(text).is_some() {
        return Err(meta.error("this option is set twice"));
    }
    Ok(())
}

fn set<T: Parse>(option: &mut Option<T>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    if option.replace(meta.value()?.parse()?).is_some() {
        return Err(meta.error("this option is set twice"));
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
            let advice = "unknown value: `answer` accepts `restart`, `respond` and `any`";
            return Err(syn::Error::new(word.span(), advice));
        }
    };
    if option.replace(Ident::new(variant, word.span())).is_some() {
        return Err(meta.error("this option is set twice"));
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
            let advice = "unknown value: `replay` accepts `pure`, `idempotent`, `keyed` and `once`";
            return Err(syn::Error::new(word.span(), advice));
        }
    };
    if option.replace(Ident::new(variant, word.span())).is_some() {
        return Err(meta.error("this option is set twice"));
    }
    Ok(())
}

fn set_expires(option: &mut Option<u64>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let text: LitStr = meta.value()?.parse()?;
    let Some(seconds) = seconds(&text.value()) else {
        let advice = "`expires` needs a positive duration such as `90s`, `30m`, `24h` or `7d`";
        return Err(syn::Error::new(text.span(), advice));
    };
    if option.replace(seconds).is_some() {
        return Err(meta.error("this option is set twice"));
    }
    Ok(())
}

/// Reads a whole number with a unit.
fn seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].trim().parse().ok()?;
    number.checked_mul(unit).filter(|seconds| *seconds > 0)
}

fn set_approvals(option: &mut Option<LitInt>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let people: LitInt = meta.value()?.parse()?;
    if people.base10_parse::<u32>()? == 0 {
        return Err(syn::Error::new(people.span(), "`approvals` must be at least 1"));
    }
    if option.replace(people).is_some() {
        return Err(meta.error("this option is set twice"));
    }
    Ok(())
}

/// Reads `editable` or `editable = false`.
fn set_editable(option: &mut Option<LitBool>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let value = if meta.input.peek(Token![=]) {
        meta.value()?.parse()?
    } else {
        parse_quote!(true)
    };
    if option.replace(value).is_some() {
        return Err(meta.error("this option is set twice"));
    }
    Ok(())
}

fn set_repeat(option: &mut Option<Ident>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let word: LitStr = meta.value()?.parse()?;
    let variant = match word.value().as_str() {
        "recorded" => "Recorded",
        "ask" => "Ask",
        _ => {
            let advice = "unknown value: `repeat` accepts `recorded` and `ask`";
            return Err(syn::Error::new(word.span(), advice));
        }
    };
    if option.replace(Ident::new(variant, word.span())).is_some() {
        return Err(meta.error("this option is set twice"));
    }
    Ok(())
}
