//! Macros for the crates of this workspace.

/// Implements `Debug` for a type with fields that have none, or that must not be printed: `Name { field, .. }`
/// with the listed fields, and without bounds on the type's parameters.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque_debug {
    ($name:ident $(<$($parameter:tt),*>)? $(, $($field:tt).+)*) => {
        impl $(<$($parameter),*>)? ::std::fmt::Debug for $name $(<$($parameter),*>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($($field).+), &self.$($field).+))*
                    .finish_non_exhaustive()
            }
        }
    };
}

/// Defines builder methods that change one setting and return the builder: each block is the whole change.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident(mut $self:ident $(, $value:ident: $type:ty)*) $change:block
    )*) => {$(
        $(#[$attribute])*
        $visibility fn $name(mut $self $(, $value: $type)*) -> Self {
            $change;
            $self
        }
    )*};
}

/// Implements `From` by expressions.
#[doc(hidden)]
#[macro_export]
macro_rules! conversions {
    ($(
        $(#[$attribute:meta])*
        From<$from:ty> for $to:ty: |$value:ident| $converted:expr;
    )*) => {$(
        $(#[$attribute])*
        impl ::std::convert::From<$from> for $to {
            fn from($value: $from) -> Self {
                $converted
            }
        }
    )*};
}
