//! A serializer that estimates the size of a value without printing it.
//!
//! Printing reads every byte of every string to escape it. This serializer counts the length of a string in
//! constant time.

use std::fmt;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::{HEAVY, PER_VALUE};

/// The number of bytes left until a value is heavy.
pub(super) struct Scale(usize);

/// The reason why the serializer stopped.
#[derive(Debug)]
pub(super) enum Stop {
    Heavy,
    /// The value cannot be serialised; printing it returns the error.
    Unserialisable,
}

impl Scale {
    /// Returns whether a value is heavy.
    pub(super) fn is_heavy(value: &(impl Serialize + ?Sized)) -> bool {
        let mut scale = Self(HEAVY);
        matches!(value.serialize(&mut scale), Err(Stop::Heavy))
    }

    fn add(&mut self, bytes: usize) -> Result<(), Stop> {
        self.0 = self.0.checked_sub(PER_VALUE + bytes).ok_or(Stop::Heavy)?;
        Ok(())
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value was not weighed to its end")
    }
}

impl std::error::Error for Stop {}

impl serde::ser::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Unserialisable
    }
}

macro_rules! weigh_numbers {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, _: $type) -> Result<(), Stop> { self.add(0) })*
    };
}

impl Serializer for &mut Scale {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    weigh_numbers!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128, serialize_f32: f32, serialize_f64: f64, serialize_char: char
    );

    fn serialize_str(self, text: &str) -> Result<(), Stop> {
        self.add(text.len())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Stop> {
        self.add(bytes.len())
    }

    fn serialize_none(self) -> Result<(), Stop> {
        self.add(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        self.add(0)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Stop> {
        self.add(0)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Stop> {
        self.add(0)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Stop> {
        self.add(0).map(|()| self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Stop> {
        self.add(0).map(|()| self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Stop> {
        self.add(0).map(|()| self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Stop> {
        self.add(0).map(|()| self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Stop> {
        self.add(0).map(|()| self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Stop> {
        self.add(0).map(|()| self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Stop> {
        self.add(0).map(|()| self)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), Stop> {
        // Values with a `Display` form are ids, times and the like.
        self.add(0)
    }
}

macro_rules! weigh_members {
    ($($trait:ident::$method:ident),*) => {
        $(impl $trait for &mut Scale {
            type Ok = ();
            type Error = Stop;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Stop> {
                Ok(())
            }
        })*
    };
}

weigh_members!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! weigh_fields {
    ($($trait:ident),*) => {
        $(impl $trait for &mut Scale {
            type Ok = ();
            type Error = Stop;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), Stop> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Stop> {
                Ok(())
            }
        })*
    };
}

weigh_fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for &mut Scale {
    type Ok = ();
    type Error = Stop;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stop> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Stop> {
        Ok(())
    }
}
