//! Writes values to columns. The last row of a column may be written again: the last value of a field wins.

use super::program::Default;
use super::reason::Reason;
use crate::avro::columns::{Column, Values, put, truncate};
use crate::avro::reason::Reason as ColumnReason;
use crate::values::OutOfMemory;

#[inline(always)]
fn set<T: Clone + std::default::Default>(
    values: &mut Vec<T>,
    nulls: &mut Vec<u32>,
    row: usize,
    value: T,
) -> Result<(), OutOfMemory> {
    match values.get_mut(row) {
        Some(old) => {
            *old = value;
            Ok(())
        }
        None => put(values, nulls, row, value),
    }
}

#[inline(always)]
pub(super) fn put_integer(column: &mut Column, row: usize, value: i64) -> Result<(), OutOfMemory> {
    let Column { values, nulls, .. } = column;
    match values {
        Values::Int64(values) => set(values, nulls, row, value),
        Values::Int32(values) => set(values, nulls, row, value as i32),
        Values::Boolean(values) => set(values, nulls, row, value != 0),
        Values::Decimal { values, .. } => set(values, nulls, row, i128::from(value as u64)), // of uint64
        _ => Ok(()),
    }
}

#[inline(always)]
pub(super) fn put_float(column: &mut Column, row: usize, value: f32) -> Result<(), OutOfMemory> {
    if let Column { values: Values::Float32(values), nulls, .. } = column {
        return set(values, nulls, row, value);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn put_double(column: &mut Column, row: usize, value: f64) -> Result<(), OutOfMemory> {
    if let Column { values: Values::Float64(values), nulls, .. } = column {
        return set(values, nulls, row, value);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn put_bytes(column: &mut Column, row: usize, data: &[u8], at: usize, size: usize) -> Result<(), Reason> {
    if let Values::Bytes { ends, data, .. } = &mut column.values
        && ends.len() > row + 1
    {
        ends.truncate(row + 1);
        data.truncate(ends[row] as usize);
    }
    column.put_bytes(data, at, size, row).map_err(|reason| match reason {
        ColumnReason::Memory => Reason::Memory,
        _ => Reason::Size,
    })
}

pub(super) fn put_default(column: &mut Column, row: usize, default: &Default) -> Result<(), Reason> {
    match default {
        Default::Nothing => {}
        Default::Integer(value) => put_integer(column, row, *value)?,
        Default::Double(value) => {
            put_double(column, row, *value)?;
            put_float(column, row, *value as f32)?;
        }
        Default::Bytes(bytes) => put_bytes(column, row, bytes, 0, bytes.len())?,
        Default::Empty => column.put_struct(row)?,
    }
    Ok(())
}

/// Makes the value of a row null, if it was written.
#[inline(always)]
pub(super) fn clear(columns: &mut [Column], number: u32, row: usize) {
    let first = number as usize;
    if columns[first].rows() > row {
        let next = columns[first].next;
        truncate(&mut columns[first..next], first, row);
    }
}
