//! Domain XML that is not whole: escaped (`&lt;vcpupin`), cut off, or fragments without a root element.

use super::MAX_TEXT;
use crate::hyperv;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Open elements at a time; libvirt's XML has about eight.
const MAX_OPEN: usize = 48;

/// An element of a domain: its name, the path of its parent below `<domain>`, and whether it shows that a text without
/// a
/// `<domain>` is a part of one: never (`None`), with this attribute, or always (an empty text).
type KnownElement = (&'static str, &'static str, Option<&'static str>);

const ELEMENTS: &[KnownElement] = &[
    ("name", "", None),
    ("uuid", "", None),
    ("metadata", "", None),
    ("memory", "", None),
    ("currentMemory", "", None),
    ("memoryBacking", "", Some("")),
    ("vcpu", "", Some("")),
    ("vcpus", "", None),
    ("iothreads", "", Some("")),
    ("iothreadids", "", None),
    ("cputune", "", Some("")),
    ("numatune", "", Some("")),
    ("os", "", None),
    ("features", "", None),
    ("cpu", "", Some(" mode=")),
    ("clock", "", Some("")),
    ("devices", "", None),
    ("vcpupin", "cputune", Some("")),
    ("emulatorpin", "cputune", Some("")),
    ("iothreadpin", "cputune", Some("")),
    ("vcpusched", "cputune", Some("")),
    ("iothreadsched", "cputune", None),
    ("emulatorsched", "cputune", None),
    ("period", "cputune", None),
    ("quota", "cputune", None),
    ("memnode", "numatune", None),
    ("type", "os", Some(" machine=")),
    ("hyperv", "features", Some("")),
    ("vendor_id", "features/hyperv", None),
    ("pmu", "features", None),
    ("topology", "cpu", Some(" sockets=")),
    ("feature", "cpu", Some(" policy=")),
    ("timer", "clock", Some("")),
    ("disk", "devices", Some(" device=")),
    ("interface", "devices", Some(" type=")),
    ("hostdev", "devices", Some(" mode=")),
    ("memballoon", "devices", None),
    ("controller", "devices", None),
];

fn known(name: &str) -> Option<KnownElement> {
    let enlightenment = || hyperv::find(name).map(|found| (found.name, "features/hyperv", Some(" state=")));
    ELEMENTS.iter().find(|(known, ..)| *known == name).copied().or_else(enlightenment)
}

fn is_root(name: &str) -> bool {
    matches!(name, "domain" | "domstatus")
}

/// A domain XML made from a text that holds none that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Well-formed XML of one domain.
    pub text: String,
    /// The line, from 1, on which the text breaks off, if it does.
    pub cut_at: Option<usize>,
    /// The line, from 1, of the first tag without an end: it is left out, and what follows it is read.
    pub damaged_at: Option<usize>,
    /// Whether the text lacks a `<domain>` element.
    pub fragment: bool,
}

/// The text with escaped markup restored, as web forms and mail programs escape it; borrowed if nothing is escaped.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    const ENTITIES: [(&str, &str); 9] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ];
    let mut text = Cow::Borrowed(text);
    // Text that was escaped twice shows `&amp;lt;`.
    for _ in 0..2 {
        // Text inside of real XML stays escaped.
        let always = ELEMENTS.iter().filter(|(.., shows)| *shows == Some("")).map(|(name, ..)| *name);
        let is_xml = || always.chain(["domain", "domstatus"]).any(|name| text.contains(&format!("<{name}")));
        if text.len() > MAX_TEXT || !ENTITIES.iter().any(|(escaped, _)| text.contains(escaped)) || is_xml() {
            break;
        }
        let mut plain = text.into_owned();
        for (escaped, character) in ENTITIES {
            plain = plain.replace(escaped, character);
        }
        text = Cow::Owned(plain);
    }
    text
}

/// Whether a text is libvirt's XML of a network, whose `<domain name=>` is one of DNS.
pub(super) fn is_network(text: &str) -> bool {
    text.contains("<network") && !text.contains("<domain type") && !text.contains("<devices")
}

