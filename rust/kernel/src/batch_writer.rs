//! A record batch under construction. The layout is in [`crate::format`], that of a record in [`crate::record`].

use crate::codecs::Compressor;
use crate::error::Flaw;
use crate::format::{
    HEADER, LOG_OVERHEAD, MAGIC, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, at, codec,
};
use crate::varint;

/// The most bytes before a record's key: length, attributes, timestamp delta, offset delta.
const LONGEST_HEAD: usize = 5 + 1 + 10 + 5;

/// What a record holds behind its deltas.
pub(crate) trait Content {
    /// Bytes of it.
    fn size(&self) -> usize;
    /// Appends it to `out`, where there is room.
    fn write(&self, out: &mut Vec<u8>);
}

/// Takes records, gives the whole batch.
#[derive(Default)]
pub(crate) struct BatchWriter {
    /// Room for the header, and the records; nothing as long as there are none.
    bytes: Vec<u8>,
    records: i32,
    first_timestamp: i64,
    max_timestamp: i64,
}

/// How the next record would stand in its batch.
pub(crate) struct Place {
    timestamp: i64,
    delta: u64,
    length: usize,
    /// Bytes of the whole record.
    pub size: usize,
}

impl BatchWriter {
    pub fn records(&self) -> i32 {
        self.records
    }

    /// The records' bytes, uncompressed.
    pub fn raw_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER)
    }

    /// Where a record with `content` bytes behind its deltas would stand. Deltas wrap, as Java's do.
    #[inline(always)]
    pub fn place(&self, timestamp: i64, content: usize) -> Place {
        let delta = if self.records == 0 { 0 } else { varint::zigzag(timestamp.wrapping_sub(self.first_timestamp)) };
        let length = 1 + varint::size(delta) + varint::size(varint::zigzag_length(self.records as usize)) + content;
        Place { timestamp, delta, length, size: varint::size(varint::zigzag_length(length)) + length }
    }

    /// Begins a batch in an empty buffer.
    pub fn begin(&mut self, mut buffer: Vec<u8>) -> Result<(), Flaw> {
        buffer.try_reserve(HEADER)?;
        buffer.resize(HEADER, 0);
        self.bytes = buffer;
        Ok(())
    }

    /// Appends the record that [`BatchWriter::place`] was asked about, to a batch that was begun.
    #[inline(always)]
    pub fn append(&mut self, place: &Place, content: &impl Content) -> Result<(), Flaw> {
        if self.records == 0 {
            (self.first_timestamp, self.max_timestamp) = (place.timestamp, place.timestamp);
        }
        self.bytes.try_reserve(place.size)?;
        let (mut head, mut end) = ([0; LONGEST_HEAD], 0);
        varint::write(&mut head, &mut end, varint::zigzag_length(place.length));
        end += 1; // attributes
        varint::write(&mut head, &mut end, place.delta);
        varint::write(&mut head, &mut end, varint::zigzag_length(self.records as usize));
        self.bytes.extend_from_slice(&head[..end]);
        content.write(&mut self.bytes);
        self.max_timestamp = self.max_timestamp.max(place.timestamp);
        self.records += 1;
        Ok(())
    }

    /// Returns the whole batch: base offset 0, no leader epoch, no producer. There has to be a record in it. What comes
    /// with it is a buffer that is no longer needed; `scratch` is room to work in.
    pub fn finish(&mut self, compressor: &mut Compressor, scratch: &mut Vec<u8>) -> Result<(Vec<u8>, Vec<u8>), Flaw> {
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
        self.head(&mut batch, compressor.number());
        self.records = 0;
        Ok((batch, spare))
    }

    fn head(&self, batch: &mut [u8], codec: u8) {
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
