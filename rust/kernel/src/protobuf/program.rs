//! Programs as tables of fields.

/// In place of the column of a field that is only checked.
pub(super) const NO_COLUMN: u32 = u32::MAX;
/// In place of the oneof of a field that has none.
pub(super) const NO_ONEOF: u32 = u32::MAX;
/// In place of the entry of a tag that no field has.
pub(super) const UNKNOWN: u16 = u16::MAX;

pub(super) struct Program {
    /// The first one is that of the whole value.
    pub tables: Box<[Table]>,
    pub enums: Box<[Enum]>,
    /// The number of oneofs in all tables.
    pub oneofs: usize,
}

/// The fields of a message type.
pub(super) struct Table {
    /// For small tags, the double index of the field, plus 1 if the tag is that of packed elements.
    pub by_tag: Box<[u16]>,
    /// The same for larger tags, which are in order.
    pub others: Box<[(u32, u16)]>,
    pub fields: Box<[Field]>,
    /// The fields that the end of a message may write: lists, defaults, and messages with such fields.
    pub closers: Box<[u16]>,
}

pub(super) struct Field {
    pub number: u32,
    pub kind: Kind,
    pub repeated: bool,
    /// Whether a value of zero is the same as none.
    pub implicit: bool,
    /// That of the list or map if the field is repeated.
    pub column: u32,
    /// The table of a message, or the index of an enum.
    pub argument: u32,
    /// A number that only fields of the same oneof have.
    pub oneof: u32,
    pub default: Default,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Sfixed32,
    Fixed64,
    Sfixed64,
    Float,
    Double,
    /// Checked for UTF-8.
    String,
    /// Not checked before the column is finished.
    Text,
    Bytes,
    Enum,
    Message,
    /// A message whose fields are written to the column of the message itself.
    Wrapped,
    Seconds,
    Nanos,
    /// The entries of a map.
    Entry,
    /// A message between the tags of a group, which is only checked.
    Group,
}

/// In the order of their numbers.
pub(super) const KINDS: [Kind; 23] = [
    Kind::Bool,
    Kind::Int32,
    Kind::Uint32,
    Kind::Int64,
    Kind::Uint64,
    Kind::Sint32,
    Kind::Sint64,
    Kind::Fixed32,
    Kind::Sfixed32,
    Kind::Fixed64,
    Kind::Sfixed64,
    Kind::Float,
    Kind::Double,
    Kind::String,
    Kind::Text,
    Kind::Bytes,
    Kind::Enum,
    Kind::Message,
    Kind::Wrapped,
    Kind::Seconds,
    Kind::Nanos,
    Kind::Entry,
    Kind::Group,
];

/// What the end of a message writes if the field is missing.
pub(super) enum Default {
    Nothing,
    Integer(i64),
    Double(f64),
    Bytes(Box<[u8]>),
    /// A message without fields.
    Empty,
}

pub(super) struct Enum {
    /// Whether a field with an unknown number is an unknown field.
    pub closed: bool,
    /// What the name of an unknown number begins with.
    pub prefix: Box<[u8]>,
    /// In the order of the numbers.
    pub symbols: Box<[(i32, Box<[u8]>)]>,
    /// The symbols of the numbers from 0 on, if they are dense.
    pub dense: bool,
}

impl Table {
    #[inline(always)]
    pub fn find(&self, tag: u32) -> u16 {
        match self.by_tag.get(tag as usize) {
            Some(&entry) => entry,
            None => self.find_other(tag),
        }
    }

    #[inline(never)]
    fn find_other(&self, tag: u32) -> u16 {
        match self.others.binary_search_by_key(&tag, |&(tag, _)| tag) {
            Ok(index) => self.others[index].1,
            Err(_) => UNKNOWN,
        }
    }
}

impl Enum {
    pub fn symbol(&self, number: i32) -> Option<&[u8]> {
        let index = if self.dense {
            usize::try_from(number).ok()
        } else {
            self.symbols.binary_search_by_key(&number, |&(number, _)| number).ok()
        };
        index.and_then(|index| self.symbols.get(index)).map(|(_, symbol)| &**symbol)
    }
}
