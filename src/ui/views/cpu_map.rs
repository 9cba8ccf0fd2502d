//! The map of the host's CPUs by node, cache, core and sibling: how busy each is, with what, and
//! where trouble is.

use super::section::{Picture, Section};
use crate::ui::page_state::SectionId;
use crate::ui::state::AppState;
use crate::ui::table::severity_mark;
use crate::ui::text::clean;
use crate::ui::theme::{StyleId, Theme};
use crate::ui::widgets::draw::put;
use crate::ui::widgets::{StyledLine, paint_line};
use judge::figures::{count, share};
use judge::lint::{Mark, Severity};
use judge::model::{CpuModel, DomainModel, GuestThread, Model, ThreadModel};
use kvm::thread_name::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::{BTreeMap, HashMap};

/// A vCPU that uses less CPU time than this, in percent, shares its CPU without harm.
const BUSY: f64 = 10.0;
/// Width of a node's name before its CPUs.
const LABEL: u16 = 17;
/// Width of a core: the height, the mark of what is there, a blank.
const CORE: u16 = 3;
/// Columns between the cores of two last-level caches.
const GAP: u16 = 2;
/// Lines of the legend below the map.
const LEGEND: u16 = 2;

/// A guest's thread on a CPU.
pub fn thread_of<'a>(
    model: &'a Model,
    tenant: &GuestThread,
) -> Option<(&'a DomainModel, &'a ThreadModel)> {
    let domain = model.domains.get(tenant.domain)?;
    Some((domain, domain.threads.get(tenant.thread)?))
}

/// The guests of the vCPUs whose last CPU this is, and how busy each vCPU is.
fn vcpus<'a>(model: &'a Model, cpu: &'a CpuModel) -> impl Iterator<Item = (&'a DomainModel, f64)> {
    cpu.guest_threads
        .iter()
        .filter(|t| t.here)
        .filter_map(|tenant| {
            let (domain, thread) = thread_of(model, tenant)?;
            (thread.role == Role::Vcpu).then_some((domain, tenant.cpu))
        })
}

/// How many busy vCPUs a CPU has.
pub fn busy_vcpus(model: &Model, cpu: &CpuModel) -> usize {
    vcpus(model, cpu).filter(|(_, busy)| *busy >= BUSY).count()
}

/// The severity of the worst finding about each CPU.
pub fn found(state: &AppState) -> HashMap<u32, Severity> {
    let marks = state
        .report
        .findings
        .iter()
        .flat_map(|f| f.marks.iter().map(|mark| (mark, f.severity)));
    let mut cpus: Vec<(u32, Severity)> = Vec::new();
    for (mark, severity) in marks {
        if let Mark::Pcpu(cpu) = mark {
            cpus.push((*cpu, severity));
        }
    }
    // The worst of a CPU is the last.
    cpus.sort_unstable();
    cpus.into_iter().collect()
}

/// A line of the map: a text, then CPUs and where each of them is.
#[derive(Default)]
struct Line<'a> {
    text: String,
    cpus: Vec<(u16, &'a CpuModel)>,
}

struct CpuMap<'a> {
    state: &'a AppState,
    model: &'a Model,
    found: HashMap<u32, Severity>,
    lines: Vec<Line<'a>>,
}

/// The section.
pub fn section<'a>(state: &'a AppState, model: &'a Model, columns: u16) -> Section<'a> {
    let (id, title, host) = (SectionId::CpuMap, "host CPUs", &model.host);
    if host.cpus.is_empty() {
        let nothing = "This input does not describe the host's CPUs; the output of lscpu -e beside \
            it does.";
        return Section::folded(id, title, nothing);
    }
    let shared = host
        .cpus
        .iter()
        .filter(|c| busy_vcpus(model, c) > 1)
        .count();
    let isolated = host
        .facts
        .topology
        .isolated
        .as_ref()
        .filter(|set| !set.is_empty());
    let lines = lines(&nodes(model), columns);
    Section::picture(
        id,
        title,
        CpuMap {
            state,
            model,
            found: found(state),
            lines,
        },
    )
    .with_note(if shared > 0 {
        format!("{} shared by busy vCPUs", count(shared, "CPU"))
    } else {
        String::new()
    })
    .with_right(
        isolated
            .map(|set| format!("isolated {set}"))
            .unwrap_or_default(),
    )
}

