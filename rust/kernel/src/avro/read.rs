//! Runs programs.
//!
//! For speed, values of fixed size are first read without a check of the datum's end, perhaps from the next datum; the
//! datum counts only if it ends exactly at its end. If it does not, or has an error, it is read again with `EXACT`, which
//! checks each value, and records where the value starts that cannot be read.

use super::columns::{Column, Values, put};
use super::program::{Code, More, NO_UNION, Operation, Program};
use super::reason::Reason;

/// Of a datum's array items that have no bytes, so that the size of the datum does not limit their number.
const MAX_EMPTY_ITEMS: usize = 1 << 16;

/// Of routines in routines: how deep records may be in records of the same type that are skipped.
const MAX_CALLS: usize = 100;

/// What a datum may still use, and where it is read.
pub(super) struct State<'a> {
    pub at: usize,
    /// Of the elements of its arrays and maps, and of its strings that are not in the datum.
    pub bytes: usize,
    empty_items: usize,
    routines: &'a [Program],
    calls: usize,
    /// Whether the whole value is null.
    pub is_null: bool,
}

impl State<'_> {
    pub(super) fn new(at: usize, bytes: usize, routines: &[Program]) -> State<'_> {
        State { at, bytes, empty_items: MAX_EMPTY_ITEMS, routines, calls: MAX_CALLS, is_null: false }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Reason> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Reason::Size)?;
        Ok(())
    }
}

/// A datum in the bytes of a batch. With `EXACT`, `bytes` ends with it.
#[derive(Clone, Copy)]
pub(super) struct Datum<'a> {
    pub bytes: &'a [u8],
    pub end: usize,
}

/// Writes the values of a datum from `at` on into a row; returns the position after them.
///
/// After an error, the row is incomplete.
pub(super) fn run<const EXACT: bool>(
    operations: &[Operation],
    columns: &mut [Column],
    datum: Datum<'_>,
    mut at: usize,
    row: usize,
    state: &mut State<'_>,
) -> Result<usize, Reason> {
    for operation in operations {
        let mut word = load8(datum.bytes, at);
        if operation.null != NO_UNION {
            if EXACT {
                state.at = at;
            }
            let branch = word as u8;
            if branch | 2 == 2 && (!EXACT || at < datum.end) {
                at += 1;
                word >>= 8;
                if branch == operation.null {
                    continue;
                }
            } else {
                let (branch, after) = long_varint(datum.bytes, at)?;
                at = after;
                word = load8(datum.bytes, at);
                if branch > 2 || branch == 1 {
                    return Err(Reason::Branch);
                }
                if branch == u64::from(operation.null) {
                    continue;
                }
            }
        }
        if EXACT {
            state.at = at;
        }
        // Reads a varint at the current position.
        macro_rules! varint {
            () => {{
                let (value, after) = varint::<EXACT>(word, datum.bytes, at)?;
                at = after;
                value
            }};
        }
        // Reads bytes of a fixed size.
        macro_rules! bytes {
            ($size:expr) => {{
                if EXACT && datum.end - at < $size {
                    return Err(Reason::Truncated);
                }
                let value = load8(datum.bytes, at);
                at += $size;
                value
            }};
        }
        // Writes a value of fixed width.
        macro_rules! put {
            ($kind:ident, $value:expr) => {{
                let value = $value;
                let Some(Column { values: Values::$kind(values), nulls, .. }) =
                    columns.get_mut(operation.column as usize)
                else {
                    return Err(Reason::Unreadable);
                };
                put(values, nulls, row, value)?;
            }};
        }
        match operation.code {
            Code::Int => put!(Int32, int(varint!())?),
            Code::Long => put!(Int64, zigzag(varint!())),
            Code::Double => put!(Float64, f64::from_bits(bytes!(8))),
            Code::Bytes => {
                let length = length(varint!(), at, datum.end)?;
                columns[operation.column as usize].put_bytes(datum.bytes, at, length, row)?;
                at += length;
            }
            Code::IntToLong => put!(Int64, i64::from(int(varint!())?)),
            Code::Boolean => put!(Boolean, boolean(bytes!(1))?),
            Code::Float => put!(Float32, f32::from_bits(bytes!(4) as u32)),
            Code::SkipVarint => {
                varint!();
            }
            Code::SkipBytes => {
                at = at.checked_add(operation.size).filter(|&after| after <= datum.end).ok_or(Reason::Truncated)?;
            }
            Code::SkipLength => at += length(varint!(), at, datum.end)?,
            Code::SkipBoolean => {
                boolean(bytes!(1))?;
            }
            Code::FloatToDouble => put!(Float64, f64::from(f32::from_bits(bytes!(4) as u32))),
            Code::IntToFloat => put!(Float32, int(varint!())? as f32),
            Code::IntToDouble => put!(Float64, f64::from(int(varint!())?)),
            Code::LongToFloat => put!(Float32, zigzag(varint!()) as f32),
            Code::LongToDouble => put!(Float64, zigzag(varint!()) as f64),
            Code::MillisToMicros => {
                put!(Int64, zigzag(varint!()).checked_mul(1000).ok_or(Reason::Range)?);
            }
            Code::Present => columns[operation.column as usize].put_struct(row)?,
            Code::Group => {
                if let More::Body(body) = &operation.more {
                    at = run::<EXACT>(body, columns, datum, at, row, state)?;
                }
            }
            _ => at = run_rare::<EXACT>(operation, columns, datum, at, row, state)?,
        }
    }
    Ok(at)
}

