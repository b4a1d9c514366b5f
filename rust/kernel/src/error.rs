//! The error types of the kernel.

use std::collections::TryReserveError;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Malformed bytes, or a wrong checksum.
    Corrupt,
    Unsupported,
    /// A timestamp that does not fit 64-bit microseconds.
    Timestamp,
    /// Records larger than the caller allows.
    TooLarge,
    NoMemory,
}

impl ErrorKind {
    /// The name of the kind in Python.
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

/// An error without an offset, which [`KernelError::at`] adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelError {
    pub kind: ErrorKind,
    pub message: String,
}

impl KernelError {
    pub fn corrupt(message: impl Into<String>) -> KernelError {
        KernelError { kind: ErrorKind::Corrupt, message: message.into() }
    }

    pub fn unsupported(message: impl Into<String>) -> KernelError {
        KernelError { kind: ErrorKind::Unsupported, message: message.into() }
    }

    pub fn too_large(message: impl Into<String>) -> KernelError {
        KernelError { kind: ErrorKind::TooLarge, message: message.into() }
    }

    pub fn no_memory() -> KernelError {
        KernelError { kind: ErrorKind::NoMemory, message: "there is not enough memory for the records".to_owned() }
    }

    pub fn at(self, offset: i64) -> DecodeError {
        DecodeError { kind: self.kind, message: self.message, offset }
    }
}

impl From<TryReserveError> for KernelError {
    fn from(_: TryReserveError) -> KernelError {
        KernelError::no_memory()
    }
}
