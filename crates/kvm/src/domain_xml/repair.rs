//! Domain XML that is not whole: escaped (`&lt;vcpupin`), cut off, or fragments without a root element.

use super::MAX_TEXT;
use super::read::lacks_text;
use super::xml::slice;
use crate::hyperv;
use crate::pattern::Pattern;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Open elements at a time; libvirt's XML has about eight.
const MAX_OPEN: usize = 48;

/// The path of the element with the Hyper-V enlightenments, and how many of them alone are a list.
const ENLIGHTENMENTS: &str = "features/hyperv";
const MIN_LIST: usize = 3;

/// Stands where something is missing.
const LEFT_OUT: &str = "<!-- \u{2026} -->";

/// Elements of a domain: the path of their parent below `<domain>`, and whether they show that a text without a
/// `<domain>` is a part of one: never (`None`), with this attribute, or always (an empty text).
const ELEMENTS: &[(&str, Option<&str>, &[&str])] = &[
    ("", None, &["name", "uuid", "metadata", "memory", "currentMemory", "vcpus", "iothreadids"]),
    ("", None, &["os", "features", "devices"]),
    ("", Some(""), &["memoryBacking", "vcpu", "iothreads", "cputune", "numatune", "clock"]),
    ("", Some(""), &["qemu:commandline"]),
    ("", Some(" mode="), &["cpu"]),
    ("cputune", Some(""), &["vcpupin", "emulatorpin", "iothreadpin", "vcpusched"]),
    ("numatune", None, &["memnode"]),
    ("os", Some(" machine="), &["type"]),
    ("features", Some(""), &["hyperv"]),
    (ENLIGHTENMENTS, None, &["vendor_id"]),
    ("cpu", Some(" sockets="), &["topology"]),
    ("cpu", Some(" policy="), &["feature"]),
    ("clock", Some(""), &["timer"]),
    ("devices", Some(" device="), &["disk"]),
    ("devices", Some(" type="), &["interface"]),
    ("devices", Some(" mode="), &["hostdev"]),
    ("devices", None, &["memballoon", "controller"]),
];

/// Elements that libvirt has in `<domain>` alone: inside another one they show that its end is missing.
const OUTERMOST: &str = "currentMemory memoryBacking vcpu iothreadids cputune numatune os features cpu clock devices \
    qemu:commandline";

/// A comment, a declaration or a tag, whose attributes contain no other tag.
static TAG: Pattern = Pattern::new(concat!(
    r"(?s)<!--.*?(?:-->|$)|<[!?][^>]*>?|",
    r#"<(?P<close>/)?(?P<name>[A-Za-z_][A-Za-z0-9_:.-]*)(?:[^<>"']|"[^"<]*"|'[^'<]*')*>"#,
));
/// An attribute, also one without quotes or a blank before it.
static ATTRIBUTE: Pattern = Pattern::new(concat!(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:.-]*)[ \t\r\n]*=[ \t\r\n]*",
    r#"(?:(?P<quoted>"[^"<]*"|'[^'<]*')|(?P<bare>[A-Za-z0-9_.,:/-]*[A-Za-z0-9_]))"#,
));
/// The beginning of a tag. An arrow of a remark (`<--- here`) or a comparison begins none.
static TAG_BEGINS: Pattern = Pattern::new("</?[A-Za-z_]");

/// The beginning of a domain's XML; capabilities have `<domain>` elements with other content.
static DOMAIN_BEGINS: Pattern = Pattern::new(concat!(
    r"<domain(?:[ \t\r\n][^<>]*[^/<>])?>[ \t\r\n]*(?:<!--[^>]*-->[ \t\r\n]*)?",
    "<(?:name|uuid|title|description|metadata|memory|vcpu)[ >]",
));

