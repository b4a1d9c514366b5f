//! Arrow columns under construction. Operations write values by their row; a row that none writes is null.

use arrow_schema::{ArrowError, DataType, Fields, TimeUnit};

use super::reason::Reason;
use crate::values::{OutOfMemory, Spare, element_width, extend, push, push_rows, resize};

/// Levels of structs, lists and maps in a schema.
const MAX_SCHEMA_DEPTH: usize = 64;

pub(crate) struct Column {
    pub values: Values,
    /// Rows without a value, so far.
    pub nulls: Vec<u32>,
    /// For data, if `spare` is for the ends or the values.
    pub spare: Spare,
    /// Bytes of an element of a list, or an entry of a map.
    pub element_width: usize,
    /// The number of the first column that is not an inner one.
    pub next: usize,
}

pub(crate) enum Values {
    Null(usize),
    Boolean(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// `limit` is the least power of ten with more digits than the type.
    Decimal {
        values: Vec<i128>,
        limit: i128,
    },
    /// Bytes and strings; these are not checked for UTF-8 before the column is finished.
    Bytes {
        ends: Vec<i32>,
        data: Vec<u8>,
        spare: Spare,
    },
    /// The number of rows.
    Struct(usize),
    /// Elements of lists, or entries of maps, of which there are `length`.
    Items {
        ends: Vec<i32>,
        length: usize,
    },
}

/// Writes a value of fixed width.
#[inline(always)]
pub(crate) fn put<T: Clone + Default>(
    values: &mut Vec<T>,
    nulls: &mut Vec<u32>,
    row: usize,
    value: T,
) -> Result<(), OutOfMemory> {
    if values.len() != row {
        pad(values, nulls, row)?;
    }
    push(values, value)
}

/// Adds nulls until there are `rows` rows.
#[inline(never)]
fn pad<T: Clone + Default>(values: &mut Vec<T>, nulls: &mut Vec<u32>, rows: usize) -> Result<(), OutOfMemory> {
    push_rows(nulls, values.len(), rows)?;
    resize(values, rows, T::default())
}

/// The same for a column of ends, of which there is one more than rows.
#[inline(never)]
fn pad_ends(ends: &mut Vec<i32>, nulls: &mut Vec<u32>, rows: usize) -> Result<(), OutOfMemory> {
    push_rows(nulls, ends.len() - 1, rows)?;
    let end = ends.last().copied().unwrap_or_default();
    resize(ends, rows + 1, end)
}

impl Column {
    /// Writes the bytes of `input` from `at` on; the caller has checked them.
    #[inline(always)]
    pub(crate) fn put_bytes(&mut self, input: &[u8], at: usize, length: usize, row: usize) -> Result<(), Reason> {
        let Values::Bytes { ends, data, .. } = &mut self.values else { return Err(Reason::Unreadable) };
        if ends.len() != row + 1 {
            pad_ends(ends, &mut self.nulls, row)?;
        }
        let end = data.len() + length;
        if end > i32::MAX as usize {
            return Err(Reason::Size);
        }
        // A copy of constant size needs no call. What is too much is removed.
        match input.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
            Some(chunk) if length <= 16 => {
                extend(data, chunk)?;
                data.truncate(end);
            }
            _ => extend(data, input.get(at..at + length).ok_or(Reason::Truncated)?)?,
        }
        push(ends, end as i32)?;
        Ok(())
    }

    #[inline(always)]
    pub fn put_struct(&mut self, row: usize) -> Result<(), OutOfMemory> {
        if let Values::Struct(rows) = &mut self.values {
            if *rows != row {
                push_rows(&mut self.nulls, *rows, row)?;
            }
            *rows = row + 1;
        }
        Ok(())
    }

    /// Writes the end of a list or map.
    pub fn put_end(&mut self, row: usize) -> Result<(), OutOfMemory> {
        if let Values::Items { ends, length } = &mut self.values {
            if ends.len() != row + 1 {
                pad_ends(ends, &mut self.nulls, row)?;
            }
            push(ends, *length as i32)?; // fits, because the size of a batch is limited
        }
        Ok(())
    }

    #[inline(always)]
    pub fn length(&self) -> usize {
        if let Values::Items { length, .. } = self.values { length } else { 0 }
    }

    #[inline(always)]
    pub fn add_items(&mut self, count: usize) {
        if let Values::Items { length, .. } = &mut self.values {
            *length += count;
        }
    }

