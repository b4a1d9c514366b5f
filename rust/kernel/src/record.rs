//! One record inside a batch.
//!
//! ```text
//! length          varint   bytes that follow
//! attributes      int8     unused
//! timestampDelta  varlong
//! offsetDelta     varint
//! keyLength       varint   negative: null
//! key
//! valueLength     varint   negative: null
//! value
//! headersCount    varint
//! headers         each: keyLength varint, key (UTF-8), valueLength varint (negative: null), value
//! ```

use crate::error::KernelError;
use crate::varint::{MAX_VARINT_BYTES, varint, varlong};

pub(crate) const MIN_RECORD_BYTES: usize = 7;
/// The memory of a header in columns beside its bytes: two offsets and a null.
const HEADER_SLOT: usize = 12;

/// The fields that determine whether a record is in the range.
pub(crate) struct RecordPrefix<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    /// Key, value and headers, not yet parsed.
    fields: &'a [u8],
    /// Where the next record starts.
    pub end: usize,
}

pub(crate) struct Record<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The validated headers of a record.
#[derive(Clone, Copy, Default)]
pub(crate) struct Headers<'a> {
    pub count: usize,
    bytes: &'a [u8],
}

impl<'a> RecordPrefix<'a> {
    /// Parses the prefix of the record that starts at `at`.
    #[inline(always)]
    pub fn parse(records: &'a [u8], mut at: usize) -> Result<RecordPrefix<'a>, KernelError> {
        let size = varint(records, &mut at).and_then(|size| usize::try_from(size).ok());
        let Some(record) = size.and_then(|size| records.get(at..)?.get(..size)) else {
            return Err(length_error());
        };
        let end = at + record.len();
        let mut inside = 1; // after the attributes
        match (varlong(record, &mut inside), varint(record, &mut inside)) {
            (Some(timestamp_delta), Some(offset_delta)) => {
                Ok(RecordPrefix { timestamp_delta, offset_delta, fields: &record[inside..], end })
            }
            _ => Err(fields_error()),
        }
    }

    /// Key, value and headers, not yet parsed.
    pub fn fields(&self) -> &'a [u8] {
        self.fields
    }

    /// Parses key, value and headers, which must fill the record's length.
    #[inline(always)]
    pub fn record(&self) -> Result<Record<'a>, KernelError> {
        let mut at = 0;
        let key = nullable(self.fields, &mut at).ok_or_else(fields_error)?;
        let value = nullable(self.fields, &mut at).ok_or_else(fields_error)?;
        let headers = headers(self.fields, at).ok_or_else(fields_error)?;
        Ok(Record { key, value, headers })
    }
}

impl Headers<'_> {
    /// The most memory that the headers take as columns, beyond their bytes: an invalid UTF-8 byte of a key becomes
    /// three, and each header needs its slot.
    #[inline(always)]
    pub fn extra_bytes(&self) -> usize {
        if self.count == 0 { 0 } else { 2 * self.bytes.len() + HEADER_SLOT * self.count }
    }
}

/// The size of the record that `records` begin with, with its length field; `None` if that field is incomplete.
pub(crate) fn size(records: &[u8]) -> Result<Option<usize>, KernelError> {
    let mut at = 0;
    match varint(records, &mut at) {
        Some(size) => Ok(Some(at + usize::try_from(size).map_err(|_| length_error())?)),
        None if records.len() < MAX_VARINT_BYTES => Ok(None),
        None => Err(length_error()),
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let mut at = 0;
        let key = nullable(self.bytes, &mut at)??;
        let value = nullable(self.bytes, &mut at)?;
        self.bytes = &self.bytes[at..];
        Some((key, value))
    }
}

/// Validates the headers that fill `fields` from `at` on.
#[inline(always)]
fn headers(fields: &[u8], mut at: usize) -> Option<Headers<'_>> {
    let count = usize::try_from(varint(fields, &mut at)?).ok()?;
    let bytes = fields.get(at..)?;
    if count == 0 {
        return bytes.is_empty().then_some(Headers { count, bytes });
    }
    check_headers(bytes, count)
}

#[inline(never)]
fn check_headers(bytes: &[u8], count: usize) -> Option<Headers<'_>> {
    let mut at = 0;
    for _ in 0..count {
        nullable(bytes, &mut at)??;
        nullable(bytes, &mut at)?;
    }
    (at == bytes.len()).then_some(Headers { count, bytes })
}

/// Reads a length and that many bytes; the inner `None` is a null.
#[inline(always)]
fn nullable<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let Ok(length) = usize::try_from(varint(bytes, at)?) else {
        return Some(None);
    };
    let data = bytes.get(*at..)?.get(..length)?;
    *at += length;
    Some(Some(data))
}

#[cold]
fn length_error() -> KernelError {
    KernelError::corrupt("a record's length does not fit its batch")
}

#[cold]
fn fields_error() -> KernelError {
    KernelError::corrupt("a record's fields do not add up to its length")
}