/// The path of an element's parent, and the attribute that shows a part of a domain.
fn known(name: &str) -> Option<(&'static str, Option<&'static str>)> {
    let row = ELEMENTS.iter().find(|(.., names)| names.contains(&name)).map(|(parent, shows, _)| (*parent, *shows));
    row.or_else(|| hyperv::find(name).map(|_| (ENLIGHTENMENTS, Some(" state="))))
}

fn is_outermost(name: &str) -> bool {
    OUTERMOST.split(' ').any(|outer| outer == name)
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

/// The begin of an element in a sentence: "put this into `<cpu>`", "instead of `<domain type='kvm'>`".
static CITED_TAG: Pattern = Pattern::new("`</?[A-Za-z]+(?: [^`<>/]*)?>`");

/// A text without the capabilities of its host and its QEMU, which name elements of domains, nor tags that sentences
/// cite. Lines keep their numbers.
pub fn own_text(text: &str) -> Cow<'_, str> {
    let text = CITED_TAG.regex().map_or(Cow::Borrowed(text), |tag| tag.replace_all(text, ""));
    let text = if text.contains(" ...>") { text.replace(" ...>", "><!-- ... -->").into() } else { text };
    ["capabilities", "domainCapabilities"].into_iter().fold(text, |text, name| {
        let Some(part) = slice(&text, name) else { return text };
        let end = DOMAIN_BEGINS.regex().and_then(|begins| Some(begins.find(part)?.start()));
        let part = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        text.replacen(part, &"\n".repeat(part.matches('\n').count()), 1).into()
    })
}

/// Whether a text is libvirt's XML of a network, whose `<domain name=>` is one of DNS.
pub(super) fn is_network(text: &str) -> bool {
    text.contains("<network") && !text.contains("<domain type") && !text.contains("<devices")
}

/// Whether a tag shows that the text is about a domain.
fn has_telling_tag(text: &str) -> bool {
    let mut tags = TAG.captures_iter(text);
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

/// Makes well-formed XML of the elements in a text; `None` if it holds none of a domain. Parts of a domain that are
/// outside of its `<domain>` belong to it unless that is whole.
pub fn repair(text: &str) -> Option<Repaired> {
    let has_dtd = ["<!DOCTYPE", "<!ENTITY"].iter().any(|dtd| text.contains(dtd));
    if text.len() > MAX_TEXT || has_dtd || !has_telling_tag(text) {
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
        if damaged.is_some() {
            builder.text(LEFT_OUT);
        }
        at = whole.end();
        match (tag.name("name").map(|name| name.as_str()), tag.name("close")) {
            (None, _) if lacks_text(whole.as_str()) => builder.text(LEFT_OUT),
            (None, _) => {}
            (Some(name), Some(_)) => builder.close(name),
            (Some(name), None) => builder.open(name, whole.as_str()),
        }
    }
    let rest = text.get(at..)?;
    let broken = TAG_BEGINS.regex()?.find(rest).map(|tag| at + tag.start());
    let is_open = builder.in_domain || !builder.open.is_empty();
    found.cut_at = broken.or_else(|| is_open.then(|| text.trim_end().len())).and_then(line_of);
    builder.text(text.get(at..broken.unwrap_or(text.len()))?);
    found.fragment = builder.domain.is_none();
    found.text = builder.finish()?;
    Some(found)
}

#[derive(Default)]
struct Builder<'a> {
    /// The start tag of the text's `<domain>`.
    domain: Option<&'a str>,
    in_domain: bool,
    /// Whether something is missing in that `<domain>`, or around elements without one.
    lossy: bool,
    /// Elements by the path of their parent below `<domain>`.
    parts: BTreeMap<&'static str, String>,
    /// The element being read, and the path of its parent.
    current: String,
    parent: &'static str,
    /// The elements that have begun.
    open: Vec<OpenElement<'a>>,
}

/// An element whose end has not come yet.
struct OpenElement<'a> {
    name: &'a str,
    /// Where it begins in the text of the outermost element.
    begin: usize,
    /// Whether a part of its start tag could not be read.
    is_torn: bool,
}

