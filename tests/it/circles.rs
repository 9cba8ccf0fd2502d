//! No modules of the program import each other in a circle (`ARCHITECTURE.md`): each can be read
//! with what is below it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The product code of each module below `src`, by its path: `ui::views::page`.
fn modules() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    collect(&root, "", &mut found);
    found
}

fn collect(folder: &Path, path: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the program") {
        let file = entry.expect("an entry").path();
        let stem = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if stem.ends_with("tests") {
            continue;
        }
        let module = if path.is_empty() {
            stem.clone()
        } else {
            format!("{path}::{stem}")
        };
        if file.is_dir() {
            collect(&file, &module, found);
        } else if stem != "lib" && stem != "main" {
            let text = std::fs::read_to_string(&file).expect("a module");
            let code = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default()
                .to_owned();
            found.insert(
                if stem == "mod" {
                    path.to_owned()
                } else {
                    module
                },
                code,
            );
        }
    }
}

/// A name that a module takes: the module that it is looked for in, and the name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    module: String,
    name: String,
    /// Whether the module only passes the name on.
    is_public: bool,
}

/// The paths of a `use`, with its braces resolved.
fn paths(tree: &str, prefix: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default().trim();
        found.push(format!("{prefix}{name}"));
        return;
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[begin..at].trim().is_empty() {
                    paths(&inner[begin..at], &format!("{prefix}{head}"), found);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// What a module imports from others of the program.
fn imports(module: &str, code: &str, all: &BTreeMap<String, String>) -> Vec<Import> {
    let lines: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let mut found = Vec::new();
    for statement in lines.join("\n").split(';') {
        let statement = statement.rsplit("\n\n").next().unwrap_or_default().trim();
        let statement = statement
            .lines()
            .skip_while(|line| !line.contains("use "))
            .collect::<Vec<_>>()
            .join(" ");
        let Some((visibility, tree)) = statement.split_once("use ") else {
            continue;
        };
        let is_public = visibility.trim_end().starts_with("pub");
        if !visibility.trim().is_empty() && !is_public {
            continue;
        }
        let mut names = Vec::new();
        paths(tree, "", &mut names);
        for path in names {
            found.extend(resolve(module, &path, all).map(|(module, name)| Import {
                module,
                name,
                is_public,
            }));
        }
    }
    found
}

/// The module and the name of a path as a module writes it; `None` for a path into another crate.
fn resolve(module: &str, path: &str, all: &BTreeMap<String, String>) -> Option<(String, String)> {
    let mut at: Vec<&str> = module.split("::").collect();
    let mut parts: Vec<&str> = path.split("::").collect();
    match parts[0] {
        "crate" => at.clear(),
        "super" | "self" => {}
        first if all.contains_key(&format!("{module}::{first}")) => {}
        _ => return None,
    }
    while matches!(parts.first(), Some(&("crate" | "super" | "self"))) {
        if parts.remove(0) == "super" {
            at.pop();
        }
    }
    while let Some(next) = parts.first() {
        let deeper = [&at[..], &[*next]].concat();
        if !all.contains_key(&deeper.join("::")) {
            break;
        }
        at = deeper;
        parts.remove(0);
    }
    Some((
        at.join("::"),
        parts.first().copied().unwrap_or_default().to_owned(),
    ))
}

/// The modules that each module needs; names that a module passes on lead to where they come from.
fn needs() -> BTreeMap<String, BTreeSet<String>> {
    let all = modules();
    let imports: BTreeMap<&String, Vec<Import>> = all
        .iter()
        .map(|(module, code)| (module, imports(module, code, &all)))
        .collect();
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, taken) in &imports {
        let needed = needs.entry((*module).clone()).or_default();
        for import in taken.iter().filter(|import| !import.is_public) {
            let mut from = import.module.clone();
            while let Some(passed) = imports.get(&from).and_then(|all| {
                all.iter()
                    .find(|i| i.is_public && i.name == import.name && i.module != from)
            }) {
                from.clone_from(&passed.module);
            }
            if from != **module && all.contains_key(&from) {
                needed.insert(from);
            }
        }
    }
    needs
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let mut needs = needs();
    assert!(
        needs.values().map(BTreeSet::len).sum::<usize>() > 200,
        "the imports were not found: {needs:#?}"
    );
    // What needs nothing that is left, or is needed by nothing, is in no circle.
    loop {
        let needed: BTreeSet<String> = needs.values().flatten().cloned().collect();
        let is_done =
            |module: &str, of: &BTreeSet<String>| of.is_empty() || !needed.contains(module);
        let done: Vec<String> = needs
            .iter()
            .filter(|(m, of)| is_done(m, of))
            .map(|(m, _)| m.clone())
            .collect();
        if done.is_empty() {
            break;
        }
        for module in done {
            needs.remove(&module);
            needs.values_mut().for_each(|of| _ = of.remove(&module));
        }
    }
    assert!(
        needs.is_empty(),
        "a circle is among these modules: {needs:#?}"
    );
}