/// A core: its number, its last-level cache, its hardware threads.
type Core<'a> = (u32, Option<u32>, Vec<&'a CpuModel>);

/// The nodes' names and cores.
fn nodes(model: &Model) -> Vec<(String, Vec<Core<'_>>)> {
    let mut nodes: BTreeMap<Option<u32>, BTreeMap<_, Core<'_>>> = BTreeMap::new();
    for cpu in &model.host.cpus {
        let place = model.host.facts.topology.cpu(cpu.cpu);
        // Without core ids each set of siblings is a core.
        let number = place
            .and_then(|t| t.core.or_else(|| t.siblings.first()))
            .unwrap_or(cpu.cpu);
        let core = (number, place.and_then(|t| t.llc), Vec::new());
        let cores = nodes.entry(place.and_then(|t| t.node)).or_default();
        cores
            .entry((place.map(|t| (t.socket, t.die)), number))
            .or_insert(core)
            .2
            .push(cpu);
    }
    let mut named = Vec::new();
    for (node, cores) in nodes {
        let busy: Vec<f64> = cores
            .values()
            .flat_map(|c| &c.2)
            .filter_map(|c| Some(c.time?.busy()))
            .collect();
        let busy = share(busy.iter().sum::<f64>() / busy.len() as f64);
        let name = node.map_or_else(|| "host".into(), |node| format!("node {node}"));
        named.push((format!("{name} {busy:>3} %"), cores.into_values().collect()));
    }
    named
}

/// For each node a line with the numbers of its cores and a line for each hardware thread, as often
/// as its cores need.
fn lines<'a>(nodes: &[(String, Vec<Core<'a>>)], columns: u16) -> Vec<Line<'a>> {
    let wide = nodes
        .iter()
        .flat_map(|(_, cores)| cores)
        .any(|(number, ..)| *number > 99);
    let step = CORE + u16::from(wide);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (name, cores) in nodes {
        let (mut first, mut x) = (lines.len(), LABEL);
        lines.push(Line {
            text: name.clone(),
            cpus: Vec::new(),
        });
        for (n, (number, cache, threads)) in cores.iter().enumerate() {
            x += if n > 0 && cores[n - 1].1 != *cache {
                GAP
            } else {
                0
            };
            if x + step + 1 > columns {
                (first, x) = (lines.len(), LABEL);
            }
            lines.resize_with(lines.len().max(first + 1 + threads.len()), Line::default);
            let numbers = &mut lines[first].text;
            *numbers = format!("{numbers:<pad$}{number:>2}", pad = usize::from(x));
            threads
                .iter()
                .zip(&mut lines[first + 1..])
                .for_each(|(cpu, line)| line.cpus.push((x, *cpu)));
            x += step;
        }
    }
    lines
}

impl CpuMap<'_> {
    /// What is said of a CPU: how many busy vCPUs share it, else a finding, else a vCPU of the
    /// selected guest.
    fn mark(&self, cpu: &CpuModel, theme: &Theme) -> Option<(char, StyleId)> {
        let found = self
            .found
            .get(&cpu.cpu)
            .map(|severity| severity_mark(*severity, theme));
        let busy = busy_vcpus(self.model, cpu).min(9) as u32;
        if busy > 1 {
            return Some((
                char::from_digit(busy, 10)?,
                found.map_or(StyleId::Warning, |(_, style)| style),
            ));
        }
        let selected = self.state.domain();
        if found.is_some() {
            return found;
        }
        let guest = selected?;
        let mut here = vcpus(self.model, cpu);
        if here.any(|(domain, _)| std::ptr::eq(domain, guest)) {
            Some(('<', StyleId::Strong))
        } else {
            None
        }
    }

    fn legend(&self) -> [StyledLine; LEGEND as usize] {
        let hues = [
            ("guest ", StyleId::Guest),
            ("usr ", StyleId::Usr),
            ("sys ", StyleId::Sys),
            ("irq", StyleId::Irq),
        ];
        let mut first = vec![(
            "column: core   row: hardware thread   height: busy   colour: ".to_owned(),
            StyleId::Dim,
        )];
        first.extend(hues.map(|(name, style)| (name.to_owned(), style)));
        let selected = self.state.domain();
        let selected = selected
            .map(|d| format!("   < vCPU of {}", clean(d.name())))
            .unwrap_or_default();
        [
            first,
            vec![(
                format!("2: shared by that many busy vCPUs{selected}"),
                StyleId::Dim,
            )],
        ]
    }
}

