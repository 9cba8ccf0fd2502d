//! Reads `src` with `syn` and resolves every path in it: which file uses which, and what of the outside world each file
//! uses.
//!
//! Code under `cfg(test)` is left out. Method calls name no module, so a dependency that consists of them alone is not
//! seen.

use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// A place in a file of `src`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: String,
    pub line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "src/{}:{}", self.file, self.line)
    }
}

/// A path in one file that names an item of another file.
#[derive(Debug, Clone)]
pub struct Import {
    pub at: Place,
    /// The file that defines the item, relative to `src`.
    pub of: String,
    pub item: String,
}

/// A path that names an item of another crate, for example `std::fs::read`.
#[derive(Debug, Clone)]
pub struct Outside {
    pub at: Place,
    pub path: String,
}

/// A `struct`, `enum`, `union`, `trait` or `type`.
#[derive(Debug, Clone)]
pub struct Type {
    pub at: Place,
    pub name: String,
}

/// The product code of `src`.
#[derive(Debug, Default)]
pub struct CrateMap {
    pub files: BTreeSet<String>,
    pub imports: Vec<Import>,
    pub outside: Vec<Outside>,
    pub types: Vec<Type>,
    /// Names of all items with their modules: `lint::run`.
    pub items: BTreeSet<String>,
    /// First names of all paths: every other crate that the code names is among them.
    pub first_names: BTreeSet<String>,
}

impl CrateMap {
    /// Reads the crate whose root is `src/lib.rs`.
    pub fn read(src: &Path) -> Self {
        let mut tree = Tree::default();
        tree.file(src, Path::new("lib.rs"), None);
        let mut map = Self { files: tree.modules.iter().map(|m| m.file.clone()).collect(), ..Self::default() };
        for (number, module) in tree.modules.iter().enumerate() {
            map.types.extend(module.types.iter().cloned());
            let of = module_name(&module.file);
            map.items.extend(module.items.iter().map(|item| format!("{of}::{item}")));
            for used in &module.paths {
                map.first_names.extend(used.segments.first().cloned());
                let at = Place { file: module.file.clone(), line: used.line };
                match tree.resolve(number, &used.segments, used.is_use, 0) {
                    Some(Target::Item(owner, item)) if tree.modules[owner].file != module.file => {
                        map.imports.push(Import { at, of: tree.modules[owner].file.clone(), item });
                    }
                    Some(Target::Outside(path)) => map.outside.push(Outside { at, path }),
                    _ => {}
                }
            }
        }
        map
    }
}

/// The module that a file is: `lint` for `lint/mod.rs`, `lint::rules` for `lint/rules.rs`.
pub fn module_name(file: &str) -> String {
    file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::")
}

/// A path as the source has it.
struct UsedPath {
    segments: Vec<String>,
    line: usize,
    is_use: bool,
}

#[derive(Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    types: Vec<Type>,
    /// Names that `use` brings into the module, with the path each stands for.
    imported: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: Vec<UsedPath>,
}

enum Target {
    Item(usize, String),
    Module(usize),
    Outside(String),
}

#[derive(Default)]
struct Tree {
    modules: Vec<Module>,
}

impl Tree {
    /// Reads a file as a module, with all modules below it.
    fn file(&mut self, src: &Path, path: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(src.join(path)).unwrap_or_else(|e| panic!("src/{}: {e}", path.display()));
        let ast = syn::parse_file(&text).unwrap_or_else(|e| panic!("src/{}: {e}", path.display()));
        // The modules of `a/mod.rs` and `lib.rs` lie in the file's own folder, those of `a.rs` in the folder `a`.
        let stem = path.file_stem().unwrap_or_default();
        let folder = match path.parent() {
            Some(p) if stem == "mod" || stem == "lib" => p.to_path_buf(),
            _ => path.with_extension(""),
        };
        self.module(src, path, &folder, parent, &ast.items)
    }

