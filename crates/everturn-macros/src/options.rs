//! The options in the parentheses of `#[tool(..)]`.

use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, LitBool, LitInt, LitStr, Path, Result, Token, Type, parse_quote};

/// The options of one `#[tool]`.
#[derive(Default)]
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
    pub(crate) root: Option<Path>,
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

impl Options {
    /// Reads one option.
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string);
        match name.as_deref().unwrap_or_default() {
            "name" => put(&mut self.name, text(meta)?, meta),
            "description" => put(&mut self.description, text(meta)?, meta),
            "replay" => {
                let advice = "unknown value: `replay` accepts `pure`, `idempotent`, `keyed` and `once`";
                let variants = ["Pure", "Idempotent", "Keyed", "Once"];
                put(&mut self.replay, variant(meta, &variants, advice)?, meta)
            }
            "answer" => {
                let advice = "unknown value: `answer` accepts `restart`, `respond` and `any`";
                let variants = ["Any", "Restart", "Respond"];
                put(&mut self.answer, variant(meta, &variants, advice)?, meta)
            }
            "repeat" => {
                let advice = "unknown value: `repeat` accepts `recorded` and `ask`";
                put(
                    &mut self.repeat,
                    variant(meta, &["Recorded", "Ask"], advice)?,
                    meta,
                )
            }
            "decision" => put(&mut self.decision, meta.value()?.parse()?, meta),
            "by" => put(&mut self.by, meta.value()?.parse()?, meta),
            "outcome_by" => put(&mut self.outcome_by, meta.value()?.parse()?, meta),
            "expires" => put(&mut self.expires, duration(meta)?, meta),
            "approvals" => put(&mut self.approvals, people(meta)?, meta),
            "editable" if meta.input.peek(Token![=]) => put(&mut self.editable, meta.value()?.parse()?, meta),
            "editable" => put(&mut self.editable, parse_quote!(true), meta),
            "second_person" => {
                self.second_person = true;
                Ok(())
            }
            "fields" => {
                self.fields = true;
                Ok(())
            }
            "crate" => {
                let path: LitStr = meta.value()?.parse()?;
                self.root = Some(path.parse_with(Path::parse_mod_style)?);
                Ok(())
            }
            _ => {
                let known = "`name`, `description`, `replay`, `answer`, `decision`, `by`, `outcome_by`, `expires`, `approvals`, \
                             `second_person`, `editable`, `repeat`, `fields` and `crate`";
                Err(meta.error(format!("unknown option: `#[tool]` accepts {known}")))
            }
        }
    }

    /// Returns the path of the crate that the expansion refers to.
    pub(crate) fn root(&self) -> Path {
        self.root.clone().unwrap_or_else(|| parse_quote!(::everturn))
    }
}

fn put<T>(option: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> Result<()> {
    match option.replace(value) {
        Some(_) => Err(meta.error("this option is set twice")),
        None => Ok(()),
    }
}

fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    let text: LitStr = meta.value()?.parse()?;
    if text.value().trim().is_empty() {
        return Err(syn::Error::new(text.span(), "this value must not be empty"));
    }
    Ok(text)
}

/// Reads the name of a variant, in lower case.
fn variant(meta: &ParseNestedMeta<'_>, variants: &[&str], advice: &str) -> Result<Ident> {
    let word: LitStr = meta.value()?.parse()?;
    let name = word.value();
    match variants.iter().find(|variant| variant.to_lowercase() == name) {
        Some(variant) => Ok(Ident::new(variant, word.span())),
        None => Err(syn::Error::new(word.span(), advice)),
    }
}

/// Reads a duration, in seconds.
fn duration(meta: &ParseNestedMeta<'_>) -> Result<u64> {
    let text: LitStr = meta.value()?.parse()?;
    let advice = "`expires` needs a positive duration such as `90s`, `30m`, `24h` or `7d`";
    seconds(&text.value()).ok_or_else(|| syn::Error::new(text.span(), advice))
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

fn people(meta: &ParseNestedMeta<'_>) -> Result<LitInt> {
    let people: LitInt = meta.value()?.parse()?;
    if people.base10_parse::<u32>()? == 0 {
        return Err(syn::Error::new(people.span(), "`approvals` must be at least 1"));
    }
    Ok(people)
}
