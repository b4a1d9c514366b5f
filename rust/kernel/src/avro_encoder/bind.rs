//! From the numbers of a program and the columns of a batch to nodes.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, BinaryArray};
use arrow_schema::{ArrowError, DataType, TimeUnit};

use super::node::{Field, Node, Values};
use crate::values::{ProgramNumbers, invalid_program};

const FORMAT: &str = "Avro";

/// Levels of a schema, in which a map has two.
const MAX_DEPTH: usize = 64;

type Bound<T> = Result<T, ArrowError>;

pub(super) struct Binder<'a> {
    input: ProgramNumbers<'a>,
    nodes: usize,
}

impl<'a> Binder<'a> {
    pub fn bind(numbers: &'a [i64], constants: &'a [Box<[u8]>], values: &'a dyn Array) -> Bound<Node<'a>> {
        let mut binder = Binder { input: ProgramNumbers::new(FORMAT, numbers, constants), nodes: 0 };
        let root = binder.node(values, 0)?;
        if binder.input.is_empty() { Ok(root) } else { Err(invalid("it has numbers behind its end")) }
    }

    fn node(&mut self, array: &'a dyn Array, depth: usize) -> Bound<Node<'a>> {
        if depth > MAX_DEPTH {
            return Err(invalid("it has too many levels"));
        }
        let number = self.nodes;
        self.nodes += 1;
        let (code, null_branch, branch) = (self.input.number()?, self.input.number()?, self.input.number()?);
        let values = match code {
            0 => Values::Null,
            1 => Values::Boolean(array.as_boolean_opt().ok_or_else(|| mismatch(array))?),
            2 => integers(array)?,
            3 => Values::MicrosToMillis(microseconds(array)?),
            4 => Values::Float(floats(array)?),
            5 if *array.data_type() == DataType::Float32 => Values::FloatToDouble(floats(array)?),
            5 => Values::Double(array.as_primitive_opt::<Float64Type>().ok_or_else(|| mismatch(array))?.values()),
            6 => Values::Bytes(bytes(array)?),
            7 => Values::Fixed(bytes(array)?, self.input.size()?),
            8 => Values::Decimal(decimals(array)?),
            9 => Values::FixedDecimal(decimals(array)?, self.input.size()?),
            10 => Values::Enum(bytes(array)?, self.symbols()?),
            11 => {
                let list = array.as_list_opt::<i32>().ok_or_else(|| mismatch(array))?;
                Values::Array(list.offsets(), Box::new(self.node(list.values(), depth + 1)?))
            }
            12 => {
                let map = array.as_map_opt().ok_or_else(|| mismatch(array))?;
                Values::Map(map.offsets(), bytes(map.keys())?, Box::new(self.node(map.values(), depth + 2)?))
            }
            13 => self.record(array, depth)?,
            14 => {
                let count = self.input.size()?;
                let members = (0..count).map(|_| {
                    let child = self.child(array)?;
                    self.node(child, depth + 1)
                });
                Values::Union(members.collect::<Bound<_>>()?)
            }
            _ => return Err(invalid("an operation is unknown")),
        };
        Ok(Node { number, nulls: array.nulls(), null_branch, branch, values })
    }

    fn record(&mut self, array: &'a dyn Array, depth: usize) -> Bound<Values<'a>> {
        let count = self.input.size()?;
        let fields = (0..count).map(|_| {
            if self.input.peek() == Some(-1) {
                self.input.number()?;
                return Ok(Field::Constant(self.constant()?));
            }
            let child = self.child(array)?;
            Ok(Field::Column(self.node(child, depth + 1)?))
        });
        Ok(Values::Record(fields.collect::<Bound<_>>()?))
    }

    fn child(&mut self, array: &'a dyn Array) -> Bound<&'a dyn Array> {
        let index = self.input.size()?;
        let columns = array.as_struct_opt().ok_or_else(|| mismatch(array))?.columns();
        columns.get(index).map(|column| column.as_ref()).ok_or_else(|| invalid("there is no such column"))
    }

    fn symbols(&mut self) -> Bound<Vec<(&'a [u8], i64)>> {
        let count = self.input.size()?;
        let symbols = (0..count).map(|index| Ok((self.constant()?, index as i64)));
        let mut symbols = symbols.collect::<Bound<Vec<_>>>()?;
        symbols.sort_unstable();
        Ok(symbols)
    }

    fn constant(&mut self) -> Bound<&'a [u8]> {
        let index = self.input.size()?;
        self.input.constant(index as i64)
    }
}

fn integers(array: &dyn Array) -> Bound<Values<'_>> {
    Ok(match array.data_type() {
        DataType::Int8 => Values::Int8(array.as_primitive::<Int8Type>().values()),
        DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>().values()),
        DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>().values()),
        DataType::Date32 => Values::Int32(array.as_primitive::<Date32Type>().values()),
        DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
        _ => Values::Int64(microseconds(array)?),
    })
}

fn microseconds(array: &dyn Array) -> Bound<&[i64]> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(array.as_primitive::<TimestampMicrosecondType>().values()),
        _ => Err(mismatch(array)),
    }
}

fn floats(array: &dyn Array) -> Bound<&[f32]> {
    Ok(array.as_primitive_opt::<Float32Type>().ok_or_else(|| mismatch(array))?.values())
}

fn decimals(array: &dyn Array) -> Bound<&[i128]> {
    Ok(array.as_primitive_opt::<Decimal128Type>().ok_or_else(|| mismatch(array))?.values())
}

fn bytes(array: &dyn Array) -> Bound<&BinaryArray> {
    array.as_binary_opt::<i32>().ok_or_else(|| mismatch(array))
}

fn mismatch(array: &dyn Array) -> ArrowError {
    invalid(&format!("an operation does not fit a column of {}", array.data_type()))
}

fn invalid(message: &str) -> ArrowError {
    invalid_program(FORMAT, message)
}
