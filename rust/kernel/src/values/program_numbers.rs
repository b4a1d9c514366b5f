//! The numbers of a program, and the constants that they name, in the order in which they are read.

use arrow_schema::ArrowError;

pub(crate) struct ProgramNumbers<'a> {
    numbers: &'a [i64],
    constants: &'a [Box<[u8]>],
    format: &'static str,
}

impl<'a> ProgramNumbers<'a> {
    pub fn new(format: &'static str, numbers: &'a [i64], constants: &'a [Box<[u8]>]) -> Self {
        ProgramNumbers { numbers, constants, format }
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub fn peek(&self) -> Option<i64> {
        self.numbers.first().copied()
    }

    pub fn number(&mut self) -> Result<i64, ArrowError> {
        let (&number, rest) = self.numbers.split_first().ok_or_else(|| self.invalid("it is incomplete"))?;
        self.numbers = rest;
        Ok(number)
    }

    pub fn size(&mut self) -> Result<usize, ArrowError> {
        u32::try_from(self.number()?).map(|size| size as usize).map_err(|_| self.invalid("a size is out of range"))
    }

    /// Returns the constant with an index.
    pub fn constant(&self, index: i64) -> Result<&'a [u8], ArrowError> {
        let constant = usize::try_from(index).ok().and_then(|index| self.constants.get(index));
        constant.map(|constant| &**constant).ok_or_else(|| self.invalid("there is no such constant"))
    }

    /// Takes the next numbers, of a program in this one.
    pub fn split(&mut self, length: usize) -> Result<Self, ArrowError> {
        let (inner, rest) = self.numbers.split_at_checked(length).ok_or_else(|| self.invalid("it is incomplete"))?;
        self.numbers = rest;
        Ok(ProgramNumbers { numbers: inner, ..*self })
    }

    fn invalid(&self, message: &str) -> ArrowError {
        invalid_program(self.format, message)
    }
}

pub(crate) fn invalid_program(format: &str, message: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("not a program for {format}: {message}"))
}
