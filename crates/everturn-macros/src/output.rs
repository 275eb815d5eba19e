//! The return type of the function: a value or a `Result` of one, and whether it is a complete multipart
//! response.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{GenericArgument, PathArguments, PathSegment, ReturnType, Type};

/// The result of a tool's function.
pub(crate) struct Output {
    /// The type of the value, or `_` where the signature does not spell it.
    pub(crate) value: TokenStream,
    pub(crate) is_fallible: bool,
    pub(crate) is_multipart: bool,
}

impl Output {
    /// Reads a return type. Types are recognised by name, since a macro sees only names.
    pub(crate) fn of(signature: &ReturnType) -> Self {
        let ReturnType::Type(_, returned) = signature else {
            return Self {
                value: quote!(()),
                is_fallible: false,
                is_multipart: false,
            };
        };
        let is_fallible = is_named(returned, "Result") || is_named(returned, "HandlerResult");
        let value = if is_fallible {
            first_argument(returned)
        } else {
            Some(&**returned)
        };
        Self {
            is_fallible,
            is_multipart: value.is_some_and(|value| is_named(value, "MultipartToolResponse")),
            value: value
                .filter(|value| !matches!(value, Type::ImplTrait(_)))
                .map_or_else(|| quote!(_), spelled),
        }
    }
}

fn spelled(value: &Type) -> TokenStream {
    value.to_token_stream()
}

/// The last segment of a type's path: its name and arguments.
pub(crate) fn last_segment(value: &Type) -> Option<&PathSegment> {
    match value {
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// Whether the type is a path that ends in this name.
pub(crate) fn is_named(value: &Type, name: &str) -> bool {
    last_segment(value).is_some_and(|segment| segment.ident == name)
}

/// The first type in angle brackets.
pub(crate) fn first_argument(value: &Type) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &last_segment(value)?.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(argument) => Some(argument),
        _ => None,
    })
}
