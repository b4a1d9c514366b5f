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

use crate::error::Flaw;
use crate::varint::{LONGEST, varint, varlong};

/// Bytes of the smallest record.
pub(crate) const LEAST: usize = 7;
/// What a header takes beside its bytes, as columns: two ends and a null.
const HEADER_SLOT: usize = 12;

/// A record's place in its batch: what has to be read to know whether the record is wanted at all.
pub(crate) struct Head<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    /// Key, value and headers, not yet read.
    rest: &'a [u8],
    /// Where the next record starts.
    pub end: usize,
}

/// A whole record.
pub(crate) struct Record<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of a record, checked already.
#[derive(Clone, Copy)]
pub(crate) struct Headers<'a> {
    pub count: usize,
    bytes: &'a [u8],
}

impl<'a> Head<'a> {
    /// Reads the head of the record that starts at `at`.
    #[inline(always)]
    pub fn parse(records: &'a [u8], mut at: usize) -> Result<Head<'a>, Flaw> {
        let size = varint(records, &mut at).and_then(|size| usize::try_from(size).ok());
        let Some(record) = size.and_then(|size| records.get(at..)?.get(..size)) else {
            return Err(too_long());
        };
        let end = at + record.len();
        let mut inside = 1; // behind the attributes
        match (varlong(record, &mut inside), varint(record, &mut inside)) {
            (Some(timestamp_delta), Some(offset_delta)) => {
                Ok(Head { timestamp_delta, offset_delta, rest: &record[inside..], end })
            }
            _ => Err(malformed()),
        }
    }

    /// Key, value and headers as they are, not looked at.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the rest of the record; all of it has to add up to the record's length.
    #[inline(always)]
    pub fn record(&self) -> Result<Record<'a>, Flaw> {
        let mut at = 0;
        let key = nullable(self.rest, &mut at).ok_or_else(malformed)?;
        let value = nullable(self.rest, &mut at).ok_or_else(malformed)?;
        let headers = headers(self.rest, at).ok_or_else(malformed)?;
        Ok(Record { key, value, headers })
    }
}

impl Headers<'_> {
    /// The most memory that the headers take as columns, beyond their bytes: a byte of a key that is no UTF-8 becomes
    /// three, and each header needs its slot.
    #[inline(always)]
    pub fn extra(&self) -> usize {
        if self.count == 0 { 0 } else { 2 * self.bytes.len() + HEADER_SLOT * self.count }
    }
}

/// The size of the record that `records` begin with, its length field included; `None` when that is cut off.
///
/// # Errors
/// It is no size.
pub(crate) fn size(records: &[u8]) -> Result<Option<usize>, Flaw> {
    let mut at = 0;
    match varint(records, &mut at) {
        Some(size) => Ok(Some(at + usize::try_from(size).map_err(|_| too_long())?)),
        None if records.len() < LONGEST => Ok(None),
        None => Err(too_long()),
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

/// Checks the headers that fill `rest` from `at` on.
#[inline(always)]
fn headers(rest: &[u8], mut at: usize) -> Option<Headers<'_>> {
    let count = usize::try_from(varint(rest, &mut at)?).ok()?;
    let bytes = rest.get(at..)?;
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
    let found = bytes.get(*at..)?.get(..length)?;
    *at += length;
    Some(Some(found))
}

#[cold]
fn too_long() -> Flaw {
    Flaw::corrupt("a record's length does not fit its batch")
}

#[cold]
fn malformed() -> Flaw {
    Flaw::corrupt("a record's fields do not add up to its length")
}
