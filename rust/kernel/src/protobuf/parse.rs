//! From the numbers of a program to tables, which fit the columns.

use std::collections::HashMap;

use arrow_schema::ArrowError;

use super::program::{Default, Enum, Field, KINDS, Kind, NO_COLUMN, NO_ONEOF, Program, Table, UNKNOWN};
use super::wire::{BYTES, FIXED32, FIXED64, GROUP, VARINT};
use crate::avro::columns::{Column, Values};
use crate::values::{ProgramNumbers, invalid_program};

const FORMAT: &str = "Protobuf";

const REPEATED: i64 = 64;
const IMPLICIT: i64 = 128;

const NOTHING: i64 = -1;
const EMPTY: i64 = -2;

/// Tags from this one on are searched for.
const MAX_DIRECT_TAG: u32 = 2048;
const MAX_FIELDS: usize = 1 << 14;

type Parsed<T> = Result<T, ArrowError>;

struct Parser<'a> {
    input: ProgramNumbers<'a>,
    columns: &'a [Column],
    tables: usize,
    /// Of the tables so far.
    oneofs: usize,
}

pub(super) fn parse(numbers: &[i64], constants: &[Box<[u8]>], columns: &[Column]) -> Parsed<Program> {
    let mut parser = Parser { input: ProgramNumbers::new(FORMAT, numbers, constants), columns, tables: 0, oneofs: 0 };
    parser.tables = parser.input.size()?;
    let mut tables = (0..parser.tables).map(|index| parser.table(index)).collect::<Parsed<Vec<_>>>()?;
    let enums = (0..parser.input.size()?).map(|_| parser.an_enum()).collect::<Parsed<Box<_>>>()?;
    if tables.is_empty() {
        return Err(invalid("it has no table"));
    }
    // A table comes before those of its fields with columns, so that there are no cycles of them.
    for index in (0..tables.len()).rev() {
        let closers = tables[index].fields.iter().enumerate().filter(|(_, field)| {
            let has_inner = field.kind == Kind::Message && !tables[field.argument as usize].closers.is_empty();
            field.column != NO_COLUMN && (field.repeated || has_inner || !matches!(field.default, Default::Nothing))
        });
        tables[index].closers = closers.map(|(number, _)| number as u16).collect();
    }
    let writes: Vec<_> = tables.iter().map(writes).collect();
    for field in tables.iter().flat_map(|table| &table.fields) {
        if field.kind == Kind::Enum && field.argument as usize >= enums.len() {
            return Err(invalid("there is no such enum"));
        }
        if is_message(field.kind) && field.column == NO_COLUMN && writes[field.argument as usize] {
            return Err(invalid("a message without a column has fields with columns"));
        }
    }
    Ok(Program { tables: tables.into(), enums, oneofs: parser.oneofs })
}

fn writes(table: &Table) -> bool {
    table.fields.iter().any(|field| field.column != NO_COLUMN || field.oneof != NO_ONEOF)
}

