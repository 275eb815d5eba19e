//! The derives of data, with the paths under which the framework re-exports them.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Data, DeriveInput, Error, LitStr, Path, Result, parse_quote};

use crate::expand::path_text;

/// Parses the option with the crate that re-exports the derives.
pub(crate) fn read_root(root: &mut Path, meta: &ParseNestedMeta<'_>) -> Result<()> {
    if !meta.path.is_ident("crate") {
        return Err(meta.error("unknown option: `#[payload]` accepts `crate`"));
    }
    *root = meta
        .value()?
        .parse::<LitStr>()?
        .parse_with(Path::parse_mod_style)?;
    Ok(())
}

/// The default crate that re-exports the framework.
pub(crate) fn default_root() -> Path {
    parse_quote!(::everturn)
}

/// The type as written, preceded by the derives.
pub(crate) fn expand(root: &Path, item: &DeriveInput) -> Result<TokenStream> {
    if let Data::Union(union) = &item.data {
        let problem = "a payload is a struct or an enum: a union has no JSON form";
        return Err(Error::new(union.union_token.span, problem));
    }
    let private = quote!(#root::__private);
    let [serde, schemars] = ["serde", "schemars"].map(|name| path_text(&private, name));
    Ok(quote! {
        #[derive(#private::serde::Serialize, #private::serde::Deserialize, #private::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars)]
        #item
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(item: &DeriveInput) -> String {
        expand(&default_root(), item).unwrap().to_string()
    }

    #[test]
    fn the_derives_look_for_their_crates_here() {
        let text = expanded(&parse_quote! {
            #[serde(rename_all = "camelCase")]
            struct Kitchen {
                pantry: Vec<String>,
            }
        });

        assert!(
            text.contains(r#"serde (crate = "::everturn::__private::serde")"#),
            "{text}"
        );
        assert!(
            text.contains(r#"schemars (crate = "::everturn::__private::schemars")"#),
            "{text}"
        );
        assert!(
            text.ends_with("struct Kitchen { pantry : Vec < String > , }"),
            "{text}"
        );
    }

    #[test]
    fn a_union_is_refused() {
        let union: DeriveInput = parse_quote! {
            union Bits {
                whole: u32,
            }
        };

        assert!(
            expand(&default_root(), &union)
                .unwrap_err()
                .to_string()
                .contains("union")
        );
    }
}
