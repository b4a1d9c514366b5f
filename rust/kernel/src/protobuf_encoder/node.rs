//! A program that is bound to columns: one node for each value, key and element.

use arrow_array::{BinaryArray, BooleanArray};
use arrow_buffer::NullBuffer;

/// How the values of a column are written. Rows outside of the column are not written.
pub(super) struct Node<'a> {
    pub number: usize,
    pub nulls: Option<&'a NullBuffer>,
    pub values: Values<'a>,
}

pub(super) enum Values<'a> {
    Boolean(&'a BooleanArray),
    Varint(Integers<'a>),
    Zigzag(Integers<'a>),
    Fixed32(Integers<'a>),
    Fixed64(Integers<'a>),
    Float(&'a [f32]),
    Double(&'a [f64]),
    /// Checked for UTF-8.
    String(&'a BinaryArray),
    Bytes(&'a BinaryArray),
    EnumName(&'a BinaryArray, Names<'a>),
    /// The numbers of a closed enum in order, or none if a value may be any number.
    EnumNumber(&'a [i32], Option<Vec<i32>>),
    Message(Message<'a>),
    /// A message whose field 1 is the value.
    Wrapped(Box<Field<'a>>),
    /// Microseconds, and whether the nanoseconds have the sign of the seconds.
    Moment(&'a [i64], bool),
}

pub(super) enum Integers<'a> {
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    /// Numbers without a sign.
    Bits32(&'a [i32]),
    Int64(&'a [i64]),
    /// Numbers from the first one to the last one.
    Range(&'a [i64], i64, i64),
    /// From 0 to 2^64 - 1.
    Decimal(&'a [i128]),
}

pub(super) struct Names<'a> {
    /// In order, with their numbers.
    pub symbols: Vec<(&'a [u8], i32)>,
    /// What the name of another number begins with; None if there are no others.
    pub prefix: Option<&'a [u8]>,
}

pub(super) struct Message<'a> {
    pub fields: Vec<Field<'a>>,
    /// Indexes of the fields of each oneof.
    pub oneofs: Vec<Vec<usize>>,
}

pub(super) struct Field<'a> {
    /// With the wire type.
    pub tag: u32,
    pub shape: Shape<'a>,
    /// The value, the elements of a list, or the values of a map.
    pub node: Node<'a>,
}

pub(super) enum Shape<'a> {
    Optional,
    /// A value of zero is the same as none.
    Implicit,
    Required,
    /// The nulls and the offsets of the rows.
    Repeated(Option<&'a NullBuffer>, &'a [i32]),
    Packed(Option<&'a NullBuffer>, &'a [i32]),
    /// Also the tag and the node of the keys, and the tag of the values.
    Map(Option<&'a NullBuffer>, &'a [i32], u32, Box<Node<'a>>, u32),
}
