//! Domain XML that is not whole: escaped (`&lt;vcpupin`), cut off, or fragments without a root element.

use super::MAX_TEXT;
use crate::hyperv;
use crate::pattern::Pattern;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Open elements at a time; libvirt's XML has about eight.
const MAX_OPEN: usize = 48;

/// Elements of a domain: the path of their parent below `<domain>`, and whether they show that a text without a
/// `<domain>` is a part of one: never (`None`), with this attribute, or always (an empty text).
const ELEMENTS: &[(&str, Option<&str>, &[&str])] = &[
    ("", None, &["name", "uuid", "metadata", "memory", "currentMemory", "vcpus", "iothreadids"]),
    ("", None, &["os", "features", "devices"]),
    ("", Some(""), &["memoryBacking", "vcpu", "iothreads", "cputune", "numatune", "clock"]),
    ("", Some(" mode="), &["cpu"]),
    ("cputune", Some(""), &["vcpupin", "emulatorpin", "iothreadpin", "vcpusched"]),
    ("numatune", None, &["memnode"]),
    ("os", Some(" machine="), &["type"]),
    ("features", Some(""), &["hyperv"]),
    ("features/hyperv", None, &["vendor_id"]),
    ("cpu", Some(" sockets="), &["topology"]),
    ("cpu", Some(" policy="), &["feature"]),
    ("clock", Some(""), &["timer"]),
    ("devices", Some(" device="), &["disk"]),
    ("devices", Some(" type="), &["interface"]),
    ("devices", Some(" mode="), &["hostdev"]),
    ("devices", None, &["memballoon", "controller"]),
];

/// A comment, a declaration or a tag, whose attributes contain no other tag.
static TAG: Pattern = Pattern::new(concat!(
    r"(?s)<!--.*?(?:-->|$)|<[!?][^>]*>?|",
    r#"<(?P<close>/)?(?P<name>[A-Za-z_][A-Za-z0-9_:.-]*)(?:[^<>"']|"[^"<]*"|'[^'<]*')*>"#,
));
/// The beginning of a tag. An arrow of a remark (`<--- here`) or a comparison begins none.
static TAG_BEGINS: Pattern = Pattern::new("</?[A-Za-z_]");

/// The path of an element's parent, and the attribute that shows a part of a domain.
fn known(name: &str) -> Option<(&'static str, Option<&'static str>)> {
    let row = ELEMENTS.iter().find(|(.., names)| names.contains(&name)).map(|(parent, shows, _)| (*parent, *shows));
    row.or_else(|| hyperv::find(name).map(|_| ("features/hyperv", Some(" state="))))
}

fn is_root(name: &str) -> bool {
    matches!(name, "domain" | "domstatus")
}

/// A domain XML made from a text that holds none that is whole.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
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
    const ENTITIES: [(&str, &str); 7] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    let mut text = Cow::Borrowed(text);
    // Text that was escaped twice shows `&amp;lt;`.
    for _ in 0..2 {
        let is_escaped = ENTITIES.iter().any(|(escaped, _)| text.contains(escaped));
        // Text inside of real XML stays escaped.
        if text.len() > MAX_TEXT || !is_escaped || has_telling_tag(&text) {
            break;
        }
        text = ENTITIES.iter().fold(text, |text, (escaped, plain)| text.replace(escaped, plain).into());
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
    let is_other = ["<domainCapabilities", "<capabilities>"].iter().any(|root| text.contains(root));
    !is_other && !is_network(text) && text.len() <= MAX_TEXT && has_telling_tag(text)
}

/// Whether a tag shows that the text is about a domain.
fn has_telling_tag(text: &str) -> bool {
    let mut tags = TAG.regex().into_iter().flat_map(|tag| tag.captures_iter(text));
    tags.any(|found| {
        let (Some(name), None, Some(tag)) = (found.name("name"), found.name("close"), found.get(0)) else {
            return false;
        };
        let (name, tag) = (name.as_str(), tag.as_str());
        let shows = known(name).and_then(|(_, attribute)| attribute).is_some_and(|attribute| tag.contains(attribute));
        // `virsh iface-dumpxml` prints interfaces of the host.
        is_root(name) || shows && !(name == "interface" && tag.contains(" name="))
    })
}