    fn module(&mut self, src: &Path, path: &Path, folder: &Path, parent: Option<usize>, items: &[syn::Item]) -> usize {
        let number = self.modules.len();
        let file = path.to_string_lossy().into_owned();
        self.modules.push(Module { file: file.clone(), parent, ..Module::default() });
        let mut reader = Reader { module: Module { file, parent, ..Module::default() } };
        items.iter().for_each(|item| reader.visit_item(item));
        for item in items {
            let syn::Item::Mod(m) = item else { continue };
            if is_test(&m.attrs) {
                continue;
            }
            let name = m.ident.to_string();
            let child = match &m.content {
                Some((_, inner)) => self.module(src, path, &folder.join(&name), Some(number), inner),
                None => self.file(src, &child_file(src, folder, &name), Some(number)),
            };
            reader.module.children.insert(name, child);
        }
        self.modules[number] = reader.module;
        number
    }

    fn resolve(&self, from: usize, segments: &[String], is_use: bool, depth: usize) -> Option<Target> {
        // Imports that go through one another end here instead of never.
        if depth > 20 {
            return None;
        }
        let (first, rest) = segments.split_first()?;
        let start = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            "Self" => return None,
            name => match self.lookup(from, name, depth) {
                Some(found) => found,
                None if is_use || OUTSIDE.contains(&name) => return Some(Target::Outside(segments.join("::"))),
                None => return None,
            },
        };
        self.descend(start, rest, depth)
    }

    fn descend(&self, start: Target, rest: &[String], depth: usize) -> Option<Target> {
        let Some((first, rest)) = rest.split_first() else { return Some(start) };
        match start {
            Target::Module(m) if first == "super" => self.descend(Target::Module(self.modules[m].parent?), rest, depth),
            Target::Module(m) if first == "self" => self.descend(Target::Module(m), rest, depth),
            Target::Module(m) => self.descend(self.lookup(m, first, depth)?, rest, depth),
            Target::Item(..) => Some(start),
            Target::Outside(path) => {
                let path = [path].into_iter().chain([first.clone()]).chain(rest.iter().cloned());
                Some(Target::Outside(path.collect::<Vec<_>>().join("::")))
            }
        }
    }

    /// What a name means in a module: one of its own, one that it imports, one that a glob brings.
    fn lookup(&self, module: usize, name: &str, depth: usize) -> Option<Target> {
        let m = &self.modules[module];
        if let Some(&child) = m.children.get(name) {
            return Some(Target::Module(child));
        }
        if m.items.contains(name) {
            return Some(Target::Item(module, name.to_string()));
        }
        if let Some(path) = m.imported.get(name) {
            // `use tempfile;` and `use serde::Serialize as serde` would stand for themselves.
            let of_itself = path.first().is_some_and(|first| first == name);
            return if of_itself && !m.children.contains_key(name) {
                Some(Target::Outside(path.join("::")))
            } else {
                self.resolve(module, path, true, depth + 1)
            };
        }
        m.globs.iter().find_map(|glob| match self.resolve(module, glob, true, depth + 1)? {
            Target::Module(of) if of != module => self.lookup(of, name, depth + 1),
            _ => None,
        })
    }
}

/// Crates whose items are named by full paths in the midst of code.
const OUTSIDE: &[&str] = &["std", "core", "alloc", "rustix", "libc", "procfs", "jiff", "serde_json", "crossterm"];

