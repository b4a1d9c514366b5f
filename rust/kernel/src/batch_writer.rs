//! A record batch under construction. The layout is in [`crate::format`], that of a record in [`crate::record`].

use crate::codecs::Compressor;
use crate::error::KernelError;
use crate::format::{
    HEADER, LOG_OVERHEAD, MAGIC, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, at, codec,
};
use crate::varint;

/// Length, attributes, timestamp delta, offset delta.
const MAX_PREFIX_BYTES: usize = 5 + 1 + 10 + 5;

/// The fields of a record after its deltas.
pub(crate) trait RecordContent {
    fn size(&self) -> usize;
    fn write(&self, out: &mut Vec<u8>);
}

/// A record batch under construction.
#[derive(Default)]
pub(crate) struct BatchWriter {
    /// Space for the header, then the records; empty if there are none.
    bytes: Vec<u8>,
    records: i32,
    first_timestamp: i64,
    max_timestamp: i64,
}

/// The encoding of the next record in its batch.
pub(crate) struct RecordLayout {
    timestamp: i64,
    delta: u64,
    length: usize,
    /// Of the whole record.
    pub size: usize,
}

impl BatchWriter {
    pub fn records(&self) -> i32 {
        self.records
    }

    pub fn uncompressed_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER)
    }

    /// The layout of a next record with `content` bytes after its deltas. Deltas wrap, as in Java.
    #[inline(always)]
    pub fn layout(&self, timestamp: i64, content: usize) -> RecordLayout {
        let delta = if self.records == 0 { 0 } else { varint::zigzag(timestamp.wrapping_sub(self.first_timestamp)) };
        let length = 1 + varint::size(delta) + varint::size(varint::zigzag_length(self.records as usize)) + content;
        RecordLayout { timestamp, delta, length, size: varint::size(varint::zigzag_length(length)) + length }
    }

    /// Starts a batch in an empty buffer.
    pub fn begin(&mut self, mut buffer: Vec<u8>) -> Result<(), KernelError> {
        buffer.try_reserve(HEADER)?;
        buffer.resize(HEADER, 0);
        self.bytes = buffer;
        Ok(())
    }

    /// Appends the record of this layout.
    #[inline(always)]
    pub fn append(&mut self, layout: &RecordLayout, content: &impl RecordContent) -> Result<(), KernelError> {
        if self.records == 0 {
            (self.first_timestamp, self.max_timestamp) = (layout.timestamp, layout.timestamp);
        }
        self.bytes.try_reserve(layout.size)?;
        let (mut prefix, mut end) = ([0; MAX_PREFIX_BYTES], 0);
        varint::write(&mut prefix, &mut end, varint::zigzag_length(layout.length));
        end += 1; // attributes
        varint::write(&mut prefix, &mut end, layout.delta);
        varint::write(&mut prefix, &mut end, varint::zigzag_length(self.records as usize));
        self.bytes.extend_from_slice(&prefix[..end]);
        content.write(&mut self.bytes);
        self.max_timestamp = self.max_timestamp.max(layout.timestamp);
        self.records += 1;
        Ok(())
    }

    /// Returns the complete batch (base offset 0, no leader epoch, no producer; it needs at least one record), and a
    /// buffer that is no longer needed. `scratch` is working memory.
    pub fn finish(
        &mut self,
        compressor: &mut Compressor,
        scratch: &mut Vec<u8>,
    ) -> Result<(Vec<u8>, Vec<u8>), KernelError> {
        let mut spare = Vec::new();
        let mut batch = if compressor.number() == codec::NONE {
            std::mem::take(&mut self.bytes)
        } else {
            scratch.clear();
            scratch.try_reserve(HEADER)?;
            scratch.resize(HEADER, 0);
            compressor.compress(&self.bytes[HEADER..], scratch)?;
            spare = std::mem::take(&mut self.bytes);
            let mut exact = Vec::new();
            exact.try_reserve_exact(scratch.len())?;
            exact.extend_from_slice(scratch);
            exact
        };
        self.write_header(&mut batch, compressor.number());
        self.records = 0;
        Ok((batch, spare))
    }

    fn write_header(&self, batch: &mut [u8], codec: u8) {
        let length = (batch.len() - LOG_OVERHEAD) as i32;
        let mut put = |at: usize, bytes: &[u8]| batch[at..at + bytes.len()].copy_from_slice(bytes);
        put(at::LENGTH, &length.to_be_bytes());
        put(at::LEADER_EPOCH, &NO_LEADER_EPOCH.to_be_bytes());
        put(at::MAGIC, &MAGIC.to_be_bytes());
        put(at::ATTRIBUTES, &i16::from(codec).to_be_bytes());
        put(at::LAST_OFFSET_DELTA, &(self.records - 1).to_be_bytes());
        put(at::BASE_TIMESTAMP, &self.first_timestamp.to_be_bytes());
        put(at::MAX_TIMESTAMP, &self.max_timestamp.to_be_bytes());
        put(at::PRODUCER_ID, &NO_PRODUCER_ID.to_be_bytes());
        put(at::PRODUCER_EPOCH, &NO_PRODUCER_EPOCH.to_be_bytes());
        put(at::BASE_SEQUENCE, &NO_SEQUENCE.to_be_bytes());
        put(at::COUNT, &self.records.to_be_bytes());
        let crc = crc32c::crc32c(&batch[at::ATTRIBUTES..]);
        batch[at::CRC..at::CRC + 4].copy_from_slice(&crc.to_be_bytes());
    }
}
