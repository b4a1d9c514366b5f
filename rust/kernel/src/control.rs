//! Control batches: markers that end a transaction (KIP-98).

use crate::batch::Header;
use crate::codecs::{Codecs, DecompressedBuffer};
use crate::error::{DecodeError, KernelError};
use crate::format::{ABORT_MARKER, HEADER, codec};
use crate::record::RecordPrefix;

/// Whether `batch`, a complete control batch, contains an ABORT marker; `max_bytes` limits its decompressed size.
pub fn is_abort_marker(batch: &[u8], max_bytes: usize) -> Result<bool, DecodeError> {
    let Some(header) = Header::parse(batch) else {
        return Err(KernelError::corrupt("a control batch is shorter than its header").at(0));
    };
    contains_abort_marker(&header, batch, &mut Codecs::default(), &mut DecompressedBuffer::new(max_bytes))
        .map_err(|error| error.at(header.base_offset))
}

/// [`is_abort_marker`] with the buffers of a decoder.
pub(crate) fn contains_abort_marker(
    header: &Header,
    batch: &[u8],
    codecs: &mut Codecs,
    decompressed: &mut DecompressedBuffer,
) -> Result<bool, KernelError> {
    let mut records = &batch[HEADER..];
    if header.codec() != codec::NONE {
        codecs.begin(header.codec(), decompressed)?;
        codecs.decompress_more(records, decompressed)?;
        records = decompressed.bytes();
    }
    let record = RecordPrefix::parse(records, 0)?.record()?;
    match record.key {
        Some(&[_, _, high, low, ..]) => Ok(i16::from_be_bytes([high, low]) == ABORT_MARKER),
        _ => Err(KernelError::corrupt("a control record's key is shorter than its version and type")),
    }
}
