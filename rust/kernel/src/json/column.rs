//! An Arrow column under construction, and the rules by which a JSON value fits it: those of Spark's `from_json`.

use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};

use super::base64::decode_base64;
use super::decimal::DecimalType;
use super::error::{Malformed, Parsed, Reason, unexpected};
use super::number::number;
use super::object_keys::{Key, ObjectKeys, UNWANTED};
use super::scalars::{integer, is_quote_or_other, other_text, quoted_number, range_or_type, string, to_f32, to_f64};
use super::skip::{Input, State, quoted, skip};
use super::time;
use super::variant::{Grammar, Variants, is_variant};
use crate::values::{OutOfMemory, Spare, element_width, push, push_rows, remove_ends, resize};

/// Levels of structs and arrays in a schema.
const MAX_SCHEMA_DEPTH: usize = 64;

/// One column. A row is appended by `decode` or `push_null`.
pub(super) struct Column {
    pub values: Values,
    /// Null rows, which are few or all.
    pub nulls: Vec<u32>,
    pub rows: usize,
    pub spare: Spare,
    /// Bytes of an element of a list, or an entry of a map.
    element_width: usize,
}

pub(super) enum Values {
    Boolean(Vec<bool>),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// Not checked for UTF-8 before the column is finished.
    Text {
        ends: Vec<i32>,
        data: Vec<u8>,
    },
    Binary {
        ends: Vec<i32>,
        data: Vec<u8>,
    },
    /// Days since 1970.
    Date(Vec<i32>),
    /// Microseconds since 1970 in UTC.
    Timestamp(Vec<i64>),
    /// The same without regard to a time zone.
    LocalTimestamp(Vec<i64>),
    Decimal(Vec<i128>, DecimalType),
    Struct {
        fields: Fields,
        object: Box<Object>,
    },
    Variant {
        fields: Fields,
        variants: Box<Variants>,
    },
    List {
        ends: Vec<i32>,
        element: Box<Column>,
    },
    Map {
        ends: Vec<i32>,
        entries: Box<Entries>,
    },
}

/// The entries of all maps of a column. A key that is repeated remains, as in Spark.
pub(super) struct Entries {
    pub keys: Column,
    pub values: Column,
}

/// Runs an expression for the vector of a column of fixed width.
macro_rules! fixed_width {
    ($values:expr, $vector:ident => $run:expr, $($others:tt)*) => {
        match $values {
            Values::Boolean($vector) => $run,
            Values::Int8($vector) => $run,
            Values::Int16($vector) => $run,
            Values::Int32($vector) => $run,
            Values::Int64($vector) => $run,
            Values::Float32($vector) => $run,
            Values::Float64($vector) => $run,
            Values::Date($vector) => $run,
            Values::Timestamp($vector) => $run,
            Values::LocalTimestamp($vector) => $run,
            Values::Decimal($vector, _) => $run,
            $($others)*
        }
    };
}