/// Whether a text holds elements of a domain, be it without a root or cut off.
pub(super) fn is_fragment(text: &str) -> bool {
    // The capabilities of a host name what a domain may have.
    !is_network(text)
        && !text.contains("<domainCapabilities")
        && !text.contains("<capabilities>")
        && text.len() <= MAX_TEXT
        && Tokens::new(text).any(|token| matches!(token, Token::Open(name, tag, _) if is_telling(name, tag)))
}

/// Whether a tag shows that its text is about a domain.
fn is_telling(name: &str, tag: &str) -> bool {
    let shows = known(name).and_then(|(.., attribute)| attribute).is_some_and(|attribute| tag.contains(attribute));
    // `virsh iface-dumpxml` prints interfaces of the host.
    is_root(name) || shows && !(name == "interface" && tag.contains(" name="))
}

/// Makes well-formed XML of the elements in a text; `None` if it holds none of a domain.
pub fn repair(text: &str) -> Option<Repaired> {
    if text.len() > MAX_TEXT || text.contains("<!DOCTYPE") || text.contains("<!ENTITY") {
        return None;
    }
    let mut builder = Builder::default();
    for token in Tokens::new(text) {
        builder.take(&token, text);
    }
    builder.finish(text)
}

/// A piece of XML.
#[derive(Debug)]
enum Token<'a> {
    /// Name, the whole tag, whether it closes itself.
    Open(&'a str, &'a str, bool),
    Close(&'a str),
    Text(&'a str),
    /// A tag that the end of the text cuts off, at this position.
    Cut(usize),
    /// A tag within which the next one begins, at this position.
    Damaged(usize),
}

/// Splits a text into tags and the text between them. Never fails.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
            if !rest.starts_with('<') {
                let end = rest.find('<').unwrap_or(rest.len());
                self.at += end;
                return Some(Token::Text(rest.get(..end)?));
            }
            if rest.starts_with("<!--") || rest.starts_with("<?") || rest.starts_with("<!") {
                let end = if rest.starts_with("<!--") { "-->" } else { ">" };
                self.at += rest.find(end).map_or(rest.len(), |at| at + end.len());
                continue;
            }
            let closes = rest.starts_with("</");
            let body = rest.get(if closes { 2 } else { 1 }..)?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-' | '.');
            let name = body.get(..body.find(|c| !is_name(c)).unwrap_or(body.len()))?;
            // An arrow of a remark (`<--- here`) or a comparison begins no tag.
            if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                self.at += 1 + name.len();
                continue;
            }
            let Some(end) = tag_end(rest) else {
                let start = self.at;
                let next = rest.get(1..).and_then(|rest| rest.find('<'));
                self.at = next.map_or(self.text.len(), |next| start + 1 + next);
                return Some(if next.is_some() { Token::Damaged(start) } else { Token::Cut(start) });
            };
            self.at += end;
            let tag = rest.get(..end)?;
            return Some(if closes { Token::Close(name) } else { Token::Open(name, tag, tag.ends_with("/>")) });
        }
    }
}

/// The length of a tag with its `>`; `None` if the text or the next tag comes first.
fn tag_end(rest: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in rest.bytes().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'\'' | b'"') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            // A tag of libvirt's is short and holds no other.
            (_, b'<') => return None,
            _ => {}
        }
        if at > 4096 {
            return None;
        }
    }
    None
}

#[derive(Default)]
struct Builder {
    /// The XML of a `<domain>` or `<domstatus>` in the text.
    whole: Option<String>,
    /// Fragments by the element that they belong to; the domain's own fragments have an empty name.
    parts: BTreeMap<&'static str, String>,
    /// The element being read, and where it belongs.
    current: String,
    parent: Option<&'static str>,
    open: Vec<String>,
    cut: Option<usize>,
    damaged: Option<usize>,
    /// Whether a tag showed that the text is about a domain.
    telling: bool,
}

