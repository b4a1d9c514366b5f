//! A program that is bound to columns: one node for each value of the writer schema.

use arrow_array::{BinaryArray, BooleanArray};
use arrow_buffer::NullBuffer;

/// How the values of a column are written. Rows outside of the column are not written.
pub(super) struct Node<'a> {
    pub number: usize,
    pub nulls: Option<&'a NullBuffer>,
    /// The branch of null in the union, or a negative number if null is not allowed.
    pub null_branch: i64,
    /// The branch of the value, or a negative number if it is not in a union.
    pub branch: i64,
    pub values: Values<'a>,
}

pub(super) enum Values<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    MicrosToMillis(&'a [i64]),
    Float(&'a [f32]),
    FloatToDouble(&'a [f32]),
    Double(&'a [f64]),
    Bytes(&'a BinaryArray),
    Fixed(&'a BinaryArray, usize),
    Decimal(&'a [i128]),
    FixedDecimal(&'a [i128], usize),
    /// The symbols in order, with their numbers.
    Enum(&'a BinaryArray, Vec<(&'a [u8], i64)>),
    /// The offsets of the rows, and the elements.
    Array(&'a [i32], Box<Node<'a>>),
    Map(&'a [i32], &'a BinaryArray, Box<Node<'a>>),
    Record(Vec<Field<'a>>),
    /// The members, of which one is not null.
    Union(Vec<Node<'a>>),
}

pub(super) enum Field<'a> {
    Column(Node<'a>),
    /// The default of a field that the columns lack.
    Constant(&'a [u8]),
}