/// Makes well-formed XML of the elements in a text; `None` if it holds none of a domain.
pub fn repair(text: &str) -> Option<Repaired> {
    if text.len() > MAX_TEXT || ["<!DOCTYPE", "<!ENTITY"].iter().any(|dtd| text.contains(dtd)) {
        return None;
    }
    let line_of = |at: usize| Some(text.get(..at)?.matches('\n').count() + 1);
    let mut builder = Builder::default();
    let mut found = Repaired::default();
    let mut at = 0;
    for tag in TAG.regex()?.captures_iter(text) {
        let whole = tag.get(0)?;
        let between = text.get(at..whole.start())?;
        let damaged = TAG_BEGINS.regex()?.find(between).map(|tag| tag.start());
        found.damaged_at = found.damaged_at.or_else(|| line_of(at + damaged?));
        builder.text(between.get(..damaged.unwrap_or(between.len()))?);
        at = whole.end();
        let Some(name) = tag.name("name").map(|name| name.as_str()) else { continue };
        if tag.name("close").is_some() {
            // With those inside that lack an end tag.
            if let Some(at) = builder.open.iter().rposition(|open| *open == name) {
                builder.close_to(at);
            }
        } else {
            builder.open(name, whole.as_str());
        }
    }
    let rest = text.get(at..)?;
    let broken = TAG_BEGINS.regex()?.find(rest).map(|tag| at + tag.start());
    let is_open = !builder.open.is_empty();
    found.cut_at = broken.or_else(|| is_open.then(|| text.trim_end().len())).and_then(line_of);
    builder.text(text.get(at..broken.unwrap_or(text.len()))?);
    builder.close_to(0);
    found.fragment = builder.whole.is_none();
    found.text = builder.whole.or_else(|| from_parts(&builder.parts)).filter(|_| has_telling_tag(text))?;
    Some(found)
}

/// A domain with the elements of each parent.
fn from_parts(parts: &BTreeMap<&str, String>) -> Option<String> {
    let element = |(parent, elements): (&&str, &String)| {
        let path = parent.split('/').filter(|name| !name.is_empty());
        path.rev().fold(elements.clone(), |inner, name| format!("<{name}>{inner}</{name}>"))
    };
    let inner: String = parts.iter().map(element).collect();
    (!inner.is_empty()).then(|| format!("<domain>{inner}</domain>"))
}

#[derive(Default)]
struct Builder<'a> {
    /// The XML of a `<domain>` or `<domstatus>` in the text.
    whole: Option<String>,
    /// Fragments by the path of their parent; the domain's own fragments have an empty path.
    parts: BTreeMap<&'static str, String>,
    /// The element being read, and the path of its parent.
    current: String,
    parent: &'static str,
    open: Vec<&'a str>,
}

impl<'a> Builder<'a> {
    fn text(&mut self, text: &str) {
        if !self.open.is_empty() {
            self.current.push_str(&text.replace('&', "&amp;").replace('<', "&lt;"));
        }
    }

    fn open(&mut self, name: &'a str, tag: &str) {
        if self.open.is_empty() {
            let parent = if is_root(name) { Some("") } else { known(name).map(|(parent, _)| parent) };
            let Some(parent) = parent.filter(|_| self.whole.is_none()) else { return };
            self.parent = parent;
        } else if self.open.len() >= MAX_OPEN {
            return;
        }
        self.current.push_str(tag);
        if !tag.ends_with("/>") {
            self.open.push(name);
        } else if self.open.is_empty() {
            self.end();
        }
    }

    fn close_to(&mut self, at: usize) {
        while self.open.len() > at {
            let name = self.open.pop().unwrap_or_default();
            self.current.push_str(&format!("</{name}>"));
        }
        if self.open.is_empty() {
            self.end();
        }
    }

    fn end(&mut self) {
        let element = std::mem::take(&mut self.current);
        if element.starts_with("<domain") || element.starts_with("<domstatus") {
            self.whole.get_or_insert(element);
        } else {
            self.parts.entry(self.parent).or_default().push_str(&element);
        }
    }
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
