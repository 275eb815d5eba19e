//! The form of a struct on the wire.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Field, ItemStruct, Type, parse_quote};

/// The struct with the attributes for serde; `arguments` are further ones of the container.
pub(crate) fn expand(arguments: &TokenStream, mut item: ItemStruct) -> TokenStream {
    for field in &mut item.fields {
        if is_option(&field.ty) && !has_rule(field) {
            let rule = parse_quote!(#[serde(default, skip_serializing_if = "Option::is_none")]);
            field.attrs.push(rule);
        }
    }
    // After the derives, which introduce the attribute.
    item.attrs
        .push(parse_quote!(#[serde(rename_all = "camelCase", #arguments)]));
    quote!(#item)
}

fn is_option(kind: &Type) -> bool {
    matches!(kind, Type::Path(kind) if kind.path.segments.last().is_some_and(|name| name.ident == "Option"))
}

/// Returns whether a field has a rule for when it is left out.
fn has_rule(field: &Field) -> bool {
    let mut attributes = field.attrs.iter();
    attributes.any(|attribute| attribute.to_token_stream().to_string().contains("skip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_a_value_are_left_out_unless_they_have_a_rule() {
        let text = expand(
            &quote!(deny_unknown_fields),
            parse_quote! {
                struct Order {
                    dish: String,
                    note: Option<String>,
                    #[serde(skip)]
                    table: Option<u32>,
                }
            },
        );

        let expected = quote! {
            #[serde(rename_all = "camelCase", deny_unknown_fields)]
            struct Order {
                dish: String,
                #[serde(default, skip_serializing_if = "Option::is_none")]
                note: Option<String>,
                #[serde(skip)]
                table: Option<u32>,
            }
        };
        assert_eq!(text.to_string(), expected.to_string());
    }
}
