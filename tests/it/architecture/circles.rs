//! Circles in a graph of files (Tarjan's strongly connected components).

use super::crate_map::Import;
use std::collections::{BTreeMap, BTreeSet};

/// Which file imports which.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Files that all need one another.
pub struct Circle {
    pub files: BTreeSet<String>,
    /// The imports that hold it together, a line each.
    imports: Vec<String>,
}

impl std::fmt::Display for Circle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files: Vec<&str> = self.files.iter().map(String::as_str).collect();
        write!(f, "{}:\n  {}", files.join(", "), self.imports.join("\n  "))
    }
}

/// All circles that these imports close.
pub fn circles(imports: &[Import]) -> Vec<Circle> {
    let mut graph = Graph::new();
    for i in imports {
        graph.entry(i.at.file.clone()).or_default().insert(i.of.clone());
        graph.entry(i.of.clone()).or_default();
    }
    let mut search = Search::new(&graph);
    for file in graph.keys() {
        search.visit(file);
    }
    search.groups.into_iter().map(|files| Circle { imports: within(&files, imports), files }).collect()
}

fn within(files: &BTreeSet<String>, imports: &[Import]) -> Vec<String> {
    let mut items: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for i in imports.iter().filter(|i| files.contains(&i.at.file) && files.contains(&i.of)) {
        items.entry((&i.at.file, &i.of)).or_default().insert(&i.item);
    }
    let line = |((from, to), items): ((&str, &str), BTreeSet<&str>)| {
        format!("{from} uses {} of {to}", items.into_iter().collect::<Vec<_>>().join(", "))
    };
    items.into_iter().map(line).collect()
}

struct Search<'a> {
    graph: &'a Graph,
    /// Number of a file in order of discovery, and the lowest number that it reaches.
    seen: BTreeMap<&'a str, (usize, usize)>,
    stack: Vec<&'a str>,
    groups: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self { graph, seen: BTreeMap::new(), stack: Vec::new(), groups: Vec::new() }
    }

    /// The lowest number on the stack that the file reaches.
    fn visit(&mut self, file: &'a str) -> Option<usize> {
        if let Some(&(_, low)) = self.seen.get(file) {
            return self.stack.contains(&file).then_some(low);
        }
        let number = self.seen.len();
        self.seen.insert(file, (number, number));
        self.stack.push(file);
        let mut low = number;
        for next in self.graph.get(file).into_iter().flatten() {
            low = low.min(self.visit(next).unwrap_or(low));
        }
        self.seen.insert(file, (number, low));
        if low == number {
            let from = self.stack.iter().position(|f| *f == file).unwrap_or(0);
            let group: BTreeSet<String> = self.stack.drain(from..).map(String::from).collect();
            if group.len() > 1 {
                self.groups.push(group);
            }
        }
        Some(low).filter(|_| self.stack.contains(&file))
    }
}
