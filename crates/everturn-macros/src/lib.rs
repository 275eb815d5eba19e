//! The `#[tool]` attribute: an async function becomes a tool that a model can call.
//!
//! The crate is used through `everturn`, which re-exports it. What the attribute promises is written at
//! [`macro@tool`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod description;
mod expand;
mod function;
mod input;
mod options;
mod output;

use proc_macro::TokenStream;
use syn::parse_macro_input;

use crate::options::Options;

#[doc = include_str!("docs/tool.md")]
#[proc_macro_attribute]
pub fn tool(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut options = Options::default();
    let parser = syn::meta::parser(|meta| options.read(&meta));
    parse_macro_input!(arguments with parser);
    let function = parse_macro_input!(item as syn::ItemFn);
    expand::expand(&options, function)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
