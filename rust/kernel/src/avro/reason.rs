//! Why a datum is malformed.

use crate::values::OutOfMemory;

/// In the order of the messages, and of `pyspark_kafka_direct.payloads.avro.avro_values.Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Truncated,
    Trailing,
    Varint,
    Boolean,
    Length,
    Branch,
    Count,
    Symbol,
    Range,
    Unreadable,
    NoDefault,
    Size,
    Depth,
    /// There is not enough memory. No datum is malformed for this reason: the batch cannot be decoded.
    Memory,
}

impl From<OutOfMemory> for Reason {
    fn from(_: OutOfMemory) -> Reason {
        Reason::Memory
    }
}

impl Reason {
    /// The reasons that a program can name.
    pub fn from_number(number: i64) -> Option<Reason> {
        [Reason::Unreadable, Reason::NoDefault].into_iter().find(|reason| *reason as i64 == number)
    }
}

pub(super) const MESSAGES: [&str; 13] = [
    "the datum is incomplete",
    "bytes after the end of the datum",
    "an integer does not fit its type",
    "a boolean is neither 0 nor 1",
    "a length is negative",
    "a union does not have this branch",
    "an array or map claims more items than it can have",
    "an enum does not have this symbol",
    "the value does not fit the type of its column",
    "the value has a type that the reader schema does not have",
    "the writer schema lacks a field that has no default",
    "the decoded value is too large",
    "a record contains itself in too many levels",
];