    /// Adds nulls until there are `rows` rows, or removes rows.
    pub fn resize(&mut self, rows: usize) -> Result<(), OutOfMemory> {
        while self.nulls.last().is_some_and(|&row| row as usize >= rows) {
            self.nulls.pop();
        }
        let nulls = &mut self.nulls;
        match &mut self.values {
            Values::Null(count) => *count = rows,
            Values::Boolean(values) => pad(values, nulls, rows)?,
            Values::Int32(values) => pad(values, nulls, rows)?,
            Values::Int64(values) => pad(values, nulls, rows)?,
            Values::Float32(values) => pad(values, nulls, rows)?,
            Values::Float64(values) => pad(values, nulls, rows)?,
            Values::Decimal { values, .. } => pad(values, nulls, rows)?,
            Values::Struct(count) => {
                push_rows(nulls, *count, rows)?;
                *count = rows;
            }
            Values::Bytes { ends, data, .. } => {
                pad_ends(ends, nulls, rows)?;
                data.truncate(ends[rows] as usize);
            }
            Values::Items { ends, length } => {
                pad_ends(ends, nulls, rows)?;
                *length = ends[rows] as usize;
            }
        }
        Ok(())
    }

    /// Whether there are bytes after the last row.
    fn has_incomplete_row(&self) -> bool {
        matches!(&self.values, Values::Bytes { ends, data, .. } if ends.last() != Some(&(data.len() as i32)))
    }

    pub fn rows(&self) -> usize {
        match &self.values {
            Values::Null(rows) | Values::Struct(rows) => *rows,
            Values::Boolean(values) => values.len(),
            Values::Int32(values) => values.len(),
            Values::Int64(values) => values.len(),
            Values::Float32(values) => values.len(),
            Values::Float64(values) => values.len(),
            Values::Decimal { values, .. } => values.len(),
            Values::Bytes { ends, .. } | Values::Items { ends, .. } => ends.len() - 1,
        }
    }
}

/// Removes the rows from `rows` on, of which the last one may be incomplete. The number of the first column is `first`.
pub(crate) fn truncate(columns: &mut [Column], first: usize, rows: usize) {
    let mut number = 0;
    while let Some(column) = columns.get_mut(number) {
        let next = column.next - first;
        let has_items = matches!(column.values, Values::Items { .. });
        if has_items || column.rows() > rows || column.has_incomplete_row() {
            let _ = column.resize(rows.min(column.rows())); // no memory is needed for fewer rows
        }
        // The columns of a struct have its rows, those of a list or map have rows of their own.
        number += 1;
        if has_items {
            let length = column.length();
            truncate(&mut columns[number..next], first + number, length);
            number = next;
        }
    }
}

/// Returns the columns of fields, by their numbers.
pub(crate) fn new_columns(fields: &Fields) -> Result<Vec<Column>, ArrowError> {
    let mut columns = Vec::new();
    for field in fields {
        add(&mut columns, field.data_type(), 0)?;
    }
    Ok(columns)
}

/// Adds the columns of a type.
fn add(columns: &mut Vec<Column>, data_type: &DataType, depth: usize) -> Result<(), ArrowError> {
    if depth > MAX_SCHEMA_DEPTH {
        return Err(ArrowError::SchemaError(format!("a type has more than {MAX_SCHEMA_DEPTH} levels")));
    }
    let values = match data_type {
        DataType::Null => Values::Null(0),
        DataType::Boolean => Values::Boolean(Vec::new()),
        DataType::Int32 | DataType::Date32 => Values::Int32(Vec::new()),
        DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Duration(TimeUnit::Microsecond) => {
            Values::Int64(Vec::new())
        }
        DataType::Float32 => Values::Float32(Vec::new()),
        DataType::Float64 => Values::Float64(Vec::new()),
        DataType::Decimal128(precision, _) if *precision <= 38 => {
            Values::Decimal { values: Vec::new(), limit: 10i128.pow(u32::from(*precision)) }
        }
        DataType::Utf8 | DataType::Binary => Values::Bytes { ends: vec![0], data: Vec::new(), spare: Spare::default() },
        DataType::Struct(_) => Values::Struct(0),
        DataType::List(_) | DataType::Map(_, _) => Values::Items { ends: vec![0], length: 0 },
        other => return Err(ArrowError::SchemaError(format!("Avro cannot be decoded to {other}"))),
    };
    let number = columns.len();
    let element_width = element_width(data_type);
    columns.push(Column { values, nulls: Vec::new(), spare: Spare::default(), element_width, next: 0 });
    match data_type {
        DataType::Struct(fields) => {
            for field in fields {
                add(columns, field.data_type(), depth + 1)?;
            }
        }
        DataType::List(element) => add(columns, element.data_type(), depth + 1)?,
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(ArrowError::SchemaError("the entries of a map are structs".to_owned()));
            };
            for field in fields {
                add(columns, field.data_type(), depth + 2)?;
            }
        }
        _ => {}
    }
    columns[number].next = columns.len();
    Ok(())
}
