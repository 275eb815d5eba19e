//! The function under `#[tool]`, parsed and checked.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::{Attribute, Block, Error, Ident, ItemFn, LitStr, Result, Safety, Signature, Visibility};

use crate::description;
use crate::input::{self, Argument, Input};
use crate::options::Options;
use crate::output::Output;

/// The parsed function of a tool.
pub(crate) struct Function {
    pub(crate) visibility: Visibility,
    pub(crate) ident: Ident,
    /// The name by which the model calls the tool.
    pub(crate) name: LitStr,
    pub(crate) description: TokenStream,
    /// The doc comment, for people.
    pub(crate) docs: Vec<Attribute>,
    /// The `cfg` attributes of the function.
    pub(crate) conditions: Vec<Attribute>,
    /// All other attributes of the function.
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) signature: Signature,
    pub(crate) block: Box<Block>,
    pub(crate) input: Input,
    /// The source of each argument's value.
    pub(crate) arguments: Vec<Argument>,
    pub(crate) output: Output,
    /// The variant of `Replay`, if one was named.
    pub(crate) replay: Option<Ident>,
}

impl Function {
    /// Parses the function.
    ///
    /// # Errors
    /// All mistakes in its form at once, or else the first mistake in its arguments.
    pub(crate) fn read(options: &Options, mut function: ItemFn) -> Result<Self> {
        check_form(&function.sig)?;
        let (input, arguments) = input::read(&mut function.sig.inputs, options.fields)?;
        let ident = function.sig.ident.clone();
        let description = match &options.description {
            Some(description) => description.to_token_stream(),
            None => description::of(&function.attrs).ok_or_else(|| no_description(&ident))?,
        };
        let mut attributes = function.attrs;
        Ok(Self {
            visibility: function.vis,
            name: options
                .name
                .clone()
                .unwrap_or_else(|| LitStr::new(&ident.unraw().to_string(), ident.span())),
            description,
            docs: attributes
                .extract_if(.., |attribute| description::is_doc(attribute))
                .collect(),
            conditions: attributes
                .extract_if(.., |attribute| attribute.path().is_ident("cfg"))
                .collect(),
            attributes,
            output: Output::of(&function.sig.output),
            ident,
            signature: function.sig,
            block: function.block,
            input,
            arguments,
            replay: options.replay.clone(),
        })
    }
}

fn no_description(ident: &Ident) -> Error {
    let advice =
        "the tool has no description for the model: add a doc comment or `#[tool(description = \"..\")]`";
    Error::new(ident.span(), advice)
}

fn check_form(signature: &Signature) -> Result<()> {
    let mut problems = Vec::new();
    if signature.asyncness.is_none() {
        problems.push(Error::new(
            signature.fn_token.span,
            "a tool must be an `async fn`",
        ));
    }
    if let Some(constness) = &signature.constness {
        problems.push(Error::new(constness.span, "a tool cannot be `const`"));
    }
    if let Safety::Unsafe(keyword) = &signature.safety {
        problems.push(Error::new(
            keyword.span,
            "a tool cannot be `unsafe`, because the model chooses its arguments",
        ));
    }
    if let Some(abi) = &signature.abi {
        problems.push(Error::new_spanned(abi, "a tool cannot have a foreign ABI"));
    }
    if !signature.generics.params.is_empty() {
        problems.push(Error::new_spanned(
            &signature.generics,
            "a tool cannot be generic, because its schema describes one concrete type",
        ));
    }
    if let Some(bounds) = &signature.generics.where_clause {
        problems.push(Error::new_spanned(bounds, "a tool cannot have a `where` clause"));
    }
    let together = problems.into_iter().reduce(|mut all, problem| {
        all.combine(problem);
        all
    });
    together.map_or(Ok(()), Err)
}
