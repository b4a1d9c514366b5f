//! From the numbers of a program and the columns of a batch to nodes.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, BinaryArray};
use arrow_schema::{ArrowError, DataType, TimeUnit};

use super::node::{Field, Integers, Message, Names, Node, Shape, Values};
use crate::values::{ProgramNumbers, invalid_program};

const FORMAT: &str = "Protobuf";

/// Levels of a schema, in which a map has two.
const MAX_DEPTH: usize = 64;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

type Bound<T> = Result<T, ArrowError>;

pub(super) struct Binder<'a> {
    input: ProgramNumbers<'a>,
    nodes: usize,
}

impl<'a> Binder<'a> {
    pub fn bind(numbers: &'a [i64], constants: &'a [Box<[u8]>], values: &'a dyn Array) -> Bound<Message<'a>> {
        let mut binder = Binder { input: ProgramNumbers::new(FORMAT, numbers, constants), nodes: 0 };
        let root = binder.node(values, 0)?;
        match root.values {
            Values::Message(message) if binder.input.is_empty() => Ok(message),
            _ => Err(invalid("it is not one message")),
        }
    }

    fn node(&mut self, array: &'a dyn Array, depth: usize) -> Bound<Node<'a>> {
        if depth > MAX_DEPTH {
            return Err(invalid("it has too many levels"));
        }
        let number = self.nodes;
        self.nodes += 1;
        let values = match self.input.number()? {
            0 => Values::Boolean(array.as_boolean_opt().ok_or_else(|| mismatch(array))?),
            1 => Values::Varint(self.integers(array)?),
            2 => Values::Zigzag(self.integers(array)?),
            3 => Values::Fixed32(self.integers(array)?),
            4 => Values::Fixed64(self.integers(array)?),
            5 => Values::Float(array.as_primitive_opt::<Float32Type>().ok_or_else(|| mismatch(array))?.values()),
            6 => Values::Double(array.as_primitive_opt::<Float64Type>().ok_or_else(|| mismatch(array))?.values()),
            7 => Values::String(bytes(array)?),
            8 => Values::Bytes(bytes(array)?),
            9 => Values::EnumName(bytes(array)?, self.names()?),
            10 => Values::EnumNumber(int32s(array)?, self.closed_numbers()?),
            11 => Values::Message(self.message(array, depth)?),
            12 => {
                let node = self.node(array, depth + 1)?;
                let tag = 1 << 3 | wire_type(&node.values);
                Values::Wrapped(Box::new(Field { tag, shape: Shape::Implicit, node }))
            }
            13 => Values::Moment(microseconds(array)?, self.input.number()? != 0),
            _ => return Err(invalid("an operation is unknown")),
        };
        Ok(Node { number, nulls: array.nulls(), values })
    }

    fn message(&mut self, array: &'a dyn Array, depth: usize) -> Bound<Message<'a>> {
        let columns = array.as_struct_opt().ok_or_else(|| mismatch(array))?.columns();
        let count = self.input.size()?;
        let mut fields = Vec::new();
        let mut oneofs: Vec<(i64, Vec<usize>)> = Vec::new();
        for index in 0..count {
            let number = self.input.size()?;
            if number == 0 || number >= 1 << 29 {
                return Err(invalid("a field has no valid number"));
            }
            let (shape, oneof) = (self.input.number()?, self.input.number()?);
            let column = columns.get(self.input.size()?).ok_or_else(|| invalid("there is no such column"))?;
            fields.push(self.field(number as u32, shape, column.as_ref(), depth)?);
            if oneof >= 0 {
                match oneofs.iter_mut().find(|(known, _)| *known == oneof) {
                    Some((_, members)) => members.push(index),
                    None => oneofs.push((oneof, vec![index])),
                }
            }
        }
        let oneofs = oneofs.into_iter().map(|(_, members)| members).filter(|members| members.len() > 1);
        Ok(Message { fields, oneofs: oneofs.collect() })
    }

    fn field(&mut self, number: u32, shape: i64, array: &'a dyn Array, depth: usize) -> Bound<Field<'a>> {
        let list = || array.as_list_opt::<i32>().ok_or_else(|| mismatch(array));
        let (shape, node) = match shape {
            0 => (Shape::Optional, self.node(array, depth + 1)?),
            1 => (Shape::Implicit, self.node(array, depth + 1)?),
            2 => (Shape::Required, self.node(array, depth + 1)?),
            3 => (Shape::Repeated(array.nulls(), list()?.offsets()), self.node(list()?.values(), depth + 1)?),
            4 => {
                let node = self.node(list()?.values(), depth + 1)?;
                if wire_type(&node.values) == BYTES {
                    return Err(invalid("a field cannot be packed"));
                }
                (Shape::Packed(array.nulls(), list()?.offsets()), node)
            }
            5 => {
                let map = array.as_map_opt().ok_or_else(|| mismatch(array))?;
                let key = self.node(map.keys(), depth + 2)?;
                let value = self.node(map.values(), depth + 2)?;
                let (key_tag, value_tag) = (1 << 3 | wire_type(&key.values), 2 << 3 | wire_type(&value.values));
                (Shape::Map(array.nulls(), map.offsets(), key_tag, Box::new(key), value_tag), value)
            }
            _ => return Err(invalid("a shape is unknown")),
        };
        let wire = match shape {
            Shape::Packed(..) | Shape::Map(..) => BYTES,
            _ => wire_type(&node.values),
        };
        Ok(Field { tag: number << 3 | wire, shape, node })
    }

    fn integers(&mut self, array: &'a dyn Array) -> Bound<Integers<'a>> {
        let range = self.input.number()?;
        Ok(match (array.data_type(), range) {
            (DataType::Int8, 0 | 1) => Integers::Int8(array.as_primitive::<Int8Type>().values()),
            (DataType::Int16, 0 | 1) => Integers::Int16(array.as_primitive::<Int16Type>().values()),
            (DataType::Int32, 0 | 1) => Integers::Int32(int32s(array)?),
            (DataType::Int32, 2) => Integers::Bits32(int32s(array)?),
            (DataType::Int64, 0) => Integers::Int64(int64s(array)?),
            (DataType::Int64, 1) => Integers::Range(int64s(array)?, i64::from(i32::MIN), i64::from(i32::MAX)),
            (DataType::Int64, 2) => Integers::Range(int64s(array)?, 0, i64::from(u32::MAX)),
            (DataType::Decimal128(_, 0), 3) => Integers::Decimal(array.as_primitive::<Decimal128Type>().values()),
            _ => return Err(mismatch(array)),
        })
    }

    fn names(&mut self) -> Bound<Names<'a>> {
        let prefix = self.input.number()?;
        let prefix = if prefix < 0 { None } else { Some(self.input.constant(prefix)?) };
        let count = self.input.size()?;
        let mut symbols = Vec::new();
        for _ in 0..count {
            let number = self.enum_number()?;
            let name = self.input.number()?;
            symbols.push((self.input.constant(name)?, number));
        }
        symbols.sort_unstable();
        Ok(Names { symbols, prefix })
    }

    fn closed_numbers(&mut self) -> Bound<Option<Vec<i32>>> {
        let count = self.input.number()?;
        if count < 0 {
            return Ok(None);
        }
        let mut numbers = (0..count).map(|_| self.enum_number()).collect::<Bound<Vec<_>>>()?;
        numbers.sort_unstable();
        Ok(Some(numbers))
    }

    fn enum_number(&mut self) -> Bound<i32> {
        i32::try_from(self.input.number()?).map_err(|_| invalid("a number of an enum is out of range"))
    }
}

fn wire_type(values: &Values) -> u32 {
    match values {
        Values::Fixed32(_) | Values::Float(_) => FIXED32,
        Values::Fixed64(_) | Values::Double(_) => FIXED64,
        Values::String(_) | Values::Bytes(_) | Values::Message(_) | Values::Wrapped(_) | Values::Moment(..) => BYTES,
        _ => VARINT,
    }
}

fn int32s(array: &dyn Array) -> Bound<&[i32]> {
    Ok(array.as_primitive_opt::<Int32Type>().ok_or_else(|| mismatch(array))?.values())
}

fn int64s(array: &dyn Array) -> Bound<&[i64]> {
    Ok(array.as_primitive_opt::<Int64Type>().ok_or_else(|| mismatch(array))?.values())
}

fn microseconds(array: &dyn Array) -> Bound<&[i64]> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(array.as_primitive::<TimestampMicrosecondType>().values()),
        DataType::Duration(TimeUnit::Microsecond) => Ok(array.as_primitive::<DurationMicrosecondType>().values()),
        _ => Err(mismatch(array)),
    }
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
