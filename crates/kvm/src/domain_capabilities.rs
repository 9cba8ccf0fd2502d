//! `virsh domcapabilities`: what QEMU and KVM of a host offer to a guest (<https://libvirt.org/formatdomaincaps.html>).

use super::domain_xml::{child, children, document};
use super::{hyperv, sanitize};
use roxmltree::Node;
use std::collections::BTreeSet;

/// More values than QEMU has enlightenments.
const MAX_VALUES: usize = 256;

/// Enlightenments that work without KVM: if a host offers only these, its KVM lacks the Hyper-V interfaces.
const WITHOUT_KVM: [&str; 2] = ["spinlocks", "vendor_id"];

/// What a host offers to its guests, as far as fixes ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainCapabilities {
    /// `kvm`, or `qemu` for guests without KVM, whose CPU is another.
    pub domain_type: Option<String>,
    /// Architecture of the guests: `x86_64`.
    pub arch: Option<String>,
    /// The Hyper-V enlightenments by libvirt's names; `None` from an older libvirt, which lists none.
    pub enlightenments: Option<BTreeSet<String>>,
    /// Whether the CPU has a TSC that does not stop (`invtsc`); `None` without a host model.
    pub invtsc: Option<bool>,
}

/// Reads the capabilities in a text.
///
/// # Errors
/// If the text is too large, not well-formed, or has a DTD.
pub fn parse(text: &str) -> anyhow::Result<DomainCapabilities> {
    document(text, "domainCapabilities", |root| {
        let text = |name: &str| child(root, name).and_then(|node| node.text()).map(|text| sanitize(text.trim(), 64));
        let model = child(root, "cpu").and_then(|cpu| named(cpu, "mode", "host-model")).filter(supported);
        DomainCapabilities {
            domain_type: text("domain"),
            arch: text("arch"),
            enlightenments: child(root, "features").and_then(|features| child(features, "hyperv")).map(enlightenments),
            invtsc: model.map(|model| {
                let feature = named(model, "feature", "invtsc");
                feature.is_some_and(|feature| feature.attribute("policy") != Some("disable"))
            }),
        }
    })
}

fn enlightenments(node: Node) -> BTreeSet<String> {
    let values = named(node, "enum", "features").filter(|_| supported(&node));
    let values = values.into_iter().flat_map(|list| children(list, "value"));
    let mut names: BTreeSet<String> =
        values.take(MAX_VALUES).filter_map(|value| value.text()).map(|name| sanitize(name.trim(), 64)).collect();
    // libvirt lists neither the clock nor inner elements. KVM offers the clock to all (`kvm_get_hv_cpuid` of
    // arch/x86/kvm/hyperv.c), and the inner elements are taken to come with the outer ones.
    if names.iter().any(|name| !WITHOUT_KVM.contains(&name.as_str())) {
        names.insert(hyperv::CLOCK.to_owned());
    }
    let inner = hyperv::ALL.iter().filter(|known| known.name.split_once('_').is_some_and(|(o, _)| names.contains(o)));
    let inner: Vec<String> = inner.map(|known| known.name.to_owned()).collect();
    names.extend(inner);
    names
}

/// The child element with this `name` attribute.
fn named<'a, 'i: 'a>(node: Node<'a, 'i>, element: &str, name: &str) -> Option<Node<'a, 'i>> {
    children(node, element).find(|child| child.attribute("name") == Some(name))
}

fn supported(node: &Node) -> bool {
    node.attribute("supported") != Some("no")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(cpu: &str, features: &str) -> String {
        format!(
            "# virsh domcapabilities\n<domainCapabilities>\n  <domain>kvm</domain>\n  <arch>x86_64</arch>\n  \
             <cpu>{cpu}</cpu>\n  <features>{features}</features>\n</domainCapabilities>\nrest"
        )
    }

    fn hyperv(values: &[&str]) -> String {
        let values = values.iter().map(|v| format!("<value>{v}</value>")).collect::<Vec<_>>().concat();
        format!("<hyperv supported='yes'><enum name='features'>{values}</enum></hyperv>")
    }

    #[test]
    fn the_clock_comes_with_whatever_needs_kvm() {
        let names = |values: &[&str]| parse(&capabilities("", &hyperv(values))).unwrap().enlightenments.unwrap();
        assert!(
            names(&["relaxed", "vpindex", "stimer"]).is_superset(
                &["relaxed", "vpindex", "stimer", "stimer_direct", "hypervclock"].map(str::to_owned).into()
            )
        );
        assert_eq!(names(&["spinlocks", "vendor_id"]).into_iter().collect::<Vec<_>>(), ["spinlocks", "vendor_id"]);
        let none = parse(&capabilities("", "<hyperv supported='no'/>")).unwrap();
        assert_eq!(none.enlightenments, Some(BTreeSet::new()));
        assert_eq!(parse(&capabilities("", "<sev supported='no'/>")).unwrap().enlightenments, None, "an older libvirt");
    }

    #[test]
    fn the_tsc_is_that_of_the_host_model() {
        let model = |features: &str| {
            let modes = "<mode name='host-passthrough' supported='yes'/><mode name='host-model' supported='yes'>";
            parse(&capabilities(&format!("{modes}{features}</mode>"), "")).unwrap().invtsc
        };
        assert_eq!(model("<feature policy='require' name='invtsc'/>"), Some(true));
        assert_eq!(model("<feature policy='require' name='x2apic'/>"), Some(false));
        assert_eq!(parse(&capabilities("<mode name='host-model' supported='no'/>", "")).unwrap().invtsc, None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(a in ".{0,60}", b in ".{0,60}") {
            let text = format!("{a}<domainCapabilities>{b}<features>{a}</features></domainCapabilities>{b}");
            let _ = (parse(&text), parse(&b));
        }
    }
}
