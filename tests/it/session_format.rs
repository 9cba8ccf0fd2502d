//! `docs/session-format.md`: its tables are those of the code, and a reader that knows nothing but the document reads a
//! recording.

use session::Session;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use syn::{Attribute, Expr, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Type};

const MARKER: &str = "-->\n";
/// What a sample's bytes hold, in order, and what the other frames hold.
const ROOTS: [&str; 7] = ["Header", "Segment", "HostFacts", "DomainFacts", "Sample", "HostDisk", "GuestInterrupts"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The types that serde writes, by name.
#[derive(Default)]
struct Code {
    items: BTreeMap<String, Item>,
    aliases: BTreeMap<String, Type>,
}

impl Code {
    fn read(&mut self, path: &Path) {
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                self.read(&entry.unwrap().path());
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            for item in syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap().items {
                match item {
                    Item::Type(t) => drop(self.aliases.insert(t.ident.to_string(), *t.ty)),
                    Item::Struct(ref s) => drop(self.items.insert(s.ident.to_string(), item)),
                    Item::Enum(ref e) => drop(self.items.insert(e.ident.to_string(), item)),
                    _ => {}
                }
            }
        }
    }

    /// A type in the document's words.
    fn words(&self, ty: &Type) -> String {
        let path = match ty {
            Type::Path(path) => path,
            Type::Tuple(tuple) => {
                return format!("({})", tuple.elems.iter().map(|t| self.words(t)).collect::<Vec<_>>().join(", "));
            }
            _ => panic!("a type that the document has no words for"),
        };
        let last = path.path.segments.last().unwrap();
        let name = last.ident.to_string();
        let arguments: Vec<String> = match &last.arguments {
            PathArguments::AngleBracketed(a) => a.args.iter().filter_map(|a| self.argument(a)).collect(),
            _ => Vec::new(),
        };
        if let Some(alias) = self.aliases.get(&name) {
            return self.words(alias);
        }
        match (name.as_str(), arguments.as_slice()) {
            ("Arc" | "Box", [inner]) => inner.clone(),
            ("Vec", [inner]) => format!("List<{inner}>"),
            ("BTreeMap", [key, value]) => format!("Map<{key}, {value}>"),
            // A CPU set is written as a list such as `0-3,8`.
            ("String" | "str" | "CpuSet", []) => "text".into(),
            (_, []) => name,
            _ => format!("{name}<{}>", arguments.join(", ")),
        }
    }

    fn argument(&self, argument: &GenericArgument) -> Option<String> {
        if let GenericArgument::Type(ty) = argument { Some(self.words(ty)) } else { None }
    }

    /// The table of a type, and the types in it.
    fn table(&self, name: &str) -> (String, Vec<String>) {
        let (mut out, mut types) = (format!("### {name}\n\n"), Vec::new());
        let mut row = |cells: [&str; 2], attributes: &[Attribute]| {
            let [first, second] = cells;
            writeln!(out, "| {first} | {second} | {} |", text(attributes)).unwrap();
        };
        let item = self.items.get(name).unwrap_or_else(|| panic!("no type {name}"));
        match item {
            Item::Struct(s) => {
                row(["field", "type"], &[]);
                row(["---", "---"], &[]);
                for (i, field) in s.fields.iter().enumerate() {
                    if field.attrs.iter().any(|a| a.path().is_ident("serde")) {
                        continue;
                    }
                    let words = self.words(&field.ty);
                    let name = field.ident.as_ref().map_or_else(|| i.to_string(), ToString::to_string);
                    let attributes = if field.ident.is_some() { &field.attrs } else { &s.attrs };
                    row([&format!("`{name}`"), &format!("`{words}`")], attributes);
                    types.push(words);
                }
            }
            Item::Enum(e) => {
                row(["variant", "number"], &[]);
                row(["---", "---"], &[]);
                for (number, variant) in e.variants.iter().enumerate() {
                    let mut second = number.to_string();
                    if let Fields::Unnamed(fields) = &variant.fields {
                        let words = self.words(&fields.unnamed[0].ty);
                        write!(second, ", then `{words}`").unwrap();
                        types.push(words);
                    }
                    row([&format!("`{}`", variant.ident), &second], &variant.attrs);
                }
            }
            _ => unreachable!(),
        }
        (out.replace("| ---  |", "| --- |").replacen("| --- | --- |  |", "| --- | --- | --- |", 1) + "\n", types)
    }
}

