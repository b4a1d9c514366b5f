//! From the numbers of a program to operations, which fit the columns.

use arrow_schema::ArrowError;

use super::columns::{Column, Values};
use super::program::{CODES, Code, Decoding, More, NO_UNION, Operation, Program};
use super::reason::Reason;
use crate::values::{ProgramNumbers, invalid_program};

const FORMAT: &str = "Avro";

const NULL_FIRST: i64 = 256;
const NULL_LAST: i64 = 512;

/// Of programs in programs; a level of a schema has at most three.
const MAX_DEPTH: usize = 200;

type Parsed<T> = Result<T, ArrowError>;

struct Parser<'a, 'r> {
    input: ProgramNumbers<'a>,
    columns: &'a [Column],
    routines: &'r mut Vec<Program>,
}

pub(super) fn parse(numbers: &[i64], constants: &[Box<[u8]>], columns: &[Column]) -> Parsed<Decoding> {
    let mut routines = Vec::new();
    let input = ProgramNumbers::new(FORMAT, numbers, constants);
    let program = Parser { input, columns, routines: &mut routines }.program(0)?;
    Ok(Decoding { program, routines: routines.into() })
}

impl Parser<'_, '_> {
    fn program(mut self, depth: usize) -> Parsed<Program> {
        if depth > MAX_DEPTH {
            return Err(invalid("it has too many levels"));
        }
        let mut operations = Vec::new();
        while !self.input.is_empty() {
            let number = self.input.number()?;
            operations.push(self.operation(number, depth)?);
        }
        Ok(operations.into())
    }

    fn operation(&mut self, number: i64, depth: usize) -> Parsed<Operation> {
        let null = match number & !0xff {
            0 => NO_UNION,
            NULL_FIRST => 0,
            NULL_LAST => 2,
            _ => return Err(invalid("an operation is unknown")),
        };
        let code = *CODES.get((number & 0xff) as usize).ok_or_else(|| invalid("an operation is unknown"))?;
        let mut operation = Operation { code, null, column: 0, size: 0, more: More::Nothing };
        match code {
            Code::SkipVarint | Code::SkipLength | Code::SkipBoolean | Code::NullValue => {}
            Code::Routine => {
                operation.size = self.routines.len();
                self.routines.push(Program::default()); // its program may call it
                self.routines[operation.size] = self.body(depth)?;
                operation.code = Code::Call;
            }
            Code::Call => {
                operation.size = self.input.size()?;
                if operation.size >= self.routines.len() {
                    return Err(invalid("there is no such routine"));
                }
            }
            Code::SkipBytes | Code::SkipEnum => operation.size = self.input.size()?,
            Code::SkipItems => {
                operation.size = self.input.size()?;
                operation.more = More::Body(self.body(depth)?);
            }
            Code::Boolean
            | Code::Int
            | Code::Long
            | Code::IntToLong
            | Code::IntToFloat
            | Code::IntToDouble
            | Code::LongToFloat
            | Code::LongToDouble
            | Code::Float
            | Code::FloatToDouble
            | Code::Double
            | Code::Bytes
            | Code::MillisToMicros
            | Code::Decimal
            | Code::Present => operation.column = self.column(code)?,
            Code::Fixed | Code::FixedDecimal => {
                operation.column = self.column(code)?;
                operation.size = self.input.size()?;
            }
            Code::Enum => {
                operation.column = self.column(code)?;
                let count = self.input.size()?;
                let symbols = (0..count).map(|_| match self.input.number()? {
                    -1 => Ok(None),
                    index => self.input.constant(index).map(|constant| Some(constant.into())),
                });
                operation.more = More::Symbols(symbols.collect::<Parsed<_>>()?);
            }
            Code::Items => {
                operation.column = self.column(code)?;
                operation.size = self.input.size()?;
                operation.more = More::Body(self.body(depth)?);
            }
            Code::Group => operation.more = More::Body(self.body(depth)?),
            Code::Union => operation.more = self.bodies(depth)?,
            Code::ItemsConstant => {
                operation.column = self.column(code)?;
                operation.more = self.bodies(depth)?;
            }
            Code::IntegerConstant => {
                operation.column = self.column(code)?;
                operation.more = More::Integer(self.input.number()?);
            }
            Code::DoubleConstant => {
                operation.column = self.column(code)?;
                let index = self.input.number()?;
                let bytes = self.input.constant(index)?;
                let bytes = bytes.first_chunk().ok_or_else(|| invalid("a number has less than eight bytes"))?;
                operation.more = More::Double(f64::from_le_bytes(*bytes));
            }
            Code::BytesConstant => {
                operation.column = self.column(code)?;
                let index = self.input.number()?;
                operation.more = More::Bytes(self.input.constant(index)?.into());
            }
            Code::Fail => {
                let reason = Reason::from_number(self.input.number()?).ok_or_else(|| invalid("a reason is unknown"))?;
                operation.more = More::Reason(reason);
            }
        }
        Ok(operation)
    }

    fn body(&mut self, depth: usize) -> Parsed<Program> {
        let length = self.input.size()?;
        let input = self.input.split(length)?;
        Parser { input, columns: self.columns, routines: &mut *self.routines }.program(depth + 1)
    }

    fn bodies(&mut self, depth: usize) -> Parsed<More> {
        let count = self.input.size()?;
        Ok(More::Programs((0..count).map(|_| self.body(depth)).collect::<Parsed<_>>()?))
    }

    fn column(&mut self, code: Code) -> Parsed<u32> {
        let number = self.input.number()?;
        let column = usize::try_from(number).ok().and_then(|number| self.columns.get(number));
        let column = column.ok_or_else(|| invalid("there is no such column"))?;
        let fits = match &column.values {
            Values::Null(_) => false,
            Values::Boolean(_) => matches!(code, Code::Boolean | Code::IntegerConstant),
            Values::Int32(_) => matches!(code, Code::Int | Code::IntegerConstant),
            Values::Int64(_) => {
                matches!(code, Code::Long | Code::IntToLong | Code::MillisToMicros | Code::IntegerConstant)
            }
            Values::Float32(_) => {
                matches!(code, Code::Float | Code::IntToFloat | Code::LongToFloat | Code::DoubleConstant)
            }
            Values::Float64(_) => matches!(
                code,
                Code::Double | Code::IntToDouble | Code::LongToDouble | Code::FloatToDouble | Code::DoubleConstant
            ),
            Values::Decimal { .. } => matches!(code, Code::Decimal | Code::FixedDecimal | Code::BytesConstant),
            Values::Bytes { .. } => matches!(code, Code::Bytes | Code::Fixed | Code::Enum | Code::BytesConstant),
            Values::Struct(_) => code == Code::Present,
            Values::Items { .. } => matches!(code, Code::Items | Code::ItemsConstant),
        };
        if fits { Ok(number as u32) } else { Err(invalid("an operation does not fit its column")) }
    }
}

fn invalid(message: &str) -> ArrowError {
    invalid_program(FORMAT, message)
}
