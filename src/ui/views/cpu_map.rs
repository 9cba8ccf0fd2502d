//! The map of the host's CPUs by node, cache, core and sibling: how busy each is, with what, and
//! where trouble is.

use super::section::{Picture, Section};
use crate::ui::table::severity_mark;
use crate::ui::{AppState, Canvas, ListRow, SectionId, StyleId, StyledLine, Theme, clean};
use judge::figures::{count, share};
use judge::lint::{Mark, Severity};
use judge::model::{CpuModel, GuestThread, Model, ThreadModel};
use kvm::thread_name::Role;
use ratatui::layout::Rect;
use std::collections::HashMap;

/// A vCPU that uses less CPU time than this, in percent, shares its CPU without harm.
const MIN_BUSY: f64 = 10.0;
/// Width of a node's name before its CPUs.
const LABEL_WIDTH: u16 = 17;
/// Width of a core: the height, the mark of what is there, a blank.
const CORE_WIDTH: u16 = 3;
/// Columns between the cores of two last-level caches.
const CACHE_GAP: u16 = 2;
/// Lines of the legend below the map.
const LEGEND_LINES: usize = 2;

const TITLE: &str = "host CPUs";

/// A guest's thread on a CPU.
pub fn thread_of<'a>(model: &'a Model, t: &GuestThread) -> Option<&'a ThreadModel> {
    model.domains.get(t.domain)?.threads.get(t.thread)
}

/// The vCPUs whose last CPU this is.
fn vcpus<'a>(model: &'a Model, cpu: &'a CpuModel) -> impl Iterator<Item = &'a GuestThread> {
    let here = cpu.guest_threads.iter().filter(|t| t.here);
    here.filter(|t| thread_of(model, t).is_some_and(|thread| thread.role == Role::Vcpu))
}

/// How many busy vCPUs a CPU has.
pub fn busy_vcpus(model: &Model, cpu: &CpuModel) -> usize {
    vcpus(model, cpu).filter(|t| t.cpu >= MIN_BUSY).count()
}

/// The severity of the worst finding about each CPU.
pub fn found(state: &AppState) -> HashMap<u32, Severity> {
    let mut worst = HashMap::new();
    for f in &state.report.findings {
        for mark in &f.marks {
            if let Mark::Pcpu(cpu) = mark {
                let severity = worst.entry(*cpu).or_insert(f.severity);
                *severity = f.severity.max(*severity);
            }
        }
    }
    worst
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
    let cpus = &model.host.cpus;
    if cpus.is_empty() {
        let nothing = "This input does not describe the host's CPUs; the output of lscpu -e beside \
            it does.";
        return Section::text(SectionId::CpuMap, TITLE, Vec::new()).with_note(nothing);
    }
    let map = CpuMap {
        state,
        model,
        found: found(state),
        lines: lines(model, columns),
    };
    let mut section = Section::picture(SectionId::CpuMap, TITLE, map);
    let shared = cpus.iter().filter(|c| busy_vcpus(model, c) > 1).count();
    if shared > 0 {
        section.note = format!("{} shared by busy vCPUs", count(shared, "CPU"));
    }
    if let Some(set) = &model.host.facts.topology.isolated
        && !set.is_empty()
    {
        section.right = format!("isolated {set}");
    }
    section
}

/// A CPU and where it is.
struct Place<'a> {
    cpu: &'a CpuModel,
    /// Its NUMA node.
    node: Option<u32>,
    /// Its socket and its die.
    package: Option<[Option<u32>; 2]>,
    /// The number of its core there.
    core: u32,
    /// Its last-level cache.
    cache: Option<u32>,
}

/// The CPUs by node and core.
fn places(model: &Model) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    for cpu in &model.host.cpus {
        let topo = model.host.facts.topology.cpu(cpu.cpu);
        // Without core ids each set of siblings is a core.
        let number = topo.and_then(|t| t.core.or_else(|| t.siblings.first()));
        places.push(Place {
            cpu,
            node: topo.and_then(|t| t.node),
            package: topo.map(|t| [t.socket, t.die]),
            core: number.unwrap_or(cpu.cpu),
            cache: topo.and_then(|t| t.llc),
        });
    }
    places.sort_by_key(|place| (place.node, place.package, place.core));
    places
}