/// A start tag made well-formed, and whether it has anything else than attributes: `<cpu ...args>`.
fn well_formed(name: &str, tag: &str) -> (String, bool) {
    let Some(attributes) = ATTRIBUTE.regex() else { return (tag.to_owned(), false) };
    let inside =
        tag.trim_start_matches('<').strip_prefix(name).unwrap_or_default().trim_end_matches('>').trim_end_matches('/');
    let quoted = |found: &regex::Captures<'_>| match found.name("bare") {
        Some(bare) => format!(" {}='{}'", &found["name"], bare.as_str()),
        None => format!(" {}={}", &found["name"], &found["quoted"]),
    };
    let all: String = attributes.captures_iter(inside).map(|found| quoted(&found)).collect();
    let is_torn = !attributes.replace_all(inside, "").trim().is_empty();
    let end = if tag.ends_with("/>") { "/>" } else { ">" };
    (format!("<{name}{all}{end}"), is_torn)
}

impl<'a> Builder<'a> {
    fn text(&mut self, text: &str) {
        if self.open.is_empty() {
            self.lossy |= (self.in_domain || self.domain.is_none()) && lacks_text(text);
        } else if text == LEFT_OUT {
            self.current.push_str(text);
        } else {
            self.current.push_str(&text.replace('&', "&amp;").replace('<', "&lt;"));
        }
    }

    fn open(&mut self, name: &'a str, tag: &'a str) {
        let ends_itself = tag.ends_with("/>");
        if is_root(name) {
            self.close_to(0);
            // One that was only quoted is followed by the real one.
            if name == "domain" && (self.domain.is_none() || self.parts.is_empty()) {
                self.domain = Some(tag.trim_end_matches(['/', '>']));
                (self.in_domain, self.lossy) = (!ends_itself, false);
            }
            return;
        }
        let is_inner = self.open.iter().any(|open| matches!(open.name, "metadata" | "vcpus")) || self.open.is_empty();
        if !is_inner && is_outermost(name) {
            self.lossy = true;
            self.close_to(0);
        }
        // No device is inside one of its kind: the outer one was a placeholder, as in `<guest>_<disk>`.
        let of_devices = known(name).is_some_and(|(parent, _)| parent == "devices");
        if let Some(at) = self.open.iter().position(|open| open.name == name).filter(|_| of_devices) {
            self.close_to(at);
        }
        if self.open.is_empty() {
            let outer = self.in_domain.then_some("");
            let Some(parent) = known(name).map(|(parent, _)| parent).or(outer) else { return };
            self.parent = parent;
        } else if self.open.len() >= MAX_OPEN {
            return;
        }
        let begin = self.current.len();
        let (tag, is_torn) = well_formed(name, tag);
        if is_torn && ends_itself {
            self.text(LEFT_OUT);
            return;
        }
        self.current.push_str(&tag);
        if !ends_itself {
            self.open.push(OpenElement { name, begin, is_torn });
        } else if self.open.is_empty() {
            self.end();
        }
    }

    fn close(&mut self, name: &str) {
        if let Some(at) = self.open.iter().rposition(|open| open.name == name) {
            // Those inside that lack an end tag may have taken what follows them.
            let lacks_end = self.open.len() > at + 1;
            let is_torn = self.open.get(at).is_some_and(|open| open.is_torn);
            self.close_to(at + 1);
            if lacks_end || is_torn {
                self.current.push_str(LEFT_OUT);
            }
            self.open.truncate(at);
            self.current.push_str(&format!("</{name}>"));
            if at == 0 {
                self.end();
            }
        } else if name == "domain" {
            self.lossy |= !self.open.is_empty();
            self.close_to(0);
            self.in_domain = false;
        } else {
            // Its beginning is missing.
            self.lossy = true;
        }
    }