impl Column {
    pub fn new(data_type: &DataType, depth: usize) -> Result<Column, ArrowError> {
        if depth > MAX_SCHEMA_DEPTH {
            return Err(ArrowError::SchemaError(format!("a type has more than {MAX_SCHEMA_DEPTH} levels")));
        }
        let values = match data_type {
            DataType::Boolean => Values::Boolean(Vec::new()),
            DataType::Int8 => Values::Int8(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::Int64 => Values::Int64(Vec::new()),
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Utf8 => Values::Text { ends: vec![0], data: Vec::new() },
            DataType::Binary => Values::Binary { ends: vec![0], data: Vec::new() },
            DataType::Date32 => Values::Date(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Values::Timestamp(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => Values::LocalTimestamp(Vec::new()),
            &DataType::Decimal128(precision, scale) => Values::Decimal(Vec::new(), DecimalType::new(precision, scale)?),
            DataType::Struct(fields) if is_variant(fields) => {
                Values::Variant { fields: fields.clone(), variants: Box::new(Variants::new(Grammar::FromJson)) }
            }
            DataType::Struct(fields) => Values::Struct {
                fields: fields.clone(),
                object: Box::new(Object::new(&fields.iter().collect::<Vec<_>>(), depth + 1)?),
            },
            DataType::List(element) => {
                Values::List { ends: vec![0], element: Box::new(Column::new(element.data_type(), depth + 1)?) }
            }
            DataType::Map(entries, _) => {
                let Some((key, value)) = map_fields(entries).filter(|(key, _)| *key.data_type() == DataType::Utf8)
                else {
                    return Err(ArrowError::SchemaError(format!("JSON cannot be decoded to {data_type}")));
                };
                let keys = Column::new(key.data_type(), depth + 1)?;
                let values = Column::new(value.data_type(), depth + 2)?; // a map has two levels in Arrow
                Values::Map { ends: vec![0], entries: Box::new(Entries { keys, values }) }
            }
            other => return Err(ArrowError::SchemaError(format!("JSON cannot be decoded to {other}"))),
        };
        Ok(Column {
            values,
            nulls: Vec::new(),
            rows: 0,
            spare: Spare::default(),
            element_width: element_width(data_type),
        })
    }

    /// Decodes the value at `at` into a new row; returns the position after it. After an error, the row is incomplete.
    ///
    /// A value of another type becomes null, and is noted in `state`.
    #[inline(always)]
    pub fn decode(&mut self, input: Input<'_>, state: &mut State, at: usize) -> Parsed<usize> {
        let first = input.byte(at);
        if first == b'n' && !matches!(self.values, Values::Variant { .. }) {
            let end = input.literal(at, b"null")?;
            self.push_null()?;
            return Ok(end);
        }
        self.rows += 1;
        match &mut self.values {
            Values::Text { ends, data } => {
                let end =
                    if first == b'"' { string(data, input, at)? } else { other_text(data, input, state, at, first)? };
                push(ends, data.len() as i32)?; // at most the size of the input, which Arrow limits to 31 bits
                return Ok(end);
            }
            Values::Float64(values) => {
                if !is_quote_or_other(first) {
                    let number = number(input.bytes, input.end, at)?;
                    push(values, to_f64(&number, input, at))?;
                    return Ok(number.end);
                }
                if let Some((value, end)) = quoted_number(input, at) {
                    push(values, value)?;
                    return Ok(end);
                }
            }
            Values::Float32(values) => {
                if !is_quote_or_other(first) {
                    let number = number(input.bytes, input.end, at)?;
                    push(values, to_f32(&number, input, at))?;
                    return Ok(number.end);
                }
                if let Some((value, end)) = quoted_number(input, at) {
                    push(values, value as f32)?;
                    return Ok(end);
                }
            }
            Values::Int32(values) => match integer(input, at, first)? {
                Ok((value, end)) if i32::try_from(value).is_ok() => {
                    push(values, value as i32)?;
                    return Ok(end);
                }
                other => return self.misfit(input, state, at, range_or_type(other)),
            },
            Values::Int64(values) => match integer(input, at, first)? {
                Ok((value, end)) => {
                    push(values, value)?;
                    return Ok(end);
                }
                Err(reason) => return self.misfit(input, state, at, reason),
            },
            Values::Int16(values) => match integer(input, at, first)? {
                Ok((value, end)) if i16::try_from(value).is_ok() => {
                    push(values, value as i16)?;
                    return Ok(end);
                }
                other => return self.misfit(input, state, at, range_or_type(other)),
            },
            Values::Int8(values) => match integer(input, at, first)? {
                // As in Spark, an unsigned byte is the signed one with the same bits.
                Ok((value, end)) if (-128..=255).contains(&value) => {
                    push(values, value as i8)?;
                    return Ok(end);
                }
                other => return self.misfit(input, state, at, range_or_type(other)),
            },
            Values::Boolean(values) => {
                let word: &[u8] = if first == b't' { b"true" } else { b"false" };
                if first == word[0] {
                    let end = input.literal(at, word)?;
                    push(values, first == b't')?;
                    return Ok(end);
                }
            }
            Values::Struct { object, .. } => {
                if first == b'{' {
                    state.enter(at)?;
                    let end = object.decode_nested(input, state, at, self.rows - 1)?;
                    state.depth -= 1;
                    state.unfit = false; // a struct keeps its other fields
                    return Ok(end);
                }
            }
            Values::Variant { variants, .. } => match encode_variant(variants, input, state, at) {
                Ok(end) => return Ok(end),
                Err(Malformed { reason, .. }) if reason.is_unfit_for_variant() => {
                    variants.truncate(self.rows - 1);
                    return self.misfit(input, state, at, reason);
                }
                Err(malformed) => return Err(malformed),
            },
            Values::List { ends, element } => {
                if first == b'[' {
                    state.enter(at)?;
                    let end = elements(element, self.element_width, input, state, at)?;
                    state.depth -= 1;
                    if state.unfit {
                        element.truncate(ends.last().map_or(0, |&end| end as usize));
                        self.rows -= 1;
                        self.push_null()?;
                    } else {
                        push(ends, element.rows as i32)?;
                    }
                    return Ok(end);
                }
            }
            Values::Map { ends, entries } => {
                if first == b'{' {
                    state.enter(at)?;
                    let end = entries.decode(self.element_width, input, state, at)?;
                    state.depth -= 1;
                    if state.unfit {
                        entries.truncate(ends.last().map_or(0, |&end| end as usize));
                        self.rows -= 1;
                        self.push_null()?;
                    } else {
                        push(ends, entries.keys.rows as i32)?;
                    }
                    return Ok(end);
                }
            }
            Values::Binary { ends, data } => {
                let start = data.len();
                if let Some(text) = quoted(input, state, at, first)? {
                    if decode_base64(text.bytes(state), data)? {
                        push(ends, data.len() as i32)?;
                        return Ok(text.end);
                    }
                    data.truncate(start);
                }
            }
            Values::Date(values) => {
                if let Some(text) = quoted(input, state, at, first)?
                    && let Some(days) = time::date(text.bytes(state))
                {
                    push(values, days)?;
                    return Ok(text.end);
                }
            }
            Values::Timestamp(values) => {
                if let Some(text) = quoted(input, state, at, first)? {
                    if let Some(micros) = time::timestamp(text.bytes(state), &state.zone) {
                        push(values, micros)?;
                        return Ok(text.end);
                    }
                } else {
                    match integer(input, at, first)? {
                        Ok((seconds, end)) => {
                            push(values, seconds.wrapping_mul(1_000_000))?; // as in Spark
                            return Ok(end);
                        }
                        Err(reason) => return self.misfit(input, state, at, reason),
                    }
                }
            }
            Values::LocalTimestamp(values) => {
                if let Some(text) = quoted(input, state, at, first)?
                    && let Some(micros) = time::timestamp_without_zone(text.bytes(state))
                {
                    push(values, micros)?;
                    return Ok(text.end);
                }
            }
            Values::Decimal(values, decimal_type) => match decimal_type.decode(input, state, at, first)? {
                Ok((value, end)) => {
                    push(values, value)?;
                    return Ok(end);
                }
                Err(reason) => return self.misfit(input, state, at, reason),
            },
        }
        self.misfit(input, state, at, Reason::Type)
    }

    /// Steps over a value that does not fit; its row becomes null.
    #[cold]
    #[inline(never)]
    fn misfit(&mut self, input: Input<'_>, state: &mut State, at: usize, reason: Reason) -> Parsed<usize> {
        let end = skip(input, state, at)?;
        state.misfit.get_or_insert(Malformed { at, reason });
        state.unfit = true;
        self.rows -= 1;
        self.push_null()?;
        Ok(end)
    }

    #[inline(always)]
    pub fn push_null(&mut self) -> Result<(), OutOfMemory> {
        push(&mut self.nulls, self.rows as u32)?;
        self.rows += 1;
        fixed_width!(&mut self.values, values => push(values, Default::default()),
            Values::Text { ends, data } | Values::Binary { ends, data } => push(ends, data.len() as i32),
            Values::Struct { .. } => Ok(()),
            Values::Variant { variants, .. } => variants.push_null(),
            Values::List { ends, element } => push(ends, element.rows as i32),
            Values::Map { ends, entries } => push(ends, entries.keys.rows as i32),
        )
    }

    /// Appends nulls until there are `rows` rows.
    #[inline(never)]
    pub fn pad(&mut self, rows: usize) -> Result<(), OutOfMemory> {
        push_rows(&mut self.nulls, self.rows, rows)?;
        self.rows = rows;
        fixed_width!(&mut self.values, values => resize(values, rows, Default::default()),
            Values::Text { ends, data } | Values::Binary { ends, data } => resize(ends, rows + 1, data.len() as i32),
            Values::Struct { .. } => Ok(()),
            Values::Variant { variants, .. } => variants.pad(rows),
            Values::List { ends, element } => resize(ends, rows + 1, element.rows as i32),
            Values::Map { ends, entries } => resize(ends, rows + 1, entries.keys.rows as i32),
        )
    }

    /// Removes the rows from `rows` on, of which the last one may be incomplete.
    #[inline(never)]
    pub fn truncate(&mut self, rows: usize) {
        self.rows = rows;
        while self.nulls.last().is_some_and(|&row| row as usize >= rows) {
            self.nulls.pop();
        }
        fixed_width!(&mut self.values, values => values.truncate(rows),
            Values::Text { ends, data } | Values::Binary { ends, data } => {
                ends.truncate(rows + 1);
                data.truncate(ends.last().map_or(0, |&end| end as usize));
            }
            Values::Struct { object, .. } => object.truncate(rows),
            Values::Variant { variants, .. } => variants.truncate(rows),
            Values::List { ends, element } => {
                ends.truncate(rows + 1);
                element.truncate(ends.last().map_or(0, |&end| end as usize));
            }
            Values::Map { ends, entries } => {
                ends.truncate(rows + 1);
                entries.truncate(ends.last().map_or(0, |&end| end as usize));
            }
        );
    }

    /// Removes the rows from `from` to `until`, and so moves later rows.
    #[inline(never)]
    pub fn remove(&mut self, from: usize, until: usize) {
        if self.rows <= until {
            if self.rows > from {
                self.truncate(from);
            }
            return;
        }
        self.rows -= until - from;
        let moved = self.nulls.split_off(self.nulls.partition_point(|&row| (row as usize) < from));
        self.nulls.extend(moved.iter().filter(|&&row| row as usize >= until).map(|row| row - (until - from) as u32));
        fixed_width!(&mut self.values, values => drop(values.drain(from..until)),
            Values::Text { ends, data } | Values::Binary { ends, data } => {
                drop(data.drain(remove_ends(ends, from, until)));
            }
            Values::Struct { object, .. } => object.columns.iter_mut().for_each(|column| column.remove(from, until)),
            Values::Variant { variants, .. } => variants.remove(from, until),
            Values::List { ends, element } => {
                let removed = remove_ends(ends, from, until);
                element.remove(removed.start, removed.end);
            }
            Values::Map { ends, entries } => {
                let removed = remove_ends(ends, from, until);
                entries.keys.remove(removed.start, removed.end);
                entries.values.remove(removed.start, removed.end);
            }
        );
    }
}

/// The fields of a map's keys and values.
pub(super) fn map_fields(entries: &Field) -> Option<(&Field, &Field)> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => Some((&fields[0], &fields[1])),
        _ => None,
    }
}

/// Appends a VARIANT. It does not fit its column if it is too large.
fn encode_variant(variants: &mut Variants, input: Input<'_>, state: &mut State, at: usize) -> Parsed<usize> {
    let end = variants.encode(input, state, at)?;
    state.add_element(variants.last_row_bytes(), end)?;
    Ok(end)
}

/// Appends the elements of an array; sets `state.unfit` if one does not fit.
#[inline(never)]
fn elements(element: &mut Column, width: usize, input: Input<'_>, state: &mut State, start: usize) -> Parsed<usize> {
    let mut unfit = false;
    let mut at = input.blanks(start + 1);
    if input.byte(at) != b']' {
        loop {
            state.unfit = false;
            state.add_element(width, at)?;
            at = input.blanks(element.decode(input, state, at)?);
            unfit |= state.unfit;
            match input.byte(at) {
                b',' => at = input.blanks(at + 1),
                b']' => break,
                _ => return unexpected(input.end, at, Reason::Unexpected),
            }
        }
    }
    state.unfit = unfit;
    Ok(at + 1)
}

impl Entries {
    fn truncate(&mut self, rows: usize) {
        self.keys.truncate(rows);
        self.values.truncate(rows);
    }