/// The name of a node, and how busy its CPUs are.
fn node_label(places: &[Place<'_>]) -> String {
    let times = places.iter().filter_map(|place| place.cpu.time);
    let busy: Vec<f64> = times.map(|time| time.busy()).collect();
    let busy = share(busy.iter().sum::<f64>() / busy.len() as f64);
    match places[0].node {
        Some(node) => format!("node {node} {busy:>3} %"),
        None => format!("host {busy:>3} %"),
    }
}

/// For each node a line with the numbers of its cores and a line for each hardware thread, as often
/// as its cores need.
fn lines(model: &Model, columns: u16) -> Vec<Line<'_>> {
    let places = places(model);
    let is_wide = places.iter().any(|place| place.core > 99);
    let step = CORE_WIDTH + u16::from(is_wide);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for node in places.chunk_by(|a, b| a.node == b.node) {
        let mut first = lines.len();
        let mut x = LABEL_WIDTH;
        lines.push(Line {
            text: node_label(node),
            cpus: Vec::new(),
        });
        let mut cache = node[0].cache;
        for core in node.chunk_by(|a, b| (a.package, a.core) == (b.package, b.core)) {
            if core[0].cache != cache {
                x += CACHE_GAP;
                cache = core[0].cache;
            }
            if x + step + 1 > columns {
                first = lines.len();
                x = LABEL_WIDTH;
            }
            let height = lines.len().max(first + 1 + core.len());
            lines.resize_with(height, Line::default);
            let numbers = &mut lines[first].text;
            *numbers = format!("{numbers:<pad$}{:>2}", core[0].core, pad = usize::from(x));
            for (line, place) in lines[first + 1..].iter_mut().zip(core) {
                line.cpus.push((x, place.cpu));
            }
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
            let style = found.map_or(StyleId::Warning, |(_, style)| style);
            return Some((char::from_digit(busy, 10)?, style));
        }
        if let ListRow::Guest(guest) = self.state.list.selected()
            && found.is_none()
            && vcpus(self.model, cpu).any(|t| t.domain == guest)
        {
            return Some(('<', StyleId::Strong));
        }
        found
    }

    fn legend(&self) -> [StyledLine; LEGEND_LINES] {
        let map = "column: core   row: hardware thread   height: busy   colour: ";
        let colours = vec![
            (map.into(), StyleId::Dim),
            ("guest ".into(), StyleId::Guest),
            ("usr ".into(), StyleId::Usr),
            ("sys ".into(), StyleId::Sys),
            ("irq".into(), StyleId::Irq),
        ];
        let mut marks = "2: shared by that many busy vCPUs".to_owned();
        if let Some(guest) = self.state.domain() {
            marks += &format!("   < vCPU of {}", clean(guest.name()));
        }
        [colours, vec![(marks, StyleId::Dim)]]
    }
}

impl Picture for CpuMap<'_> {
    fn height(&self) -> u16 {
        u16::try_from(self.lines.len() + LEGEND_LINES).unwrap_or(u16::MAX)
    }

    fn paint(&self, canvas: &mut Canvas, area: Rect) {
        let area = Rect {
            x: area.x + 1,
            width: area.width.saturating_sub(1),
            ..area
        };
        for (row, line) in area.rows().zip(&self.lines) {
            canvas.put(row.x, row.y, &line.text, row.width, StyleId::Dim);
            for (x, cpu) in &line.cpus {
                let x = row.x + x;
                paint_height(canvas, x, row.y, cpu);
                if let Some((mark, style)) = self.mark(cpu, canvas.theme) {
                    canvas.put(x + 1, row.y, &mark.to_string(), 1, style);
                }
            }
        }
        for (row, line) in area.rows().skip(self.lines.len()).zip(self.legend()) {
            canvas.line(row, &line);
        }
    }
}

/// The height shows how busy the CPU is, the colour with what most.
fn paint_height(canvas: &mut Canvas, x: u16, y: u16, cpu: &CpuModel) {
    let Some(t) = cpu.time else {
        return canvas.put(x, y, "-", 1, StyleId::Dim);
    };
    let kinds = [
        (t.irq + t.softirq + t.steal, StyleId::Irq),
        (t.sys + t.unsampled, StyleId::Sys),
        (t.usr, StyleId::Usr),
        (t.guest, StyleId::Guest),
    ];
    let mut style = StyleId::Dim;
    if t.busy() >= 1.0 {
        let most = kinds.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        style = most.map_or(style, |(_, style)| style);
    }
    let level = canvas.theme.level(t.busy() / 100.0);
    canvas.put(x, y, level, 1, style);
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