/// The operations that most records do not have; out of line, so that the loop above stays small.
#[inline(never)]
fn run_rare<const EXACT: bool>(
    operation: &Operation,
    columns: &mut [Column],
    datum: Datum<'_>,
    mut at: usize,
    row: usize,
    state: &mut State<'_>,
) -> Result<usize, Reason> {
    let number = operation.column as usize;
    match (operation.code, &operation.more) {
        (Code::Items, More::Body(body)) => loop {
            let count = block::<EXACT>(datum, &mut at, operation.size, state)?;
            if count == 0 {
                columns[number].put_end(row)?;
                break;
            }
            state.charge(count.saturating_mul(columns[number].element_width))?;
            if body.is_empty() {
                columns[number].add_items(count);
                continue;
            }
            for _ in 0..count {
                let item = columns[number].length();
                at = run::<EXACT>(body, columns, datum, at, item, state)?;
                columns[number].add_items(1);
            }
        },
        (Code::SkipItems, More::Body(body)) => loop {
            let count = block::<EXACT>(datum, &mut at, operation.size, state)?;
            if count == 0 {
                break;
            }
            if !body.is_empty() {
                for _ in 0..count {
                    at = run::<EXACT>(body, columns, datum, at, row, state)?;
                }
            }
        },
        (Code::Union, More::Programs(programs)) => {
            let (branch, after) = long_varint(datum.bytes, at)?;
            let program = usize::try_from(zigzag(branch)).ok().and_then(|branch| programs.get(branch));
            return run::<EXACT>(program.ok_or(Reason::Branch)?, columns, datum, after, row, state);
        }
        (Code::Call, _) => {
            let routine = state.routines.get(operation.size).ok_or(Reason::Unreadable)?;
            state.calls = state.calls.checked_sub(1).ok_or(Reason::Depth)?;
            at = run::<EXACT>(routine, columns, datum, at, row, state)?;
            state.calls += 1;
        }
        (Code::NullValue, _) => state.is_null = true,
        (Code::SkipEnum, _) => {
            let (symbol, after) = long_varint(datum.bytes, at)?;
            at = after;
            if usize::try_from(zigzag(symbol)).is_ok_and(|symbol| symbol < operation.size) {
                return Ok(at);
            }
            return Err(Reason::Symbol);
        }
        (Code::Enum, More::Symbols(symbols)) => {
            let (symbol, after) = long_varint(datum.bytes, at)?;
            at = after;
            let symbol = usize::try_from(zigzag(symbol)).ok().and_then(|symbol| symbols.get(symbol));
            let symbol = symbol.and_then(Option::as_deref).ok_or(Reason::Symbol)?;
            state.charge(symbol.len())?;
            columns[number].put_bytes(symbol, 0, symbol.len(), row)?;
        }
        (Code::Fixed, _) => {
            if operation.size > datum.end.saturating_sub(at) {
                return Err(Reason::Truncated);
            }
            columns[number].put_bytes(datum.bytes, at, operation.size, row)?;
            at += operation.size;
        }
        (Code::Decimal | Code::FixedDecimal, _) => {
            let mut size = operation.size;
            if operation.code == Code::Decimal {
                let (value, after) = long_varint(datum.bytes, at)?;
                at = after;
                size = length(value, at, datum.end)?;
            }
            let bytes = datum.bytes.get(at..at + size).filter(|_| at + size <= datum.end).ok_or(Reason::Truncated)?;
            put_decimal(&mut columns[number], bytes, row)?;
            at += size;
        }
        (Code::BytesConstant, More::Bytes(bytes)) => {
            state.charge(bytes.len())?;
            if matches!(columns[number].values, Values::Decimal { .. }) {
                put_decimal(&mut columns[number], bytes, row)?;
            } else {
                columns[number].put_bytes(bytes, 0, bytes.len(), row)?;
            }
        }
        (Code::IntegerConstant, More::Integer(value)) => {
            let Column { values, nulls, .. } = &mut columns[number];
            match values {
                Values::Boolean(values) => put(values, nulls, row, *value != 0)?,
                Values::Int32(values) => put(values, nulls, row, *value as i32)?,
                Values::Int64(values) => put(values, nulls, row, *value)?,
                _ => {}
            }
        }
        (Code::DoubleConstant, More::Double(value)) => {
            let Column { values, nulls, .. } = &mut columns[number];
            match values {
                Values::Float32(values) => put(values, nulls, row, *value as f32)?,
                Values::Float64(values) => put(values, nulls, row, *value)?,
                _ => {}
            }
        }
        (Code::ItemsConstant, More::Programs(items)) => {
            state.charge(items.len().saturating_mul(columns[number].element_width))?;
            for item in items {
                let item_row = columns[number].length();
                at = run::<EXACT>(item, columns, datum, at, item_row, state)?;
                columns[number].add_items(1);
            }
            columns[number].put_end(row)?;
        }
        (_, More::Reason(reason)) => return Err(*reason),
        _ => return Err(Reason::Unreadable),
    }
    Ok(at)
}