    /// Ends elements that lack an end tag. Prose mentions sections: those have nothing inside.
    fn close_to(&mut self, at: usize) {
        for OpenElement { name, begin, .. } in self.open.drain(at..).rev() {
            let is_mention =
                is_outermost(name) && !self.current.get(begin + 1..).is_some_and(|rest| rest.contains('<'));
            if is_mention {
                self.current.truncate(begin);
            } else {
                self.current.push_str(&format!("{LEFT_OUT}</{name}>"));
            }
        }
        if at == 0 {
            self.end();
        }
    }

    fn end(&mut self) {
        let element = std::mem::take(&mut self.current);
        if !element.is_empty() {
            self.parts.entry(self.parent).or_default().push_str(&element);
        }
    }

    /// The XML of the domain, if any element of it was found. A list of enlightenments is pasted whole, or has dots;
    /// loose elements elsewhere may have others beside them.
    fn finish(mut self) -> Option<String> {
        self.close_to(0);
        let element = |(parent, elements): (&&str, &String)| {
            let is_list = *parent == ENLIGHTENMENTS && !self.lossy && elements.matches(" state=").count() >= MIN_LIST;
            let path = parent.split('/').filter(|name| !name.is_empty()).rev().enumerate();
            path.fold(elements.clone(), |inner, (depth, name)| {
                format!("<{name}>{inner}{}</{name}>", if depth == 0 && is_list { "" } else { LEFT_OUT })
            })
        };
        let inner: String = self.parts.iter().map(element).collect();
        let is_whole = self.domain.is_some() && !self.in_domain && !self.lossy;
        let (start, rest) = (self.domain.unwrap_or("<domain"), if is_whole { "" } else { LEFT_OUT });
        (!inner.is_empty()).then(|| format!("{start}>{inner}{rest}</domain>"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain_xml::{DomainXml, looks_like, parse};
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
        assert!(!xml.shows("cputune"), "an emulatorpin may be beside them");
        let (xml, _) = read(
            "<vcpu placement='static' current='4'>8</vcpu>\n<cputune>\n<vcpupin vcpu='0' cpuset='0'/>\n\
            <emulatorpin cpuset='0-3'/>\n</cputune>\n\
            <clock offset='localtime'><timer name='hpet' present='no'/></clock>",
        );
        assert_eq!((xml.vcpus, xml.vcpu_pins.len(), xml.clock.present("hpet")), (Some(4), 1, Some(false)));
        assert_eq!(xml.emulator_pin.unwrap().to_string(), "0-3");
        let (xml, _) = read(
            "<cputune><vcpupin vcpu='0' cpuset='2'/></cputune>\nthen:\n<cputune><emulatorsched scheduler='fifo'/>\
            <iothreadsched iothreads='1' scheduler='rr'/><iothreadpin iothread='1' cpuset='3'/></cputune>\nVM 2:\n\
            <cputune><vcpupin vcpu='0' cpuset='4'/><emulatorpin cpuset='0'/></cputune>",
        );
        assert_eq!((xml.vcpu_pins[&0].to_string(), xml.iothread_pins[&1].to_string()), ("2".into(), "3".into()));
        assert_eq!((xml.realtime_helpers, xml.emulator_pin), ([None, Some(1)].into(), None), "VM 2 has its own");
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
    fn an_element_without_an_end_takes_no_others() {
        let (xml, _) = read(
            "<cputune>\n<vcpupin vcpu='0' cpuset='1'/>\n</cputune>\n<os>\n\n<cpu mode='host-passthrough'>\n\
            <topology sockets='1' cores='2' threads='2'/>\n</cpu>",
        );
        assert_eq!(xml.topology.map(|t| t.threads), Some(2));
        assert!(xml.shows("cputune") && xml.shows("cpu/numa") && !xml.shows("os") && !xml.shows("clock"));
        let (xml, _) = read(
            "<domain><name>a</name><features><acpi><hyperv><synic state='on'/></hyperv></features><clock offset='utc'/>\
            <vcpus><vcpu id='0' enabled='yes'/></vcpus></domain>",
        );
        assert!(!xml.shows("features/hyperv") && xml.shows("clock") && xml.shows("cputune"));
    }

    #[test]
    fn parts_around_a_domain_belong_to_it_unless_it_is_whole() {
        let (xml, repaired) = read(
            "<domain type='kvm'>\n<name>web</name>\n<metadata>\n<x:os id='y'>\n[...]\n</domain>\nThen:\n\
            <vcpu>2</vcpu>\n<cputune>\n<vcpupin vcpu='0' cpuset='8'/>\n</cputune>\n",
        );
        assert_eq!((xml.name.as_deref(), xml.vcpus, xml.vcpu_pins.len()), (Some("web"), Some(2), 1));
        assert!(!repaired.fragment && xml.shows("cputune") && !xml.shows("clock"));
        // The first line is only quoted.
        let (xml, _) = read(
            "<domain type='kvm'>\nand at the end:\n...\n</devices>\n<iothreads>1</iothreads>\n</domain>\n\
            <vcpu>2</vcpu>",
        );
        assert_eq!((xml.domain_type.as_deref(), xml.iothreads, xml.vcpus), (Some("kvm"), 1, Some(2)));
        let (xml, _) = read("<domain><name>a</name><vcpu>4</vcpu><title>a & b</title></domain>\n");
        assert_eq!((xml.vcpus, xml.is_whole()), (Some(4), true));
    }

    #[test]
    fn attributes_that_are_left_out_are_no_damage() {
        let xml = parse(&own_text("<domain type='kvm' ...>\n<vcpu>14</vcpu>\n</domain>")).unwrap();
        assert_eq!((xml.vcpus, xml.domain_type.as_deref()), (Some(14), Some("kvm")));
    }

    #[test]
    fn tags_that_prose_mentions_are_no_elements() {
        for text in [
            "Configure the `<cputune>` section:",
            "under the <currentMemory> section add",
            "go down to the end of `</features>` and edit `<cpu mode='host-model'>` so",
            "remove the <cpu mode='host-model'> line",
            "what belongs into <cputune>",
        ] {
            assert_eq!(repair(text), None, "{text}");
        }
        let (xml, _) = read("Add a `<cputune>` section. So:\n<cputune><vcpupin vcpu='0' cpuset='2'/></cputune>\n");
        assert_eq!(xml.vcpu_pins.len(), 1);
        assert_eq!(read("set <vcpu>4</vcpu> to <vcpu>8</vcpu> here").0.vcpus, Some(4));
        assert_eq!(own_text("not `<domain type='qemu'>` but\n<domain type='kvm'>"), "not  but\n<domain type='kvm'>");
        let (xml, _) = read("lvs /dev/<guest>_<disk> -L 9g <mount>\n<disk device='disk'><target dev='vdf'/></disk>");
        assert_eq!(xml.disks.last().map(|disk| disk.target.as_str()), Some("vdf"));
        let host = "<capabilities>\n<host>\n<cpu>\n……\n\n";
        let domain = "<domain type='kvm'>\n<name>web</name>\n</domain>\n";
        assert_eq!(own_text(&format!("{host}{domain}")), format!("\n\n\n\n\n{domain}"));
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
            assert!(repair(text).is_none(), "{text}");
        }
        assert!(!looks_like("<domainCapabilities><vcpu max='8'/></domainCapabilities>"));
        assert!(repair("<!DOCTYPE x><domain/>").is_none());
    }

    #[test]
    fn a_tag_that_a_sentence_cites_opens_nothing() {
        let text = "Into `<cpu>` put this:\n<cpu>\n<topology sockets='1' cores='5' threads='2'/>\n\
            </cpu>\n<vcpu>10</vcpu>\n";
        let xml = crate::domain_xml::parse(&repair(&own_text(text)).unwrap().text).unwrap();
        assert_eq!(xml.topology.map(|topology| topology.threads), Some(2));
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
