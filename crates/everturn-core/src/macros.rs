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

/// Defines setters: methods that take the value, set one of its fields, and return the value.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $type:ty),*) { $($field:ident).+ = $value:expr }
    )*) => {
        $(
            $(#[$attribute])*
            $visibility fn $name(mut self $(, $argument: $type)*) -> Self {
                self.$($field).+ = $value;
                self
            }
        )*
    };
}