/// Reads the number of items of a block; no items are the end of an array or map.
fn block<const EXACT: bool>(
    datum: Datum<'_>,
    at: &mut usize,
    min_size: usize,
    state: &mut State<'_>,
) -> Result<usize, Reason> {
    if EXACT {
        state.at = *at;
    }
    let (count, mut after) = long_varint(datum.bytes, *at)?;
    let count = zigzag(count);
    if count < 0 {
        (_, after) = long_varint(datum.bytes, after)?; // the size of the block, which only readers that jump need
    }
    *at = after;
    let count = usize::try_from(count.unsigned_abs()).map_err(|_| Reason::Count)?;
    if min_size == 0 {
        state.empty_items = state.empty_items.checked_sub(count).ok_or(Reason::Count)?;
    } else if count > datum.end.saturating_sub(after) / min_size {
        return Err(Reason::Count);
    }
    Ok(count)
}

/// Writes a decimal, whose bytes are a number in two's complement.
fn put_decimal(column: &mut Column, bytes: &[u8], row: usize) -> Result<(), Reason> {
    let Values::Decimal { values, limit } = &mut column.values else { return Err(Reason::Unreadable) };
    let sign = if *bytes.first().ok_or(Reason::Range)? < 0x80 { 0 } else { 0xff };
    let mut number = [sign; 16];
    let digits = &bytes[bytes.iter().take_while(|&&byte| byte == sign).count()..];
    let start = 16usize.checked_sub(digits.len()).ok_or(Reason::Range)?;
    number[start..].copy_from_slice(digits);
    let number = i128::from_be_bytes(number);
    if number.is_negative() != (sign != 0) || number >= *limit || number <= -*limit {
        return Err(Reason::Range);
    }
    put(values, &mut column.nulls, row, number)?;
    Ok(())
}

/// Eight bytes; those after the end of `bytes` are 0.
#[inline(always)]
fn load8(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => load_tail(bytes, at),
    }
}

#[cold]
fn load_tail(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// A varint, whose first bytes are the low bytes of `word`, and the position after it.
#[inline(always)]
fn varint<const EXACT: bool>(word: u64, bytes: &[u8], at: usize) -> Result<(u64, usize), Reason> {
    if !EXACT {
        if word & 0x80 == 0 {
            return Ok((word & 0x7f, at + 1));
        }
        if word & 0x8000 == 0 {
            return Ok((word & 0x7f | word >> 1 & 0x3f80, at + 2));
        }
    }
    long_varint(bytes, at)
}

#[inline(never)]
fn long_varint(bytes: &[u8], at: usize) -> Result<(u64, usize), Reason> {
    let mut value = 0;
    for (index, &byte) in bytes.get(at..).unwrap_or_default().iter().take(10).enumerate() {
        if index == 9 && byte > 1 {
            return Err(Reason::Varint);
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, at + index + 1));
        }
    }
    Err(Reason::Truncated)
}

#[inline(always)]
fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline(always)]
fn int(value: u64) -> Result<i32, Reason> {
    i32::try_from(zigzag(value)).map_err(|_| Reason::Varint)
}

#[inline(always)]
fn boolean(word: u64) -> Result<bool, Reason> {
    match word as u8 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Reason::Boolean),
    }
}

/// A length of bytes that begin at `at`.
#[inline(always)]
fn length(value: u64, at: usize, end: usize) -> Result<usize, Reason> {
    if value & 1 != 0 {
        return Err(Reason::Length);
    }
    let length = value >> 1;
    if length > end.saturating_sub(at) as u64 {
        return Err(Reason::Truncated);
    }
    Ok(length as usize)
}