impl Builder {
    fn take(&mut self, token: &Token, text: &str) {
        match token {
            Token::Open(name, tag, closed) => {
                self.telling |= is_telling(name, tag);
                if self.open.is_empty() && !self.begin(name) || self.open.len() >= MAX_OPEN {
                    return;
                }
                self.current.push_str(tag);
                if !closed {
                    self.open.push((*name).to_owned());
                } else if self.open.is_empty() {
                    self.end();
                }
            }
            Token::Close(name) => {
                let Some(at) = self.open.iter().rposition(|open| open == name) else { return };
                self.close_to(at);
            }
            Token::Text(between) if !self.open.is_empty() => self.current.push_str(&between.replace('&', "&amp;")),
            Token::Text(_) => {}
            Token::Cut(at) => self.cut = Some(line_of(text, *at)),
            Token::Damaged(at) => self.damaged = self.damaged.or_else(|| Some(line_of(text, *at))),
        }
    }

    /// Whether an element without a parent is one of a domain.
    fn begin(&mut self, name: &str) -> bool {
        self.parent = match known(name) {
            _ if self.whole.is_some() => None,
            _ if is_root(name) => Some(""),
            element => element.map(|(_, parent, _)| parent),
        };
        self.parent.is_some()
    }

    fn close_to(&mut self, at: usize) {
        while self.open.len() > at {
            if let Some(name) = self.open.pop() {
                self.current.push_str(&format!("</{name}>"));
            }
        }
        if self.open.is_empty() {
            self.end();
        }
    }

    fn end(&mut self) {
        let element = std::mem::take(&mut self.current);
        if element.starts_with("<domain") || element.starts_with("<domstatus") {
            self.whole.get_or_insert(element);
        } else if let Some(parent) = self.parent {
            self.parts.entry(parent).or_default().push_str(&element);
        }
    }

