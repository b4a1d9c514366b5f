//! Why a message is malformed.

use crate::values::OutOfMemory;

/// In the order of the messages, and of `pyspark_kafka_direct.payloads.protobuf.protobuf_values.Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Truncated,
    Varint,
    Tag,
    Group,
    Depth,
    Utf8,
    Range,
    Size,
    /// There is not enough memory. No message is malformed for this reason: the batch cannot be decoded.
    Memory,
}

impl From<OutOfMemory> for Reason {
    fn from(_: OutOfMemory) -> Reason {
        Reason::Memory
    }
}

pub(super) const MESSAGES: [&str; 8] = [
    "the message is incomplete",
    "a number has more bytes than a varint can have",
    "a field has no valid number or wire type",
    "a group ends that did not start",
    "messages are nested more than 100 levels deep",
    "a string is not valid UTF-8",
    "the value does not fit the type of its column",
    "the decoded value is too large",
];
