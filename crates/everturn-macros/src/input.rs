//! What the function takes: nothing, one value, or arguments that become the fields of an object; and its context.

use proc_macro2::Ident;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, FnArg, Pat, PatIdent, PatType, Result, Token, Type};

use crate::description::is_doc;
use crate::output::{is_named, last_segment};

/// The plain types: what a model sends as a field, never as a whole input.
const PLAIN: [&str; 19] = [
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64",
    "u128", "usize", "String", "Option", "Vec",
];

/// What the model sends.
pub(crate) enum Input {
    Nothing,
    Whole(Box<Type>),
    Fields(Vec<Field>),
}

/// An argument that is a field of the input.
pub(crate) struct Field {
    /// Its doc comment and its `serde` and `schemars` attributes.
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) value: Type,
}

/// How the function takes its context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    Ignored,
    Owned,
    Borrowed,
}

/// Reads the arguments, and takes from them the attributes that only a field can have.
pub(crate) fn read(
    arguments: &mut Punctuated<FnArg, Token![,]>,
    all_fields: bool,
) -> Result<(Input, Context)> {
    let mut arguments: Vec<&mut PatType> = arguments.iter_mut().map(typed).collect::<Result<_>>()?;
    let context = arguments
        .last()
        .map_or(Context::Ignored, |last| context_of(&last.ty));
    if context != Context::Ignored {
        let last = arguments.pop().expect("the context is the last argument");
        refuse_description(last, "the context is not shown to the model")?;
    }
    arguments
        .iter()
        .try_for_each(|argument| check_type(&argument.ty))?;
    let input = match &mut *arguments {
        [] => Input::Nothing,
        [only] if !all_fields && !is_plain(&only.ty) => {
            refuse_description(
                only,
                "the input is described by its type: write this on the type or its fields",
            )?;
            Input::Whole(only.ty.clone())
        }
        several => Input::Fields(
            several
                .iter_mut()
                .map(|argument| Field::of(argument))
                .collect::<Result<_>>()?,
        ),
    };
    Ok((input, context))
}

fn typed(argument: &mut FnArg) -> Result<&mut PatType> {
    match argument {
        FnArg::Typed(argument) => Ok(argument),
        FnArg::Receiver(receiver) => Err(Error::new_spanned(
            receiver,
            "a tool has no receiver: write a function outside any `impl`",
        )),
    }
}

fn context_of(value: &Type) -> Context {
    match value {
        Type::Reference(reference) if is_context(&reference.elem) => Context::Borrowed,
        value if is_context(value) => Context::Owned,
        _ => Context::Ignored,
    }
}

fn is_context(value: &Type) -> bool {
    is_named(value, "ToolContext")
}

fn check_type(value: &Type) -> Result<()> {
    let problem = match value {
        value if context_of(value) != Context::Ignored => "the context is the last argument",
        Type::Reference(_) => "a tool owns its arguments: take this by value, such as `String` for `&str`",
        Type::ImplTrait(_) => "a tool cannot be generic: its schema is that of one type",
        _ => return Ok(()),
    };
    Err(Error::new_spanned(value, problem))
}

fn is_plain(value: &Type) -> bool {
    match value {
        Type::Array(_) | Type::Tuple(_) => true,
        value => last_segment(value).is_some_and(|segment| PLAIN.iter().any(|plain| segment.ident == plain)),
    }
}

fn refuse_description(argument: &PatType, reason: &str) -> Result<()> {
    match argument.attrs.iter().find(|attribute| is_doc(attribute)) {
        Some(doc) => Err(Error::new_spanned(doc, reason)),
        None => Ok(()),
    }
}

impl Field {
    fn of(argument: &mut PatType) -> Result<Self> {
        let Pat::Ident(PatIdent {
            by_ref: None,
            ident,
            subpat: None,
            ..
        }) = &*argument.pat
        else {
            let problem = "an argument that is a field of the tool's input needs a plain name";
            return Err(Error::new_spanned(&argument.pat, problem));
        };
        let describes_field = |attribute: &mut Attribute| {
            is_doc(attribute) || attribute.path().is_ident("serde") || attribute.path().is_ident("schemars")
        };
        Ok(Self {
            name: ident.clone(),
            value: (*argument.ty).clone(),
            attributes: argument.attrs.extract_if(.., describes_field).collect(),
        })
    }
}