/// The first paragraph of a doc comment.
fn text(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|a| a.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        let Expr::Lit(literal) = &pair.value else { continue };
        let Lit::Str(line) = &literal.lit else { continue };
        lines.push(line.value().trim().to_string());
    }
    let paragraph: Vec<&str> = lines.iter().map(String::as_str).take_while(|l| !l.is_empty()).collect();
    paragraph.join(" ").replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// Names of tables in a type's words: `Option<Known<text>>` has `Known`.
fn names(words: &str) -> impl Iterator<Item = &str> {
    let plain = ["Option", "List", "Map", "text", "bool", "T"];
    words
        .split(|c: char| !c.is_alphanumeric())
        .filter(move |w| w.chars().next().is_some_and(char::is_uppercase) && !plain.contains(w))
}

fn tables() -> String {
    let mut code = Code::default();
    for folder in ["src/sample", "src/kvm", "crates/session/src/format"] {
        code.read(&root().join(folder));
    }
    let mut known: Vec<String> = ROOTS.map(str::to_string).to_vec();
    let (mut out, mut next) = (String::new(), 0);
    while let Some(name) = known.get(next).cloned() {
        let (table, types) = code.table(&name);
        out += &table;
        for name in types.iter().flat_map(|words| names(words)) {
            if !known.iter().any(|k| k == name) {
                known.push(name.to_string());
            }
        }
        next += 1;
    }
    out.trim_end().to_string() + "\n"
}

#[test]
fn the_tables_are_those_of_the_code() {
    let path = root().join("docs/session-format.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let begin = document.rfind(MARKER).unwrap() + MARKER.len();
    let wanted = format!("{}\n{}", &document[..begin], tables());
    if std::env::var_os("KVMTOP_ACCEPT").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(document == wanted, "docs/session-format.md: run KVMTOP_ACCEPT=1 cargo test --test it session_format");
    }
}

/// A reader that knows only the document.
struct Reader {
    /// Rows of each table: name, type or number.
    tables: BTreeMap<String, Vec<(String, String)>>,
}

/// A value with what the test asks of it.
#[derive(Debug, Clone, Default)]
struct Value {
    number: i128,
    text: String,
    fields: BTreeMap<String, Value>,
    list: Vec<Value>,
}

impl Reader {
    fn new(document: &str) -> Self {
        let mut tables: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        let mut name = String::new();
        for line in document.lines() {
            if let Some(heading) = line.strip_prefix("### ") {
                name = heading.to_string();
            } else if let Some(row) = line.strip_prefix("| ").filter(|_| !name.is_empty()) {
                let cells: Vec<String> = row.split(" | ").map(|c| c.replace('`', "")).collect();
                tables.entry(name.clone()).or_default().push((cells[0].clone(), cells[1].clone()));
            }
        }
        tables.values_mut().for_each(|rows| drop(rows.drain(..2)));
        Self { tables }
    }

    fn varint(bytes: &mut &[u8]) -> u128 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u128::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    fn value(&self, ty: &str, bytes: &mut &[u8]) -> Value {
        let inner = |ty: &str| ty[ty.find('<').unwrap() + 1..ty.len() - 1].to_string();
        let mut out = Value::default();
        match ty {
            "bool" | "u32" | "u64" | "u128" => out.number = Self::varint(bytes) as i128,
            "i32" | "i64" => {
                let n = Self::varint(bytes);
                out.number = (n >> 1) as i128 ^ -((n & 1) as i128);
            }
            "f64" => *bytes = &bytes[8..],
            "text" => {
                let n = Self::varint(bytes) as usize;
                out.text = String::from_utf8(bytes[..n].to_vec()).unwrap();
                *bytes = &bytes[n..];
            }
            _ if ty.starts_with("Option<") => {
                if Self::varint(bytes) == 1 {
                    out.list.push(self.value(&inner(ty), bytes));
                }
            }
            _ if ty.starts_with("List<") => {
                let (n, of) = (Self::varint(bytes), inner(ty));
                out.list = (0..n).map(|_| self.value(&of, bytes)).collect();
            }
            _ if ty.starts_with("Map<") => {
                let (n, of) = (Self::varint(bytes), inner(ty));
                let (key, value) = of.split_once(", ").unwrap();
                for _ in 0..n {
                    let key = self.value(key, bytes);
                    out.fields.insert(key.text, self.value(value, bytes));
                }
            }
            _ if ty.starts_with('(') => {
                out.list = ty[1..ty.len() - 1].split(", ").map(|of| self.value(of, bytes)).collect();
            }
            _ => {
                let name = ty.split('<').next().unwrap();
                let rows = self.tables.get(name).unwrap_or_else(|| panic!("the document has no table {ty}"));
                if rows[0].1.starts_with('0') {
                    out.number = Self::varint(bytes) as i128;
                    if let Some((_, of)) = rows[out.number as usize].1.split_once(", then ") {
                        out.list.push(self.value(of, bytes));
                    }
                } else {
                    for (field, of) in rows {
                        let of = if of == "T" { inner(ty) } else { of.clone() };
                        out.fields.insert(field.clone(), self.value(&of, bytes));
                    }
                }
            }
        }
        out
    }
}

