//! Programs as operations.

use super::reason::Reason;

/// In place of the null branch of an operation that is not in a union with null.
pub(super) const NO_UNION: u8 = 0xff;

pub(super) type Program = Box<[Operation]>;

/// How the datums of a writer schema are decoded.
pub(super) struct Decoding {
    pub program: Program,
    /// Which operations of all programs call by their numbers.
    pub routines: Box<[Program]>,
}

pub(super) struct Operation {
    pub code: Code,
    /// The first byte of null, in a union with null: 0 or 2.
    pub null: u8,
    pub column: u32,
    /// The size of a fixed type, the number of symbols, the minimum size of an item, or a number of a routine.
    pub size: usize,
    pub more: More,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    SkipVarint,
    SkipBytes,
    SkipLength,
    SkipBoolean,
    SkipEnum,
    SkipItems,
    Boolean,
    Int,
    Long,
    IntToLong,
    IntToFloat,
    IntToDouble,
    LongToFloat,
    LongToDouble,
    Float,
    FloatToDouble,
    Double,
    Bytes,
    Fixed,
    MillisToMicros,
    Decimal,
    FixedDecimal,
    Enum,
    Items,
    Group,
    Union,
    Present,
    IntegerConstant,
    DoubleConstant,
    BytesConstant,
    ItemsConstant,
    Fail,
    Routine,
    Call,
    NullValue,
}

/// In the order of their numbers.
pub(super) const CODES: [Code; 35] = [
    Code::SkipVarint,
    Code::SkipBytes,
    Code::SkipLength,
    Code::SkipBoolean,
    Code::SkipEnum,
    Code::SkipItems,
    Code::Boolean,
    Code::Int,
    Code::Long,
    Code::IntToLong,
    Code::IntToFloat,
    Code::IntToDouble,
    Code::LongToFloat,
    Code::LongToDouble,
    Code::Float,
    Code::FloatToDouble,
    Code::Double,
    Code::Bytes,
    Code::Fixed,
    Code::MillisToMicros,
    Code::Decimal,
    Code::FixedDecimal,
    Code::Enum,
    Code::Items,
    Code::Group,
    Code::Union,
    Code::Present,
    Code::IntegerConstant,
    Code::DoubleConstant,
    Code::BytesConstant,
    Code::ItemsConstant,
    Code::Fail,
    Code::Routine,
    Code::Call,
    Code::NullValue,
];

/// Arguments that few operations have.
pub(super) enum More {
    Nothing,
    /// What runs for each item, or in a group.
    Body(Program),
    /// What runs for each branch, or item.
    Programs(Box<[Program]>),
    /// The bytes of each symbol; None if the reader has no such symbol.
    Symbols(Box<[Option<Box<[u8]>>]>),
    Bytes(Box<[u8]>),
    Integer(i64),
    Double(f64),
    Reason(Reason),
}