    fn finish(mut self, text: &str) -> Option<Repaired> {
        if !self.open.is_empty() {
            self.cut = self.cut.or_else(|| Some(line_of(text, text.trim_end().len())));
            self.close_to(0);
        }
        if !self.telling {
            return None;
        }
        let fragment = self.whole.is_none();
        let xml = self.whole.or_else(|| {
            let mut xml = String::from("<domain>");
            for (parent, elements) in &self.parts {
                let path = || parent.split('/').filter(|name| !name.is_empty());
                path().for_each(|name| xml.push_str(&format!("<{name}>")));
                xml.push_str(elements);
                path().rev().for_each(|name| xml.push_str(&format!("</{name}>")));
            }
            (!self.parts.is_empty()).then(|| xml + "</domain>")
        })?;
        Some(Repaired { text: xml, cut_at: self.cut, damaged_at: self.damaged, fragment })
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain_xml::{DomainXml, parse};
    use proptest::prelude::*;

    fn read(text: &str) -> (DomainXml, Repaired) {
        let text = unescaped(text);
        let repaired = repair(&text).unwrap();
        (parse(&repaired.text).unwrap_or_else(|e| panic!("{e}: {}", repaired.text)), repaired)
    }

    #[test]
    fn fragments_without_a_root_are_read() {
        let (xml, repaired) =
            read("my pins:\n  <vcpupin vcpu='0' cpuset='2'/>\n <vcpupin vcpu='1' cpuset='3'/>\nthanks");
        assert_eq!((xml.vcpu_pins.len(), repaired.fragment, repaired.cut_at), (2, true, None));
        let (xml, _) = read(
            "<vcpu placement='static' current='4'>8</vcpu>\n<cputune>\n<vcpupin vcpu='0' cpuset='0'/>\n\
            <emulatorpin cpuset='0-3'/>\n</cputune>\n\
            <clock offset='localtime'><timer name='hpet' present='no'/></clock>",
        );
        assert_eq!((xml.vcpus, xml.vcpu_pins.len(), xml.clock.present("hpet")), (Some(4), 1, Some(false)));
        assert_eq!(xml.emulator_pin.unwrap().to_string(), "0-3");
        let (xml, _) = read("<hyperv mode='custom'><synic state='on'/></hyperv>\n<timer name='hpet' present='no'/>");
        assert!(xml.hyperv_on("synic") && xml.clock.present("hpet") == Some(false));
        let (xml, _) = read("add\n<relaxed state='on'/>\n<stimer state='on'>\n<direct state='on'/>\n</stimer>\n");
        assert!(xml.hyperv_on("relaxed") && xml.hyperv_on("stimer_direct") && !xml.hyperv_on("synic"));
        let (xml, _) = read("<cpu mode='host-passthrough'><topology sockets='1' cores='2' threads='2'/></cpu>");
        assert_eq!(xml.topology.map(|t| t.threads), Some(2));
    }

    #[test]
    fn a_cut_xml_is_read_as_far_as_it_goes() {
        let text = "<domain type='kvm'>\n<name>web</name>\n<vcpu>4</vcpu>\n<cputune>\n<vcpupin vcpu='0' cpuset='2'/>\n\
            <vcpupin vcpu='1' cpu";
        let (xml, repaired) = read(text);
        assert_eq!((xml.name.as_deref(), xml.vcpus, xml.vcpu_pins.len()), (Some("web"), Some(4), 1));
        assert_eq!((repaired.cut_at, repaired.fragment), (Some(6), false));
        let (xml, repaired) = read("<domain>\n<name>web</name>\n<vcpu>4</vcpu>\n");
        assert_eq!((xml.vcpus, repaired.cut_at), (Some(4), Some(3)));
        // The beginning is missing.
        let (xml, repaired) = read("uset='1'/>\n<vcpupin vcpu='1' cpuset='3'/>\n</cputune>\n<os>\n</os>\n</domain>\n");
        assert_eq!((xml.vcpu_pins.len(), repaired.fragment), (1, true));
        // One end tag is missing.
        let (xml, _) = read("<domain><name>x</domain>");
        assert_eq!(xml.name.as_deref(), Some("x"));
    }

    #[test]
    fn remarks_and_damaged_tags_between_others_cost_no_more_than_themselves() {
        let (xml, repaired) = read(
            "<cputune>\n<vcpupin vcpu='0' cpuset='1'/>  <----- the first core\n\
            <vcpupin vcpu='1' cpuset='2'/> <- 2 < 3\n</cputune>",
        );
        assert_eq!((xml.vcpu_pins.len(), repaired.cut_at, repaired.damaged_at), (2, None, None));
        let (xml, repaired) = read(
            "<domain type='kvm'>\n<vcpu>3</vcpu>\n<cputune>\n<vcpupin vcpu='0' cpuset='1'/>\n\
            <vcpupin vcpu='1' cpuset='2'\n<vcpupin vcpu='2' cpuset='3'/>\n</cputune>\n</domain>",
        );
        assert_eq!((xml.vcpu_pins.len(), repaired.cut_at, repaired.damaged_at), (2, None, Some(5)));
    }

    #[test]
    fn escaped_xml_is_read() {
        let (xml, _) = read(
            "&lt;domain type=&#39;kvm&#39;&gt;&lt;name&gt;a &amp;amp; b&lt;/name&gt;\n\
            &lt;vcpu&gt;2&lt;/vcpu&gt;&lt;/domain&gt;",
        );
        assert_eq!((xml.vcpus, xml.name.is_some()), (Some(2), true));
        let whole = "<domain><name>a &lt;vcpupin b</name></domain>";
        assert_eq!(unescaped(whole), whole, "text inside real XML stays escaped");
    }

    #[test]
    fn other_markup_is_none() {
        for text in
            ["<html><body>hello</body></html>", "<foo@example.org> wrote:\n", "a < b", "<network><name>x</name>"]
        {
            assert!(!is_fragment(text) && repair(text).is_none(), "{text}");
        }
        assert!(!is_fragment("<domainCapabilities><vcpu max='8'/></domainCapabilities>"));
        assert!(repair("<!DOCTYPE x><domain/>").is_none());
    }

    proptest! {
        #[test]
        fn any_damage_is_survived(cut in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(),
            byte in any::<u8>(), noise in any::<String>()) {
            let text = "<domain type='kvm'><name>x</name><vcpu cpuset='1'>2</vcpu><cputune>\
                <vcpupin vcpu='0' cpuset='1'/>\
                </cputune><!-- c --><devices><disk/></devices></domain>";
            let mut bytes = text.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            for text in [String::from_utf8_lossy(&bytes).into_owned(), format!("<vcpu>{noise}"), noise] {
                if let Some(repaired) = repair(&unescaped(&text)) {
                    let _ = parse(&repaired.text);
                }
            }
        }
    }
}
