//! The arguments of the function: none, one value or the fields of an object from the model; and values from
//! the context.

use proc_macro2::Ident;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, FnArg, Pat, PatIdent, PatType, Result, Token, Type};

use crate::description::is_doc;
use crate::output::{first_argument, is_named, last_segment};

/// The plain types, which a model sends as a field and never as a whole input.
const PLAIN: [&str; 19] = [
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64",
    "u128", "usize", "String", "Option", "Vec",
];

/// The input from the model.
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

/// The source of an argument's value.
pub(crate) enum Argument {
    /// The whole input.
    Whole,
    /// The field of the input that has the argument's name.
    Field(Ident),
    /// The context of the call, from which a value of this type is taken.
    Context { value: Box<Type>, is_borrowed: bool },
}

/// Types that come from the context of a call, recognised by their names; others are marked `#[context]`.
const FROM_CONTEXT: [&str; 6] = [
    "ToolContext",
    "Context",
    "Dep",
    "Principal",
    "Session",
    "SessionHandle",
];

/// Types of which an `Option` comes from the context too.
const OPTIONAL: [&str; 2] = ["Dep", "Principal"];

/// Parses the arguments in their order, and removes the attributes that only a tool's argument can have.
pub(crate) fn read(
    arguments: &mut Punctuated<FnArg, Token![,]>,
    all_fields: bool,
) -> Result<(Input, Vec<Argument>)> {
    let mut arguments: Vec<&mut PatType> = arguments.iter_mut().map(typed).collect::<Result<_>>()?;
    let mut order = Vec::new();
    let mut sent = Vec::new();
    for argument in &mut arguments {
        let from_context = from_context(argument)?;
        if from_context.is_none() {
            check_type(&argument.ty)?;
            sent.push(&mut **argument);
        }
        order.push(from_context);
    }
    let input = match &mut *sent {
        [] => Input::Nothing,
        [only] if !all_fields && !is_plain(&only.ty) => {
            refuse_description(
                only,
                "this argument is the whole input, which its type describes: move the doc comment to the type or its fields",
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
    let mut fields = match &input {
        Input::Fields(fields) => fields.as_slice(),
        Input::Nothing | Input::Whole(_) => &[],
    }
    .iter();
    let sent = |from_context: Option<Argument>| {
        from_context.unwrap_or_else(|| match fields.next() {
            Some(field) => Argument::Field(field.name.clone()),
            None => Argument::Whole,
        })
    };
    let order = order.into_iter().map(sent).collect();
    Ok((input, order))
}

/// Returns the argument if it comes from the context of the call.
fn from_context(argument: &mut PatType) -> Result<Option<Argument>> {
    let marks = argument
        .attrs
        .extract_if(.., |attribute| attribute.path().is_ident("context"));
    let is_marked = marks.count() > 0;
    let (value, is_borrowed) = match &*argument.ty {
        Type::Reference(reference) if reference.mutability.is_none() => (&reference.elem, true),
        _ => (&argument.ty, false),
    };
    if !is_marked && !is_from_context(value) {
        return Ok(None);
    }
    let value = value.clone();
    refuse_description(
        argument,
        "this argument comes from the context and is not part of the tool's input: remove its doc comment",
    )?;
    Ok(Some(Argument::Context { value, is_borrowed }))
}

fn is_from_context(value: &Type) -> bool {
    let is_one_of = |names: &[&str], value: &Type| names.iter().any(|name| is_named(value, name));
    let is_optional = || {
        is_named(value, "Option") && first_argument(value).is_some_and(|inner| is_one_of(&OPTIONAL, inner))
    };
    is_one_of(&FROM_CONTEXT, value) || is_optional()
}

fn typed(argument: &mut FnArg) -> Result<&mut PatType> {
    match argument {
        FnArg::Typed(argument) => Ok(argument),
        FnArg::Receiver(receiver) => Err(Error::new_spanned(
            receiver,
            "a tool cannot take `self`: move the function out of the `impl` block",
        )),
    }
}

fn check_type(value: &Type) -> Result<()> {
    let problem = match value {
        Type::Reference(_) => {
            "a tool cannot borrow its arguments: take this one by value, for example `String` instead of `&str`"
        }
        Type::ImplTrait(_) => "a tool cannot be generic, because its schema describes one concrete type",
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
            let problem =
                "this argument is a field of the tool's input and needs a plain name, such as `city: String`";
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