impl Picture for CpuMap<'_> {
    fn height(&self) -> u16 {
        u16::try_from(self.lines.len()).unwrap_or(u16::MAX - LEGEND) + LEGEND
    }

    fn paint(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let area = Rect {
            x: area.x + 1,
            width: area.width.saturating_sub(1),
            ..area
        };
        for (y, line) in (area.y..).zip(&self.lines) {
            put(
                buf,
                area.x,
                y,
                &line.text,
                area.width,
                theme.style(StyleId::Dim),
            );
            for (x, cpu) in line.cpus.iter().map(|(x, cpu)| (area.x + x, cpu)) {
                paint_height(buf, x, y, cpu, theme);
                if let Some((mark, style)) = self.mark(cpu, theme) {
                    put(buf, x + 1, y, &mark.to_string(), 1, theme.style(style));
                }
            }
        }
        for (y, line) in (area.bottom().saturating_sub(LEGEND)..).zip(self.legend()) {
            paint_line(
                buf,
                Rect {
                    y,
                    height: 1,
                    ..area
                },
                &line,
                theme,
            );
        }
    }
}

/// The height shows how busy the CPU is, the colour with what most.
fn paint_height(buf: &mut Buffer, x: u16, y: u16, cpu: &CpuModel, theme: &Theme) {
    let Some(t) = cpu.time else {
        return put(buf, x, y, "-", 1, theme.style(StyleId::Dim));
    };
    let kinds = [
        (t.irq + t.softirq + t.steal, StyleId::Irq),
        (t.sys + t.unsampled, StyleId::Sys),
        (t.usr, StyleId::Usr),
        (t.guest, StyleId::Guest),
    ];
    let most = kinds.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let style = theme.style(match most {
        Some((_, style)) if t.busy() >= 1.0 => style,
        _ => StyleId::Dim,
    });
    put(buf, x, y, theme.level(t.busy() / 100.0), 1, style);
}

#[cfg(test)]
mod tests {
    use crate::ui::tests::{busy, draw, press, screen, text};
    use crate::ui::theme::Theme;
    use testkit::{Fixture, Guest, Host};

    fn map(mut state: crate::ui::state::AppState) -> String {
        press(&mut state, "3");
        let all = text(&draw(&state, &Theme::default()));
        all.lines()
            .skip_while(|l| !l.contains("host CPUs"))
            .take_while(|l| !l.contains(" CPUs `"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn marks_say_where_vcpus_share_a_cpu_and_where_the_selected_guest_is() {
        let map = map(busy(120, 40));
        assert!(
            map.contains("1 CPU shared by busy vCPUs") && map.contains("isolated 4-17,22-35"),
            "{map}"
        );
        assert!(
            map.contains("node 1  55 %") && map.contains("█2") && map.contains("▅<"),
            "{map}"
        );
    }

    #[test]
    fn a_node_with_more_cores_than_a_line_holds_has_more_lines() {
        let map = map(screen(
            &Fixture::new(Host::numa(1, 120, 2)).guest(Guest::new("g", 1)),
            80,
            60,
        ));
        assert!(
            map.contains(" 98  99  100 101 ") && map.contains(" 119 "),
            "{map}"
        );
    }

    #[test]
    fn caches_are_apart_and_a_host_without_cpus_says_so() {
        let mut host = Host::numa(1, 4, 2);
        host.facts
            .topology
            .cpus
            .iter_mut()
            .for_each(|c| c.llc = Some(c.core.unwrap() / 2));
        let shown = map(screen(
            &Fixture::new(host).guest(Guest::new("g", 1)),
            80,
            24,
        ));
        assert!(shown.contains(" 0  1    2  3"), "{shown}");
        let none = map(screen(
            &Fixture::new(Host::default()).guest(Guest::new("g", 1)),
            120,
            24,
        ));
        assert!(none.contains("lscpu -e"), "{none}");
    }
}
