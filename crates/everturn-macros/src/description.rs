//! The tool's description, taken from the function's doc comment.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// Whether the attribute is a doc comment.
pub(crate) fn is_doc(attribute: &Attribute) -> bool {
    matches!(&attribute.meta, Meta::NameValue(_)) && attribute.path().is_ident("doc")
}

/// The text of a doc comment as an expression; `None` if there is no text.
pub(crate) fn of(attributes: &[Attribute]) -> Option<TokenStream> {
    let lines: Vec<Line> = attributes
        .iter()
        .filter(|attribute| is_doc(attribute))
        .filter_map(Line::of)
        .collect();
    let texts: Option<Vec<&str>> = lines.iter().map(Line::text).collect();
    let Some(texts) = texts else {
        // A line made by a macro, such as `include_str!`, is known only once the crate is compiled.
        return Some(quote!(::core::concat!(#(#lines, "\n"),*).trim_ascii()));
    };
    let text = texts.join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_token_stream())
}

/// One `///` line, or whatever `#[doc = ..]` is given.
enum Line {
    Text(String),
    Computed(Expr),
}

impl Line {
    fn of(attribute: &Attribute) -> Option<Self> {
        let value = &attribute.meta.require_name_value().ok()?.value;
        Some(match value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => {
                let text = text.value();
                Self::Text(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned())
            }
            computed => Self::Computed(computed.clone()),
        })
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Computed(_) => None,
        }
    }
}

impl ToTokens for Line {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Text(text) => text.to_tokens(tokens),
            Self::Computed(expression) => expression.to_tokens(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn description(function: &syn::ItemFn) -> Option<String> {
        of(&function.attrs).map(|tokens| tokens.to_string())
    }

    #[test]
    fn lines_are_joined_and_trimmed() {
        let function = parse_quote! {
            ///
            /// Looks up what is in season.
            ///
            /// - by month
            ///   and place
            ///
            async fn in_season() {}
        };

        let text = "Looks up what is in season.\n\n- by month\n  and place";
        assert_eq!(description(&function), Some(format!("{text:?}")));
    }

    #[test]
    fn a_comment_without_text_describes_nothing() {
        let function = parse_quote! {
            ///
            #[doc(hidden)]
            async fn in_season() {}
        };

        assert_eq!(description(&function), None);
    }

    #[test]
    fn a_line_from_a_macro_is_left_to_the_compiler() {
        let function = parse_quote! {
            /// Looks up
            #[doc = include_str!("season.md")]
            async fn in_season() {}
        };

        let tokens = description(&function).unwrap();
        assert!(tokens.contains("include_str !"), "{tokens}");
        assert!(tokens.contains("\"Looks up\""), "{tokens}");
    }
}