impl Parser<'_> {
    fn table(&mut self, index: usize) -> Parsed<Table> {
        let count = self.input.size()?;
        if count > MAX_FIELDS {
            return Err(invalid("a message has too many fields"));
        }
        let mut oneofs = HashMap::new();
        let fields = (0..count).map(|_| self.field(index, &mut oneofs)).collect::<Parsed<Box<_>>>()?;
        self.oneofs += oneofs.len();
        let mut tags = Vec::new();
        for (index, field) in fields.iter().enumerate() {
            let wire = wire_type(field.kind);
            tags.push((field.number << 3 | wire, (index as u16) << 1));
            if field.repeated && wire != BYTES {
                tags.push((field.number << 3 | BYTES, (index as u16) << 1 | 1));
            }
        }
        tags.sort_unstable();
        let (small, others) = tags.split_at(tags.partition_point(|&(tag, _)| tag < MAX_DIRECT_TAG));
        let mut by_tag = vec![UNKNOWN; small.last().map_or(0, |&(tag, _)| tag as usize + 1)];
        for &(tag, entry) in small {
            by_tag[tag as usize] = entry;
        }
        // Tags up to the first of the others are in the table, if there are others.
        if !others.is_empty() {
            by_tag.resize(MAX_DIRECT_TAG as usize, UNKNOWN);
        }
        Ok(Table { by_tag: by_tag.into(), others: others.into(), fields, closers: Box::default() })
    }

    fn field(&mut self, table: usize, oneofs: &mut HashMap<i64, usize>) -> Parsed<Field> {
        let number = self.input.size()?;
        if number == 0 || number >= 1 << 29 {
            return Err(invalid("a field has no valid number"));
        }
        let flags = self.input.number()?;
        let kind = flags & !(REPEATED | IMPLICIT);
        let kind = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind).copied());
        let kind = kind.ok_or_else(|| invalid("a kind is unknown"))?;
        let repeated = flags & REPEATED != 0;
        let column = self.input.number()?;
        let argument = self.input.size()?;
        let oneof = self.input.number()?;
        let column = if column < 0 {
            NO_COLUMN
        } else {
            let list = usize::try_from(column).ok().filter(|&column| column < self.columns.len());
            let list = list.ok_or_else(|| invalid("there is no such column"))?;
            let has_items = matches!(self.columns[list].values, Values::Items { .. });
            let value = self.columns.get(list + usize::from(repeated)).map(|column| &column.values);
            let fits = kind == Kind::Entry || value.is_some_and(|values| fits(kind, values));
            if has_items != repeated || !fits {
                return Err(invalid("a field does not fit its column"));
            }
            list as u32
        };
        if is_message(kind) && (argument >= self.tables || column != NO_COLUMN && argument <= table) {
            return Err(invalid("a table is not after that of its message"));
        }
        let default = match self.input.number()? {
            NOTHING => Default::Nothing,
            EMPTY if kind == Kind::Message => Default::Empty,
            index => self.default(index, column)?,
        };
        let oneof = if oneof < 0 {
            NO_ONEOF
        } else {
            let next = self.oneofs + oneofs.len();
            *oneofs.entry(oneof).or_insert(next) as u32
        };
        Ok(Field {
            number: number as u32,
            kind,
            repeated,
            implicit: flags & IMPLICIT != 0,
            column,
            argument: argument as u32,
            oneof,
            default,
        })
    }

    fn default(&self, index: i64, column: u32) -> Parsed<Default> {
        let constant = self.input.constant(index)?;
        let number = constant.first_chunk::<8>().copied();
        let number = || number.ok_or_else(|| invalid("a number has less than eight bytes"));
        Ok(match self.columns.get(column as usize).map(|column| &column.values) {
            Some(Values::Bytes { .. }) => Default::Bytes(constant.into()),
            Some(Values::Float32(_) | Values::Float64(_)) => Default::Double(f64::from_le_bytes(number()?)),
            Some(Values::Boolean(_) | Values::Int32(_) | Values::Int64(_) | Values::Decimal { .. }) => {
                Default::Integer(i64::from_le_bytes(number()?))
            }
            _ => return Err(invalid("a column can have no default")),
        })
    }

    fn an_enum(&mut self) -> Parsed<Enum> {
        let closed = self.input.number()? != 0;
        let index = self.input.number()?;
        let prefix = self.input.constant(index)?.into();
        let count = self.input.size()?;
        let mut symbols = Vec::new();
        for _ in 0..count {
            let number =
                i32::try_from(self.input.number()?).map_err(|_| invalid("a number of an enum is out of range"))?;
            let index = self.input.number()?;
            symbols.push((number, self.input.constant(index)?.into()));
        }
        symbols.sort_by_key(|&(number, _)| number);
        let dense = symbols.iter().enumerate().all(|(index, &(number, _))| number as usize == index);
        Ok(Enum { closed, prefix, symbols: symbols.into(), dense })
    }
}

fn is_message(kind: Kind) -> bool {
    matches!(kind, Kind::Message | Kind::Wrapped | Kind::Entry | Kind::Group)
}

fn wire_type(kind: Kind) -> u32 {
    match kind {
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => FIXED32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => FIXED64,
        Kind::String | Kind::Text | Kind::Bytes | Kind::Message | Kind::Wrapped | Kind::Entry => BYTES,
        Kind::Group => GROUP,
        _ => VARINT,
    }
}

fn fits(kind: Kind, values: &Values) -> bool {
    match values {
        Values::Null(_) | Values::Items { .. } => false,
        Values::Boolean(_) => matches!(kind, Kind::Bool | Kind::Wrapped),
        Values::Int32(_) => matches!(
            kind,
            Kind::Int32 | Kind::Uint32 | Kind::Sint32 | Kind::Fixed32 | Kind::Sfixed32 | Kind::Enum | Kind::Wrapped
        ),
        Values::Int64(_) => !matches!(
            kind,
            Kind::Bool
                | Kind::Float
                | Kind::Double
                | Kind::String
                | Kind::Text
                | Kind::Bytes
                | Kind::Enum
                | Kind::Message
                | Kind::Entry
                | Kind::Group
        ),
        Values::Float32(_) => matches!(kind, Kind::Float | Kind::Wrapped),
        Values::Float64(_) => matches!(kind, Kind::Double | Kind::Wrapped),
        Values::Decimal { .. } => matches!(kind, Kind::Uint64 | Kind::Fixed64 | Kind::Wrapped),
        Values::Bytes { .. } => {
            matches!(kind, Kind::String | Kind::Text | Kind::Bytes | Kind::Enum | Kind::Wrapped)
        }
        Values::Struct(_) => kind == Kind::Message,
    }
}

fn invalid(message: &str) -> ArrowError {
    invalid_program(FORMAT, message)
}