    /// Appends the entries of an object; sets `state.unfit` if a value does not fit.
    #[inline(never)]
    fn decode(&mut self, width: usize, input: Input<'_>, state: &mut State, start: usize) -> Parsed<usize> {
        let mut unfit = false;
        let mut at = input.blanks(start + 1);
        if input.byte(at) != b'}' {
            loop {
                state.unfit = false;
                state.add_element(width, at)?;
                if !matches!(input.byte(at), b'"' | b'\'') {
                    return unexpected(input.end, at, Reason::Unexpected);
                }
                at = input.blanks(self.keys.decode(input, state, at)?);
                at = input.blanks(input.literal(at, b":")?);
                at = input.blanks(self.values.decode(input, state, at)?);
                unfit |= state.unfit;
                match input.byte(at) {
                    b',' => at = input.blanks(at + 1),
                    b'}' => break,
                    _ => return unexpected(input.end, at, Reason::Unexpected),
                }
            }
        }
        state.unfit = unfit;
        Ok(at + 1)
    }
}

/// The fields of an object, one column each. A column has fewer rows than objects if its last ones are null: they are
/// appended when it gets another value, or at the end (`Column::pad`).
pub(super) struct Object {
    pub columns: Vec<Column>,
    keys: ObjectKeys,
}

impl Object {
    pub fn new(fields: &[&FieldRef], depth: usize) -> Result<Object, ArrowError> {
        let keys = ObjectKeys::new(fields.iter().copied())?;
        let columns = fields.iter().map(|field| Column::new(field.data_type(), depth)).collect::<Result<_, _>>()?;
        Ok(Object { columns, keys })
    }

