//! Why a value is malformed.

use crate::values::OutOfMemory;

/// Why a value, or one of its fields, is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The value ends before its JSON is complete.
    Truncated,
    /// A character that JSON does not allow at its position.
    Unexpected,
    /// A number that JSON does not allow, or one that is too long.
    Number,
    /// An unescaped control character in a string.
    ControlCharacter,
    /// An unknown or incomplete escape sequence.
    Escape,
    /// More nested objects and arrays than allowed.
    Depth,
    /// Characters after the end of the JSON value.
    Trailing,
    /// The value is JSON, but not an object.
    NotObject,
    /// A field's value does not have the type of its column.
    Type,
    /// A field's number does not fit the type of its column.
    Range,
    /// Half of a surrogate pair in a string of a VARIANT.
    HalfPair,
    /// A key that an object of a VARIANT has twice.
    DuplicateKey,
    /// A VARIANT, or elements of arrays, that are too large.
    Size,
    /// There is not enough memory. No value is malformed for this reason: the batch cannot be decoded.
    Memory,
}

impl Reason {
    /// Why values are malformed, in the order of their discriminants.
    pub const ALL: [Reason; 13] = [
        Reason::Truncated,
        Reason::Unexpected,
        Reason::Number,
        Reason::ControlCharacter,
        Reason::Escape,
        Reason::Depth,
        Reason::Trailing,
        Reason::NotObject,
        Reason::Type,
        Reason::Range,
        Reason::HalfPair,
        Reason::DuplicateKey,
        Reason::Size,
    ];

    /// Whether a value that is JSON has no VARIANT.
    pub(super) fn is_unfit_for_variant(self) -> bool {
        matches!(self, Reason::HalfPair | Reason::DuplicateKey | Reason::Size)
    }

    pub fn message(self) -> &'static str {
        match self {
            Reason::Truncated => "the JSON is incomplete",
            Reason::Unexpected => "unexpected character",
            Reason::Number => "invalid number",
            Reason::ControlCharacter => "unescaped control character in a string",
            Reason::Escape => "invalid escape sequence",
            Reason::Depth => "nested too deeply",
            Reason::Trailing => "characters after the end of the JSON value",
            Reason::NotObject => "the value is not a JSON object",
            Reason::Type => "the value does not have the type of its column",
            Reason::Range => "the number does not fit the type of its column",
            Reason::HalfPair => "half of a surrogate pair",
            Reason::DuplicateKey => "an object has a key twice",
            Reason::Size => "the decoded value is larger than 128 MiB",
            Reason::Memory => "there is not enough memory",
        }
    }
}

/// Where and why a value is malformed; `at` is a position in the bytes of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub at: usize,
    pub reason: Reason,
}

impl From<OutOfMemory> for Malformed {
    fn from(_: OutOfMemory) -> Malformed {
        Malformed { at: 0, reason: Reason::Memory }
    }
}

pub(super) type Parsed<T> = Result<T, Malformed>;

/// An error at a position; one at the end of the value means that it is incomplete.
#[cold]
pub(super) fn unexpected<T>(end: usize, at: usize, reason: Reason) -> Parsed<T> {
    if at >= end { Err(Malformed { at: end, reason: Reason::Truncated }) } else { Err(Malformed { at, reason }) }
}