/// CRC-32 as the document has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[test]
fn a_reader_of_the_document_reads_the_demo() {
    let document = std::fs::read_to_string(root().join("docs/session-format.md")).unwrap();
    let reader = Reader::new(&document);
    let path = root().join("assets/demo.kvmtop");
    let mut cursor = Session::open(&path).unwrap().cursor();
    let file = std::fs::read(&path).unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((&file[..8], u32_at(8), u32_at(12)), (&b"\x89KVMTOP\n"[..], 1, crc32(&file[..12])));
    let (mut at, mut samples, mut kinds) = (16, 0, [0; 5]);
    let mut stream = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
    let mut facts: Vec<Value> = Vec::new();
    while at < file.len() {
        let (kind, length) = (file[at], (u32_at(at) >> 8) as usize);
        let payload = &file[at + 8..at + 8 + length];
        assert_eq!(u32_at(at + 4), crc32(&[&file[at..at + 4], payload].concat()));
        kinds[kind as usize] += 1;
        match kind {
            1 => assert!(reader.value("Header", &mut &payload[..]).fields["tool"].text.starts_with("kvmtop ")),
            2 | 3 => {
                let mut packed = payload;
                if kind == 2 {
                    assert_eq!((&payload[..8], payload[8]), (&b"KVMTOPsg"[..], u8::from(samples == 0)));
                    packed = &payload[9..];
                    stream = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
                    facts.clear();
                }
                let time = i64::from_le_bytes(packed[4..12].try_into().unwrap());
                assert_eq!(packed[..4], (samples as u32).to_le_bytes());
                std::io::Write::write_all(&mut stream, &packed[12..]).unwrap();
                std::io::Write::flush(&mut stream).unwrap();
                let bytes = std::mem::take(stream.get_mut());
                let mut bytes = bytes.as_slice();
                reader.value("Option<HostFacts>", &mut bytes);
                facts.extend(reader.value("List<DomainFacts>", &mut bytes).list);
                let numbers = reader.value("List<u32>", &mut bytes).list;
                let sample = reader.value("Sample", &mut bytes);
                if !bytes.is_empty() {
                    reader.value("List<Option<List<HostDisk>>>", &mut bytes);
                }
                if !bytes.is_empty() {
                    reader.value("List<Option<GuestInterrupts>>", &mut bytes);
                }
                assert!(bytes.is_empty(), "sample {samples}: {} bytes are left", bytes.len());
                let ours = cursor.at(samples).unwrap();
                assert_eq!((time, i128::from(time)), (ours.time_ms, sample.fields["time_ms"].number));
                let domains = &sample.fields["domains"].list;
                assert_eq!((domains.len(), numbers.len()), (ours.domains.len(), ours.domains.len()));
                for ((domain, number), our) in domains.iter().zip(numbers).zip(&ours.domains) {
                    let name = &facts[number.number as usize].fields["name"].fields["value"].text;
                    assert_eq!(*name, our.facts.name.value);
                    assert_eq!(domain.fields["threads"].list.len(), our.threads.len());
                    for (thread, our) in domain.fields["threads"].list.iter().zip(&our.threads) {
                        assert_eq!(thread.fields["comm"].text, our.comm);
                        let exits = &thread.fields["events"].fields["exits"].list;
                        let count = |e: &Value| e.fields["time"].fields["count"].number as u64;
                        assert_eq!(
                            exits.iter().map(count).collect::<Vec<_>>(),
                            our.events.exits.iter().map(|e| e.time.count).collect::<Vec<_>>()
                        );
                    }
                }
                samples += 1;
            }
            _ => {
                let mut bytes = payload.strip_prefix(b"KVMTOPix").unwrap();
                let before = reader.value("u64", &mut bytes).number;
                let segment = reader.value("Segment", &mut bytes);
                assert!(bytes.is_empty() && before < at as i128);
                assert!(segment.fields["samples"].number <= 120 && segment.fields["offset"].number < at as i128);
            }
        }
        at += 8 + length;
    }
    assert_eq!((samples, kinds[1] > 0, kinds[2] > 0, kinds[4]), (cursor.len(), true, true, kinds[2]));
}
