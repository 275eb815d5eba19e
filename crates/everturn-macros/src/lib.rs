//! The attributes `#[tool]`, which turns an async function into a tool that a model can call, and
//! `#[payload]`, which turns a type into data with a JSON form and a schema.
//!
//! The crate is used through `everturn`, which re-exports it. [`macro@tool`] and [`macro@payload`] are
//! documented there.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod description;
mod expand;
mod function;
mod input;
mod options;
mod output;
mod payload;
mod wire;

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

#[doc = include_str!("docs/payload.md")]
#[proc_macro_attribute]
pub fn payload(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut root = payload::default_root();
    let parser = syn::meta::parser(|meta| payload::read_root(&mut root, &meta));
    parse_macro_input!(arguments with parser);
    let item = parse_macro_input!(item as syn::DeriveInput);
    payload::expand(&root, &item)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Gives a struct its form on the wire: names in camelCase, and no member for a field that is `None`.
///
/// It comes before the derives. Its arguments are further attributes for serde.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn wire(arguments: TokenStream, item: TokenStream) -> TokenStream {
    wire::expand(&arguments.into(), parse_macro_input!(item as syn::ItemStruct)).into()
}