fn child_file(src: &Path, folder: &Path, name: &str) -> PathBuf {
    let beside = folder.join(format!("{name}.rs"));
    if src.join(&beside).is_file() { beside } else { folder.join(name).join("mod.rs") }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || (a.path().is_ident("cfg")
                && a.meta.require_list().is_ok_and(|list| {
                    let condition = list.tokens.to_string();
                    condition == "test" || condition.starts_with("all (test")
                }))
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(i) => &i.attrs,
        syn::Item::Enum(i) => &i.attrs,
        syn::Item::Fn(i) => &i.attrs,
        syn::Item::Impl(i) => &i.attrs,
        syn::Item::Macro(i) => &i.attrs,
        syn::Item::Mod(i) => &i.attrs,
        syn::Item::Static(i) => &i.attrs,
        syn::Item::Struct(i) => &i.attrs,
        syn::Item::Trait(i) => &i.attrs,
        syn::Item::Type(i) => &i.attrs,
        syn::Item::Union(i) => &i.attrs,
        syn::Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// Collects the names and paths of one module.
struct Reader {
    module: Module,
}

impl Reader {
    fn path(&mut self, segments: Vec<String>, span: Span) {
        self.module.paths.push(UsedPath { segments, line: span.start().line, is_use: false });
    }

    fn name(&mut self, ident: &syn::Ident) {
        self.module.items.insert(ident.to_string());
    }

    fn named_type(&mut self, ident: &syn::Ident) {
        let at = Place { file: self.module.file.clone(), line: ident.span().start().line };
        self.module.types.push(Type { at, name: ident.to_string() });
        self.name(ident);
    }

    fn use_tree(&mut self, tree: &syn::UseTree, prefix: &[String], re_export: bool) {
        let join = |name: &syn::Ident| prefix.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        let (name, path, span) = match tree {
            syn::UseTree::Path(p) => return self.use_tree(&p.tree, &join(&p.ident), re_export),
            syn::UseTree::Group(g) => return g.items.iter().for_each(|t| self.use_tree(t, prefix, re_export)),
            syn::UseTree::Glob(_) => return self.module.globs.push(prefix.to_vec()),
            syn::UseTree::Name(n) if n.ident == "self" => {
                let Some(last) = prefix.last() else { return };
                (last.clone(), prefix.to_vec(), n.ident.span())
            }
            syn::UseTree::Name(n) => (n.ident.to_string(), join(&n.ident), n.ident.span()),
            syn::UseTree::Rename(r) => (r.rename.to_string(), join(&r.ident), r.ident.span()),
        };
        // A re-export shows an item at a second place, and needs nothing of it.
        if !re_export {
            self.module.paths.push(UsedPath { segments: path.clone(), line: span.start().line, is_use: true });
        }
        self.module.imported.insert(name, path);
    }

    /// Paths within a macro's arguments, which `syn` leaves as tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<(String, Span)> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 => path.push((ident.to_string(), ident.span())),
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.token_path(std::mem::take(&mut path));
                    match other {
                        TokenTree::Ident(ident) => path.push((ident.to_string(), ident.span())),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.token_path(path);
    }

    fn token_path(&mut self, path: Vec<(String, Span)>) {
        let Some((first, span)) = path.first().cloned() else { return };
        // A single lower-case word is a variable far more often than an item.
        if path.len() > 1 || first.starts_with(char::is_uppercase) {
            self.path(path.into_iter().map(|(name, _)| name).collect(), span);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            return;
        }
        match item {
            // Modules within the file are read as modules of their own.
            syn::Item::Mod(_) => return,
            syn::Item::Const(i) => self.name(&i.ident),
            syn::Item::Static(i) => self.name(&i.ident),
            syn::Item::Fn(i) => self.name(&i.sig.ident),
            syn::Item::Struct(i) => self.named_type(&i.ident),
            syn::Item::Enum(i) => self.named_type(&i.ident),
            syn::Item::Union(i) => self.named_type(&i.ident),
            syn::Item::Trait(i) => self.named_type(&i.ident),
            syn::Item::Type(i) => self.named_type(&i.ident),
            syn::Item::Macro(i) => i.ident.iter().for_each(|ident| self.name(ident)),
            _ => {}
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, &[], !matches!(item.vis, syn::Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.path(segments, first.ident.span());
        }
        syn::visit::visit_path(self, path);
    }

    /// Derives and other attributes name crates, too: `#[derive(thiserror::Error)]`.
    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.visit_path(&list.path);
        self.tokens(list.tokens.clone());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }
}
