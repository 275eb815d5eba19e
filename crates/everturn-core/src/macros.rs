//! Macros for the crates of this workspace.

/// Implements `Debug` for a type with fields that have none, or that must not be printed. Prints the listed
/// fields and `..`; the type's parameters need no bounds.
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

/// Implements equality and hashing by a key of the value, and its order.
macro_rules! compared_by {
    ($name:ty, $key:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.$key() == other.$key()
            }
        }

        impl Eq for $name {}

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.$key().hash(state);
            }
        }
    };
    ($name:ty, $key:ident, ordered) => {
        $crate::macros::compared_by!($name, $key);

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.$key().cmp(&other.$key())
            }
        }
    };
}
pub(crate) use compared_by;
