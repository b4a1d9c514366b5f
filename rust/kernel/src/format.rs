//! The layout of a record batch, and its constants.
//!
//! Message format 2 (KIP-98; `DefaultRecordBatch` in Kafka), big-endian:
//!
//! ```text
//!  0  baseOffset            int64
//!  8  batchLength           int32   bytes that follow this field
//! 12  partitionLeaderEpoch  int32
//! 16  magic                 int8    2
//! 17  crc                   uint32  CRC32C of everything from `attributes` on
//! 21  attributes            int16   bits 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon
//! 23  lastOffsetDelta       int32
//! 27  baseTimestamp         int64   (the delete horizon if bit 6 is set; deltas are relative to it all the same)
//! 35  maxTimestamp          int64
//! 43  producerId            int64
//! 51  producerEpoch         int16
//! 53  baseSequence          int32
//! 57  recordsCount          int32
//! 61  records, compressed as a whole if there is a codec
//! ```
//!
//! The layout of a single record is in [`crate::record`]. Message formats 0 and 1 share the first twelve bytes and the
//! position of the magic; the rest of their layout is in [`crate::legacy`].
//!
//! A control batch contains one record, the marker that ends a transaction. Its key is version int16, type int16.

/// Where the fields of a header start.
pub(crate) mod at {
    pub const BASE_OFFSET: usize = 0;
    pub const LENGTH: usize = 8;
    pub const LEADER_EPOCH: usize = 12;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    /// The CRC covers everything from here on.
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const BASE_TIMESTAMP: usize = 27;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const PRODUCER_ID: usize = 43;
    pub const PRODUCER_EPOCH: usize = 51;
    pub const BASE_SEQUENCE: usize = 53;
    pub const COUNT: usize = 57;
}

pub const HEADER: usize = 61;
/// Bytes up to and including the length, which does not count them.
pub(crate) const LOG_OVERHEAD: usize = 12;
/// Bytes up to and including the magic byte.
pub(crate) const UP_TO_MAGIC: usize = at::MAGIC + 1;
/// Message formats 0 and 1: crc, magic, attributes, key length, value length.
pub(crate) const MIN_LEGACY_LENGTH: usize = 14;

/// The message format of this layout.
pub(crate) const MAGIC: i8 = 2;

pub(crate) const CODEC_BITS: i16 = 0x07;
pub(crate) const LOG_APPEND_TIME_BIT: i16 = 0x08;
pub(crate) const TRANSACTIONAL_BIT: i16 = 0x10;
pub(crate) const CONTROL_BIT: i16 = 0x20;

/// The values of the codec bits.
pub(crate) mod codec {
    pub const NONE: u8 = 0;
    pub const GZIP: u8 = 1;
    pub const SNAPPY: u8 = 2;
    pub const LZ4: u8 = 3;
    pub const ZSTD: u8 = 4;
}

/// Spark's values of `timestampType`.
pub(crate) const CREATE_TIME: i32 = 0;
pub(crate) const LOG_APPEND_TIME: i32 = 1;

pub(crate) const NO_LEADER_EPOCH: i32 = -1;
pub(crate) const NO_PRODUCER_ID: i64 = -1;
pub(crate) const NO_PRODUCER_EPOCH: i16 = -1;
pub(crate) const NO_SEQUENCE: i32 = -1;

/// The type of the marker that ends an aborted transaction.
pub(crate) const ABORT_MARKER: i16 = 0;
