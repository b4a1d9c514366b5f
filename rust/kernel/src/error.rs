//! The one error type of the kernel.

use std::collections::TryReserveError;
use std::fmt;

/// What went wrong, as the caller tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Malformed bytes, or a checksum that does not fit.
    Corrupt,
    /// A format or codec that is not supported.
    Unsupported,
    /// A timestamp that does not fit 64-bit microseconds.
    Timestamp,
    /// Records larger than the caller allows.
    TooLarge,
    /// The process may have no more memory.
    NoMemory,
}

impl ErrorKind {
    /// The name under which Python sees the kind.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Timestamp => "timestamp",
            ErrorKind::TooLarge => "large",
            ErrorKind::NoMemory => "memory",
        }
    }
}

/// An error at a known offset of the partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    pub kind: ErrorKind,
    pub message: String,
    pub offset: i64,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (offset {})", self.message, self.offset)
    }
}

impl std::error::Error for DecodeError {}

/// An error whose offset only the caller knows; [`Flaw::at`] adds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub kind: ErrorKind,
    pub message: String,
}

impl Flaw {
    pub fn corrupt(message: impl Into<String>) -> Flaw {
        Flaw { kind: ErrorKind::Corrupt, message: message.into() }
    }

    pub fn unsupported(message: impl Into<String>) -> Flaw {
        Flaw { kind: ErrorKind::Unsupported, message: message.into() }
    }

    pub fn too_large(message: impl Into<String>) -> Flaw {
        Flaw { kind: ErrorKind::TooLarge, message: message.into() }
    }

    pub fn no_memory() -> Flaw {
        Flaw { kind: ErrorKind::NoMemory, message: "there is not enough memory for the records".to_owned() }
    }

    pub fn at(self, offset: i64) -> DecodeError {
        DecodeError { kind: self.kind, message: self.message, offset }
    }
}

impl From<TryReserveError> for Flaw {
    fn from(_: TryReserveError) -> Flaw {
        Flaw::no_memory()
    }
}
