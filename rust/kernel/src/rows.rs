//! The rows to encode, from Arrow columns.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, BinaryArray, Int32Array, LargeBinaryArray, LargeListArray, ListArray, RecordBatch, StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use crate::batch_writer::RecordContent;
use crate::varint::{NULL, size, write, zigzag_length};

/// The columns of a batch of rows.
pub(crate) struct Rows<'a> {
    keys: Option<Bytes<'a>>,
    values: Bytes<'a>,
    headers: Option<HeaderLists<'a>>,
    partitions: Option<&'a Int32Array>,
    timestamps: &'a [i64],
}

/// One row to encode.
pub(crate) struct Row<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub partition: Option<i32>,
    pub timestamp: i64,
    headers: Option<(&'a HeaderLists<'a>, Range<usize>)>,
    size: usize,
}

enum Bytes<'a> {
    Small(&'a BinaryArray),
    Large(&'a LargeBinaryArray),
}

/// The headers of all rows.
pub(crate) struct HeaderLists<'a> {
    lists: Lists<'a>,
    nulls: Option<&'a NullBuffer>,
    keys: Bytes<'a>,
    values: Bytes<'a>,
}

enum Lists<'a> {
    Small(&'a ListArray),
    Large(&'a LargeListArray),
}

pub(crate) struct MissingHeaderKey;

impl<'a> Rows<'a> {
    /// The error message names the column that is missing or has another type.
    pub fn new(rows: &'a RecordBatch) -> Result<Rows<'a>, String> {
        let column = |name: &str| rows.column_by_name(name).map(|column| column.as_ref());
        let required = |name: &str| column(name).ok_or_else(|| format!("there is no column {name}"));
        let timestamps = required("timestamp")?;
        let Some(numbers) = timestamps.as_primitive_opt::<Int64Type>() else {
            return Err(wrong_type("timestamp", timestamps));
        };
        if numbers.null_count() > 0 {
            return Err("the column timestamp holds nulls".to_owned());
        }
        let partitions = column("partition")
            .map(|column| column.as_primitive_opt::<Int32Type>().ok_or_else(|| wrong_type("partition", column)));
        Ok(Rows {
            keys: column("key").map(|column| Bytes::new("key", column)).transpose()?,
            values: Bytes::new("value", required("value")?)?,
            headers: column("headers").map(HeaderLists::new).transpose()?,
            partitions: partitions.transpose()?,
            timestamps: numbers.values(),
        })
    }

    pub fn count(&self) -> usize {
        self.timestamps.len()
    }

    #[inline(always)]
    pub fn get(&'a self, row: usize) -> Result<Row<'a>, MissingHeaderKey> {
        let key = self.keys.as_ref().and_then(|keys| keys.get(row));
        let value = self.values.get(row);
        let partition = self.partitions.filter(|partitions| partitions.is_valid(row)).map(|each| each.value(row));
        let mut size = nullable_size(key) + nullable_size(value) + 1;
        let mut headers = None;
        if let Some(lists) = &self.headers {
            let range = lists.lists.range(row);
            if !range.is_empty() {
                size += lists.size(range.clone())? - 1;
                headers = Some((lists, range));
            }
        }
        Ok(Row { key, value, partition, timestamp: self.timestamps[row], headers, size })
    }
}

impl RecordContent for Row<'_> {
    #[inline(always)]
    fn size(&self) -> usize {
        self.size
    }

    #[inline(always)]
    fn write(&self, out: &mut Vec<u8>) {
        write_nullable(out, self.key);
        write_nullable(out, self.value);
        match &self.headers {
            None => out.push(0),
            Some((lists, range)) => lists.write(range.clone(), out),
        }
    }
}

impl<'a> Bytes<'a> {
    fn new(name: &str, column: &'a dyn Array) -> Result<Bytes<'a>, String> {
        match column.data_type() {
            DataType::Binary => Ok(Bytes::Small(column.as_binary())),
            DataType::LargeBinary => Ok(Bytes::Large(column.as_binary())),
            _ => Err(wrong_type(name, column)),
        }
    }

    #[inline(always)]
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Bytes::Small(cells) => cells.is_valid(row).then(|| cells.value(row)),
            Bytes::Large(cells) => cells.is_valid(row).then(|| cells.value(row)),
        }
    }
}

impl<'a> HeaderLists<'a> {
    fn new(column: &'a dyn Array) -> Result<HeaderLists<'a>, String> {
        let (lists, pairs) = match column.data_type() {
            DataType::List(_) => (Lists::Small(column.as_list()), column.as_list::<i32>().values()),
            DataType::LargeList(_) => (Lists::Large(column.as_list()), column.as_list::<i64>().values()),
            _ => return Err(wrong_type("headers", column)),
        };
        let wrong = || wrong_type("headers", column);
        let pairs: &StructArray = pairs.as_struct_opt().ok_or_else(wrong)?;
        let child = |name| pairs.column_by_name(name).and_then(|child| Bytes::new(name, child).ok()).ok_or_else(wrong);
        if pairs.num_columns() != 2 {
            return Err(wrong());
        }
        Ok(HeaderLists { lists, nulls: pairs.nulls(), keys: child("key")?, values: child("value")? })
    }

    fn pair(&self, at: usize) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(at)) {
            return (None, None);
        }
        (self.keys.get(at), self.values.get(at))
    }

    /// Encoded size of these headers, with their count.
    fn size(&self, range: Range<usize>) -> Result<usize, MissingHeaderKey> {
        let mut total = size(zigzag_length(range.len()));
        for at in range {
            let (key, value) = self.pair(at);
            if key.is_none() {
                return Err(MissingHeaderKey);
            }
            total += nullable_size(key) + nullable_size(value);
        }
        Ok(total)
    }

    fn write(&self, range: Range<usize>, out: &mut Vec<u8>) {
        write_varint(out, zigzag_length(range.len()));
        for at in range {
            let (key, value) = self.pair(at);
            write_nullable(out, key);
            write_nullable(out, value);
        }
    }
}

impl Lists<'_> {
    fn range(&self, row: usize) -> Range<usize> {
        match self {
            Lists::Small(lists) if lists.is_null(row) => 0..0,
            Lists::Large(lists) if lists.is_null(row) => 0..0,
            Lists::Small(lists) => lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize,
            Lists::Large(lists) => lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize,
        }
    }
}

/// Encoded size of a cell with its length.
#[inline(always)]
fn nullable_size(cell: Option<&[u8]>) -> usize {
    cell.map_or(1, |bytes| size(zigzag_length(bytes.len())) + bytes.len())
}

#[inline(always)]
fn write_nullable(out: &mut Vec<u8>, cell: Option<&[u8]>) {
    match cell {
        None => out.push(NULL as u8),
        Some(bytes) => {
            write_varint(out, zigzag_length(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

#[inline(always)]
fn write_varint(out: &mut Vec<u8>, raw: u64) {
    let (mut bytes, mut end) = ([0; 10], 0);
    write(&mut bytes, &mut end, raw);
    out.extend_from_slice(&bytes[..end]);
}

fn wrong_type(name: &str, column: &dyn Array) -> String {
    format!("the column {name} cannot have the type {}", column.data_type())
}