    /// Decodes the object at `start` into row `row` of its columns; returns the position after it.
    #[inline(always)]
    pub fn decode(&mut self, input: Input<'_>, state: &mut State, start: usize, row: usize) -> Parsed<usize> {
        let mut at = start;
        let mut slot = 0;
        loop {
            let column = match self.keys.predicted(input, at, slot) {
                Some(prediction) => {
                    at += prediction.length;
                    // There may be more blanks than in the previous object.
                    if input.byte(at) <= b' ' {
                        at = input.blanks(at);
                    }
                    prediction.target
                }
                None => {
                    if slot > 0 && input.byte(at) == b'}' {
                        return Ok(at + 1);
                    }
                    match self.keys.key(input, state, at, slot)? {
                        Key::Value { at: value, column } => {
                            at = value;
                            column
                        }
                        Key::End(end) => return Ok(end),
                    }
                }
            };
            slot += 1;
            if column == UNWANTED {
                at = skip(input, state, at)?;
            } else {
                let column = &mut self.columns[column as usize];
                if column.rows > row {
                    at = decode_duplicate(column, input, state, at, row)?;
                } else {
                    if column.rows < row {
                        column.pad(row)?;
                    }
                    at = column.decode(input, state, at)?;
                }
            }
            if at > input.end {
                return Err(Malformed { at: input.end, reason: Reason::Truncated });
            }
        }
    }

    /// The same for an object within another one.
    #[inline(never)]
    pub fn decode_nested(&mut self, input: Input<'_>, state: &mut State, start: usize, row: usize) -> Parsed<usize> {
        self.decode(input, state, start, row)
    }

    /// Removes the rows from `rows` on from the columns that have them.
    #[inline(always)]
    pub fn truncate(&mut self, rows: usize) {
        for column in &mut self.columns {
            if column.rows > rows {
                column.truncate(rows);
            }
        }
    }
}

/// The last value of a repeated key counts, unless it does not fit.
#[cold]
#[inline(never)]
fn decode_duplicate(column: &mut Column, input: Input<'_>, state: &mut State, at: usize, row: usize) -> Parsed<usize> {
    state.unfit = false;
    let end = column.decode(input, state, at)?;
    if state.unfit {
        column.truncate(row + 1);
    } else {
        column.remove(row, row + 1);
    }
    Ok(end)
}
