//! The code that replaces the function.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{ItemFn, Result, Signature};

use crate::function::Function;
use crate::input::{Argument, Field, Input};
use crate::options::{Answerer, Options};

/// The unit struct, its methods and its trait.
pub(crate) fn expand(options: &Options, function: ItemFn) -> Result<TokenStream> {
    let function = Function::read(options, function)?;
    let root = options.root();
    let private = quote!(#root::__private);

    let Function {
        visibility,
        ident,
        conditions,
        attributes,
        block,
        ..
    } = &function;
    let docs = documentation(&function);
    let signature = Signature {
        ident: format_ident!("call", span = ident.span()),
        ..function.signature.clone()
    };
    let made = make(&function, options, &private);
    let arguments = arguments_struct(&function, &private);

    Ok(quote! {
        #(#conditions)*
        #docs
        #[allow(non_camel_case_types)]
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #visibility struct #ident;

        #(#conditions)*
        impl #ident {
            #docs
            #(#attributes)*
            #[allow(clippy::unused_async, clippy::needless_pass_by_value)]
            #visibility #signature #block

            /// The tool: its name, its description, its schemas, and the function behind it.
            #[must_use]
            #[allow(clippy::unused_self)]
            #visibility fn tool(self) -> #private::Tool {
                #arguments
                #made
            }
        }

        #(#conditions)*
        #[automatically_derived]
        impl #private::IntoTool for #ident {
            fn into_tool(self) -> #private::ToolReference {
                #private::ToolReference::Tool(self.tool())
            }
        }
    })
}

/// The doc comment, or else the description, which satisfies `missing_docs`.
fn documentation(function: &Function) -> TokenStream {
    if function.docs.is_empty() {
        let description = &function.description;
        return quote!(#[doc = #description]);
    }
    let docs = &function.docs;
    quote!(#(#docs)*)
}

/// The expression that creates the tool.
fn make(function: &Function, options: &Options, private: &TokenStream) -> TokenStream {
    let Function {
        ident,
        name,
        description,
        output,
        ..
    } = function;
    let input = match &function.input {
        Input::Nothing => quote!(#private::NoInput),
        Input::Whole(value) => value.to_token_stream(),
        Input::Fields(_) => arguments_name(ident).to_token_stream(),
    };
    let mut is_input_used = false;
    let mut taken = Vec::new();
    let mut required = Vec::new();
    let mut given = Vec::new();
    for (number, argument) in function.arguments.iter().enumerate() {
        given.push(match argument {
            Argument::Whole => {
                is_input_used = true;
                quote!(input)
            }
            Argument::Field(name) => {
                is_input_used = true;
                quote!(input.#name)
            }
            Argument::Context { value, is_borrowed } => {
                let name = format_ident!("argument_{number}");
                // An invalid argument type is reported at the type.
                taken.push(quote_spanned! {value.span()=>
                    let #name = <#value as #private::FromToolContext>::from_tool_context(&context)?;
                });
                required.push(quote_spanned!(value.span()=> .requiring::<#value>()));
                if *is_borrowed {
                    quote!(&#name)
                } else {
                    quote!(#name)
                }
            }
        });
    }
    let input_name = if is_input_used { quote!(input) } else { quote!(_) };
    let context_name = if taken.is_empty() {
        quote!(_)
    } else {
        quote!(context)
    };

    let replay = function
        .replay
        .as_ref()
        .map(|replay| quote!(.with_replay(#private::Replay::#replay)));
    let answering = answering(options, private);
    let again = output.is_fallible.then(|| quote!(?));
    let value = &output.value;
    let constructor = if output.is_multipart {
        quote!(multipart::<#input, _, _>)
    } else {
        quote!(new::<#input, #value, _, _>)
    };
    quote! {
        #private::Tool::#constructor(
            #name,
            #description,
            |#input_name: #input, #context_name: #private::ToolContext| async move {
                #(#taken)*
                let output = #ident::call(#(#given),*).await #again;
                ::core::result::Result::Ok(output)
            },
        )
        #replay
        #answering
        #(#required)*
    }
}

/// The calls that set how interrupted calls may be answered, and by whom.
fn answering(options: &Options, private: &TokenStream) -> TokenStream {
    let by = |answerer: &Answerer| match answerer {
        Answerer::Caller => quote!(#private::AnsweredBy::anyone()),
        Answerer::Role(role) => quote!(#private::AnsweredBy::role(#role)),
        Answerer::When(decide) => quote!(#private::AnsweredBy::when(#decide)),
    };
    let form = options
        .answer
        .as_ref()
        .map(|form| quote!(.with_answer_form(#private::AnswerForm::#form)));
    let decision = options
        .decision
        .as_ref()
        .map(|decision| quote!(.with_decision::<#decision>()));
    let answered = options.by.as_ref().map(by).map(|by| quote!(.answered_by(#by)));
    let settled = options
        .outcome_by
        .as_ref()
        .map(by)
        .map(|by| quote!(.outcome_by(#by)));
    let approving = approving(options, private);
    quote!(#form #decision #answered #settled #approving)
}

/// The calls that set the conditions of an approval.
fn approving(options: &Options, private: &TokenStream) -> TokenStream {
    let within = options
        .expires
        .map(|seconds| quote!(.answered_within(::core::time::Duration::from_secs(#seconds))));
    let people = options
        .approvals
        .as_ref()
        .map(|people| quote!(.with_approvals(#people)));
    let another = options.second_person.then(|| quote!(.with_second_person()));
    let editable = options
        .editable
        .as_ref()
        .map(|editable| quote!(.with_editable_input(#editable)));
    let repeat = options
        .repeat
        .as_ref()
        .map(|repeat| quote!(.with_repeat(#private::Repeat::#repeat)));
    quote!(#within #people #another #editable #repeat)
}

/// The struct that several arguments are decoded into. It is declared inside the method to avoid name
/// conflicts.
fn arguments_struct(function: &Function, private: &TokenStream) -> Option<TokenStream> {
    let Input::Fields(fields) = &function.input else {
        return None;
    };
    let fields = fields.iter().map(
        |Field {
             attributes,
             name,
             value,
         }| quote!(#(#attributes)* #name: #value),
    );
    let struct_name = arguments_name(&function.ident);
    let title = &function.name;
    let [serde, schemars] = ["serde", "schemars"].map(|name| path_text(private, name));
    Some(quote! {
        #[derive(#private::serde::Deserialize, #private::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars, rename = #title)]
        struct #struct_name {
            #(#fields,)*
        }
    })
}

/// `in_season` becomes `InSeasonArguments`.
fn arguments_name(ident: &Ident) -> Ident {
    let name = ident.unraw().to_string();
    let words = name.split('_').map(|word| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    });
    format_ident!("{}Arguments", words.collect::<String>())
}

pub(crate) fn path_text(private: &TokenStream, name: &str) -> String {
    let path = private.to_string().split_whitespace().collect::<String>();
    format!("{path}::{name}")
}
